"""The Binder refuses peers that decide by another configuration, before it greets them."""

from __future__ import annotations

import asyncio

import pytest

from binder.server import BinderServer, Parts
from scheduler_shard.picture import Picture, Step
from stretto.rpc.errors import WireError
from stretto.rpc.messages import (
    FollowKind,
    FollowRequest,
    OutcomeRequest,
    ProposalBatch,
    ShardHello,
)
from stretto.rpc.wire_follow import decode_follow
from stretto.telemetry.binder_metrics import BinderMetrics
from tests.binder.shells import Rig, simulated, until
from tests.binder.world import node_of


async def once(message):
    yield message


def server_of(rig, *, profiles):
    server = BinderServer(leader=lambda: "", metrics=BinderMetrics(), profiles=profiles)
    server.open(
        Parts(
            rig.machine,
            publisher=rig.publisher,
            commits=rig.commits,
            executor=rig.executor,
            prebinder=rig.prebinder,
        )
    )
    return server


@pytest.mark.parametrize("theirs", ["one", "other"])
async def test_a_shard_proposes_only_by_the_binders_configuration(theirs):
    sent = []

    async def send(message):
        sent.append(message)

    async with simulated() as (_, client):
        server = server_of(Rig(client, epoch=1), profiles="one")
        hello = ShardHello("shard-1", "incarnation", profiles=theirs)
        proposing = server.propose(once(ProposalBatch(hello=hello)), send, "peer")
        if theirs == "one":
            await proposing
            assert [batch.binder_epoch for batch in sent] == [1]
        else:
            with pytest.raises(WireError, match="shard shard-1 decides by configuration other"):
                await proposing
            assert sent == []


async def test_a_dispatcher_subscribes_only_by_the_binders_configuration():
    sent = []

    async def send(message):
        sent.append(message)

    async with simulated() as (_, client):
        rig = Rig(client, epoch=1)
        await rig.open(clean=True)
        server = server_of(rig, profiles="one")
        request = OutcomeRequest(dispatcher_epoch=5, dispatcher="d", profiles="other")
        with pytest.raises(WireError, match="dispatcher d decides by configuration other"):
            await server.outcomes(once(request), send, "peer")
        assert sent == []
        await rig.stop()


async def test_a_follower_who_comes_back_is_told_where_he_was_and_then_what_he_missed():
    """Told the newest step instead, it would decide on a picture without what is yet to come."""
    sent = []

    async def send(message):
        sent.append(decode_follow(message))

    async with simulated() as (_, client):
        rig = Rig(client, epoch=1)
        server = server_of(rig, profiles="one")
        picture, number = Picture(), 0

        def step():
            nonlocal number
            number += 1
            rig.machine.node_seen(node_of(f"n{number}"))
            rig.publisher.publish(rig.machine.effects())

        async def follow(messages):
            """As a shard does, until so many have come."""
            version = picture.snapshot.version
            request = FollowRequest("shard-1", version.epoch, version.sequence)
            sent.clear()
            feed = asyncio.create_task(server.follow(once(request), send, "peer"))
            await until(lambda: len(sent) >= messages, "the log was sent")
            feed.cancel()
            await asyncio.gather(feed, return_exceptions=True)
            return [(m.kind, m.delta.sequence, picture.take(m)) for m in sent]

        step()
        await follow(3)
        assert picture.snapshot.version == (1, 1)
        step()
        step()
        assert await follow(3) == [
            (FollowKind.HEARTBEAT, 1, Step.NOTHING),
            (FollowKind.DELTA, 2, Step.ADVANCED),
            (FollowKind.DELTA, 3, Step.ADVANCED),
        ]
        assert picture.snapshot.node_count == 3
