"""The arithmetic of upstream's resource scorers, over many rows and over one.

A node that lacks a configured resource drops it from its own mean, so rows are grouped by which
resources they have; in a cluster where every node has all of them (the usual one) there is one
group, and doubles are exact (see ``stretto.snapshot.capacity``).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from stretto.model.shape import Shape
from stretto.placement.framework import (
    MAX_SCORE,
    Floats,
    Int64s,
    Numbers,
    Scorer,
    View,
    Whole,
    score_type,
)
from stretto.placement.kept_rows import KeptRows
from stretto.placement.resource_names import BASIC, CPU, EPHEMERAL, MEMORY, is_scalar
from stretto.snapshot.capacity import Capacity
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.resources import NONZERO_CPU, NONZERO_MEMORY, ResourceColumn


class WeightedResource(NamedTuple):
    """A resource of a scoring strategy; weight 1..100."""

    name: str
    weight: int


class ScoredResource(NamedTuple):
    """A resource that counts for a shape: what nodes have, what is used there, what the pod
    adds."""

    column: ResourceColumn
    used: ResourceColumn
    request: int
    weight: int


def scored(
    shape: Shape,
    snapshot: Snapshot,
    resources: Sequence[WeightedResource],
    *,
    nonzero: bool,
) -> list[ScoredResource]:
    """The resources that count for a shape. ``nonzero``: cpu and memory with upstream's scoring
    defaults."""
    found = []
    for name, weight in resources:
        request = pod_request(shape, name, nonzero=nonzero)
        if name not in BASIC and (request == 0 or not is_scalar(name)):
            continue
        column = used = snapshot.resources.dense(name)
        if nonzero and name != EPHEMERAL and name in BASIC:
            used = snapshot.resources.column(NONZERO_CPU if name == CPU else NONZERO_MEMORY)
        found.append(ScoredResource(column, used, request, weight))
    return found


def pod_request(shape: Shape, name: str, *, nonzero: bool) -> int:
    """What the pod-side scorer sees the pod ask for."""
    if nonzero and name == CPU:
        return shape.score_requests[0]
    if nonzero and name == MEMORY:
        return shape.score_requests[1]
    return dict(shape.requests).get(name, 0)


def resized(
    items: Sequence[ScoredResource], shape: Shape, *, nonzero: bool
) -> list[ScoredResource]:
    """The same with the amounts of a shape that requests the same resources."""
    return [
        ScoredResource(column, used, pod_request(shape, column.name, nonzero=nonzero), weight)
        for column, used, _, weight in items
    ]


Amounts = list[tuple[Int64s, Int64s]]
"""(capacity > 0, requested with the pod) per resource, over some rows."""


def by_presence(
    view: View,
    items: Sequence[ScoredResource],
    score: Callable[[list[ScoredResource], Int64s], Int64s],
) -> Int64s:
    """Score rows in groups that have the same resources. ``score`` gets the resources and row
    numbers."""
    pattern = np.zeros(view.size, dtype=np.int64)
    for i, item in enumerate(items):
        pattern |= (view.of(item.column.alloc) != 0).astype(np.int64) << i
    numbers = np.arange(view.size) if view.rows is None else view.rows
    out = np.zeros(view.size, dtype=np.int64)
    for present in np.unique(pattern).tolist():
        where = np.flatnonzero(pattern == present)
        active = [item for i, item in enumerate(items) if present >> i & 1]
        out[where] = score(active, numbers[where])
    return out


class Hundreds(KeptRows[np.float64]):
    """A hundred times what is used of a resource, or free.

    Exact in doubles as far as it matters: where a pod fits, amounts are at most 2^46.
    """

    def __init__(self, snapshot: Snapshot, item: ScoredResource, *, free: bool) -> None:
        super().__init__(snapshot)
        self._column, self._used = item.column, item.used
        self._free = free

    @classmethod
    def on(cls, snapshot: Snapshot, item: ScoredResource, *, free: bool) -> Hundreds:
        """The one of a snapshot for a resource."""
        key = ("free" if free else "used", item.column.name, item.used.name)
        found = snapshot.derived.get(key)
        if found is None:
            found = snapshot.derived[key] = cls(snapshot, item, free=free)
        assert isinstance(found, cls)
        return found

    def _over(self, view: View) -> Floats:
        amounts = view.of(self._used.used_float)
        if self._free:
            amounts = view.of(self._column.alloc) - amounts
        return amounts * MAX_SCORE

    def _of_row(self, row: int) -> int:
        used = self._used.used_cells[row]
        return (self._column.alloc_cells[row] - used if self._free else used) * MAX_SCORE


class StrategyType(enum.Enum):
    """Scoring strategies of NodeResourcesFit."""

    LEAST = "LeastAllocated"
    MOST = "MostAllocated"
    RATIO = "RequestedToCapacityRatio"


class Strategy(msgspec.Struct, frozen=True):
    """A strategy; ``shape`` are (utilisation 0..100, score 0..10) points, for the ratio only."""

    type: StrategyType = StrategyType.LEAST
    shape: tuple[tuple[int, int], ...] = ()

    def table(self) -> list[int]:
        """Score by utilisation in percent, 101 entries: upstream's broken linear function."""
        points = [(x, y * (MAX_SCORE // 10)) for x, y in self.shape]
        return [_broken_linear(points, p) for p in range(MAX_SCORE + 1)] if points else []


def _broken_linear(points: list[tuple[int, int]], p: int) -> int:
    for i, (x, y) in enumerate(points):
        if p <= x:
            if i == 0:
                return y
            x0, y0 = points[i - 1]
            rise = (y - y0) * (p - x0)
            step = abs(rise) // (x - x0)  # Go truncates towards zero
            return y0 + (step if rise >= 0 else -step)
    return points[-1][1]


class FitScorer(Scorer):
    """NodeResourcesFit's score: a weighted mean over resources, all in truncating integers."""

    name = "NodeResourcesFit"

    def __init__(
        self, items: list[ScoredResource], *, strategy: Strategy, snapshot: Snapshot
    ) -> None:
        self._items = items
        self._snapshot = snapshot
        self._strategy = strategy
        self._type = strategy.type
        self._table = strategy.table()
        self._array: Int64s = np.array(self._table, dtype=np.int64)
        self._weights = sum(item.weight for item in items)

    def resized(self, shape: Shape) -> FitScorer:
        """With the amounts of a shape that requests the same resources."""
        items = resized(self._items, shape, nonzero=True)
        return FitScorer(items, strategy=self._strategy, snapshot=self._snapshot)

    def raw(self, view: View) -> Numbers | None:
        """Whole numbers [view.size]."""
        if not self._items:
            return None
        capacities = [self._snapshot.capacities.of(item.column) for item in self._items]
        if self._type is StrategyType.RATIO or not all(c.plain for c in capacities):
            return by_presence(view, self._items, self._exact)
        total = self._parts(view, self._items[0], capacities[0], slot="fit")
        for item, capacity in zip(self._items[1:], capacities[1:], strict=True):
            total += self._parts(view, item, capacity, slot="fit part")
        if self._weights != 1:
            total //= self._weights
        return total

    def _parts(self, view: View, item: ScoredResource, capacity: Capacity, *, slot: str) -> Whole:
        """A resource's part of the sum, in a buffer."""
        least = self._type is StrategyType.LEAST
        hundreds = Hundreds.on(self._snapshot, item, free=least).of(view)
        request = float(item.request * MAX_SCORE)
        floats = view.floats("work")
        np.add(hundreds, -request if least else request, out=floats)
        floats /= view.of(capacity.floats)
        if least:
            np.maximum(floats, 0, out=floats)
        else:
            np.minimum(floats, MAX_SCORE, out=floats)
        part = view.buffer(slot, score_type(self._weights))
        np.copyto(part, floats, casting="unsafe")  # truncates
        if item.weight != 1:
            part *= item.weight
        return part

    def _exact(self, active: list[ScoredResource], rows: Int64s) -> Int64s:
        total = np.zeros(len(rows), dtype=np.int64)
        weights = np.zeros(len(rows), dtype=np.int64)
        for item in active:
            part = self._part(item.used.used[rows] + item.request, item.column.alloc[rows])
            total += part * item.weight
            counts = part > 0 if self._type is StrategyType.RATIO else True
            weights += np.where(counts, item.weight, 0)
        np.maximum(weights, 1, out=weights)
        if self._type is StrategyType.RATIO:
            rounded: Int64s = (2 * total + weights) // (2 * weights)  # half up, all positive
            return rounded
        mean: Int64s = total // weights
        return mean

    def _part(self, requested: Int64s, capacity: Int64s) -> Int64s:
        if self._type is StrategyType.LEAST:
            free: Int64s = np.maximum(capacity - requested, 0) * MAX_SCORE // capacity
            return free
        percent: Int64s = np.minimum(requested, capacity) * MAX_SCORE // capacity
        if self._type is StrategyType.MOST:
            return percent
        looked_up: Int64s = self._array[percent]
        return looked_up

    def raw_row(self, row: int) -> int:
        """The same for one row."""
        total = weights = 0
        for column, used, request, weight in self._items:
            capacity = column.alloc_cells[row]
            if not capacity:
                continue
            requested = used.used_cells[row] + request
            if self._type is StrategyType.LEAST:
                if requested < capacity:
                    total += (capacity - requested) * MAX_SCORE // capacity * weight
            else:
                part = min(requested, capacity) * MAX_SCORE // capacity
                if self._type is StrategyType.RATIO:
                    part = self._table[part]
                    if not part:
                        continue
                total += part * weight
            weights += weight
        if not weights:
            return 0
        if self._type is StrategyType.RATIO:
            return (2 * total + weights) // (2 * weights)
        return total // weights
