"""The last few things that were made, for whoever asks for the same again; in any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Lately(Generic[T]):
    """See the module docstring.

    Two threads that ask for the same at once may both make it, since making takes long and must not
    hold up a loop that asks for something else; the last one is kept.
    """

    def __init__(self, kept: int) -> None:
        assert kept > 0, "nothing is kept"
        self._kept = kept
        self._made: dict[Hashable, T] = {}
        self._lock = threading.Lock()

    def of_key(self, key: Hashable, make: Callable[[], T]) -> T:
        """What is made of a key."""
        found = self._made.get(key)
        return self._keep(key, make()) if found is None else found

    def _keep(self, key: Hashable, made: T) -> T:
        with self._lock:
            self._made.pop(key, None)
            while len(self._made) >= self._kept:
                del self._made[next(iter(self._made))]
            self._made[key] = made
        return made

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._made.clear()


class LatelyOf(Generic[T]):
    """The same of objects that are told apart by identity, as comparing them would cost what making
    costs. They are kept too, so that no other gets the identity of one that is known."""

    def __init__(self, kept: int) -> None:
        self._by_id: Lately[tuple[object, T]] = Lately(kept)

    def of(self, source: object, make: Callable[[], T]) -> T:
        """What is made of an object."""
        return self._by_id.of_key(id(source), lambda: (source, make()))[1]
