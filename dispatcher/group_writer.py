"""Writes the PodGroupInitiallyScheduled condition of pod groups, as the brain orders it."""

from __future__ import annotations

from typing import Any

from dispatcher.group_conditions import GroupOrder
from dispatcher.order_writer import OrderWriter, condition_body, pause_of, refusal, result_of
from dispatcher.patching import PatchResult
from stretto.kube.answers import Response
from stretto.kube.client import path_part
from stretto.model.groups import INITIALLY_SCHEDULED


def group_patch(order: GroupOrder, *, wall_s: float) -> dict[str, Any]:
    """The strategic-merge patch; the uid keeps it off a group of the same name that came later."""
    condition = condition_body(
        kind=INITIALLY_SCHEDULED,
        words=(order.condition.status, order.condition.reason, order.condition.message),
        generation=order.generation,
        transition=order.transition,
        wall_s=wall_s,
    )
    return {"metadata": {"uid": order.uid}, "status": {"conditions": [condition]}}


class GroupWriter(OrderWriter[GroupOrder]):
    """See :class:`OrderWriter`."""

    def _name(self, order: GroupOrder) -> str:
        return f"pod group {order.key}"

    async def _send(self, order: GroupOrder) -> Response:
        namespace, _, name = order.key.partition("/")
        path = (
            f"/apis/scheduling.k8s.io/v1beta1/namespaces/{path_part(namespace)}"
            f"/podgroups/{path_part(name)}/status"
        )
        return await self._client.patch(path, group_patch(order, wall_s=self._wall()))

    def _answered(self, order: GroupOrder, answer: Response | None) -> str:
        result = result_of(answer)
        lane = self._core.machine.groups.lane
        lane.reply(order.uid, result, now=self._core.now(), pause_s=pause_of(answer))
        return refusal(answer) if answer is not None and result is PatchResult.FAILED else ""
