"""NodeResourcesBalancedAllocation as of 1.36: does the pod make the node's use of its resources
more even.

score = 50 + (50 + S(with the pod) − S(without)) / 2, S = int((1 − std of the used fractions) ·
100). All in doubles in upstream's order of operations, so that the truncation agrees to the last
bit.
"""

from __future__ import annotations

import math

import numpy as np

from stretto.model.shape import Shape
from stretto.placement.framework import (
    MAX_SCORE,
    Floats,
    Int16s,
    Int64s,
    Numbers,
    Plugin,
    Scorer,
    View,
)
from stretto.placement.kept_rows import KeptRows
from stretto.placement.resource_scoring import (
    ScoredResource,
    WeightedResource,
    by_presence,
    pod_request,
    resized,
    scored,
)
from stretto.snapshot.columns import Snapshot

NAME = "NodeResourcesBalancedAllocation"
_SHIFT = 150
"""50 + (50 + a − b) // 2 = (a − (b − 150)) // 2."""


def _evenness(fractions: list[Floats]) -> Floats:
    """S before truncation, from fractions ≤ 1; spoils its input."""
    if len(fractions) == 2:
        # (1 - |a - b| / 2) * 100, with two powers of 2 moved: the same doubles, a pass less.
        even = fractions[0]
        even -= fractions[1]
        np.abs(even, out=even)
        np.subtract(2, even, out=even)
        even *= MAX_SCORE // 2
        return even
    mean = fractions[0].copy()
    for fraction in fractions[1:]:
        mean += fraction
    mean /= len(fractions)
    std = np.zeros(len(mean))
    for fraction in fractions:
        std += (fraction - mean) * (fraction - mean)
    std /= len(fractions)
    np.sqrt(std, out=std)
    np.subtract(1, std, out=std)
    std *= MAX_SCORE
    return std


def _evenness_row(fractions: list[float]) -> int:
    if len(fractions) == 2:
        std = abs((fractions[0] - fractions[1]) / 2)
    elif len(fractions) > 2:
        total = 0.0
        for fraction in fractions:
            total += fraction
        mean = total / len(fractions)
        squares = 0.0
        for fraction in fractions:
            squares += (fraction - mean) * (fraction - mean)
        std = math.sqrt(squares / len(fractions))
    else:
        std = 0.0
    return int((1 - std) * MAX_SCORE)


class Before(KeptRows[np.int16]):
    """S − 150 without the pod, kept per set of resources.

    Only right where every node has all of the resources; otherwise the scorer computes it itself.
    """

    def __init__(self, snapshot: Snapshot, items: list[ScoredResource]) -> None:
        super().__init__(snapshot)
        self._items = items

    @classmethod
    def on(cls, snapshot: Snapshot, items: list[ScoredResource]) -> Before:
        """The one of a snapshot for these resources."""
        key = (NAME, *[item.column.name for item in items])
        found = snapshot.derived.get(key)
        if found is None:
            found = snapshot.derived[key] = cls(snapshot, items)
        assert isinstance(found, cls)
        return found

    def _over(self, view: View) -> Int16s:
        fractions = []
        for item in self._items:
            floats = view.of(self._snapshot.capacities.of(item.column).floats)
            fractions.append(_fraction(view.of(item.used.used_float), floats))
        return _evenness(fractions).astype(np.int16) - np.int16(_SHIFT)

    def _of_row(self, row: int) -> int:
        fractions = []
        for column, used, _, _ in self._items:
            capacity = float(column.alloc_cells[row])
            if capacity:
                fraction = float(used.used_cells[row]) / capacity
                fractions.append(fraction if fraction < 1.0 else 1.0)
        return _evenness_row(fractions) - _SHIFT


class BalancedScorer(Scorer):
    """Rates the change of balance that the pod makes."""

    name = NAME

    def __init__(self, items: list[ScoredResource], snapshot: Snapshot) -> None:
        self._items = items
        self._snapshot = snapshot
        self._before = Before.on(snapshot, items)

    def resized(self, shape: Shape) -> BalancedScorer:
        """With the amounts of a shape that requests the same resources."""
        return BalancedScorer(resized(self._items, shape, nonzero=False), self._snapshot)

    def raw(self, view: View) -> Numbers:
        """Whole numbers [view.size]."""
        capacities = [self._snapshot.capacities.of(item.column) for item in self._items]
        if len(self._items) < 2 or not all(c.plain for c in capacities):
            return by_presence(view, self._items, self._group)
        after = []
        for i, (item, capacity) in enumerate(zip(self._items, capacities, strict=True)):
            fraction = view.floats(f"work {i}" if i else "work")
            np.add(view.of(item.used.used_float), item.request, out=fraction)
            fraction /= view.of(capacity.floats)
            after.append(np.minimum(fraction, 1.0, out=fraction))
        score = view.buffer("balanced", np.int16)
        np.copyto(score, _evenness(after), casting="unsafe")  # truncates
        # 50 + (50 + after - before) // 2, the outer 50 moved inside: two passes fewer.
        score -= self._before.of(view)
        score >>= 1
        return score

    def _group(self, active: list[ScoredResource], rows: Int64s) -> Int64s:
        if len(active) < 2:
            return np.full(len(rows), _combined(MAX_SCORE, MAX_SCORE), dtype=np.int64)
        after, before = [], []
        for item in active:
            used, floats = item.used.used[rows], item.column.alloc[rows].astype(np.float64)
            after.append(_fraction(used + item.request, floats))
            before.append(_fraction(used, floats))
        change = _evenness(after).astype(np.int64) - _evenness(before).astype(np.int64)
        return MAX_SCORE // 2 + (MAX_SCORE // 2 + change) // 2

    def raw_row(self, row: int) -> int:
        """The same for one row."""
        after, before = [], []
        for column, used_column, request, _ in self._items:
            capacity = float(column.alloc_cells[row])
            if capacity:
                used = used_column.used_cells[row]
                fraction = float(used) / capacity
                before.append(fraction if fraction < 1.0 else 1.0)
                fraction = float(used + request) / capacity
                after.append(fraction if fraction < 1.0 else 1.0)
        return _combined(_evenness_row(after), _evenness_row(before))


def _fraction(amount: Numbers, capacity: Floats) -> Floats:
    fraction = amount / capacity
    return np.minimum(fraction, 1.0, out=fraction)


def _combined(after: int, before: int) -> int:
    # Both are in 50..100, so the sum is never negative and // truncates as Go does.
    return MAX_SCORE // 2 + (MAX_SCORE // 2 + after - before) // 2


class BalancedAllocation(Plugin):
    """Score by evenness."""

    name = NAME
    static = False

    def __init__(self, resources: tuple[WeightedResource, ...]) -> None:
        self._resources = resources

    def scorer(self, shape: Shape, snapshot: Snapshot) -> Scorer | None:
        """None for pods that request none of the configured resources."""
        requests = [pod_request(shape, name, nonzero=False) for name, _ in self._resources]
        if not any(requests):
            return None
        items = scored(shape, snapshot, self._resources, nonzero=False)
        return BalancedScorer(items, snapshot)
