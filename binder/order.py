"""In which order proposals that wait for the commit loop are taken.

Priority holds at the Binder as it does at pop: of the proposals that wait, one of the highest
priority is next, so that a burst of small unimportant pods from one shard does not take the room
that another shard has just chosen for an important one. Two bounds:

* A shard's own proposals keep their order: the later ones were decided with the earlier ones in
  place (design §12.3), and its units come in order of priority anyway.
* Nobody is overtaken for longer than WINDOW_S: who has waited so long is taken in order of arrival.

What is left of inversion, for either reason, is measured: the seconds that proposals waited after
one of lower priority had been taken.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Iterator

from binder.proposals import Incoming

WINDOW_S = 0.25
Key = tuple[int, int, int]


class _Entry:
    __slots__ = ("arrival", "came_s", "incoming", "passed_s", "priority")

    def __init__(self, incoming: Incoming, *, arrival: int, now: float) -> None:
        self.incoming = incoming
        self.arrival = arrival
        self.came_s = now
        self.priority = incoming.shapes[0].priority if incoming.shapes else 0
        self.passed_s = 0.0
        """When one of lower priority was first taken before it; 0: never."""

    def key(self, now: float) -> Key:
        """Smaller is earlier."""
        if now - self.came_s >= WINDOW_S:
            return 0, 0, self.arrival
        return 1, -self.priority, self.arrival


class Waiting:
    """Proposals that wait; see the module docstring."""

    def __init__(self) -> None:
        self.inversion_s = 0.0
        """Seconds that proposals waited behind others of lower priority, summed."""
        self._streams: dict[int, deque[_Entry]] = {}
        self._priorities: Counter[int] = Counter()
        self._arrivals = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, incoming: Iterable[Incoming], *, now: float) -> None:
        """Proposals of a shard, in its order."""
        for one in incoming:
            self._arrivals += 1
            entry = _Entry(one, arrival=self._arrivals, now=now)
            self._streams.setdefault(one.stream, deque()).append(entry)
            self._priorities[entry.priority] += 1
            self._size += 1
        assert self._size >= len(self._streams), "a stream with nothing stands in line"

    def take(self, limit: int, *, now: float) -> list[Incoming]:
        """The next proposals, at most ``limit``."""
        heap = [(line[0].key(now), stream) for stream, line in self._streams.items()]
        heapq.heapify(heap)
        taken: list[_Entry] = []
        while heap and len(taken) < limit:
            _, stream = heap[0]
            line = self._streams[stream]
            taken.append(line.popleft())
            if line:
                heapq.heapreplace(heap, (line[0].key(now), stream))
            else:
                heapq.heappop(heap)
                del self._streams[stream]
        self._size -= len(taken)
        assert self._size >= 0
        assert len(taken) <= limit
        assert (self._size == 0) == (not self._streams), "proposals are miscounted"
        for entry in taken:
            assert self._priorities[entry.priority] > 0
            self._priorities[entry.priority] -= 1
            if not self._priorities[entry.priority]:
                del self._priorities[entry.priority]
        self._measure(taken, now)
        return [entry.incoming for entry in taken]

    def _measure(self, taken: list[_Entry], now: float) -> None:
        """Within a batch the order counts too, but takes no time."""
        if not taken:
            return
        assert all(entry.passed_s <= now for entry in taken), "the clock went back"
        self.inversion_s += sum(now - entry.passed_s for entry in taken if entry.passed_s)
        lowest = min(entry.priority for entry in taken)
        if self._priorities and max(self._priorities) > lowest:
            for entry in self._entries():
                if entry.priority > lowest and not entry.passed_s:
                    entry.passed_s = now

    def _entries(self) -> Iterator[_Entry]:
        for line in self._streams.values():
            yield from line

    def clear(self) -> None:
        """Nobody waits any more."""
        self._streams.clear()
        self._priorities.clear()
        self._size = 0
