"""Undecided units of a shard: grouped by shape, in the order of arrival, or waiting for something.

A unit waits *for the snapshot* when it may not be decided before a sequence (its last attempt lost
to a commit that the snapshot does not contain yet). A shape is *held* when none of the nodes took
it while own proposals were open: only when those are settled is it known whether it fits nowhere
(design §12.2).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator

from scheduler_shard.shapes import ShapeEntry
from stretto.model.unit import Attempt, Unit, UnitId

Key = tuple[UnitId, Attempt]


class Batch:
    """Units of one shape that are decided together."""

    __slots__ = ("entry", "held_before", "units")

    def __init__(self, *, entry: ShapeEntry, units: list[Unit], held_before: bool) -> None:
        self.entry = entry
        self.units = units
        self.held_before = held_before
        """They were held once; see :meth:`Desk.hold`."""


class _Group:
    __slots__ = ("entry", "held_before", "units")

    def __init__(self, entry: ShapeEntry) -> None:
        self.entry = entry
        self.units: deque[Unit] = deque()
        self.held_before = False


class Desk:
    """See the module docstring."""

    def __init__(self) -> None:
        self._ready: dict[int, _Group] = {}
        self._waiting: list[tuple[int, int, ShapeEntry, Unit]] = []
        self._held: dict[int, tuple[int, _Group]] = {}
        """Shape → (barrier, group)."""
        self._count = 0

    def __len__(self) -> int:
        return (
            len(self._waiting)
            + sum(len(group.units) for group in self._ready.values())
            + sum(len(group.units) for _, group in self._held.values())
        )

    @property
    def ready(self) -> bool:
        """Something can be decided now."""
        return bool(self._ready)

    def add(self, entry: ShapeEntry, unit: Unit, *, sequence: int) -> None:
        """A unit to decide; ``sequence`` is the snapshot's."""
        if unit.min_sequence > sequence:
            self._count += 1
            heapq.heappush(self._waiting, (unit.min_sequence, self._count, entry, unit))
        else:
            self._group(entry).units.append(unit)

    def _group(self, entry: ShapeEntry) -> _Group:
        held = self._held.get(entry.number)
        if held is not None:
            assert entry.number not in self._ready, "a shape is held and ready"
            return held[1]
        group = self._ready.get(entry.number)
        if group is None:
            group = self._ready[entry.number] = _Group(entry)
        return group

    def reached(self, sequence: int) -> None:
        """The snapshot is at this sequence: units that waited for it are ready."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= sequence:
            _, _, entry, unit = heapq.heappop(waiting)
            self._group(entry).units.append(unit)

    def settled(self, oldest_open: int | None) -> None:
        """Own proposals older than this serial are settled: holds that waited for them end."""
        if not self._held:
            return
        for number, (barrier, group) in list(self._held.items()):
            if oldest_open is None or oldest_open > barrier:
                del self._held[number]
                assert number not in self._ready, "a shape was held and ready"
                group.held_before = True
                self._ready[number] = group

    def take(self, limit: int) -> Batch | None:
        """Up to ``limit`` units of the shape that came first."""
        if not self._ready:
            return None
        number, group = next(iter(self._ready.items()))
        assert group.units, "a shape is ready with nothing to decide"
        units = group.units
        if len(units) <= limit:
            del self._ready[number]
            taken = list(units)
        else:
            taken = [units.popleft() for _ in range(limit)]
        return Batch(entry=group.entry, units=taken, held_before=group.held_before)

    def hold(self, entry: ShapeEntry, units: list[Unit], *, barrier: int) -> None:
        """Keep units until the own proposals up to serial ``barrier`` are settled; others of
        their shape wait with them."""
        held = self._held.get(entry.number)
        group = held[1] if held is not None else self._ready.pop(entry.number, None)
        group = group or _Group(entry)
        assert units, "a shape is held for nobody"
        group.units.extendleft(reversed(units))
        self._held[entry.number] = (barrier, group)

    def units(self) -> Iterator[Unit]:
        """Every undecided unit."""
        for group in self._ready.values():
            yield from group.units
        for _, group in self._held.values():
            yield from group.units
        for _, _, _, unit in self._waiting:
            yield unit

    def clear(self) -> list[Unit]:
        """Give up all undecided units."""
        units = list(self.units())
        self._ready.clear()
        self._held.clear()
        self._waiting.clear()
        return units

    def clear_waiting(self) -> list[Unit]:
        """Give up the units that wait for a sequence (of an epoch that is over)."""
        units = [unit for _, _, _, unit in self._waiting]
        self._waiting.clear()
        return units

    def statistics(self) -> dict[str, int]:
        """Units by what they wait for."""
        held = sum(len(group.units) for _, group in self._held.values())
        ready = sum(len(group.units) for group in self._ready.values())
        return {"ready": ready, "waiting": len(self._waiting), "held": held}
