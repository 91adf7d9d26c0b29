"""Writes PodScheduled=False conditions, and the FailedScheduling event that goes with each."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from dispatcher.conditions import PatchOrder
from dispatcher.core import Core
from dispatcher.patching import PatchResult
from dispatcher.pods import WAITS
from stretto.kube.answers import Response
from stretto.kube.client import KubeClient
from stretto.kube.errors import KubeError
from stretto.kube.events import EventWriter, PodEvent
from stretto.kube.readers import BareObject, version_of

log = logging.getLogger(__name__)

PAUSE_S = 1.0
"""After a write that failed for reasons of the server."""
_head = msgspec.json.Decoder(BareObject)


def api_time(wall_s: float) -> str:
    """Seconds since 1970 as the API writes times."""
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition_patch(order: PatchOrder, *, wall_s: float) -> dict[str, Any]:
    """The strategic-merge patch; without a transition the time of the last one stays."""
    condition: dict[str, Any] = {
        "type": "PodScheduled",
        "status": "False",
        "reason": order.condition.reason,
        "message": order.condition.message,
    }
    if order.generation:
        condition["observedGeneration"] = order.generation
    if order.transition:
        condition["lastTransitionTime"] = api_time(wall_s)
    status: dict[str, Any] = {"conditions": [condition]}
    if order.condition.clear:
        status["nominatedNodeName"] = None
    return {
        "metadata": {"uid": order.uid, "resourceVersion": str(order.resource_version)},
        "status": status,
    }


def result_of(answer: Response) -> PatchResult:
    """What an answer to the patch proves."""
    if answer.ok:
        return PatchResult.WRITTEN
    if answer.status == 409:
        return PatchResult.STALE
    if answer.status in (404, 422):
        return PatchResult.GONE
    return PatchResult.FAILED


class ConditionWriter:
    """The slower lane's hands: a few patches at a time."""

    def __init__(
        self,
        client: KubeClient,
        *,
        core: Core,
        events: dict[str, EventWriter],
        workers: int,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._core = core
        self._events = events
        self._workers = workers
        self._wall = wall
        self._orders: asyncio.Queue[PatchOrder] = asyncio.Queue()

    def to_api(self, orders: list[PatchOrder]) -> None:
        """Queue patches; the lane bounds how many there are."""
        for order in orders:
            self._orders.put_nowait(order)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            await self._write(await self._orders.get())

    async def _write(self, order: PatchOrder) -> None:
        version, pause_s, result = 0, 0.0, PatchResult.FAILED
        try:
            answer = await self._client.patch_pod_status(
                order.namespace, order.name, condition_patch(order, wall_s=self._wall())
            )
            result = result_of(answer)
            if result is PatchResult.WRITTEN:
                version = version_of(_head.decode(answer.body).metadata.resource_version)
            elif result is PatchResult.FAILED:
                pause_s = answer.retry_after or PAUSE_S
                log.warning(
                    "condition of %s/%s: %d %s",
                    order.namespace,
                    order.name,
                    answer.status,
                    answer.text,
                )
        except (KubeError, msgspec.DecodeError) as error:
            pause_s = PAUSE_S
            log.warning("condition of %s/%s: %s", order.namespace, order.name, error)
        finally:
            self._core.machine.patch_replied(
                order.uid,
                result,
                resource_version=version,
                now=self._core.now(),
                pause_s=pause_s,
            )
            self._core.changed()
        if result is PatchResult.WRITTEN and order.condition.reason != WAITS:
            self._offer(order)

    def _offer(self, order: PatchOrder) -> None:
        writer = self._events.get(order.profile) or next(iter(self._events.values()), None)
        if writer is None:
            return
        writer.offer(
            PodEvent(
                namespace=order.namespace,
                name=order.name,
                uid=order.uid,
                reason="FailedScheduling",
                action="Scheduling",
                note=order.condition.message,
                warning=True,
            )
        )
