"""Writes the status of queues, as the brain orders it."""

from __future__ import annotations

import logging

from dispatcher.order_writer import OrderWriter
from dispatcher.queue_status import StatusOrder
from dispatcher.writer import api_time
from stretto.kube.client import MERGE, path_part
from stretto.kube.errors import KubeError
from stretto.quota.rows import QUOTA_API
from stretto.quota.status import patch_of

log = logging.getLogger(__name__)


class QueueWriter(OrderWriter[StatusOrder]):
    """See :class:`OrderWriter`."""

    workers = 2

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
