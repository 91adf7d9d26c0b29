"""What writers of a brain's orders share: a queue of them, and a few tasks that carry them out."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from dispatcher.core import Core
from stretto.kube.client import KubeClient

Order = TypeVar("Order")


class OrderWriter(ABC, Generic[Order]):
    """A few patches at a time; ``wall`` gives seconds since 1970."""

    workers: int
    """Patches at a time."""

    def __init__(
        self, client: KubeClient, *, core: Core, wall: Callable[[], float] = time.time
    ) -> None:
        self._client = client
        self._core = core
        self._wall = wall
        self._orders: asyncio.Queue[Order] = asyncio.Queue()

    def write(self, orders: list[Order]) -> None:
        """Queue patches; the brain bounds how many there are."""
        for order in orders:
            self._orders.put_nowait(order)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self.workers):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            await self._write(await self._orders.get())

    @abstractmethod
    async def _write(self, order: Order) -> None:
        """Carry out one, and tell the brain what came of it."""
