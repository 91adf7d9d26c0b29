"""Writes PodScheduled=False conditions, and the FailedScheduling event that goes with each."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from dispatcher.conditions import PatchOrder
from dispatcher.core import Core
from dispatcher.order_writer import OrderWriter, condition_body, pause_of, refusal, result_of
from dispatcher.patching import PatchResult
from dispatcher.pods import WAITS
from stretto.kube.answers import Response
from stretto.kube.client import KubeClient
from stretto.kube.events import EventWriter, PodEvent
from stretto.kube.readers import BareObject, version_of

_head = msgspec.json.Decoder(BareObject)


def condition_patch(order: PatchOrder, *, wall_s: float) -> dict[str, Any]:
    """The strategic-merge patch."""
    condition = condition_body(
        kind="PodScheduled",
        words=("False", order.condition.reason, order.condition.message),
        generation=order.generation,
        transition=order.transition,
        wall_s=wall_s,
    )
    status: dict[str, Any] = {"conditions": [condition]}
    if order.condition.clear:
        status["nominatedNodeName"] = None
    return {
        "metadata": {"uid": order.uid, "resourceVersion": str(order.resource_version)},
        "status": status,
    }


class ConditionWriter(OrderWriter[PatchOrder]):
    """The slower lane's hands."""

    def __init__(
        self,
        client: KubeClient,
        *,
        core: Core,
        workers: int,
        events: dict[str, EventWriter],
        wall: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(client, core=core, workers=workers, wall=wall)
        self._events = events

    def _name(self, order: PatchOrder) -> str:
        return f"condition of {order.namespace}/{order.name}"

    async def _send(self, order: PatchOrder) -> Response:
        patch = condition_patch(order, wall_s=self._wall())
        return await self._client.patch_pod_status(order.namespace, order.name, patch)

    def _answered(self, order: PatchOrder, answer: Response | None) -> str:
        version, wrong, result = 0, "", result_of(answer)
        if answer is not None and result is PatchResult.WRITTEN:
            try:
                version = version_of(_head.decode(answer.body).metadata.resource_version)
            except msgspec.DecodeError as error:
                wrong = str(error)
        elif answer is not None and result is PatchResult.FAILED:
            wrong = refusal(answer)
        self._core.machine.patch_replied(
            order.uid,
            result,
            resource_version=version,
            now=self._core.now(),
            pause_s=pause_of(answer) if result is PatchResult.FAILED else 0.0,
        )
        if result is PatchResult.WRITTEN and order.condition.reason != WAITS:
            self._offer(order)
        return wrong

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
