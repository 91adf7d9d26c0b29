"""Victims on all nodes at once, for pods that only resources keep out.

Naive form: :func:`select_victims` on every node, which asks the filters once for each pod that
might leave. Where NodeResourcesFit is the only filter that pods can change, the same answers follow
from sums: the pods of lower priority of all nodes stand in one table, sorted by node and in the
order in which they come back, and step k lets the k-th pod of every node come back, if the room
lasts. What is kept per node is only what the choice between nodes compares; the victims of the
chosen node are named by the exact form (and must be as many).

Rows with members of a group that goes as a whole are asked in the exact form, because what they
cost depends on other rows. The table of a shape is kept while its cluster changes little: only
changed rows are done again.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from stretto.placement.compiled import CompiledShape
from stretto.placement.framework import Bools, Int64s, Status
from stretto.placement.lots import NEVER_STARTED, Lots
from stretto.placement.nominated import claims_on
from stretto.placement.plugins.node_resources_fit import FitFilter
from stretto.placement.victims import Ground, select_victims
from stretto.snapshot.budgets import BUDGET, BudgetRow
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.pod_records import uid_key
from stretto.snapshot.resources import PODS

IMPOSSIBLE, POSSIBLE, TOO_FULL, NO_VICTIMS = 0, 1, 2, 3
"""States of a row: preemption is not helpful; it works; not even without the pods of less priority
does the pod fit; there are no such pods."""
_PRIORITY_SHIFT = 1 << 31
KEYS = 6
_SLOTS = "Too many pods"


def only_fit(compiled: CompiledShape) -> FitFilter | None:
    """The shape's fit filter, if that is all that pods change and the last filter asked."""
    if compiled.cross.filters:
        return None
    alone = compiled.local and len(compiled.dynamic) == 1
    if alone and compiled.filters[-1] is compiled.dynamic[0]:
        found = compiled.dynamic[0]
        return found if isinstance(found, FitFilter) else None
    return None


