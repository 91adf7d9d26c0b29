"""The best of a few named rows: DaemonSet pods and pods that name their node look at no other
row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from stretto.placement.compiled import CompiledShape
from stretto.placement.framework import Scorer, normalised_row
from stretto.placement.selection import Ranking
from stretto.snapshot.columns import Snapshot


def best_of(
    compiled: CompiledShape,
    rows: Sequence[int],
    *,
    snapshot: Snapshot,
    ranking: Ranking,
    bonus: Mapping[int, int] = MappingProxyType({}),
) -> int | None:
    """The row with the highest total among those that fit, scored over just these; None if none
    fits. ``bonus``: what extenders add to the totals of rows."""
    feasible = [
        row
        for row in rows
        if not snapshot.frozen.item(row)
        and all(f.passes_row(row) for f in compiled.filters)
        and (not snapshot.nominations or compiled.claimed(row) is None)
    ]
    if len(feasible) < 2:
        return feasible[0] if feasible else None
    scorers: list[tuple[Scorer, int]] = [*compiled.static.scorers, *compiled.scorers]
    if compiled.images is not None:
        scorers.append(compiled.images)
    totals = [0] * len(feasible)
    for scorer, weight in scorers:
        raw = [scorer.raw_row(row) for row in feasible]
        maximum = max(raw)
        for i, value in enumerate(raw):
            totals[i] += normalised_row(scorer.normalise, value, maximum) * weight
    if compiled.cross.scorers:
        among = np.zeros(snapshot.rows, dtype=np.bool_)
        among[feasible] = True
        for cross, weight in compiled.cross.scorers:
            scores = cross.over(among)
            if scores is not None:
                for i, value in enumerate(scores.weighted[feasible].tolist()):
                    totals[i] += value * weight
    if bonus:
        totals = [t + bonus.get(row, 0) for t, row in zip(totals, feasible, strict=True)]
    low = ranking.low(np.array(feasible, dtype=np.int64)).tolist()
    return max(zip(totals, low, feasible, strict=True))[2]
