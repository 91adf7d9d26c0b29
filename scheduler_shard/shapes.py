"""Shapes that a shard was told about, and the numbers they have on its two streams.

The dispatcher numbers shapes on its stream; on the stream to the Binder the shard numbers them
itself. To spare rewriting every unit, our number is the dispatcher's plus a base that moves on
with each new stream of the dispatcher: on the first stream they are equal, and numbers of open
proposals that outlive a stream never mean two things.
"""

from __future__ import annotations

from collections.abc import Iterable

from stretto.model.shape import Shape


class ShapeEntry:
    """A shape and its numbers."""

    __slots__ = ("number", "shape", "theirs")

    def __init__(self, *, number: int, theirs: int, shape: Shape) -> None:
        self.number = number
        """On our stream to the Binder."""
        self.theirs = theirs
        """On the dispatcher's stream."""
        self.shape = shape


class ShapeBook:
    """Definitions of the current stream of the dispatcher."""

    def __init__(self) -> None:
        self.base = 0
        """What our numbers exceed the dispatcher's by."""
        self._entries: dict[int, ShapeEntry] = {}
        self._highest = 0
        self._dropped: list[int] = []

    def __len__(self) -> int:
        return len(self._entries)

    def define(self, shapes: Iterable[tuple[int, Shape]]) -> None:
        """The dispatcher names shapes."""
        for theirs, shape in shapes:
            number = self.base + theirs
            assert number > self.base, f"shape {theirs} has the number of an older stream"
            self._highest = max(self._highest, number)
            self._entries[theirs] = ShapeEntry(number=number, theirs=theirs, shape=shape)

    def get(self, theirs: int) -> ShapeEntry | None:
        """The shape that the dispatcher calls by this number."""
        return self._entries.get(theirs)

    def ours(self, number: int) -> ShapeEntry:
        """The shape that has this number of ours; it must be defined."""
        return self._entries[number - self.base]

    def forget(self, numbers: Iterable[int]) -> None:
        """The dispatcher will not use these numbers again."""
        for theirs in numbers:
            entry = self._entries.pop(theirs, None)
            if entry is not None:
                self._dropped.append(entry.number)

    def new_stream(self) -> None:
        """The dispatcher numbers afresh from here on."""
        self._dropped += [entry.number for entry in self._entries.values()]
        self._entries.clear()
        assert self._highest >= self.base, "numbers went back"
        self.base = self._highest

    def take_dropped(self) -> list[int]:
        """Our numbers that no unit to come will have; open proposals may have them still."""
        dropped, self._dropped = self._dropped, []
        return dropped
