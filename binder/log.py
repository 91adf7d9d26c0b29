"""The Binder's log as followers read it: encoded once, the same bytes for everybody (design
§12.18).

A ring holds the encoded steps of this epoch, bounded in bytes. A follower that has a sequence still
in the ring goes on from there; any other gets a full state, encoded once per version and shared,
then what came after it. The log knows no followers: a cursor is a number.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class Step(NamedTuple):
    """An encoded step."""

    sequence: int
    data: bytes


class Log:
    """Steps of one epoch in order."""

    def __init__(self, *, epoch: int, sequence: int = 0, limit_bytes: int = 64 << 20) -> None:
        self.epoch = epoch
        self.sequence = sequence
        """Of the newest step."""
        self._steps: deque[Step] = deque()
        self._bytes = 0
        self._limit = limit_bytes
        self._first = sequence + 1
        """Sequence of the oldest step in the ring."""

    def append(self, sequence: int, data: bytes) -> None:
        """Add the next step."""
        assert sequence == self.sequence + 1, f"step {sequence} after {self.sequence}"
        assert data, f"step {sequence} says nothing"
        self.sequence = sequence
        self._steps.append(Step(sequence, data))
        self._bytes += len(data)
        while self._bytes > self._limit and len(self._steps) > 1:
            self._bytes -= len(self._steps.popleft().data)
            self._first = self._steps[0].sequence
        assert self.sequence - self._first + 1 == len(self._steps), "a gap in the ring"
        assert self._bytes >= len(data)

    def can_resume(self, *, epoch: int, sequence: int) -> bool:
        """Whether a follower with this version can go on without a full state."""
        return epoch == self.epoch and self._first - 1 <= sequence <= self.sequence

    def after(self, sequence: int, *, limit: int = 64) -> list[Step] | None:
        """The next steps after ``sequence``; None: trimmed, the follower needs a full state."""
        if sequence < self._first - 1:
            return None
        start = sequence - self._first + 1
        return [self._steps[i] for i in range(start, min(start + limit, len(self._steps)))]

    def statistics(self) -> dict[str, int]:
        """Size of the ring."""
        return {"steps": len(self._steps), "bytes": self._bytes, "sequence": self.sequence}
