"""Allocatable amounts as floats, prepared for exact vector division.

A score is an integer quotient floor(a·100/cap). Doubles give it exactly, at a fraction of the cost
of int64 division, as long as a·100 < 2^53 and cap ≤ 2^46: then a quotient below an integer n ≤ 100
is below it by at least 1/cap > the rounding error. Columns with a larger amount (70 TB of memory on
one node) or with nodes that lack the resource take the int64 path instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from stretto.snapshot.resources import ResourceColumn

if TYPE_CHECKING:
    from stretto.snapshot.columns import Snapshot

_EXACT = 1 << 46


class Capacity(NamedTuple):
    """One resource's allocatable amounts over the rows that were ever used."""

    floats: npt.NDArray[np.float64]
    """float64[rows]; not 0 where a node has none, so that division is harmless. Not to be written
    to: all rows may be one number in memory."""
    plain: bool
    """Every live node has some, and none more than is exact."""


class CapacityCache:
    """Capacities by column, made anew when a node changed."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._stamp = -1
        self._made: dict[str, Capacity] = {}

    def of(self, column: ResourceColumn) -> Capacity:
        """The capacity of a resource; O(1) while no node changes."""
        stamp = self._snapshot.node_changes.stamp
        if stamp != self._stamp:
            self._stamp = stamp
            self._made.clear()
        found = self._made.get(column.name)
        if found is None:
            alloc = column.alloc[: self._snapshot.rows]
            has_all = int(np.count_nonzero(alloc)) == self._snapshot.node_count
            largest = int(alloc.max(initial=0))
            floats = np.where(alloc == 0, 1, alloc).astype(np.float64)
            if ((alloc == 0) | (alloc == largest)).all():
                # Nodes of one kind: one number for all rows, which takes no room in caches.
                floats = np.broadcast_to(np.float64(max(largest, 1)), alloc.shape)
            found = Capacity(floats, plain=has_all and largest <= _EXACT)
            self._made[column.name] = found
        return found
