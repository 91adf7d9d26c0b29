"""Whose turn it is: one heap of shapes for pods in no queue, and one for each queue.

Within a heap priority and age decide. Between queues it is the dominant share: a queue that has not
got what it is guaranteed goes first, then at each level of the tree the one with the smallest share
over its weight (DRF). Against pods in no queue the head of the queue whose turn it is stands by its
own priority and age, as ever. Without queues there is one heap.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from dispatcher.quota import QuotaGate
from dispatcher.shapes import ShapeRecord

Entry = tuple[int, int, int, ShapeRecord]
"""(minus priority, order of the head, token, shape); only entries equal to the shape's
``heap_key`` count."""


class Lanes:
    """See the module docstring."""

    def __init__(self) -> None:
        self._plain: list[Entry] = []
        self._queues: dict[str, list[Entry]] = {}
        self.gate: QuotaGate | None = None
        """Knows whose queue is whose, and whose turn it is; None: there are no queues."""

    def __bool__(self) -> bool:
        return bool(self._plain) or any(self._queues.values())

    def push(self, entry: Entry) -> None:
        """A shape has pods to take."""
        name = self.gate.lane_of(entry[3]) if self.gate is not None else ""
        heap = self._queues.setdefault(name, []) if name else self._plain
        heapq.heappush(heap, entry)

    def pop(self) -> Entry | None:
        """The entry whose turn it is; None: there is none."""
        heap = self._plain
        if self._queues:
            heap = self._next()
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

    def entries(self) -> Iterator[Entry]:
        """All there are, in no order."""
        yield from self._plain
        for heap in self._queues.values():
            yield from heap

    def replace(self, entries: list[Entry]) -> None:
        """These and no others."""
        self._plain, self._queues = [], {}
        for entry in entries:
            self.push(entry)


def _fresh(heap: list[Entry]) -> list[Entry]:
    """The heap without old entries at its head."""
    while heap and heap[0][3].heap_key != heap[0][:2]:
        heapq.heappop(heap)
    return heap
