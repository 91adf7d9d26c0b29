"""Where a unit that finds no room would fit if the pods there ended: the nodes for its stake.

Nobody is asked to go; from the moment of the stake on the pods that end make room for the unit
alone. So the nodes with the least left to come free are taken first, and each is filled with as
many members as it would take when empty: fewer nodes are kept from others then. Nodes on which an
earlier stake came to nothing (what runs there does not end) are taken last.

What a node would take is asked of the filters with its pods thought away, each member seen by the
next. A required topology keeps all members in one of its domains.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from stretto.model.shape import Shape
from stretto.model.unit import Cause
from stretto.placement.framework import Bools, Int64s
from stretto.placement.gang import Topologies
from stretto.placement.kernel import Kernel
from stretto.snapshot.columns import Snapshot


class Staking:
    """Chooses nodes for stakes on one snapshot."""

    def __init__(self, kernel: Kernel, snapshot: Snapshot) -> None:
        self._kernel = kernel
        self._snapshot = snapshot
        self._topologies = Topologies(snapshot)

    def choose(
        self, shapes: Sequence[Shape], *, seed: int, passed: Collection[str] = ()
    ) -> list[int]:
        """Rows for members of these shapes, in their order; empty: they would not all fit even on
        empty nodes. Nothing is counted. ``passed``: names of nodes to take last."""
        for inside in self._domains(shapes):
            rows = self._fill(shapes, inside, seed=seed, passed=passed)
            if rows:
                return rows
        return []

    def _domains(self, shapes: Sequence[Shape]) -> Iterator[Bools]:
        """Masks of rows that the members may share, those with most members running first."""
        snapshot = self._snapshot
        wanted = self._topologies.of(shapes[0].group)
        possible = self._kernel.possible(shapes[0])
        if wanted is None or not wanted.topology_required:
            yield possible
            return
        ids = snapshot.label_column(wanted.topology_key).ids[: snapshot.rows]
        placed = {ids.item(row) for row in snapshot.groups.of(shapes[0].group)}
        counts = np.bincount(ids[possible], minlength=1)
        for domain in sorted(placed or set(np.flatnonzero(counts).tolist()), key=counts.item):
            if domain:
                yield possible & (ids == domain)

    def _fill(
        self, shapes: Sequence[Shape], inside: Bools, *, seed: int, passed: Collection[str]
    ) -> list[int]:
        found: list[int] = []
        supposed: list[tuple[Shape, int, int]] = []
        try:
            for row in self._order(shapes[0], inside, seed=seed, passed=passed):
                for shape_id, count in self._snapshot.pods_on(row).items():
                    self._suppose(self._snapshot.shape(shape_id), row, -count, supposed)
                while len(found) < len(shapes):
                    shape = shapes[len(found)]
                    if self._kernel.check_one(shape, row) is not Cause.NONE:
                        break
                    self._suppose(shape, row, 1, supposed)
                    found.append(row)
                if len(found) == len(shapes):
                    return found
            return []
        finally:
            for shape, row, by in reversed(supposed):
                self._snapshot.suppose(shape, row, -by)

    def _suppose(
        self, shape: Shape, row: int, by: int, supposed: list[tuple[Shape, int, int]]
    ) -> None:
        self._snapshot.suppose(shape, row, by)
        supposed.append((shape, row, by))

    def _order(
        self, shape: Shape, inside: Bools, *, seed: int, passed: Collection[str]
    ) -> list[int]:
        """The rows that a member could ever fit, those with the least left to come free first;
        equals by the seed."""
        snapshot = self._snapshot
        rows = np.flatnonzero(inside)
        missing = np.zeros(len(rows), dtype=np.float64)
        able = np.ones(len(rows), dtype=np.bool_)
        for name, amount in (*shape.requests, ("pods", 1)):
            column = snapshot.resources.get(name)
            if column is None or not amount:
                continue  # no node counts it; the filters say what that means
            alloc, used = column.alloc[rows], column.used[rows]
            able &= alloc >= amount
            short = (amount - (alloc - used)) / np.maximum(alloc, 1)
            missing = np.maximum(missing, short)
        late = np.array([snapshot.name[row] in passed for row in rows.tolist()], dtype=np.bool_)
        hashes = (snapshot.uid_hash[rows] ^ np.uint64(seed & ((1 << 64) - 1))) >> np.uint64(1)
        order: Int64s = np.lexsort((hashes, missing, late))
        return [row for row, fits in zip(rows[order].tolist(), able[order], strict=True) if fits]
