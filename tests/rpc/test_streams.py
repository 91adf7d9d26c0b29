"""Streams over real grpc on loopback: greeting, leader, malformed peers, death of a peer, ports."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import grpc.aio
import pytest

from proto import stretto_pb2 as pb
from stretto.config.addresses import AddressError
from stretto.rpc.channels import Dialer
from stretto.rpc.errors import NotLeader, PeerGone, RpcConfigError
from stretto.rpc.messages import (
    FollowKind,
    FollowMessage,
    FollowRequest,
    FromShard,
    ShardHello,
    ToShard,
)
from stretto.rpc.security import Security
from stretto.rpc.servers import RpcServer, add_follow, add_work
from stretto.rpc.services import FOLLOW, WORK
from stretto.rpc.wire_follow import encode_follow
from stretto.snapshot.delta import Delta

pytestmark = pytest.mark.asyncio(loop_scope="session")
Send = Callable[[ToShard], Awaitable[None]]


async def echo_credits(requests: AsyncIterator[FromShard], send: Send, peer: str) -> None:
    async for request in requests:
        await send(ToShard(dispatcher_epoch=request.credits))


async def standby(requests: AsyncIterator[FromShard], send: Send, peer: str) -> None:
    async for _ in requests:
        await send(ToShard(not_leader="dispatcher-1"))
        return


async def hasty(requests: AsyncIterator[FromShard], send: Send, peer: str) -> None:
    await send(ToShard(not_leader="dispatcher-2"))


async def silent(requests: AsyncIterator[FromShard], send: Send, peer: str) -> None:
    async for _ in requests:
        await asyncio.sleep(60)


async def serve(handler: Callable[..., Awaitable[None]]) -> RpcServer:
    server = RpcServer("127.0.0.1:0", security=Security())
    add_work(server, handler)
    await server.start()
    return server


def dialer(*ports: int) -> Dialer:
    async def resolve(host: str, port: int) -> list[str]:
        return [f"127.0.0.1:{port}" for port in ports]

    rng = random.Random(1)
    return Dialer("localhost:1", security=Security(), rng=rng, resolve=resolve)


def hello() -> FromShard:
    return FromShard(hello=ShardHello("s", "i"), credits=5)


async def test_messages_go_both_ways_until_the_client_is_done() -> None:
    """The first answer is the greeting; the stream ends in good order."""
    server = await serve(echo_credits)
    stream, greeting = await dialer(server.port).connect(WORK, hello)
    assert greeting.dispatcher_epoch == 5
    await stream.send(FromShard(credits=7))
    await stream.done_writing()
    assert [answer.dispatcher_epoch async for answer in stream] == [7]
    await stream.close()
    await server.stop(0)


async def test_of_all_addresses_the_one_that_leads_is_taken() -> None:
    """Standbys and dead addresses are passed over."""
    leader, other = await serve(echo_credits), await serve(standby)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        dead = unused.getsockname()[1]
        stream, greeting = await dialer(other.port, dead, leader.port).try_once(WORK, hello)
    assert greeting.dispatcher_epoch == 5
    assert stream.peer == f"127.0.0.1:{leader.port}"
    await stream.close()
    await asyncio.gather(leader.stop(0), other.stop(0))


async def test_a_target_may_name_several_and_one_that_does_not_resolve() -> None:
    leader, other = await serve(echo_credits), await serve(standby)

    async def resolve(host: str, port: int) -> list[str]:
        if host == "localhost":
            return [f"127.0.0.1:{port}"]
        raise OSError(0, "no such name")

    several = Dialer(
        f"gone:1,localhost:{other.port},localhost:{leader.port}",
        security=Security(insecure=True),
        rng=random.Random(1),
        resolve=resolve,
    )
    stream, greeting = await several.try_once(WORK, hello)
    assert greeting.dispatcher_epoch == 5
    await stream.close()
    gone = Dialer("gone:1", security=Security(insecure=True), rng=random.Random(1), resolve=resolve)
    with pytest.raises(PeerGone, match="cannot resolve gone"):
        await gone.try_once(WORK, hello)
    await asyncio.gather(leader.stop(0), other.stop(0))


async def test_without_a_leader_the_standby_says_who_it_would_be() -> None:
    """The error carries the hint."""
    other = await serve(standby)
    with pytest.raises(NotLeader, match="dispatcher-1"):
        await dialer(other.port).try_once(WORK, hello)
    await other.stop(0)


async def test_the_leader_that_a_standby_names_is_dialled() -> None:
    """Two deployments may share a Lease and know only their own processes."""
    leader = await serve(echo_credits)

    async def of_another(requests: AsyncIterator[FromShard], send: Send, peer: str) -> None:
        async for _ in requests:
            await send(ToShard(not_leader=f"127.0.0.1:{leader.port}"))
            return

    other = await serve(of_another)
    stream, greeting = await dialer(other.port).try_once(WORK, hello)
    assert greeting.not_leader is None
    assert stream.peer == f"127.0.0.1:{leader.port}"
    await stream.close()
    await asyncio.gather(leader.stop(0), other.stop(0))


@pytest.mark.parametrize("named", ["binder-1", "0.0.0.0:7071", "10.0.0.1:7071", "a:b:c", ""])
async def test_a_name_that_our_rules_do_not_allow_is_not_dialled(named: str) -> None:
    """Plain text is for loopback; an address of no host is nobody's."""

    async def of_another(requests: AsyncIterator[FromShard], send: Send, peer: str) -> None:
        async for _ in requests:
            await send(ToShard(not_leader=named))
            return

    other = await serve(of_another)
    with pytest.raises(NotLeader):
        await dialer(other.port).try_once(WORK, hello)
    await other.stop(0)


