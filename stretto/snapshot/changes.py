"""What changed, in order: what lets a cached shape refresh O(changed) rows instead of all."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class ChangeLog(Generic[Item]):
    """A bounded list of what changed, mostly rows; ``stamp`` counts every change ever made."""

    __slots__ = ("_base", "_items", "_limit")

    def __init__(self, *, limit: int = 1 << 16) -> None:
        self._base = 0
        self._limit = limit
        self._items: list[Item] = []

    @property
    def stamp(self) -> int:
        """Grows by one with each change."""
        return self._base + len(self._items)

    def note(self, item: Item) -> None:
        """Record that something changed."""
        self._items.append(item)
        if len(self._items) > self._limit:
            drop = self._limit // 2
            del self._items[:drop]
            self._base += drop

    def take_back(self) -> None:
        """Undo the last :meth:`note`, which nobody can have seen."""
        self._items.pop()

    def note_all(self) -> None:
        """Record that everything may have changed (a reset): every older stamp reads as "all"."""
        self._base += len(self._items) + 1
        self._items.clear()

    def since(self, stamp: int) -> list[Item] | None:
        """What changed after ``stamp``; None when that is no longer known: treat as
        all."""
        if stamp < self._base:
            return None
        tail = self._items[stamp - self._base :]
        return tail if len(tail) < 2 else list(set(tail))
