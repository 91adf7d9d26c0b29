"""Writes the PodGroupInitiallyScheduled condition of pod groups, as the brain orders it."""

from __future__ import annotations

import logging
from typing import Any

from dispatcher.group_conditions import IN_FLIGHT, GroupOrder
from dispatcher.order_writer import OrderWriter
from dispatcher.patching import PatchResult
from dispatcher.writer import PAUSE_S, api_time, result_of
from stretto.kube.client import path_part
from stretto.kube.errors import KubeError
from stretto.model.groups import INITIALLY_SCHEDULED

log = logging.getLogger(__name__)


def group_patch(order: GroupOrder, *, wall_s: float) -> dict[str, Any]:
    """The strategic-merge patch; the uid keeps it off a group of the same name that came later."""
    condition: dict[str, Any] = {
        "type": INITIALLY_SCHEDULED,
        "status": order.condition.status,
        "reason": order.condition.reason,
        "message": order.condition.message,
    }
    if order.generation:
        condition["observedGeneration"] = order.generation
    if order.transition:
        condition["lastTransitionTime"] = api_time(wall_s)
    return {"metadata": {"uid": order.uid}, "status": {"conditions": [condition]}}


class GroupWriter(OrderWriter[GroupOrder]):
    """See :class:`OrderWriter`."""

    workers = IN_FLIGHT

    async def _write(self, order: GroupOrder) -> None:
        namespace, _, name = order.key.partition("/")
        path = (
            f"/apis/scheduling.k8s.io/v1beta1/namespaces/{path_part(namespace)}"
            f"/podgroups/{path_part(name)}/status"
        )
        pause_s, result = PAUSE_S, PatchResult.FAILED
        try:
            answer = await self._client.patch(path, group_patch(order, wall_s=self._wall()))
            result = result_of(answer)
            pause_s = answer.retry_after or PAUSE_S
            if result is PatchResult.FAILED:
                log.warning("pod group %s: %d %s", order.key, answer.status, answer.text)
        except KubeError as error:
            log.warning("pod group %s: %s", order.key, error)
        finally:
            lane = self._core.machine.groups.lane
            lane.reply(order.uid, result, now=self._core.now(), pause_s=pause_s)
            self._core.changed()
