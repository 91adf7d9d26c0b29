"""The shells over real streams on loopback: a shard, a Binder's log and outcomes, played by the
test.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from dispatcher.conditions import PatchOrder
from dispatcher.core import Core, Sinks
from dispatcher.follow import FollowClient
from dispatcher.machine import Machine
from dispatcher.outcomes_client import OutcomesClient
from dispatcher.patching import PatchResult
from dispatcher.pods import Place, PodSeen
from dispatcher.work_server import WorkServer
from stretto.model.shape import Shape
from stretto.model.unit import Diagnosis, Outcome, OutcomeKind, PodUid, Unplaceable, Version
from stretto.rpc.channels import Dialer, Stream
from stretto.rpc.errors import NotLeader, PeerGone
from stretto.rpc.messages import (
    FollowKind,
    FollowMessage,
    FromShard,
    OutcomeBatch,
    ShardHello,
    ToShard,
)
from stretto.rpc.servers import RpcServer, add_work
from stretto.rpc.services import WORK
from stretto.snapshot.delta import Delta, ObjectRow
from tests.dispatcher.brain import shape
from tests.dispatcher.fake_binder import BINDER, SECURITY, FakeBinder, until

pytestmark = pytest.mark.asyncio(loop_scope="session")
EPOCH = 7


class Writer:
    """Every condition is written at once."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def write(self, orders: list[PatchOrder]) -> None:
        for order in orders:
            self.core.machine.patch_replied(
                order.uid, PatchResult.WRITTEN, resource_version=100, now=self.core.now()
            )


def nobody(orders: list[Any]) -> None:
    assert not orders


