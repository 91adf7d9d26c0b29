"""The slower lane: bounded, never in the way of binds, and persistent where it makes sense."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from stretto.kube.answers import Response
from stretto.kube.client import KubeClient
from stretto.kube.events import NOTE_LIMIT, EventWriter, PodEvent
from tests.kube.api_server import Handler, answer, client_of, hang_up, refusal, serving

CREATED = answer(201, {})


def event(name: str = "p1", note: str = "bound") -> PodEvent:
    return PodEvent("default", name, f"uid-{name}", "Scheduled", "Binding", note)


@asynccontextmanager
async def running(client: KubeClient, **settings: int) -> AsyncIterator[EventWriter]:
    writer = EventWriter(client, rng=random.Random(1), **settings)  # type: ignore[arg-type]
    task = asyncio.create_task(writer.run())
    try:
        yield writer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_an_event_says_what_happened_to_which_pod() -> None:
    async with serving(CREATED) as server, client_of(server) as client, running(client) as writer:
        assert writer.offer(event())
        assert await writer.drain(5)
        body = json.loads(server.bodies[0])
        assert server.requests[0].path == "/apis/events.k8s.io/v1/namespaces/default/events"
        assert body["regarding"] == {
            "kind": "Pod", "apiVersion": "v1", "namespace": "default", "name": "p1", "uid": "uid-p1"
        }  # fmt: skip
        assert (body["reason"], body["action"], body["type"]) == ("Scheduled", "Binding", "Normal")
        assert body["metadata"]["name"].startswith("p1.")
        assert (writer.written, writer.dropped) == (1, 0)


async def test_what_does_not_fit_is_dropped_and_counted() -> None:
    async with serving(CREATED) as server, client_of(server) as client:
        writer = EventWriter(client, capacity=2)
        assert [writer.offer(event()) for _ in range(4)] == [True, True, False, False]
        assert (writer.pending, writer.dropped) == (2, 2)


async def test_while_binds_are_in_flight_one_worker_is_left() -> None:
    async with serving(CREATED) as server, client_of(server) as client:
        in_flight = 0
        most = 0

        async def count(events: list[tuple[str, bytes]]) -> object:
            nonlocal in_flight, most
            in_flight += 1
            most = max(most, in_flight)
            await asyncio.sleep(0.002)
            in_flight -= 1
            return await KubeClient.create_events(client, events)

        client.create_events = count  # type: ignore[assignment]
        async with running(client) as writer:
            client.binds_in_flight = 3
            for number in range(20):
                writer.offer(event(f"p{number}"))
            assert await writer.drain(10)
            assert most == 1
            for number in range(200):
                writer.offer(event(f"q{number}"))
            client.binds_in_flight = 0  # nobody says so: the one that is left finds out
            assert await writer.drain(10)
            assert most > 1


async def test_rows_are_as_long_as_they_are_fast() -> None:
    rows: list[int] = []
    now = 0.0
    each_s = 0.001

    async def note(events: list[tuple[str, bytes]]) -> list[Response]:
        nonlocal now
        now += each_s * len(events)
        rows.append(len(events))
        return [Response(201, b"{}") for _ in events]

    async with serving(CREATED) as server, client_of(server) as client:
        client.create_events = note  # type: ignore[assignment]
        writer = EventWriter(client, workers=1, clock=lambda: now)
        for number in range(47):
            writer.offer(event(f"p{number}"))
        task = asyncio.create_task(writer.run())
        assert await writer.drain(10)
        assert rows == [1, 2, 4, 8, 16, 16]
        each_s = 1.0
        for number in range(33):
            writer.offer(event(f"q{number}"))
        assert await writer.drain(10)
        assert rows[6:] == [16, 8, 4, 2, 1, 1, 1], "waiting for each other is no gain"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("first", [hang_up, refusal(503), refusal(429)])
async def test_a_passing_trouble_is_tried_again(first: Handler) -> None:
    script = [first, CREATED]
    async with serving(*script) as server, client_of(server) as client, running(client) as writer:
        writer.offer(event())
        assert await writer.drain(5)
        assert (writer.written, writer.dropped) == (1, 0)


async def test_a_second_try_that_meets_the_first_ones_event_is_done() -> None:
    script = [hang_up, refusal(409, "already exists", "AlreadyExists")]
    async with serving(*script) as server, client_of(server) as client, running(client) as writer:
        writer.offer(event())
        assert await writer.drain(5)
        assert (writer.written, writer.dropped) == (1, 0)


async def test_a_namespace_that_is_gone_costs_one_try() -> None:
    script = [refusal(404, "namespaces not found", "NotFound")]
    async with serving(*script) as server, client_of(server) as client, running(client) as writer:
        writer.offer(event())
        assert await writer.drain(5)
        assert (writer.written, writer.dropped, len(server.requests)) == (0, 1, 1)


async def test_long_notes_and_names_are_cut_to_what_the_server_takes() -> None:
    async with serving(CREATED) as server, client_of(server) as client, running(client) as writer:
        writer.offer(event("x" * 229 + "." + "y" * 23, "ä" * 2000))
        assert await writer.drain(5)
        body = json.loads(server.bodies[0])
        assert len(body["note"].encode()) <= NOTE_LIMIT
        name = body["metadata"]["name"]
        assert len(name) <= 253
        assert ".." not in name
