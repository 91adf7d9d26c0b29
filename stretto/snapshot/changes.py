"""Which rows changed, in order: what lets a cached shape refresh O(changed) rows instead of all."""

from __future__ import annotations


class ChangeLog:
    """A bounded list of changed rows; ``stamp`` counts every change ever made."""

    __slots__ = ("_base", "_limit", "_rows")

    def __init__(self, *, limit: int = 1 << 16) -> None:
        self._base = 0
        self._limit = limit
        self._rows: list[int] = []

    @property
    def stamp(self) -> int:
        """Grows by one with each change."""
        return self._base + len(self._rows)

    def note(self, row: int) -> None:
        """Record that a row changed."""
        self._rows.append(row)
        if len(self._rows) > self._limit:
            drop = self._limit // 2
            del self._rows[:drop]
            self._base += drop

    def take_back(self) -> None:
        """Undo the last :meth:`note`, which nobody can have seen."""
        self._rows.pop()

    def note_all(self) -> None:
        """Record that every row may have changed (a reset): every older stamp reads as "all"."""
        self._base += len(self._rows) + 1
        self._rows.clear()

    def since(self, stamp: int) -> list[int] | None:
        """Distinct rows changed after ``stamp``; None when that is no longer known: treat as
        all."""
        if stamp < self._base:
            return None
        tail = self._rows[stamp - self._base :]
        return tail if len(tail) < 2 else list(set(tail))