class VictimTable:
    """See the module docstring. Arrays have an entry a row."""

    def __init__(
        self, compiled: CompiledShape, fit: FitFilter, snapshot: Snapshot, lots: Lots
    ) -> None:
        self._compiled = compiled
        self._lots = lots
        self._whole: dict[str, dict[int, int]] = {}
        """Groups that went as a whole when they were looked at, with their members per row."""
        self._fit = fit
        self._snapshot = snapshot
        self._stamps = (-1, -1, -1, -1, -1)
        self.state: Int64s = np.zeros(0, dtype=np.int64)
        self.lacking: Int64s = np.zeros(0, dtype=np.int64)
        """TOO_FULL: bit i is set where :attr:`reasons` [i] holds."""
        self.keys: Int64s = np.zeros((KEYS, 0), dtype=np.int64)
        """POSSIBLE: :attr:`Victims.rank`, smaller is better: budget violations, highest priority,
        members of groups, sum of priorities, victims, and minus the first start of the highest."""
        self.reasons: list[str] = []

    @property
    def nbytes(self) -> int:
        """Bytes in arrays."""
        return self.state.nbytes + self.lacking.nbytes + self.keys.nbytes

    def refresh(self, budgets: Sequence[BudgetRow]) -> None:
        """Bring the table up to date; O(rows changed) where that is known."""
        snapshot, static, lots = self._snapshot, self._compiled.static, self._lots
        static.refresh()
        lots.refresh()
        stamps = (
            static.version, snapshot.kind_version(BUDGET), lots.version, snapshot.changes.stamp,
            snapshot.record_changes.stamp,
        )  # fmt: skip
        if stamps == self._stamps:
            return
        changed = None
        if stamps[:3] == self._stamps[:3] and len(self.state) == snapshot.rows:
            moved = snapshot.changes.since(self._stamps[3])
            touched = snapshot.record_changes.since(self._stamps[4])
            if moved is not None and touched is not None:
                changed = sorted(self._with_groups({*moved, *touched}))
        self._stamps = stamps
        if changed is None:
            self.state = np.zeros(snapshot.rows, dtype=np.int64)
            self.lacking = np.zeros(snapshot.rows, dtype=np.int64)
            self.keys = np.zeros((KEYS, snapshot.rows), dtype=np.int64)
            changed = list(range(snapshot.rows))
            self._with_groups(set())
        if changed:
            self._compute(np.array(changed, dtype=np.int64), budgets)

    def _with_groups(self, changed: set[int]) -> set[int]:
        """The changed rows, and those of groups that go as a whole and have changed somewhere."""
        now = {key: dict(there) for key, there in self._lots.whole().items()}
        for key in now.keys() | self._whole.keys():
            there, before = now.get(key, {}), self._whole.get(key, {})
            rows = there.keys() | before.keys()
            if there != before or not changed.isdisjoint(rows):
                changed |= {row for row in rows if row < self._snapshot.rows}
        self._whole = now
        return changed

    def _compute(self, rows: Int64s, budgets: Sequence[BudgetRow]) -> None:
        self.state[rows] = IMPOSSIBLE
        wants = self._fit.wants()
        if wants is None:
            return
        columns = [(self._snapshot.resources.column(PODS), 1), *wants]
        self.reasons = [_SLOTS, *(f"Insufficient {column.name}" for column, _ in wants)]
        amounts = np.array([amount for _, amount in columns], dtype=np.int64)
        alloc = np.stack([column.alloc[rows] for column, _ in columns])
        used = np.stack([column.used[rows] for column, _ in columns])
        free = alloc - used - self._claimed(rows, [column.name for column, _ in columns])
        helpful = self._compiled.static.mask[rows]
        helpful = helpful & (alloc[1:] >= amounts[1:, None]).all(axis=0)
        helpful = helpful & (free < amounts[:, None]).any(axis=0)
        if self._compiled.shape.priority <= self._lots.lowest_priority():
            self.state[rows[helpful]] = NO_VICTIMS
        elif helpful.any():
            names = [column.name for column, _ in columns]
            self._dry_run(rows[helpful], free[:, helpful], amounts, names, budgets)
            whole = {row for there in self._whole.values() for row in there}
            for row in whole.intersection(rows[helpful].tolist()):
                self._ask(row, budgets)

    def _ask(self, row: int, budgets: Sequence[BudgetRow]) -> None:
        """The exact form, on one row."""
        ground = Ground(self._snapshot, self._lots, budgets)
        found = select_victims(self._compiled.filters, self._compiled.shape, row, ground=ground)
        if not isinstance(found, Status):
            self.state[row] = POSSIBLE
            self.keys[:, row] = found.rank
            return
        bits = [1 << i for i, reason in enumerate(self.reasons) if reason in found.reasons]
        self.state[row] = TOO_FULL if bits else NO_VICTIMS
        self.lacking[row] = sum(bits)

    def _claimed(self, rows: Int64s, names: list[str]) -> Int64s:
        """What nominated pods hold of each resource on each row."""
        claimed = np.zeros((len(names), len(rows)), dtype=np.int64)
        snapshot = self._snapshot
        if not snapshot.nominations:
            return claimed
        for at, row in enumerate(rows.tolist()):
            for claim in claims_on(self._compiled.shape, row, snapshot=snapshot):
                asked = {PODS: 1, **dict(claim.requests)}
                claimed[:, at] += [asked.get(name, 0) for name in names]
        return claimed

    def _dry_run(
        self,
        rows: Int64s,
        free: Int64s,
        amounts: Int64s,
        names: list[str],
        budgets: Sequence[BudgetRow],
    ) -> None:
        """Remove all, then let come back, on rows that may be helped; ``free`` is [resource,
        row]."""
        pods = _Pods(
            self._snapshot, self._lots, rows, priority=self._compiled.shape.priority, names=names
        )
        counts = np.bincount(pods.at, minlength=len(rows))
        for i in range(len(names)):
            free[i] += np.bincount(pods.at, weights=pods.amounts[i], minlength=len(rows)).astype(
                np.int64
            )
        short = free < amounts[:, None]
        full = short.any(axis=0)
        state = np.where(counts == 0, NO_VICTIMS, np.where(full, TOO_FULL, POSSIBLE))
        self.state[rows] = state
        bits = np.int64(1) << np.arange(len(names), dtype=np.int64)
        self.lacking[rows] = (short * bits[:, None]).sum(axis=0)
        violating = pods.violating(budgets)
        victims = _come_back(pods, violating, free, amounts, possible=state == POSSIBLE)
        self.keys[:, rows] = pods.keys(victims, violating)


