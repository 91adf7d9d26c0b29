"""DefaultPreemption: on which node who has to leave for a pod that fits nowhere.

Candidates are the nodes that rejected the pod with code Unschedulable. Upstream looks at some of
them only (``minCandidateNodes…``); here pods that resources alone keep out are tried on all nodes
at once, see :mod:`stretto.placement.victim_table`, and others on as many as upstream would look at.
The choice is upstream's pickOneNodeForPreemption; what it leaves to chance is decided by ``tie``.

Messages are those of the condition, without the prefix ``preemption:`` of the plugin.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Mapping

import msgspec
import numpy as np

from stretto.model.shape import Shape
from stretto.placement.compiled import CompiledShape
from stretto.placement.evaluation import (
    claimed_rejections,
    nominated_row,
    prefilter_status,
    steps,
)
from stretto.placement.framework import Bools, Code, Status
from stretto.placement.lots import Lots, pods_of
from stretto.placement.nominated import status_from
from stretto.placement.postfilter import PreemptionArgs
from stretto.placement.quota_filter import (
    ROOM_COMES,
    in_queue,
    queue_problem,
    refused_by_quota,
    with_quota,
)
from stretto.placement.victim_table import NO_VICTIMS, POSSIBLE, TOO_FULL, VictimTable, only_fit
from stretto.placement.victims import NOBODY, Ground, Victims, select_victims, violations
from stretto.snapshot.budgets import BUDGET, BudgetRow, budgets
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.pod_records import LEAVING, PREEMPTED

NAME = "DefaultPreemption"
NEVER = "not eligible due to preemptionPolicy=Never."
TERMINATING = "not eligible due to a terminating pod on the nominated node."
NO_CANDIDATE = "no candidate node for preemption"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
_TABLES = 16

Tie = Callable[[int], int] | Callable[[int], str]
"""Sorts rows that are equal under upstream's criteria; the smallest is taken."""
Refused = Mapping[int, bool]
"""Row that extenders refuse → whether preemption cannot help there."""


class Decision(msgspec.Struct, frozen=True):
    """What preemption can do for a pod."""

    message: str
    nominate: str | None = None
    """None: the nomination stays as it is; '': it is cleared; otherwise the node."""
    victims: Victims | None = None


class DryRun(msgspec.Struct):
    """Every potential node by row: victims where preemption works, a status where it does not."""

    works: dict[int, Victims]
    fails: dict[int, Status]


class _Run(msgspec.Struct):
    """Results of a shape by row, as of some stamps."""

    compiled: CompiledShape
    """Keeps its id from being given out anew."""
    stamps: tuple[tuple[int, int], int, int]
    known: dict[int, Victims | Status]


