"""A full evaluation of a shape, plugin by plugin, as upstream would report it: for people and for
golden cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec
import numpy as np

from stretto.model.diagnosis import Diagnosis, Rejected
from stretto.placement.compiled import CompiledShape
from stretto.placement.framework import (
    Bools,
    Code,
    Int64s,
    Rejection,
    Scorer,
    Status,
    View,
    normalised,
)
from stretto.placement.nominated import (
    claimed_rows,
    rejected_together,
    rejections_of,
    status_from,
    that_look,
)
from stretto.placement.plugins.node_affinity import CONFLICT
from stretto.snapshot.columns import Snapshot

FROZEN = "node(s) were frozen until they are audited"
NO_NODES = "no nodes available to schedule pods"


class Evaluation(msgspec.Struct):
    """Everything upstream computes for a pod over all nodes. Rows are the snapshot's; lists are
    parallel."""

    prefilter: Status | None = None
    """PreFilter rejected the pod; nothing else is filled then."""
    prefilter_rows: list[int] | None = None
    """PreFilter narrowed the search to these."""
    rejected: dict[int, Status] = msgspec.field(default_factory=dict)
    feasible: list[int] = msgspec.field(default_factory=list)
    raw: dict[str, list[int]] = msgspec.field(default_factory=dict)
    weighted: dict[str, list[int]] = msgspec.field(default_factory=dict)
    total: list[int] = msgspec.field(default_factory=list)

    @property
    def error(self) -> str:
        """What the attempt fails with, '' if no plugin failed; of several nodes the first's."""
        if self.prefilter is not None:
            return self.prefilter.message if self.prefilter.code is Code.ERROR else ""
        failed = [row for row, status in self.rejected.items() if status.code is Code.ERROR]
        return self.rejected[min(failed)].message if failed else ""

    @property
    def best(self) -> list[int]:
        """Feasible rows with the highest total."""
        top = max(self.total, default=0)
        return [row for row, total in zip(self.feasible, self.total, strict=True) if total == top]


Step = tuple[str, list[Rejection], Bools]
"""(plugin, its rejections, the rows that were still in when it looked)."""


def prefilter_status(compiled: CompiledShape) -> Status | None:
    """PreFilter's rejection of the pod, if any."""
    narrowed = compiled.named
    if narrowed is None or narrowed.names:
        return compiled.prefilter()
    if len(narrowed.plugins) > 1:
        reason = f"node(s) didn't satisfy plugin(s) {_listed(narrowed.plugins)} simultaneously"
        return Status(Code.UNRESOLVABLE, "", (reason,))
    return Status(Code.UNRESOLVABLE, narrowed.plugins[0], (CONFLICT,))


def steps(
    compiled: CompiledShape,
    snapshot: Snapshot,
    *,
    without: Bools | None = None,
    nominated: int | None = None,
) -> Iterator[Step]:
    """The filters in order, each with the rows that no earlier one rejected; the last has no
    rejections. ``without``: rows to leave out. ``nominated``: a row that they look at even if
    PreFilter narrowed the search to others."""
    view = View(snapshot)
    alive = view.of(snapshot.live).copy()
    narrowed = compiled.named
    if narrowed is not None:
        inside = np.zeros(view.size, dtype=np.bool_)
        inside[narrowed.rows(snapshot)] = True
        if nominated is not None:
            inside[nominated] = True
        reason = f"node(s) didn't satisfy plugin(s) {_listed(narrowed.plugins)}"
        yield "", [Rejection(reason, ~inside, unresolvable=True)], alive
        alive = alive & inside
    frozen = view.of(snapshot.frozen)
    if frozen.any():
        yield "", [Rejection(FROZEN, frozen, unresolvable=True)], alive
        alive = alive & ~frozen
    if without is not None:
        alive = alive & ~without
    for each in compiled.filters:
        rejections = each.rejections(view)
        if rejections:
            yield each.name, rejections, alive
            for rejection in rejections:
                alive = alive & ~rejection.rows
    yield "", [], alive


Claimed = dict[int, tuple[str, list[Rejection]]]