def _come_back(
    pods: _Pods, violating: Bools, free: Int64s, amounts: Int64s, *, possible: Bools
) -> Bools:
    """bool[pods]: who cannot come back. ``free`` [resource, row] is used up on the way."""
    order = np.lexsort((~violating, pods.at)) if violating.any() else np.arange(len(pods.at))
    order = order[possible[pods.at[order]]]
    at = pods.at[order]
    first = np.flatnonzero(np.diff(at, prepend=-1))
    lengths = np.diff(np.append(first, len(at)))
    place = np.arange(len(at)) - np.repeat(first, lengths)
    by_place = np.argsort(place, kind="stable")
    bounds = np.append(0, np.cumsum(np.bincount(place)))
    victims = np.zeros(len(pods.at), dtype=np.bool_)
    for start, end in itertools.pairwise(bounds.tolist()):
        who = order[by_place[start:end]]
        where = pods.at[who]
        left = free[:, where] - pods.amounts[:, who]
        fits = (left >= amounts[:, None]).all(axis=0)
        free[:, where[fits]] = left[:, fits]
        victims[who[~fits]] = True
    return victims


class _Pods:
    """The pods of lower priority on some rows, by row and importance."""

    def __init__(
        self, snapshot: Snapshot, lots: Lots, rows: Int64s, *, priority: int, names: list[str]
    ) -> None:
        self._snapshot = snapshot
        self._rows = len(rows)
        on, records = snapshot.records.columns(rows.tolist())
        shapes, which = np.unique(records["shape"], return_inverse=True)
        self._shapes: list[int] = shapes.tolist()
        priorities = np.array([lots.priority_of(n) for n in self._shapes], dtype=np.int64)
        grouped = np.array([lots.grouped(n) for n in self._shapes], dtype=np.bool_)
        low = np.flatnonzero(priorities[which] < priority)
        at = np.searchsorted(rows, on[low])
        start = records["start"][low].astype(np.int64)
        start[start == 0] = NEVER_STARTED
        self._uids = records["uid"][low]
        uid = self._uids.view(">u8").reshape(-1, 2)
        alone, order_by = ~grouped[which[low]], -priorities[which[low]]
        order = np.lexsort((uid[:, 1], uid[:, 0], start, alone, order_by, at))
        self.at: Int64s = at[order]
        """int64[pods]: index into the rows."""
        self._uids = self._uids[order]
        self._which = which[low][order]
        self._start = start[order]
        self._priority = priorities[self._which]
        self._grouped = grouped[self._which]
        wanted = sorted(set(self._which.tolist()))
        table = np.zeros((len(names), max(len(self._shapes), 1)), dtype=np.int64)
        for index in wanted:
            taken = snapshot.amounts_of(self._shapes[index])
            table[:, index] = [taken.get(name, 0) for name in names]
        self.amounts: Int64s = table[:, self._which]
        """int64[resources, pods]."""

    def violating(self, budgets: Sequence[BudgetRow]) -> Bools:
        """bool[pods]: whose leaving would violate a budget if all of a row left in this order."""
        found = np.zeros(len(self.at), dtype=np.bool_)
        for budget in budgets:
            covers = {
                index
                for index in set(self._which.tolist())
                if budget.covers(self._snapshot.shape(self._shapes[index]))
            }
            if not covers:
                continue
            covered = np.isin(self._which, list(covers)) & ~found
            for uid in budget.disrupted:
                covered &= self._uids != np.void(uid_key(uid))
            before: Int64s = np.cumsum(covered) - covered
            first = np.flatnonzero(np.diff(self.at, prepend=-1))
            lengths = np.diff(np.append(first, len(self.at)))
            rank: Int64s = before - np.repeat(before[first], lengths)
            found |= covered & (rank >= budget.allowed)
        return found

    def keys(self, victims: Bools, violating: Bools) -> Int64s:
        """int64[KEYS, rows]: what the choice between nodes compares; see :class:`VictimTable`."""
        found = np.zeros((KEYS, self._rows), dtype=np.int64)
        at, priority = self.at[victims], self._priority[victims]
        found[0] = np.bincount(self.at[victims & violating], minlength=self._rows)
        highest = np.full(self._rows, -_PRIORITY_SHIFT, dtype=np.int64)
        np.maximum.at(highest, at, priority)
        found[1] = highest
        found[2] = np.bincount(at[self._grouped[victims]], minlength=self._rows)
        np.add.at(found[3], at, priority + _PRIORITY_SHIFT)
        found[4] = np.bincount(at, minlength=self._rows)
        first = np.full(self._rows, NEVER_STARTED, dtype=np.int64)
        top = priority == highest[at]
        np.minimum.at(first, at[top], self._start[victims][top])
        found[5] = -first
        return found
