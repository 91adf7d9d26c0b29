"""Whose turn it is: one heap of shapes for pods in no queue, and one for each queue.

Within a heap priority and age decide. Between queues it is the dominant share: a queue that has not
got what it is guaranteed goes first, then at each level of the tree the one with the smallest share
over its weight (DRF). Against pods in no queue the head of the queue whose turn it is stands by its
own priority and age, as ever. Without queues there is one heap. Bulky shapes stand in a heap of
their own, whose head has its turn by priority and age while the slow lane is open.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from dispatcher.quota import QuotaGate
from dispatcher.shape_records import ShapeRecord
from dispatcher.slow_lane import SlowLane

Entry = tuple[int, int, int, ShapeRecord]
"""(minus priority, order of the head, token, shape); only entries equal to the shape's
``heap_key`` count."""


class Lanes:
    """See the module docstring."""

    def __init__(self, slow: SlowLane) -> None:
        self._slow_lane = slow
        self._slow: list[Entry] = []
        """Lines of bulky shapes, of whatever queue."""
        self._plain: list[Entry] = []
        self._queues: dict[str, list[Entry]] = {}
        self.gate: QuotaGate | None = None
        """Knows whose queue is whose, and whose turn it is; None: there are no queues."""
        self._pushed = 0

    def __bool__(self) -> bool:
        slow = self._slow_lane.open and bool(self._slow)
        return slow or bool(self._plain) or any(self._queues.values())

    def offer(self, shape: ShapeRecord) -> None:
        """Make sure that a shape with pods to take is found under its head's order."""
        if not shape.takeable():
            return
        key = (-shape.priority, shape.head_order())
        if shape.heap_key is None or key < shape.heap_key:
            shape.heap_key = key
            self._pushed += 1
            self._push((*key, self._pushed, shape))

    def _push(self, entry: Entry) -> None:
        assert entry[:2] == entry[3].heap_key, "an entry that does not count is pushed"
        if entry[3].bulky:
            heapq.heappush(self._slow, entry)
            return
        name = self.gate.lane_of(entry[3]) if self.gate is not None else ""
        heap = self._queues.setdefault(name, []) if name else self._plain
        heapq.heappush(heap, entry)

    def pop(self) -> Entry | None:
        """The entry whose turn it is; None: there is none."""
        heap = self._plain
        if self._queues:
            heap = self._next()
        if self._slow_lane.open and (slow := _fresh(self._slow)):
            others = _fresh(heap)
            if not others or slow[0][:2] < others[0][:2]:
                heap = slow
        return heapq.heappop(heap) if heap else None

    def _next(self) -> list[Entry]:
        for name, heap in list(self._queues.items()):
            if not _fresh(heap):
                del self._queues[name]
        if not self._queues:
            return self._plain
        assert self.gate is not None
        first = self._queues[min(self._queues, key=self.gate.turn)]
        plain = _fresh(self._plain)
        return plain if plain and plain[0][:2] < first[0][:2] else first

    def use_gate(self, gate: QuotaGate | None) -> None:
        """There are queues, others than before, or none."""
        self.gate = gate
        self.tidy()

    def tidy(self) -> None:
        """Drop the entries that do not count; else only who takes them does."""
        kept = []
        for entry in self._entries():
            shape = entry[3]
            if shape.heap_key != entry[:2]:
                continue
            if shape.takeable():
                kept.append(entry)
            else:
                shape.heap_key = None
        self._replace(kept)

    def _entries(self) -> Iterator[Entry]:
        """All there are, in no order."""
        yield from self._slow
        yield from self._plain
        for heap in self._queues.values():
            yield from heap

    def _replace(self, entries: list[Entry]) -> None:
        """These and no others."""
        self._slow, self._plain, self._queues = [], [], {}
        for entry in entries:
            self._push(entry)

    def validate(self, shapes: Iterable[ShapeRecord]) -> None:
        """Check that every shape with pods to take is found in time."""
        heap = {(entry[:2], entry[3].number) for entry in self._entries()}
        for shape in shapes:
            if shape.takeable():
                assert shape.heap_key is not None, f"{shape!r} is forgotten"
                assert shape.heap_key[1] <= shape.head_order(), f"{shape!r} is found too late"
                assert (shape.heap_key, shape.number) in heap, f"{shape!r} is not in the heap"


def _fresh(heap: list[Entry]) -> list[Entry]:
    """The heap without old entries at its head."""
    while heap and heap[0][3].heap_key != heap[0][:2]:
        heapq.heappop(heap)
    return heap
