"""Writes the status of queues, as the brain orders it."""

from __future__ import annotations

import msgspec

from dispatcher.order_writer import OrderWriter, api_time, refusal
from dispatcher.queue_status import StatusOrder
from stretto.kube.answers import Response
from stretto.kube.client import MERGE, path_part
from stretto.quota.rows import QUOTA_API
from stretto.quota.status import patch_of


class QueueWriter(OrderWriter[StatusOrder]):
    """See :class:`OrderWriter`."""

    def write(self, orders: list[StatusOrder]) -> None:
        """Queue statuses, from now on with their times."""
        now = api_time(self._wall())
        super().write(
            [
                msgspec.structs.replace(order, status=order.status.since(order.before, now=now))
                for order in orders
            ]
        )

    def _name(self, order: StatusOrder) -> str:
        return f"status of queue {order.name}"

    async def _send(self, order: StatusOrder) -> Response:
        path = f"/apis/{QUOTA_API}/queues/{path_part(order.name)}/status"
        patch = patch_of(order.status, order.before, uid=order.uid)
        return await self._client.patch(path, patch, content_type=MERGE)

    def _answered(self, order: StatusOrder, answer: Response | None) -> str:
        written = answer is not None and answer.ok
        lane = self._core.machine.queue_status
        lane.reply(order.name, written=order.status if written else None, now=self._core.now())
        return "" if answer is None or written else refusal(answer)