class Preemption:
    """Preemption on one snapshot. Keeps the victim tables of the last few shapes."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.lots = Lots(snapshot)
        self._budgets: list[BudgetRow] = []
        self._budget_version = -1
        self._tables: OrderedDict[int, tuple[CompiledShape, VictimTable]] = OrderedDict()
        self._runs: OrderedDict[int, _Run] = OrderedDict()

    def budgets(self) -> list[BudgetRow]:
        """The budgets as the log has them now."""
        version = self._snapshot.kind_version(BUDGET)
        if version != self._budget_version:
            self._budget_version = version
            self._budgets = budgets(self._snapshot.objects(BUDGET))
        return self._budgets

    def ineligible(self, compiled: CompiledShape) -> str:
        """Why the pod may not preempt now, '' if it may (upstream PodEligibleToPreemptOthers)."""
        shape, snapshot = compiled.shape, self._snapshot
        if shape.preemption_policy == "Never":
            return NEVER
        if problem := queue_problem(shape, snapshot):
            return f"not eligible: {problem}"
        if refused_by_quota(shape, snapshot) and snapshot.quota.fits_without_leaving(shape):
            return ROOM_COMES
        row = snapshot.row_of_name(shape.nominated_node) if shape.nominated_node else None
        if row is None or not self._potential(compiled)[row]:
            return ""
        if self.terminating(row, unit=shape):
            return TERMINATING
        return ""

    def terminating(self, row: int, *, unit: Shape) -> bool:
        """Whether a pod is on its way out of a row because of preemption that might have been for a
        unit."""
        self.lots.refresh()
        standing = self.lots.standing(unit)
        return any(
            record.flags & LEAVING
            and record.flags & PREEMPTED
            and self.lots.may_leave(record, unit=unit, standing=standing)
            for record in self._snapshot.records.of(row)
        )

    def decide(
        self,
        compiled: CompiledShape,
        *,
        tie: Tie,
        seed: int,
        args: PreemptionArgs,
        refused: Refused | None = None,
    ) -> Decision:
        """The best node and its victims, or why there is none. ``refused``: where the shape would
        fit but for extenders; nobody leaves there."""
        reason = self.ineligible(compiled)
        if reason:
            return Decision(reason)
        fit = only_fit(compiled)
        strict = args.strict_budgets and self.budgets()
        if refused or strict or in_queue(compiled.shape, self._snapshot):
            fit = None  # the table is for shapes that fit nowhere, and knows upstream's rule only
        if fit is not None and prefilter_status(compiled) is None and compiled.named is None:
            return self._decide_by_table(self._table(compiled), compiled, tie=tie)
        run = self.dry_run(compiled, seed=seed, enough=args.candidates)
        if not run.works:
            counts = Counter(reason for status in run.fails.values() for reason in status.reasons)
            tried = sum(not for_good for for_good in refused.values()) if refused else 0
            if tried:
                counts[NOBODY.message] += tried
            return self._nothing(counts, looked_at=len(run.fails) + tried)
        first = min(victims.rank for victims in run.works.values())
        rows = [row for row, victims in run.works.items() if victims.rank == first]
        return self._found(run.works[min(rows, key=tie)])

    def victims_on(self, compiled: CompiledShape, row: int) -> Victims | Status:
        """Who would have to leave one node."""
        if queue_problem(compiled.shape, self._snapshot):
            return NOBODY
        ground = self.ground(strict=compiled.profile.preemption.strict_budgets)
        filters = with_quota(compiled.filters, compiled.shape, self._snapshot)
        return select_victims(filters, compiled.shape, row, ground=ground)

    def ground(self, *, strict: bool = False) -> Ground:
        """What questions about victims are asked on now."""
        return Ground(self._snapshot, self.lots, self.budgets(), strict)

    def among(
        self, compiled: CompiledShape, chosen: Mapping[int, Collection[str]], *, tie: Tie
    ) -> Decision:
        """The best of the candidates that extenders left (row → uids of the victims they want)."""
        listed = (self._chosen(compiled, row, uids) for row, uids in chosen.items())
        found = [victims for victims in listed if victims is not None]
        if not found:
            return Decision(NO_CANDIDATE)
        return self._found(min(found, key=lambda victims: (victims.rank, tie(victims.row))))

    def _chosen(self, compiled: CompiledShape, row: int, uids: Collection[str]) -> Victims | None:
        """These pods as victims; None if they are not all there, not all lower, or a part of a
        group that goes as a whole."""
        self.lots.refresh()
        lots = self.lots.on((row,), unit=compiled.shape)
        lots = [lot for lot in lots if lot.uids <= set(uids)]
        if sum(len(lot.pods) for lot in lots) < len(uids):
            return None
        lots.sort(key=lambda lot: lot.importance)
        violating = violations(pods_of(lots), self.budgets())
        return Victims(row, tuple(lots), frozenset(violating))

    def dry_run(
        self,
        compiled: CompiledShape,
        *,
        seed: int = 0,
        enough: Callable[[int], int] = lambda potential: potential,
    ) -> DryRun:
        """Try the potential nodes one by one, from a place that the seed decides, until there are
        ``enough`` candidates and one of them violates no budget."""
        rows = np.flatnonzero(self._potential(compiled)).tolist()
        found, known = DryRun({}, {}), self._known(compiled)
        wanted = enough(len(rows))
        clean = False
        for i in range(len(rows)):
            row = rows[(i + seed) % len(rows)]
            result = known.get(row)
            if result is None:
                result = known[row] = self.victims_on(compiled, row)
            if isinstance(result, Status):
                found.fails[row] = result
                continue
            found.works[row] = result
            clean = clean or not result.violating
            if clean and len(found.works) >= wanted:
                break
        return found

    def _known(self, compiled: CompiledShape) -> dict[int, Victims | Status]:
        """Results of the last dry run for this shape that still hold."""
        snapshot = self._snapshot
        self.lots.refresh()
        if not compiled.local or self.lots.whole():
            return {}  # what happens on one row may count on others
        stamps = (
            (snapshot.kind_version(BUDGET), self.lots.version + snapshot.quota.version),
            snapshot.changes.stamp,
            snapshot.record_changes.stamp,
        )
        kept = self._runs.pop(id(compiled), None)
        known: dict[int, Victims | Status] = {}
        if kept is not None and kept.stamps[0] == stamps[0]:
            moved = snapshot.changes.since(kept.stamps[1])
            touched = snapshot.record_changes.since(kept.stamps[2])
            if moved is not None and touched is not None:
                known = kept.known
                for row in (*moved, *touched):
                    known.pop(row, None)
        self._runs[id(compiled)] = _Run(compiled, stamps, known)
        if len(self._runs) > _TABLES:
            self._runs.popitem(last=False)
        return known

    def _potential(self, compiled: CompiledShape) -> Bools:
        """bool[rows]: nodes whose rejection preemption may lift."""
        snapshot = self._snapshot
        live = snapshot.live[: snapshot.rows] & ~snapshot.frozen[: snapshot.rows]
        rejected = prefilter_status(compiled)
        if rejected is not None:
            return live & (rejected.code is Code.UNSCHEDULABLE)
        found = np.zeros(snapshot.rows, dtype=np.bool_)
        nominated = nominated_row(compiled, snapshot)
        claimed = claimed_rejections(compiled, snapshot, nominated=nominated)
        for row, (plugin, rejections) in claimed.items():
            found[row] = status_from(plugin, rejections).code is Code.UNSCHEDULABLE
        without = np.zeros(snapshot.rows, dtype=np.bool_)
        without[list(claimed)] = True
        alive = live
        for _, rejections, alive in steps(compiled, snapshot, without=without, nominated=nominated):
            here = np.zeros(snapshot.rows, dtype=np.bool_)
            hard = np.zeros(snapshot.rows, dtype=np.bool_)
            for rejection in rejections:
                here |= rejection.rows & alive
                hard |= rejection.rows & (rejection.unresolvable | np.bool_(rejection.error))
            found |= here & ~hard
        if refused_by_quota(compiled.shape, snapshot):
            found |= alive  # what keeps it out of these is quota alone
        return found

    # ------------------------------------------------------------------------------------ by table
    def _table(self, compiled: CompiledShape) -> VictimTable:
        kept = self._tables.pop(id(compiled), None)
        if kept is None:
            fit = only_fit(compiled)
            assert fit is not None
            kept = compiled, VictimTable(compiled, fit, self._snapshot, self.lots)
        self._tables[id(compiled)] = kept
        if len(self._tables) > _TABLES:
            self._tables.popitem(last=False)
        kept[1].refresh(self.budgets())
        return kept[1]

    def _decide_by_table(
        self, table: VictimTable, compiled: CompiledShape, *, tie: Tie
    ) -> Decision:
        rows = np.flatnonzero(table.state == POSSIBLE)
        if not len(rows):
            return self._nothing(*_failures(table))
        for key in table.keys:
            values = key[rows]
            rows = rows[values == values.min()]
            if len(rows) == 1:
                break
        row: int = min(rows.tolist(), key=tie)
        victims = self.victims_on(compiled, row)
        assert isinstance(victims, Victims), f"the table allows {self._snapshot.name[row]}"
        assert victims.rank == tuple(table.keys[:, row].tolist()), "the table counts otherwise"
        return self._found(victims)

    # ------------------------------------------------------------------------------------ messages
    def _found(self, victims: Victims) -> Decision:
        name = self._snapshot.name[victims.row]
        return Decision(
            f"found a potential placement for pod on node {name}, "
            f"preempting {len(victims.pods)} victims",
            nominate=name,
            victims=victims,
        )

    def _nothing(self, counts: Counter[str], looked_at: int) -> Decision:
        nodes = self._snapshot.node_count
        if nodes > looked_at:
            counts[NOT_HELPFUL] += nodes - looked_at
        items = sorted(f"{count} {reason}" for reason, count in counts.items())
        return Decision(f"0/{nodes} nodes are available: {', '.join(items)}.", nominate="")


def _failures(table: VictimTable) -> tuple[Counter[str], int]:
    """(reason → nodes, nodes tried) of a table in which nothing works."""
    counts: Counter[str] = Counter()
    none = int(np.count_nonzero(table.state == NO_VICTIMS))
    if none:
        counts[NOBODY.message] = none
    full = table.lacking[table.state == TOO_FULL]
    for i, reason in enumerate(table.reasons):
        short = int(np.count_nonzero(full & (1 << i)))
        if short:
            counts[reason] += short
    return counts, none + len(full)
