"""The bounded log of what happened to a unit, and why (style guide: ring log with cause ids).

Brains note, nobody waits: a line is a tuple in a ring. ``story(unit)`` reads the whole ring, which
is done for a person's question only, and from another thread: the copy is one call into C, which
no other thread can interrupt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

MAX_TEXT = 1_000
"""Characters kept of a line: a diagnosis over many nodes must not fill the memory."""


class StoryLine(NamedTuple):
    """Something that happened to a unit."""

    at_s: float
    """Seconds on the clock of whoever noted it (monotonic)."""
    unit_id: str
    cause: str
    """What made it happen: an attempt, a batch, an event; the same id joins lines."""
    text: str


class StoryLog:
    """A ring of the last lines of all units; capacity 0 keeps none. ``clock``: monotonic seconds of
    lines whose writer, a brain without a clock, does not say when; none: 0."""

    def __init__(self, capacity: int = 20_000, *, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock
        self._lines: deque[StoryLine] = deque(maxlen=capacity)

    def note(self, unit_id: str, cause: str, text: str, *, at_s: float | None = None) -> None:
        """Remember a line; the oldest gives way."""
        if at_s is None:
            at_s = 0.0 if self._clock is None else self._clock()
        self._lines.append(StoryLine(at_s, unit_id, cause, text[:MAX_TEXT]))

    def story(self, unit_id: str) -> list[StoryLine]:
        """What is remembered of a unit, oldest first."""
        return [line for line in list(self._lines) if line.unit_id == unit_id]

    def __len__(self) -> int:
        return len(self._lines)
