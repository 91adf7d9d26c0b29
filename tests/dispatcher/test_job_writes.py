"""Writes to Jobs: one at a time for each, few at once, and what an answer proves."""

from __future__ import annotations

import asyncio
import json
from unittest.mock import AsyncMock, MagicMock

import pytest

from dispatcher.admission import LOOK_EVERY_S
from dispatcher.job_records import JobOrder, JobResult
from dispatcher.job_writer import JobWriter
from dispatcher.job_writes import IN_FLIGHT
from stretto.kube.answers import Response
from stretto.quota.rows import QueueRow
from tests.dispatcher.job_field import JobField, limit


def test_an_answer_that_does_not_come_says_nothing_and_the_promise_stands() -> None:
    field = JobField(a=QueueRow(limit=limit(100)))
    field.job("j", "a", 1)
    field.job("k", "a", 1)
    (order, _) = field.writes()
    field.reply(order, JobResult.UNKNOWN)  # it never reached the API server
    assert field.amount("j") == 1
    again = [o for o in field.writes(2) if o.condition is None]
    assert [o.uid for o in again] == ["j"]
    assert again[0].version == order.version
    field.carry_out(again[0], show=False, answered=False)  # this time it did
    (third,) = [o for o in field.writes(2) if o.condition is None]
    field.carry_out(third)
    assert not field.jobs["j"].suspended
    assert [o for o in field.writes(20) if o.condition is None] == []
    (fourth,) = [o for o in field.writes(20) if o.condition is None]
    assert fourth.version == order.version, "nothing is shown: the same again is safe"
    field.show("j")
    assert field.amount("j") == 1
    assert [o.uid for o in field.writes(60) if o.condition is None] == []


@pytest.mark.parametrize("suspended", [True, False])
async def test_a_resumption_that_something_undoes_is_one_that_is_refused(suspended: bool) -> None:
    """An admission policy suspends it again: the version is as before, and no watch tells."""
    body = {"metadata": {"name": "j"}, "spec": {"suspend": suspended, "template": {}}}
    client, core = AsyncMock(), MagicMock()
    client.patch.return_value = Response(status=200, body=json.dumps(body).encode())
    writer = JobWriter(client, core=core, workers=1)
    answered = asyncio.Event()
    core.changed.side_effect = answered.set
    writer.write([JobOrder("u", "default", "j", 7)])
    running = asyncio.create_task(writer.run())
    await answered.wait()
    running.cancel()
    (_, result), named = core.machine.admission.reply.call_args
    assert result is (JobResult.REFUSED if suspended else JobResult.WRITTEN)
    assert ("keeps it suspended" in named["text"]) == suspended


def test_a_job_that_changed_under_the_write_is_looked_at_again() -> None:
    field = JobField(a=QueueRow(limit=limit(300)))
    field.job("j", "a", 1)
    (order,) = field.writes()
    field.change("j", count=4, show=False)
    field.carry_out(order)
    assert field.jobs["j"].suspended
    assert field.amount("j") == 1, "until the watch shows what it has become"
    field.show("j")
    assert field.amount("j") == 0
    assert field.resumed() == []
    assert field.told("j") == (
        "False", "Invalid", "it asks for more cpu at once than the limit of queue a",
    )  # fmt: skip
    field.queue("a", QueueRow(limit=limit(400)))
    assert field.resumed() == ["j"]


def test_what_the_api_server_refuses_gives_its_room_to_others_for_a_while() -> None:
    field = JobField(a=QueueRow(limit=limit(100)))
    field.job("j", "a", 1)
    field.job("k", "a", 1)
    (order, told) = field.writes()
    field.reply(order, JobResult.REFUSED)
    field.carry_out(told)
    assert [o.uid for o in field.writes() if o.condition is None] == ["k"]
    assert "the API server does not let it be resumed: 403 no" in {
        o.condition.message for o in field.orders if o.condition
    }


def test_writes_are_few_at_a_time_and_all_are_made() -> None:
    field = JobField(a=QueueRow())
    for number in range(3 * IN_FLIGHT):
        field.job(f"j{number:03}", "a", 1)
    assert len(field.writes()) == IN_FLIGHT
    assert field.writes() == []
    for order in list(field.orders):
        field.carry_out(order)
    assert field.brain.machine.job_writes(field.brain.now + LOOK_EVERY_S / 2) == []
    done = len(field.resumed(rounds=20))
    assert done == 2 * IN_FLIGHT
