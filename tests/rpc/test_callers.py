"""Who may have which conversation, by the name in the certificate; and certificates that change."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from stretto.rpc.channels import Dialer
from stretto.rpc.errors import PeerGone
from stretto.rpc.messages import (
    FollowKind,
    FollowMessage,
    FollowRequest,
    FromShard,
    OutcomeBatch,
    OutcomeRequest,
    ProposalBatch,
    ShardHello,
    ToShard,
    VerdictBatch,
)
from stretto.rpc.servers import (
    RpcServer,
    add_follow,
    add_outcomes,
    add_propose,
    add_work,
)
from stretto.rpc.services import FOLLOW, OUTCOMES, PROPOSE, WORK, Service
from stretto.snapshot.delta import Delta
from tests.rpc.certificates import Authority, Issued

pytestmark = pytest.mark.asyncio(loop_scope="session")

HELLO = ShardHello("s", "i")
CONVERSATIONS: dict[str, tuple[Service[Any, Any], Any, Any]] = {
    "Work": (WORK, FromShard(hello=HELLO), ToShard(dispatcher_epoch=3)),
    "Follow": (
        FOLLOW,
        FollowRequest("f"),
        FollowMessage(FollowKind.HEARTBEAT, Delta(epoch=1, sequence=1)),
    ),
    "Propose": (PROPOSE, ProposalBatch(hello=HELLO), VerdictBatch(binder_epoch=1)),
    "Outcomes": (OUTCOMES, OutcomeRequest(dispatcher_epoch=1), OutcomeBatch(binder_epoch=1)),
}
MAY = {
    "stretto-shard": {"Work", "Follow", "Propose"},
    "stretto-dispatcher": {"Follow", "Outcomes"},
    "stretto-binder": set[str](),
    "stretto-valkey": set[str](),
    "stretto-shard.elsewhere.svc": set[str](),
    "elsewhere": set[str](),
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def issued(authority: Authority) -> dict[str, Issued]:
    return {name: authority.issue(name) for name in MAY}


def greeter(greeting: Any) -> Any:
    async def greet(requests: AsyncIterator[Any], send: Any, peer: str) -> None:
        async for _ in requests:
            await send(greeting)

    return greet


async def serving(own: Issued) -> RpcServer:
    """A server of all four conversations."""
    server = RpcServer("127.0.0.1:0", security=own.security())
    for add, name in (
        (add_work, "Work"), (add_follow, "Follow"), (add_propose, "Propose"),
        (add_outcomes, "Outcomes"),
    ):  # fmt: skip
        add(server, greeter(CONVERSATIONS[name][2]))
    await server.start()
    return server


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def server(authority: Authority) -> AsyncIterator[RpcServer]:
    server = await serving(authority.issue("server"))
    yield server
    await server.stop(0)


async def ask(name: str, *, port: int, caller: Issued, server: str = "server") -> None:
    """Have a conversation's first exchange.

    Raises:
        PeerGone: it was refused.
    """
    service, first, _ = CONVERSATIONS[name]

    async def resolve(host: str, _: int) -> list[str]:
        return [f"127.0.0.1:{port}"]

    dialer = Dialer(
        f"{server}:{port}", security=caller.security(), rng=random.Random(1), resolve=resolve
    )
    stream, _ = await dialer.try_once(service, lambda: first)
    await stream.close()


@pytest.mark.parametrize(("caller", "name"), list(itertools.product(MAY, CONVERSATIONS)))
async def test_a_conversation_is_for_the_roles_that_have_it(
    server: RpcServer, issued: dict[str, Issued], caller: str, name: str
) -> None:
    """Each role × each conversation; a name that merely begins like a role's is nobody."""
    if name in MAY[caller]:
        await ask(name, port=server.port, caller=issued[caller])
        return
    with pytest.raises(PeerGone, match=r"PERMISSION_DENIED.*is for a certificate") as caught:
        await ask(name, port=server.port, caller=issued[caller])
    assert caller in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_refused_caller_is_logged_once(
    server: RpcServer, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients ask again every second."""
    stranger = authority.issue("stranger")
    for _ in range(3):
        with pytest.raises(PeerGone):
            await ask("Work", port=server.port, caller=stranger)
    assert len([r for r in caplog.records if "stranger" in r.getMessage()]) == 1


async def test_another_authority_signs_for_nobody(server: RpcServer, tmp_path: Path) -> None:
    forged = Authority(tmp_path, name="authority").issue("stretto-shard")
    with pytest.raises(PeerGone, match="UNAVAILABLE"):
        await ask("Work", port=server.port, caller=forged)


async def test_renewed_files_are_used_without_a_restart(tmp_path: Path) -> None:
    """A server whose files become those of another authority serves that one's clients; a client's
    files are read at each dial."""
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    own, mine = old.issue("server"), old.issue("stretto-shard")
    later = new.issue("stretto-shard")
    server = await serving(own)
    try:
        await ask("Work", port=server.port, caller=mine)
        with pytest.raises(PeerGone):
            await ask("Work", port=server.port, caller=later)
        own.become(new.issue("server"))
        await ask("Work", port=server.port, caller=later)
        with pytest.raises(PeerGone):
            await ask("Work", port=server.port, caller=mine)
        mine.become(later)
        await ask("Work", port=server.port, caller=mine)
    finally:
        await server.stop(0)


async def test_files_that_do_not_fit_keep_the_former_certificate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Renewed one by one they do not fit for a while: said once, mended by the next handshake."""
    authority = Authority(tmp_path)
    own, fresh = authority.issue("server"), authority.issue("server")
    fetcher = own.security().renewable().renewed
    assert fetcher() is None
    own.certificate.write_bytes(fresh.certificate.read_bytes())
    assert fetcher() is None
    assert fetcher() is None
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "what it held before is used" in caplog.text
    own.key.write_bytes(fresh.key.read_bytes())
    assert fetcher() is not None
    assert fetcher() is None
    own.key.unlink()
    assert fetcher() is None


async def test_an_expired_certificate_is_nobodys(server: RpcServer, authority: Authority) -> None:
    """Past its end it is refused in the handshake, whatever it names."""
    expired = authority.issue("stretto-shard", days=-1)
    began = time.monotonic()
    with pytest.raises(PeerGone, match="UNAVAILABLE"):
        await ask("Work", port=server.port, caller=expired)
    assert time.monotonic() - began < 10
