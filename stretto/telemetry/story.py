"""The bounded log of what happened to a unit, and why (style guide: ring log with cause ids).

Brains note, nobody waits: a line is a tuple in a ring, and put into words when somebody reads it.
``story(unit)`` reads the whole ring, which is done for a person's question only, and from another
thread: the copy is one call into C, which no other thread can interrupt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from stretto.model.unit import Attempt

MAX_TEXT = 1_000
"""Characters kept of a line: a diagnosis over many nodes must not fill the memory."""


class StoryLine(NamedTuple):
    """Something that happened to a unit."""

    at_s: float
    """Seconds on the clock of whoever noted it (monotonic)."""
    unit_id: str
    cause: str
    """What made it happen: an attempt (whose id joins the lines of all roles), a batch, an
    event."""
    text: str


_Noted = tuple[float, str, str | Attempt, str, tuple[object, ...]]


def _in_words(line: _Noted) -> StoryLine:
    at_s, unit_id, cause, text, values = line
    if not isinstance(cause, str):
        cause = f"attempt {cause[0]}.{cause[1]}"
    return StoryLine(at_s, unit_id, cause, text.format(*values)[:MAX_TEXT] if values else text)


class StoryLog:
    """A ring of the last lines of all units; capacity 0 keeps none. ``clock``: monotonic seconds of
    lines whose writer, a brain without a clock, does not say when; none: 0."""

    def __init__(self, capacity: int = 20_000, *, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock
        self._lines: deque[_Noted] = deque(maxlen=capacity)

    @property
    def capacity(self) -> int:
        """Lines kept, of all units."""
        return self._lines.maxlen or 0

    def note(
        self,
        unit_id: str,
        cause: str | Attempt,
        text: str,
        *values: object,
        at_s: float | None = None,
    ) -> None:
        """Remember a line; the oldest gives way. ``values`` fill a ``text`` with places for them,
        as ``str.format`` does; they must not change later."""
        if at_s is None:
            at_s = 0.0 if self._clock is None else self._clock()
        self._lines.append((at_s, unit_id, cause, text[:MAX_TEXT], values))

    def story(self, unit_id: str) -> list[StoryLine]:
        """What is remembered of a unit, oldest first."""
        return [_in_words(line) for line in list(self._lines) if line[1] == unit_id]

    def __len__(self) -> int:
        return len(self._lines)
