"""A shard process's streams against a fake Binder and dispatcher over real grpc."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from scheduler_shard.process import run
from stretto.config.shard import ShardSettings
from stretto.model.unit import Unit
from stretto.rpc.servers import RpcServer
from stretto.rpc.wire_follow import encode_follow
from stretto.snapshot.delta import Delta
from tests.shard.fakes import FakeBinder, FakeDispatcher
from tests.shard.worlds import node, shape, unit

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Running:
    """A shard that runs in this loop."""

    def __init__(self, settings: ShardSettings) -> None:
        self.stop = asyncio.Event()
        self.ready = asyncio.Event()
        self.task = asyncio.create_task(run(settings, stop=self.stop, ready=self.ready))

    async def until_ready(self) -> None:
        async with asyncio.timeout(10):
            await self.ready.wait()

    async def end(self) -> None:
        self.stop.set()
        async with asyncio.timeout(10):
            await self.task


@contextlib.asynccontextmanager
async def serving(*servers: RpcServer) -> AsyncIterator[None]:
    for server in servers:
        await server.start()
    try:
        yield
    finally:
        for server in servers:
            await server.stop(0)


@contextlib.asynccontextmanager
async def shards(
    binder: FakeBinder, dispatcher: FakeDispatcher, *, count: int = 1, window: int = 64
) -> AsyncIterator[list[Running]]:
    async with serving(binder.server, dispatcher.server):
        running = [
            Running(
                ShardSettings(
                    name=f"shard-{i}",
                    dispatcher=f"127.0.0.1:{dispatcher.server.port}",
                    binder=f"127.0.0.1:{binder.server.port}",
                    telemetry_listen="127.0.0.1:0",
                    window=window,
                    validate=True,
                )
            )
            for i in range(count)
        ]
        try:
            await asyncio.gather(*(one.until_ready() for one in running))
            yield running
        finally:
            await asyncio.gather(*(one.end() for one in running))


def units(count: int, *, number: int = 1) -> list[Unit]:
    return [unit(f"pod-{number}-{i}", number=number, attempt=i + 1) for i in range(count)]


async def test_units_become_proposals_and_verdicts_become_credits() -> None:
    """Several windows' worth: 300 units through a window of 64."""
    binder = FakeBinder([node(i, cpu_milli=64_000) for i in range(1, 11)])
    dispatcher = FakeDispatcher([shape(100)])
    async with shards(binder, dispatcher):
        dispatcher.pending = units(300)
        await dispatcher.dispatch()
        await dispatcher.until(lambda: len(dispatcher.settled) == 300)
    assert len(binder.bound) == 300
    assert len(set(binder.bound.values())) == 10, "equal nodes share the load"


async def test_two_shards_fill_the_cluster_exactly_and_report_the_rest() -> None:
    """Room for 80 of 100 pods: 80 bound, and no unit is lost on the way."""
    binder = FakeBinder([node(i, cpu_milli=4000) for i in range(1, 21)])
    dispatcher = FakeDispatcher([shape(1000)])
    async with shards(binder, dispatcher, count=2):
        dispatcher.pending = units(100)
        await dispatcher.dispatch()

        def answered() -> bool:
            return len(dispatcher.settled) + len(dispatcher.unplaceable) == 100

        await dispatcher.until(answered)
    lost = len(dispatcher.settled) - len(binder.bound)
    assert len(binder.bound) + lost + len(dispatcher.unplaceable) == 100
    assert len(binder.bound) == 80
    for answer in dispatcher.unplaceable:
        assert answer.diagnosis.message.startswith("0/20 nodes are available: 20 Insufficient cpu")
        assert answer.version.sequence == 81, "decided when all 80 commits were in the snapshot"


async def test_open_proposals_are_sent_again_after_the_stream_to_the_binder_broke() -> None:
    """Same epoch: nothing is handed back, everything gets its verdict."""
    binder = FakeBinder([node(1, cpu_milli=64_000)])
    dispatcher = FakeDispatcher([shape(100)])
    async with shards(binder, dispatcher):
        binder.cut.set()
        dispatcher.pending = units(10)
        await dispatcher.dispatch()
        await dispatcher.until(lambda: len(dispatcher.settled) == 10)
    assert binder.resent == 10
    assert len(binder.bound) == 10
    assert dispatcher.handed_back == []


