"""The Binder refuses peers that decide by another configuration, before it greets them."""

from __future__ import annotations

import pytest

from binder.server import BinderServer, Parts
from stretto.rpc.errors import WireError
from stretto.rpc.messages import OutcomeRequest, ProposalBatch, ShardHello
from stretto.telemetry.binder_metrics import BinderMetrics
from tests.binder.shells import Rig, simulated


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
