"""Resumes Jobs, and writes the condition that says what they wait for, as the brain orders it."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from dispatcher.job_records import JobOrder, JobResult
from dispatcher.job_writes import PAUSE_S
from dispatcher.order_writer import OrderWriter
from dispatcher.writer import api_time
from stretto.kube.answers import Response
from stretto.kube.client import MERGE, path_part
from stretto.kube.errors import KubeError
from stretto.model.jobs import ADMITTED, Job

log = logging.getLogger(__name__)


def resume_patch(order: JobOrder) -> dict[str, Any]:
    """The merge patch; carried out on the version that was decided on, or not at all."""
    return {
        "metadata": {"uid": order.uid, "resourceVersion": str(order.version)},
        "spec": {"suspend": False},
    }


def told_patch(order: JobOrder, *, wall_s: float) -> dict[str, Any]:
    """The strategic-merge patch of the status; the uid keeps it off a Job that came later."""
    assert order.condition is not None
    status, reason, message = order.condition
    condition = {"type": ADMITTED, "status": status, "reason": reason, "message": message}
    if order.transition:
        condition["lastTransitionTime"] = api_time(wall_s)
    return {"metadata": {"uid": order.uid}, "status": {"conditions": [condition]}}


def result_of(answer: Response) -> JobResult:
    """What an answer proves."""
    if answer.ok:
        return JobResult.WRITTEN
    if answer.status in (404, 409):
        return JobResult.STALE
    if answer.status == 429 or answer.status >= 500:
        return JobResult.UNKNOWN
    return JobResult.REFUSED


def suspended(answer: Response) -> bool:
    """Whether the Job in an answer is suspended still; what cannot be read does not say so."""
    try:
        return bool(msgspec.json.decode(answer.body, type=Job).spec.suspend)
    except msgspec.MsgspecError:
        return False


class JobWriter(OrderWriter[JobOrder]):
    """See :class:`OrderWriter`."""

    workers = 4

    async def _write(self, order: JobOrder) -> None:
        space, name = path_part(order.namespace), path_part(order.name)
        path = f"/apis/batch/v1/namespaces/{space}/jobs/{name}"
        result, text, pause_s = JobResult.UNKNOWN, "", PAUSE_S
        try:
            if order.condition is None:
                answer = await self._client.patch(path, resume_patch(order), content_type=MERGE)
            else:
                patch = told_patch(order, wall_s=self._wall())
                answer = await self._client.patch(f"{path}/status", patch)
            result = result_of(answer)
            pause_s = answer.retry_after or PAUSE_S
            if result in (JobResult.UNKNOWN, JobResult.REFUSED):
                text = f"{answer.status} {answer.text}"
            elif result is JobResult.WRITTEN and order.condition is None and suspended(answer):
                # Perhaps nothing has changed, and the watch will never show it.
                result, text = (
                    JobResult.REFUSED,
                    "an admission policy or webhook keeps it suspended",
                )
            if text:
                log.warning("job %s/%s: %s", order.namespace, order.name, text)
        except KubeError as error:
            log.warning("job %s/%s: %s", order.namespace, order.name, error)
        finally:
            self._core.machine.admission.reply(
                order, result, now=self._core.now(), text=text, pause_s=pause_s
            )
            self._core.changed()