class World:
    """A dispatcher between a fake Binder and shards that the test plays."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.core = Core(self.machine, linger_s=0.001)
        self.work = WorkServer(self.core, leader=lambda: "the-leader")
        self.server = RpcServer("127.0.0.1:0", security=SECURITY)
        add_work(self.server, self.work.handle)
        self.binder = FakeBinder()
        self.writer = Writer(self.core)

    def create(self, *uids: str) -> None:
        for number, uid in enumerate(uids):
            seen = PodSeen(
                uid=PodUid(uid),
                namespace="default",
                name=uid,
                resource_version=number + 1,
                shape=shape(),
                profile="stretto",
            )
            self.machine.intake.seen(seen, self.core.now())
        self.core.changed()

    async def shard(self, name: str = "shard-1", *, credits_: int = 10) -> Any:
        dialer = Dialer(f"127.0.0.1:{self.server.port}", security=SECURITY, rng=random.Random(1))
        hello = ShardHello(shard=name, incarnation="one")
        stream, greeting = await dialer.connect(WORK, lambda: FromShard(hello=hello))
        assert greeting.dispatcher_epoch == EPOCH
        await stream.send(FromShard(credits=credits_))
        return stream

    def place(self, uid: str) -> Place | None:
        record = self.machine.pods.get(uid)
        return record.place if record else None


async def units(stream: Stream[FromShard, ToShard]) -> ToShard:
    async with asyncio.timeout(15):
        message = await stream.receive()
    assert message is not None
    return message


@contextlib.asynccontextmanager
async def world(*, lead: bool = True) -> AsyncIterator[World]:
    here = World()
    await here.server.start()
    await here.binder.server.start()
    target = f"127.0.0.1:{here.binder.server.port}"
    rng = random.Random(1)
    outcomes = OutcomesClient(
        here.core, target=target, security=SECURITY, name="dispatcher", rng=rng
    )
    follow = FollowClient(here.core, target=target, security=SECURITY, name="dispatcher", rng=rng)
    here.core.sinks = Sinks(
        to_shard=here.work.to_shard,
        to_binder=outcomes.to_binder,
        conditions=here.writer.write,
        groups=nobody,
        queues=nobody,
        jobs=nobody,
    )
    tasks = []
    if lead:
        here.machine.begin(EPOCH, sources=1)
        here.machine.synced()
        tasks = [asyncio.create_task(part.run()) for part in (outcomes, follow, here.core)]
    try:
        if lead:
            await until(lambda: here.machine.open() and follow.version.epoch)
        yield here
        here.machine.validate()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await here.server.stop(0)
        await here.binder.server.stop(0)


async def test_units_reach_a_shard_and_an_outcome_is_applied_and_acknowledged() -> None:
    async with world() as here:
        here.create("a", "b")
        stream = await here.shard()
        message = await units(stream)
        assert [unit.unit_id for unit in message.units] == ["a", "b"]
        assert message.shapes == [(message.units[0].members[0].shape, shape())]
        first = message.units[0]
        await stream.send(FromShard(settled=[(first.unit_id, first.attempt)]))
        await until(lambda: here.place("a") is Place.OWNED)
        bound = Outcome(first.unit_id, first.attempt, OutcomeKind.BOUND, node="n1")
        await here.binder.batches.put(
            OutcomeBatch(binder_epoch=BINDER, first_index=1, outcomes=[bound])
        )
        await until(lambda: here.place("a") is Place.SETTLED)
        await until(lambda: any(r.acknowledged == 1 for r in here.binder.requests))
        await stream.close()
        await until(lambda: not here.machine.shards.assignment.shards)
        assert here.place("b") is Place.WAITING


async def test_a_parked_pod_is_woken_by_the_log_and_told_the_version_to_reach() -> None:
    async with world() as here:
        here.create("a")
        stream = await here.shard()
        unit = (await units(stream)).units[0]
        answer = Unplaceable(
            unit.unit_id,
            unit.attempt,
            unit.members[0].shape,
            Version(BINDER, 1),
            Diagnosis("0/1 nodes are available", (), 1),
        )
        await stream.send(FromShard(unplaceable=[answer]))
        await until(lambda: here.place("a") is Place.WAITING)
        freed = Delta(epoch=BINDER, sequence=2)
        freed.shapes = [(1, Shape(profile="stretto", namespace="default"))]
        freed.pod_sign, freed.pod_shape, freed.pod_node, freed.pod_uid = [-1], [1], [1], ["x"]
        await here.binder.log.put(FollowMessage(FollowKind.DELTA, freed))
        again = (await units(stream)).units[0]
        assert again.min_sequence == 2
        assert again.attempt > unit.attempt
        await stream.close()


async def test_label_keys_of_the_log_project_the_shapes() -> None:
    async with world() as here:
        row = ObjectRow("LabelKeys", "", 2, msgspec.msgpack.encode(["app"]))
        delta = Delta(epoch=BINDER, sequence=2)
        delta.objects = [row]
        await here.binder.log.put(FollowMessage(FollowKind.DELTA, delta))
        await until(lambda: here.machine.shapes.label_keys == ("app",))


async def test_after_a_broken_log_it_resumes_where_it_was() -> None:
    async with world() as here:
        for kind, sequence in ((FollowKind.DELTA, 2), (FollowKind.HEARTBEAT, 2)):
            await here.binder.log.put(FollowMessage(kind, Delta(epoch=BINDER, sequence=sequence)))
        await here.binder.log.put(None)
        await until(lambda: len(here.binder.followed) == 2)
        assert (here.binder.followed[1].epoch, here.binder.followed[1].sequence) == (BINDER, 2)


@pytest.mark.parametrize("kind", [FollowKind.DELTA, FollowKind.HEARTBEAT])
async def test_a_log_that_leaves_a_step_out_is_read_anew(kind: FollowKind) -> None:
    async with world() as here:
        await here.binder.log.put(FollowMessage(kind, Delta(epoch=BINDER, sequence=3)))
        await until(lambda: len(here.binder.followed) == 2)
        assert (here.binder.followed[1].epoch, here.binder.followed[1].sequence) == (0, 0)


async def test_a_withdrawal_reaches_the_binder() -> None:
    async with world() as here:
        here.create("a")
        stream = await here.shard()
        await units(stream)
        here.machine.intake.deleted("a", leaving=True, now=here.core.now())
        here.core.changed()
        await until(lambda: any(r.withdraw == ["a"] for r in here.binder.requests))
        await stream.close()


async def test_a_shard_that_dials_again_gets_its_units_again() -> None:
    async with world() as here:
        here.create("a")
        first = await here.shard()
        assert (await units(first)).units
        second = await here.shard()
        assert [unit.unit_id for unit in (await units(second)).units] == ["a"]
        async with asyncio.timeout(5):
            assert await first.receive() is None, "the older stream is ended"
        await first.close()
        await second.close()


async def test_a_standby_names_the_leader() -> None:
    async with world(lead=False) as here:
        dialer = Dialer(f"127.0.0.1:{here.server.port}", security=SECURITY, rng=random.Random(1))
        hello = ShardHello(shard="s", incarnation="one")
        with pytest.raises(NotLeader, match="the-leader"):
            await dialer.try_once(WORK, lambda: FromShard(hello=hello))


async def test_a_shard_of_another_configuration_is_refused_by_name() -> None:
    async with world() as here:
        dialer = Dialer(f"127.0.0.1:{here.server.port}", security=SECURITY, rng=random.Random(1))
        hello = ShardHello(shard="s", incarnation="one", profiles="other")
        with pytest.raises(PeerGone, match="shard s decides by configuration other"):
            await dialer.try_once(WORK, lambda: FromShard(hello=hello))
