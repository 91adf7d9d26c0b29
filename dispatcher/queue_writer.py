"""Writes the status of queues, as the brain orders it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from dispatcher.core import Core
from dispatcher.queue_status import StatusOrder
from dispatcher.writer import api_time
from stretto.kube.client import MERGE, KubeClient, path_part
from stretto.kube.errors import KubeError
from stretto.quota.rows import QUOTA_API
from stretto.quota.status import patch_of

log = logging.getLogger(__name__)

WRITERS = 2
"""Patches at a time."""


class QueueWriter:
    """A few patches at a time."""

    def __init__(
        self, client: KubeClient, *, core: Core, wall: Callable[[], float] = time.time
    ) -> None:
        self._client = client
        self._core = core
        self._wall = wall
        self._orders: asyncio.Queue[StatusOrder] = asyncio.Queue()

    def write(self, orders: list[StatusOrder]) -> None:
        """Queue patches; the brain bounds how many there are."""
        for order in orders:
            self._orders.put_nowait(order)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(WRITERS):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            await self._write(await self._orders.get())

    async def _write(self, order: StatusOrder) -> None:
        path = f"/apis/{QUOTA_API}/queues/{path_part(order.name)}/status"
        status = order.status.since(order.before, now=api_time(self._wall()))
        patch, written = patch_of(status, order.before, uid=order.uid), None
        try:
            answer = await self._client.patch(path, patch, content_type=MERGE)
            if answer.ok:
                written = status
            else:
                log.warning("status of queue %s: %d %s", order.name, answer.status, answer.text)
        except KubeError as error:
            log.warning("status of queue %s: %s", order.name, error)
        finally:
            lane = self._core.machine.queue_status
            lane.reply(order.name, written=written, now=self._core.now())
