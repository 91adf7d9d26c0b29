"""Garbage at the gRPC ports of running roles: one line each, nothing lost, nobody else affected."""

from __future__ import annotations

import random
from pathlib import Path

import grpc
import pytest

from proto import stretto_pb2 as pb
from stretto.cli.run import Ports
from tests.e2e.api import Api
from tests.e2e.garbage import (
    FOLLOW,
    NOT_HTTP2,
    OUTCOMES,
    PROPOSE,
    WORK,
    converse,
    random_messages,
    send_bytes,
)
from tests.e2e.spoiler import Spoiler
from tests.e2e.stack import Stack, StackSettings, until

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(180)]

INVALID = grpc.StatusCode.INVALID_ARGUMENT
HELLO = pb.ShardHello(shard="stranger", incarnation="1", protocol=1)


def lines_of(stack: Stack, *names: str) -> list[str]:
    """All that the named roles (binder and dispatcher if none is) have logged."""
    return [
        line
        for name in names or ("binder", "dispatcher")
        for line in (stack.folder / "logs" / f"{name}.log").read_text().splitlines()
    ]


async def all_bound(api: Api, count: int) -> None:
    async def check() -> bool:
        return await api.bound() == count

    await until(check, timeout_s=60, what=f"{count} bound")


async def test_each_broken_message_gets_one_line_and_pods_go_on(api: Api, tmp_path: Path) -> None:
    await api.create_nodes(5)
    async with Stack(tmp_path, api.plane.kubeconfig) as stack:
        binder, dispatcher = stack.ports.binder, stack.ports.dispatcher
        await api.all(api.create_pod(f"a-{i}") for i in range(20))
        spoilt = pb.ShapeDefinition(id=1, definition=b"\xff")
        two_for_three = pb.Units(unit_id=["a", "b", "c"], attempt=[1, 2], pod_name=["a", "b", "c"])
        old = pb.ShardHello(shard="stranger", incarnation="1", protocol=99)
        broken = [
            (dispatcher, WORK, b"\xff\xff\xff", "FromShard: 3 bytes that are no such message"),
            (binder, FOLLOW, b"\xff\xff\xff", "FollowRequest: 3 bytes that are no such message"),
            (binder, PROPOSE, b"\xff\xff\xff", "ProposalBatch: 3 bytes that are no such message"),
            (binder, OUTCOMES, b"\xff\xff\xff", "OutcomeRequest: 3 bytes that are no such message"),
            (
                binder,
                PROPOSE,
                pb.ProposalBatch(hello=HELLO, shapes=[spoilt]).SerializeToString(),
                "ProposalBatch.shapes.definition of shape 1: ",
            ),
            (
                binder,
                PROPOSE,
                pb.ProposalBatch(hello=HELLO, units=two_for_three).SerializeToString(),
                "attempt has 2 entries; expected 3",
            ),
            (
                dispatcher,
                WORK,
                pb.FromShard(credits=1).SerializeToString(),
                "FromShard.hello: the first message of a stream must say who the shard is",
            ),
            (
                binder,
                PROPOSE,
                pb.ProposalBatch(binder_epoch=1).SerializeToString(),
                "ProposalBatch.hello: the first message of a stream must say who the shard is",
            ),
            (
                binder,
                PROPOSE,
                pb.ProposalBatch(hello=old).SerializeToString(),
                "ShardHello.protocol is 99, this process speaks 1; upgrade the older of the two",
            ),
            (
                binder,
                FOLLOW,
                pb.FollowRequest(follower="x", protocol=98).SerializeToString(),
                "FollowRequest.protocol is 98, this process speaks 1",
            ),
            (
                binder,
                OUTCOMES,
                pb.OutcomeRequest(dispatcher_epoch=2**64 - 1).SerializeToString(),
                "OutcomeRequest.dispatcher_epoch is 18446744073709551615; expected at most",
            ),
            (
                binder,
                OUTCOMES,
                pb.OutcomeRequest(dispatcher_epoch=2**53 - 1, profiles="x").SerializeToString(),
                "decides by configuration x, this process by ",
            ),
            (
                dispatcher,
                WORK,
                pb.FromShard(hello=pb.ShardHello(shard="s")).SerializeToString(),
                "ShardHello.shard and .incarnation must not be empty",
            ),
        ]
        for port, path, data, words in broken:
            code, said = await converse(port, path, data)
            assert (code, words in said) == (INVALID, True), (path, code, said)
            assert len([line for line in lines_of(stack) if words in line]) == 1, path
        await api.all(api.create_pod(f"b-{i}") for i in range(20))
        await all_bound(api, 40)
        for name, role in stack.supervisor.roles.items():
            assert role.starts == 1, name
        await stack.settle()


async def test_kinds_that_nobody_knows_cost_a_stream_and_no_pod(api: Api, tmp_path: Path) -> None:
    await api.create_nodes(5)
    ports = Ports()
    async with Spoiler(f"127.0.0.1:{ports.binder}") as proxy:
        settings = StackSettings(ports=ports, binder_address=proxy.address)
        async with Stack(tmp_path, api.plane.kubeconfig, settings) as stack:
            await api.all(api.create_pod(f"a-{i}") for i in range(40))
            await all_bound(api, 40)
            assert not proxy.left
            logged = lines_of(stack, "dispatcher", "shard-1", "shard-2")
            for words in (
                "VerdictBatch.kind holds 99",
                "OutcomeBatch.kind holds 99",
                "FollowBatch.kind holds 99",
            ):
                assert len([line for line in logged if words in line]) == 1, (words, logged)
            assert not [line for line in logged if "Traceback" in line]
            for name, role in stack.supervisor.roles.items():
                assert role.starts == 1, name
            await stack.settle()


async def test_random_messages_change_nothing(api: Api, tmp_path: Path) -> None:
    await api.create_nodes(5)
    rng = random.Random(7)
    async with Stack(tmp_path, api.plane.kubeconfig) as stack:
        ports = dict.fromkeys((FOLLOW, PROPOSE, OUTCOMES), stack.ports.binder)
        ports[WORK] = stack.ports.dispatcher
        await api.all(api.create_pod(f"a-{i}") for i in range(20))
        for data in NOT_HTTP2:
            for port in set(ports.values()):
                await send_bytes(port, data)
        for path, port in ports.items():
            for message in random_messages(path, rng=rng, count=15):
                await converse(port, path, message)
        await api.all(api.create_pod(f"b-{i}") for i in range(20))
        await all_bound(api, 40)
        logged = "\n".join(lines_of(stack))
        assert "Traceback" not in logged, logged[logged.index("Traceback") - 500 :][:3000]
        for name, role in stack.supervisor.roles.items():
            assert role.starts == 1, name
        await stack.settle()
        assert not await api.overcommitted()
