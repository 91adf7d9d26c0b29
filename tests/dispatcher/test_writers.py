"""The brain hears of every order what came of it, and the log of what somebody should know."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from dispatcher.condition_writer import ConditionWriter
from dispatcher.conditions import PatchOrder
from dispatcher.group_conditions import GroupOrder
from dispatcher.group_writer import GroupWriter
from dispatcher.job_records import JobOrder, JobResult
from dispatcher.job_writer import JobWriter
from dispatcher.order_writer import OrderWriter
from dispatcher.patching import PAUSE_S, PatchResult
from dispatcher.pods import WAITS, Condition
from dispatcher.queue_status import StatusOrder
from dispatcher.queue_writer import QueueWriter
from stretto.kube.answers import Response
from stretto.kube.errors import KubeUnreachable
from stretto.model.groups import GroupCondition
from stretto.model.jobs import AdmissionCondition
from stretto.quota.status import QueueCondition, QueueStatus

OK = Response(200, b'{"metadata": {"resourceVersion": "12"}}')
GONE_AWAY = KubeUnreachable("nobody listens", sent=True)
PATIENT = Response(429, b"slow down", retry_after=7.0)
POD = PatchOrder("u", "default", "p", 11, 1, Condition("Unschedulable", "full"), True, "stretto")
GROUP = GroupOrder("default/g", "u", 1, GroupCondition("False", "Unschedulable", "full"), True)
JOB = JobOrder("u", "default", "j", 7, AdmissionCondition("False", "WaitingForQuota", "full"), True)
QUEUE = StatusOrder(
    "q", "u", QueueStatus(waiting=1, conditions=(QueueCondition("True"),)), QueueStatus()
)


class Field:
    """A client that answers, a brain that hears, and a writer between them."""

    def __init__(self, make: Callable[..., OrderWriter[Any]], answer: Response | Exception) -> None:
        self.client, self.core = AsyncMock(), MagicMock()
        said = {"side_effect" if isinstance(answer, Exception) else "return_value": answer}
        self.client.patch.configure_mock(**said)
        self.client.patch_pod_status.configure_mock(**said)
        self.core.now.return_value = 100.0
        self.writer = make(self.client, core=self.core, workers=1, wall=lambda: 0.0)

    async def write(self, order: Any) -> None:
        heard = asyncio.Event()
        self.core.changed.side_effect = heard.set
        self.writer.write([order])
        running = asyncio.create_task(self.writer.run())
        await heard.wait()
        await asyncio.sleep(0)
        running.cancel()


def conditions(*args: Any, **named: Any) -> ConditionWriter:
    return ConditionWriter(*args, events={"stretto": named.pop("events", MagicMock())}, **named)


ANSWERS = (
    (OK, PatchResult.WRITTEN, JobResult.WRITTEN, 0.0),
    (Response(409, b""), PatchResult.STALE, JobResult.STALE, 0.0),
    (Response(404, b""), PatchResult.GONE, JobResult.STALE, 0.0),
    (Response(422, b"no"), PatchResult.GONE, JobResult.REFUSED, 0.0),
    (Response(500, b"sorry"), PatchResult.FAILED, JobResult.UNKNOWN, PAUSE_S),
    (PATIENT, PatchResult.FAILED, JobResult.UNKNOWN, 7.0),
    (GONE_AWAY, PatchResult.FAILED, JobResult.UNKNOWN, PAUSE_S),
)


@pytest.mark.parametrize(("answer", "result", "of_job", "pause_s"), ANSWERS)
async def test_what_came_of_a_pods_condition(
    answer: Response | Exception, result: PatchResult, of_job: JobResult, pause_s: float
) -> None:
    field = Field(conditions, answer)
    await field.write(POD)
    version = 12 if result is PatchResult.WRITTEN else 0
    field.core.machine.patch_replied.assert_called_once_with(
        "u", result, resource_version=version, now=100.0, pause_s=pause_s
    )


@pytest.mark.parametrize(("answer", "result", "of_job", "pause_s"), ANSWERS)
async def test_what_came_of_a_groups_condition(
    answer: Response | Exception, result: PatchResult, of_job: JobResult, pause_s: float
) -> None:
    field = Field(GroupWriter, answer)
    await field.write(GROUP)
    field.core.machine.groups.lane.reply.assert_called_once_with(
        "u", result, now=100.0, pause_s=pause_s or PAUSE_S
    )


@pytest.mark.parametrize(("answer", "result", "of_job", "pause_s"), ANSWERS)
async def test_what_came_of_a_jobs_condition(
    answer: Response | Exception, result: PatchResult, of_job: JobResult, pause_s: float
) -> None:
    field = Field(JobWriter, answer)
    await field.write(JOB)
    (_, heard), named = field.core.machine.admission.reply.call_args
    assert (heard, named["pause_s"]) == (of_job, pause_s or PAUSE_S)


@pytest.mark.parametrize(("answer", "result", "of_job", "pause_s"), ANSWERS)
async def test_what_came_of_a_queues_status(
    answer: Response | Exception, result: PatchResult, of_job: JobResult, pause_s: float
) -> None:
    field = Field(QueueWriter, answer)
    await field.write(QUEUE)
    (_, named) = field.core.machine.queue_status.reply.call_args
    if result is not PatchResult.WRITTEN:
        assert named["written"] is None
        return
    assert named["written"].condition().last_transition_time == "1970-01-01T00:00:00Z"
    sent = field.client.patch.call_args.args[1]
    assert "1970-01-01T00:00:00Z" in str(sent), "the brain is told another time than was written"


async def test_a_write_that_is_cut_off_is_told_as_unknown() -> None:
    field = Field(GroupWriter, OK)
    field.client.patch.side_effect = asyncio.CancelledError
    field.writer.write([GROUP])
    running = asyncio.create_task(field.writer.run())
    await asyncio.wait([running])
    (_, heard), _ = field.core.machine.groups.lane.reply.call_args
    assert heard is PatchResult.FAILED


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (OK, ""),
        (Response(409, b"changed"), ""),
        (Response(500, b"sorry"), "condition of default/p: 500 sorry"),
        (GONE_AWAY, "condition of default/p: nobody listens"),
        (Response(200, b"{"), "condition of default/p: "),
    ],
)
async def test_the_log_says_what_somebody_should_know(
    answer: Response | Exception, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    field = Field(conditions, answer)
    await field.write(POD)
    assert len(caplog.messages) == bool(line)
    assert not line or caplog.messages[0].startswith(line)


async def test_only_a_pod_that_was_told_why_it_finds_no_node_gets_an_event() -> None:
    events = MagicMock()

    def make(*args: Any, **named: Any) -> ConditionWriter:
        return conditions(*args, events=events, **named)

    for answer, reason in ((PATIENT, "Unschedulable"), (OK, WAITS)):
        await Field(make, answer).write(
            PatchOrder("u", "default", "p", 11, 1, Condition(reason, "full"), True, "stretto")
        )
    assert not events.offer.called
    await Field(make, OK).write(POD)
    assert events.offer.call_args.args[0].note == "full"