def nominated_row(compiled: CompiledShape, snapshot: Snapshot) -> int | None:
    """The row that the pod itself is nominated to. Upstream asks the filters about it first,
    whatever PreFilter narrowed the search to, and what they say there is what it reports."""
    name = compiled.shape.nominated_node
    return snapshot.row_of_name(name) if name else None


def claimed_rejections(
    compiled: CompiledShape, snapshot: Snapshot, *, nominated: int | None = None
) -> Claimed:
    """(plugin, its rejections) of the rows that reject the shape while the pods that are nominated
    to them are counted; upstream reports these before it looks without them."""
    found: Claimed = {}
    if not snapshot.nominations:
        return found
    named = compiled.named
    inside = None if named is None else set(named.rows(snapshot))
    claimed = [
        (row, claims)
        for row, claims in claimed_rows(compiled.shape, snapshot=snapshot)
        if not snapshot.frozen[row] and (inside is None or row in inside or row == nominated)
    ]
    if compiled.local:
        return rejected_together(compiled.filters, claimed, snapshot=snapshot)
    filters = that_look(compiled.filters) if claimed else ()
    for row, claims in claimed:
        rejected = rejections_of(filters, row, claims, snapshot=snapshot)
        if rejected is not None:
            found[row] = rejected
    return found


def _left_out(claimed: Claimed, snapshot: Snapshot) -> Bools | None:
    if not claimed:
        return None
    without = np.zeros(snapshot.rows, dtype=np.bool_)
    without[list(claimed)] = True
    return without


def evaluate(compiled: CompiledShape, snapshot: Snapshot) -> Evaluation:
    """Status and scores of every node."""
    found = Evaluation(prefilter=prefilter_status(compiled))
    if found.prefilter is not None:
        return found
    if compiled.named is not None:
        found.prefilter_rows = sorted(compiled.named.rows(snapshot))
    claimed = claimed_rejections(compiled, snapshot)
    for row, (plugin, rejections) in claimed.items():
        found.rejected[row] = status_from(plugin, rejections)
    alive = np.zeros(0, dtype=np.bool_)
    without = _left_out(claimed, snapshot)
    for plugin, rejections, alive in steps(compiled, snapshot, without=without):
        for row, status in _statuses(plugin, rejections, alive).items():
            found.rejected[row] = status
    feasible = np.flatnonzero(alive)
    found.feasible = feasible.tolist()
    if found.feasible and not found.error:
        _score(found, compiled, View(snapshot, feasible), alive)
    return found


def _statuses(plugin: str, rejections: list[Rejection], alive: Bools) -> dict[int, Status]:
    reasons: dict[int, list[str]] = {}
    unresolvable: set[int] = set()
    failed: set[int] = set()
    for rejection in rejections:
        rows = np.flatnonzero(rejection.rows & alive).tolist()
        for row in rows:
            reasons.setdefault(row, []).append(rejection.reason)
            hard = rejection.unresolvable
            if hard if isinstance(hard, bool) else hard[row]:
                unresolvable.add(row)
            if rejection.error:
                failed.add(row)

    def code(row: int) -> Code:
        if row in failed:
            return Code.ERROR
        return Code.UNRESOLVABLE if row in unresolvable else Code.UNSCHEDULABLE

    return {row: Status(code(row), plugin, tuple(sorted(r))) for row, r in reasons.items()}


def _score(found: Evaluation, compiled: CompiledShape, view: View, alive: Bools) -> None:
    scorers: list[tuple[Scorer, int]] = [*compiled.static.scorers, *compiled.scorers]
    if compiled.images is not None:
        scorers.append(compiled.images)
    total = np.zeros(view.size, dtype=np.int64)
    for cross, weight in compiled.cross.scorers:
        scores = cross.over(alive)
        if scores is not None:
            shares = view.of(scores.weighted) * weight
            total += shares
            found.raw[cross.name] = view.of(scores.raw).tolist()
            found.weighted[cross.name] = shares.tolist()
    for scorer, weight in scorers:
        raw = scorer.raw(view)
        values: Int64s = (
            np.zeros(view.size, dtype=np.int64) if raw is None else raw.astype(np.int64)
        )
        weighted = np.zeros(view.size, dtype=np.int64)
        weighted += normalised(scorer.normalise, values, int(values.max(initial=0))) * weight
        total += weighted
        found.raw[scorer.name] = values.tolist()
        found.weighted[scorer.name] = weighted.tolist()
    found.total = total.tolist()


