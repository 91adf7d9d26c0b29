"""Members of a unit on the nodes where they are to go, and who has to leave for all of them.

A member must fit its node beside those before it, in the unit's order, as upstream checks them when
victims of a pod group come back one by one. Naively every lot that comes back would be put to every
member. Where the filters look at nothing but the row, only the members on the rows of the lot are
asked; and lots come back by halves: if all of them may, none of them is asked alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from stretto.model.shape import Shape
from stretto.placement.lots import Lot
from stretto.snapshot.columns import Snapshot

Admits = Callable[[Shape, int], bool]
"""Whether a row takes a shape now, nominated pods considered."""


class Seats:
    """See the module docstring. The members are counted nowhere but for the length of a
    question."""

    def __init__(
        self,
        shapes: Sequence[Shape],
        rows: Sequence[int],
        *,
        snapshot: Snapshot,
        admits: Admits,
        local: bool,
    ) -> None:
        self._seats = list(zip(shapes, rows, strict=True))
        self._snapshot = snapshot
        self._admits = admits
        self._local = local
        """The filters of all shapes look at nothing but the row."""
        self._on: dict[int, list[tuple[Shape, int]]] = {}
        for shape, row in self._seats:
            self._on.setdefault(row, []).append((shape, row))

    @property
    def snapshot(self) -> Snapshot:
        """What the seats are on."""
        return self._snapshot

    @property
    def rows(self) -> set[int]:
        """The nodes with seats."""
        return set(self._on)

    @property
    def first(self) -> Shape:
        """Of the first member; they all have its priority and its queue."""
        return self._seats[0][0]

    @property
    def local(self) -> bool:
        """Nothing that happens on rows without seats matters."""
        return self._local

    def hold(self, changed: Iterable[int] | None = None) -> bool:
        """Whether every member fits its node, if nothing but these rows has changed since that was
        so; None: anything may have."""
        if changed is None or not self._local:
            return self._fit(self._seats)
        return all(self._fit(self._on[row]) for row in set(changed) if row in self._on)

    def _fit(self, seats: Sequence[tuple[Shape, int]]) -> bool:
        counted = 0
        try:
            for shape, row in seats:
                if not self._admits(shape, row):
                    return False
                self._suppose(shape, row, 1)
                counted += 1
            return True
        finally:
            for shape, row in seats[:counted]:
                self._suppose(shape, row, -1)

    def _suppose(self, shape: Shape, row: int, by: int) -> None:
        self._snapshot.suppose(shape, row, by)
        if self._snapshot.quota.on:
            self._snapshot.quota.suppose(shape, by)


def let_back(lots: Sequence[Lot], seats: Seats) -> list[Lot]:
    """Let lots that are supposed away come back in this order, each if all seats still hold then;
    those that cannot, which stay away."""
    if not lots:
        return []
    for lot in lots:
        lot.suppose(seats.snapshot, 1)
    if seats.hold({pod.row for lot in lots for pod in lot.pods}):
        return []
    for lot in lots:
        lot.suppose(seats.snapshot, -1)
    if len(lots) == 1:
        return list(lots)
    half = len(lots) // 2
    return let_back(lots[:half], seats) + let_back(lots[half:], seats)
