"""Resumes Jobs, and writes the condition that says what they wait for, as the brain orders it."""

from __future__ import annotations

from typing import Any

import msgspec

from dispatcher.job_records import JobOrder, JobResult
from dispatcher.order_writer import OrderWriter, condition_body, pause_of, refusal
from stretto.kube.answers import Response
from stretto.kube.client import MERGE, path_part
from stretto.model.jobs import ADMITTED, Job


def resume_patch(order: JobOrder) -> dict[str, Any]:
    """The merge patch; carried out on the version that was decided on, or not at all."""
    return {
        "metadata": {"uid": order.uid, "resourceVersion": str(order.version)},
        "spec": {"suspend": False},
    }


def told_patch(order: JobOrder, *, wall_s: float) -> dict[str, Any]:
    """The strategic-merge patch of the status; the uid keeps it off a Job that came later."""
    assert order.condition is not None
    condition = condition_body(
        kind=ADMITTED, words=order.condition, transition=order.transition, wall_s=wall_s
    )
    return {"metadata": {"uid": order.uid}, "status": {"conditions": [condition]}}


def result_of(answer: Response | None) -> JobResult:
    """What an answer proves; None: there was none."""
    if answer is None or answer.status == 429 or answer.status >= 500:
        return JobResult.UNKNOWN
    if answer.ok:
        return JobResult.WRITTEN
    return JobResult.STALE if answer.status in (404, 409) else JobResult.REFUSED


def suspended(answer: Response) -> bool:
    """Whether the Job in an answer is suspended still; what cannot be read does not say so."""
    try:
        return bool(msgspec.json.decode(answer.body, type=Job).spec.suspend)
    except msgspec.MsgspecError:
        return False


class JobWriter(OrderWriter[JobOrder]):
    """See :class:`OrderWriter`."""

    def _name(self, order: JobOrder) -> str:
        return f"job {order.namespace}/{order.name}"

    async def _send(self, order: JobOrder) -> Response:
        space, name = path_part(order.namespace), path_part(order.name)
        path = f"/apis/batch/v1/namespaces/{space}/jobs/{name}"
        if order.condition is None:
            return await self._client.patch(path, resume_patch(order), content_type=MERGE)
        return await self._client.patch(f"{path}/status", told_patch(order, wall_s=self._wall()))

    def _answered(self, order: JobOrder, answer: Response | None) -> str:
        undone = order.condition is None and answer is not None and answer.ok and suspended(answer)
        # Perhaps nothing has changed then, and the watch will never show it.
        result, wrong = JobResult.REFUSED if undone else result_of(answer), ""
        if undone:
            wrong = "an admission policy or webhook keeps it suspended"
        elif answer is not None and result in (JobResult.UNKNOWN, JobResult.REFUSED):
            wrong = refusal(answer)
        self._core.machine.admission.reply(
            order, result, now=self._core.now(), text=wrong, pause_s=pause_of(answer)
        )
        return wrong