def diagnose(compiled: CompiledShape, snapshot: Snapshot) -> Diagnosis:
    """Why the shape fits nowhere, in the words of upstream's FitError (without its PostFilter
    part)."""
    nodes = snapshot.node_count
    if not nodes:
        return Diagnosis(message=NO_NODES, plugins=(), nodes=0)
    rejected = prefilter_status(compiled)
    if rejected is not None:
        return _prefiltered(rejected, compiled, nodes=nodes)
    found: Counter[tuple[str, str]] = Counter()
    unresolvable: Counter[tuple[str, str]] = Counter()
    by_plugin: Counter[str] = Counter()
    nominated = nominated_row(compiled, snapshot)
    claimed = claimed_rejections(compiled, snapshot, nominated=nominated)
    for plugin, rejections in claimed.values():
        by_plugin[plugin] += 1
        for rejection in rejections:
            found[plugin, rejection.reason] += 1
            unresolvable[plugin, rejection.reason] += bool(np.any(rejection.unresolvable))
    for plugin, rejections, alive in steps(
        compiled, snapshot, without=_left_out(claimed, snapshot), nominated=nominated
    ):
        any_of = np.zeros(len(alive), dtype=np.bool_)
        for rejection, rows, count in _among(rejections, alive):
            if not count:
                continue
            if rejection.error:
                return Diagnosis(rejection.reason, (plugin,), nodes, error=True)
            any_of |= rows
            found[plugin, rejection.reason] += count
            hard = rejection.unresolvable
            unresolvable[plugin, rejection.reason] += (
                count * hard if isinstance(hard, bool) else int(np.count_nonzero(rows & hard))
            )
        by_plugin[plugin] += int(np.count_nonzero(any_of))
    named = {plugin for plugin, _ in found if plugin}
    if any(not plugin for plugin, _ in found):
        named.update(compiled.named_plugins)
    return Diagnosis(
        message=f"0/{nodes} nodes are available:{_body(found)}",
        plugins=tuple(sorted(named)),
        nodes=nodes,
        rejected=tuple(
            Rejected(*key, count, unresolvable[key]) for key, count in sorted(found.items())
        ),
        plugin_nodes=tuple(sorted((+by_plugin).items())),
    )


def _among(rejections: list[Rejection], alive: Bools) -> Iterator[tuple[Rejection, Bools, int]]:
    """Each rejection with its rows that were still in, and their number; ten thousand may be about
    the same rows."""
    last: Bools | None = None
    rows, count = alive, 0
    for rejection in rejections:
        if rejection.rows is not last:
            last, rows = rejection.rows, rejection.rows & alive
            count = int(np.count_nonzero(rows))
        yield rejection, rows, count


def _prefiltered(rejected: Status, compiled: CompiledShape, *, nodes: int) -> Diagnosis:
    """PreFilter rejected the pod."""
    text = rejected.message
    plugins = (rejected.plugin,) if rejected.plugin else compiled.named_plugins
    if rejected.code is Code.ERROR:
        return Diagnosis(text, plugins, nodes, prefilter=True, error=True)
    final = nodes if rejected.code is Code.UNRESOLVABLE else 0
    return Diagnosis(
        message=f"0/{nodes} nodes are available: {text}.",
        plugins=plugins,
        nodes=nodes,
        rejected=(Rejected(rejected.plugin, text, nodes, final),),
        plugin_nodes=((rejected.plugin, nodes),),
        prefilter=True,
    )


def _body(found: Mapping[tuple[str, str], int]) -> str:
    """The reasons of a message: sorted as strings, nodes of equal reasons added up."""
    counts: Counter[str] = Counter()
    for (_, reason), count in found.items():
        counts[reason] += count
    items = sorted(f"{count} {reason}" for reason, count in counts.items())
    return f" {', '.join(items)}." if items else ""


def _listed(plugins: tuple[str, ...]) -> str:
    """Go's %v of a string list."""
    return f"[{' '.join(plugins)}]"
