"""Shapes whose placement depends on pods on other nodes: spread, inter-pod affinity.

A pod that is placed changes the feasibility and the score of whole domains, and scores are
normalised over the nodes that are feasible, so the kept totals of such a shape are put together
anew after every pod. What is expensive in them depends on single rows (resources, ports, selectors)
and is kept as for any shape; the rest is a few sums over domains, gathered by row in vector passes.
One-by-one placement does just the same, so a batch lands exactly as it would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from stretto.placement.framework import Bools, CrossScorer, Filter, Int64s, View, Whole, mask_out
from stretto.placement.nominated import leave_claimed

if TYPE_CHECKING:
    from stretto.placement.compiled import CompiledShape, Counters


class CrossPart:
    """The filters and scorers of a shape that look at other rows, and the totals with them."""

    def __init__(
        self, filters: Sequence[Filter], scorers: Sequence[tuple[CrossScorer, int]]
    ) -> None:
        self.filters = filters
        self.scorers = scorers
        self._stamp = -1
        self._static_version = -1
        self._image_version = -1
        self._mask: Bools = _NO_ROWS
        """bool[rows]: passes every filter that depends on the row alone."""
        self._scores: Int64s = _NO_SCORES
        """int64[rows]: weighted scores that depend on the row alone."""
        self._maxima: list[int] | None = None
        self._fixed: Whole | int = 0
        self.total: Int64s = _NO_SCORES

    @property
    def nbytes(self) -> int:
        """Bytes in arrays."""
        fixed = 0 if isinstance(self._fixed, int) else self._fixed.nbytes
        parts = sum(each.nbytes for each in self.filters)
        parts += sum(scorer.nbytes for scorer, _ in self.scorers)
        return self._mask.nbytes + self._scores.nbytes + self.total.nbytes + fixed + parts

    def refresh(self, compiled: CompiledShape, counters: Counters) -> None:
        """Bring ``total`` up to date with the snapshot, for the shape whose part this is."""
        snapshot = compiled.snapshot
        compiled.static.refresh()
        stale = compiled.versions_changed()
        images = 0 if compiled.images is None else snapshot.images.version
        versions = compiled.static.version, images
        changed = compiled.changed_since(self._stamp)
        if stale or versions != (self._static_version, self._image_version):
            changed = None
            self._maxima = None
        if changed is None or len(changed) * 4 > snapshot.rows:
            counters.builds += 1
            view = View(snapshot)
            self._mask = compiled.passes(view, compiled.static.mask).copy()
            self._scores = compiled.row_scores(view).astype(np.int64)
        elif changed:
            counters.rows_refreshed += len(changed)
            self._update(compiled, changed)
        self._static_version, self._image_version = versions
        if changed is None or changed or snapshot.changes.stamp != self._stamp:
            self._combine(compiled)
        else:
            counters.hits += 1
        self._stamp = snapshot.changes.stamp

    def _update(self, compiled: CompiledShape, changed: list[int]) -> None:
        if len(changed) == 1:
            row = changed[0]
            self._mask[row] = compiled.row_passes(row)
            self._scores[row] = compiled.score_of_row(row)
            return
        rows = np.array(changed, dtype=np.int64)
        view = View(compiled.snapshot, rows)
        self._mask[rows] = compiled.passes(view, compiled.static.mask[rows])
        self._scores[rows] = compiled.row_scores(view).astype(np.int64)

    def _combine(self, compiled: CompiledShape) -> None:
        view = View(compiled.snapshot)
        mask = self._mask
        for each in self.filters:
            passes = each.passes(view)
            if passes is not None:
                mask = mask & passes
        if compiled.snapshot.nominations:
            mask = leave_claimed(
                compiled.filters, compiled.shape, mask, view=view, snapshot=compiled.snapshot
            )
        maxima = compiled.maxima_over(mask)
        if maxima != self._maxima:
            self._maxima = maxima
            self._fixed = compiled.fixed_scores(view, maxima)
        total = self._scores + self._fixed
        for scorer, weight in self.scorers:
            scores = scorer.over(mask)
            if scores is not None:
                total += scores.weighted * weight
        mask_out(total, mask)
        self.total = total


_NO_ROWS: Bools = np.zeros(0, dtype=np.bool_)
_NO_SCORES: Int64s = np.zeros(0, dtype=np.int64)
PLAIN = CrossPart((), ())
"""That of a shape that looks at its rows alone."""