async def test_a_standby_may_answer_without_reading() -> None:
    """The server reads the first message for it, so that the answer arrives every time."""
    other = await serve(hasty)
    for _ in range(20):
        with pytest.raises(NotLeader, match="dispatcher-2"):
            await dialer(other.port).try_once(WORK, hello)
    await other.stop(0)


async def test_a_leader_that_comes_later_is_found() -> None:
    """The dialler goes on trying and drops its complaint."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    dialling = dialer(port)
    connecting = asyncio.create_task(dialling.connect(WORK, hello))
    await asyncio.sleep(0.05)
    server = RpcServer(f"127.0.0.1:{port}", security=Security())
    add_work(server, echo_credits)
    await server.start()
    stream, _ = await connecting
    assert dialling.problem == ""
    await stream.close()
    await server.stop(0)


async def test_a_peer_without_a_greeting_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hang; another address may lead."""
    monkeypatch.setattr("stretto.rpc.channels.GREETING_S", 0.1)
    server = await serve(silent)
    with pytest.raises(PeerGone, match="no greeting"):
        await dialer(server.port).try_once(WORK, hello)
    await server.stop(0)


async def test_a_malformed_message_ends_only_the_stream_of_its_sender() -> None:
    """INVALID_ARGUMENT with the field; the neighbour goes on."""
    server = await serve(echo_credits)
    good, _ = await dialer(server.port).connect(WORK, hello)
    wrong = pb.FromShard(settled=["a"], settled_attempt=[1, 2]).SerializeToString()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        call = channel.stream_stream(WORK.path)()
        await call.write(wrong)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "settled_attempt has 2 entries; expected 1" in str(caught.value.details())
    await good.send(FromShard(credits=9))
    answer = await good.receive()
    assert answer is not None
    assert answer.dispatcher_epoch == 9
    await good.close()
    await server.stop(0)


async def test_the_handler_is_cancelled_when_its_peer_vanishes() -> None:
    """So that a dead shard's units go to others at once."""
    ended = asyncio.Event()

    async def watch(requests: AsyncIterator[FromShard], send: Send, peer: str) -> None:
        try:
            async for _ in requests:
                await send(ToShard())
        finally:
            ended.set()

    server = await serve(watch)
    stream, _ = await dialer(server.port).connect(WORK, hello)
    assert server.streams == 1
    await stream.close()
    async with asyncio.timeout(5):
        await ended.wait()
    await server.stop(0)


async def test_a_stopped_server_is_peer_gone_at_the_client() -> None:
    """Not a grpc exception."""
    server = await serve(echo_credits)
    stream, _ = await dialer(server.port).connect(WORK, hello)
    await server.stop(0)
    with pytest.raises(PeerGone, match=r"Work at 127\.0\.0\.1"):
        await stream.receive()
    with pytest.raises(PeerGone):
        await stream.send(FromShard())
    await stream.close()


async def test_the_log_is_sent_as_bytes_that_were_encoded_once() -> None:
    """One request, many messages."""

    async def follow(requests: AsyncIterator[FollowRequest], send: object, peer: str) -> None:
        async for request in requests:
            assert callable(send)
            for sequence in range(request.sequence, 3):
                await send(encode_follow(Delta(epoch=1, sequence=sequence)))
            await send(FollowMessage(FollowKind.HEARTBEAT, Delta(epoch=1, sequence=3)))

    server = RpcServer("127.0.0.1:0", security=Security())
    add_follow(server, follow)
    await server.start()
    stream, greeting = await dialer(server.port).connect(FOLLOW, lambda: FollowRequest("f", 1, 1))
    kinds = [(greeting.kind, greeting.delta.sequence)]
    kinds += [(message.kind, message.delta.sequence) async for message in stream]
    assert kinds == [(FollowKind.DELTA, 1), (FollowKind.DELTA, 2), (FollowKind.HEARTBEAT, 3)]
    await stream.close()
    await server.stop(0)


async def test_a_message_over_the_limit_ends_the_stream() -> None:
    """64 MiB: more is not ours."""
    server = await serve(echo_credits)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        call = channel.stream_stream(WORK.path)()
        await call.write(bytes(64 * 1024 * 1024 + 1))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    await server.stop(0)


async def test_a_port_in_use_is_one_clear_line() -> None:
    """What, where, what to do."""
    server = await serve(echo_credits)
    second = RpcServer(f"127.0.0.1:{server.port}", security=Security())
    with pytest.raises(RpcConfigError, match=r"the port is in use; stop the other .* --listen"):
        await second.start()
    await server.stop(0)


async def test_plain_text_is_for_loopback_unless_allowed() -> None:
    """Both ends refuse at start."""
    with pytest.raises(RpcConfigError, match=r"will not listen on 0\.0\.0\.0:7070 in plain"):
        RpcServer("0.0.0.0:7070", security=Security())
    with pytest.raises(RpcConfigError, match="will not dial binder:7071 in plain text"):
        Dialer("binder:7071", security=Security(), rng=random.Random())
    RpcServer("0.0.0.0:7070", security=Security(insecure=True))


@pytest.mark.parametrize(
    "address", ["binder", "binder:", ":x", ":7070", "binder:70710", "binder:7_0"]
)
async def test_an_address_without_a_port_is_refused(address: str) -> None:
    """With an example of one."""
    with pytest.raises(AddressError, match="is not an address: write host:port"):
        Dialer(address, security=Security(insecure=True), rng=random.Random())


async def test_half_configured_tls_is_refused(tmp_path: object) -> None:
    """A missing file never means plain text."""
    assert not isinstance(tmp_path, str)
    with pytest.raises(RpcConfigError, match="--tls-authority is missing"):
        RpcServer("127.0.0.1:0", security=Security(certificate=tmp_path))  # type: ignore[arg-type]
