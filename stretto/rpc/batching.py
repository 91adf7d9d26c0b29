"""Gathering single items into batches: a message costs ten times what an item in it does.

The consumer asks for the next batch when it is free, so whatever arrives while it is busy is the
next batch; only an idle consumer lingers, a millisecond or two, for company.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Batcher(Generic[T]):
    """A queue that gives batches. Its depth is bounded by what its producers are allowed to hold
    (credits)."""

    def __init__(self, *, enough: int = 64, limit: int = 256, linger_s: float = 0.002) -> None:
        assert 0 < enough <= limit
        self._enough = enough
        self._limit = limit
        self._linger_s = linger_s
        self._items: deque[T] = deque()
        self._some = asyncio.Event()
        self._plenty = asyncio.Event()
        self._batches = 0
        self._taken = 0

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        """Add one item."""
        self._items.append(item)
        self._signal()

    def put_all(self, items: Iterable[T]) -> None:
        """Add several, which then tend to travel together."""
        self._items.extend(items)
        self._signal()

    def _signal(self) -> None:
        if self._items:
            self._some.set()
        if len(self._items) >= self._enough:
            self._plenty.set()

    async def next(self) -> list[T]:
        """Wait for at least one item; then for ``enough`` of them or the linger, whichever is
        first."""
        while not self._items:
            self._some.clear()
            await self._some.wait()
        if len(self._items) < self._enough and self._linger_s > 0:
            self._plenty.clear()
            try:
                async with asyncio.timeout(self._linger_s):
                    await self._plenty.wait()
            except TimeoutError:
                pass
        return self.take()

    def take(self) -> list[T]:
        """Up to ``limit`` items, at once; may be empty."""
        count = min(self._limit, len(self._items))
        batch = [self._items.popleft() for _ in range(count)]
        self._batches += 1
        self._taken += count
        return batch

    def clear(self) -> None:
        """Forget what waits."""
        self._items.clear()

    def statistics(self) -> dict[str, int]:
        """Items waiting, batches and items given so far."""
        return {"waiting": len(self._items), "batches": self._batches, "items": self._taken}