async def test_a_step_that_does_not_fit_leads_to_a_full_state() -> None:
    """Resynchronised, not disconnected for ever."""
    binder = FakeBinder([node(1, cpu_milli=64_000)])
    dispatcher = FakeDispatcher([shape(100)])
    async with shards(binder, dispatcher):
        wrong = Delta(1, 1, pod_sign=[1], pod_shape=[77], pod_node=[1], pod_uid=["x"])
        binder.send(encode_follow(wrong))
        binder.publish_pod("other", shape(500), 1)
        dispatcher.pending = units(5)
        await dispatcher.dispatch()
        await dispatcher.until(lambda: len(dispatcher.settled) == 5)
        async with asyncio.timeout(20):
            while len(binder.follows) < 2:  # units may have been decided before the step came
                await asyncio.sleep(0.01)
    assert len(binder.bound) == 6
    assert [request.epoch for request in binder.follows] == [0, 0]


async def test_stopping_gives_back_undecided_units_and_waits_for_open_ones() -> None:
    """Nothing is lost: every unit is settled or handed back."""
    binder = FakeBinder([node(1, cpu_milli=64_000)])
    dispatcher = FakeDispatcher([shape(100)])
    async with shards(binder, dispatcher) as (one,):
        binder.gate.clear()
        dispatcher.pending = [*units(8), unit("later", attempt=99, after=10_000)]
        await dispatcher.dispatch()
        await binder.until_proposed(8)
        one.stop.set()
        await dispatcher.until(lambda: len(dispatcher.handed_back) == 1)
        binder.gate.set()
        async with asyncio.timeout(5):
            await one.task
        await dispatcher.until(lambda: len(dispatcher.settled) == 8)
    assert dispatcher.handed_back[0].unit_id == "later"


async def test_a_restarted_binder_gets_nothing_of_the_old_epoch() -> None:
    """Its port answers with a new epoch: open units are handed back, new ones are placed."""
    binder = FakeBinder([node(1, cpu_milli=64_000)])
    dispatcher = FakeDispatcher([shape(100)])
    async with shards(binder, dispatcher):
        binder.gate.clear()
        dispatcher.pending = units(4)
        await dispatcher.dispatch()
        await binder.until_proposed(4)
        await binder.server.stop(0)
        successor = FakeBinder([node(1, cpu_milli=64_000)], epoch=2)
        successor.server.listen = f"127.0.0.1:{binder.server.port}"
        successor.server._wanted = binder.server.port
        async with serving(successor.server):
            await dispatcher.until(lambda: len(dispatcher.handed_back) == 4)
            dispatcher.pending = units(4)
            await dispatcher.dispatch()
            await dispatcher.until(lambda: len(dispatcher.settled) == 4)
            assert len(successor.bound) == 4
            assert successor.resent == 0


async def test_a_lost_dispatcher_is_dialled_again_with_what_is_free() -> None:
    """Credits on the new stream are the window without what is open."""
    binder = FakeBinder([node(1, cpu_milli=64_000)])
    dispatcher = FakeDispatcher([shape(100)])
    async with shards(binder, dispatcher, window=16):
        binder.gate.clear()
        dispatcher.pending = units(6)
        await dispatcher.dispatch()
        await binder.until_proposed(6)
        await dispatcher.server.stop(0)
        successor = FakeDispatcher([shape(100)])
        successor.server.listen = f"127.0.0.1:{dispatcher.server.port}"
        successor.server._wanted = dispatcher.server.port
        async with serving(successor.server):
            await successor.until(lambda: successor.credits.get("shard-0") == 10)
            binder.gate.set()
            await successor.until(lambda: successor.credits.get("shard-0") == 16)
            assert len(successor.settled) == 6
