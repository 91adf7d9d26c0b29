"""Mutual TLS between processes, with the certificates that deploy/make-certificates.sh makes."""

from __future__ import annotations

import base64
import random
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from stretto.config.common import RoleSettings
from stretto.rpc.channels import Dialer
from stretto.rpc.errors import PeerGone, RpcConfigError
from stretto.rpc.messages import FromShard, ShardHello, ToShard
from stretto.rpc.security import Security
from stretto.rpc.servers import RpcServer, add_work
from stretto.rpc.services import WORK

pytestmark = pytest.mark.asyncio(loop_scope="session")
SCRIPT = Path(__file__).parents[2] / "deploy" / "make-certificates.sh"
NAME = "stretto-dispatcher.stretto.svc"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Security]:
    """Role → its files."""
    done = subprocess.run([SCRIPT], capture_output=True, text=True, check=True)
    found = {}
    for secret in yaml.safe_load_all(done.stdout):
        role = secret["metadata"]["name"].split("-")[1]
        folder = tmp_path_factory.mktemp(role)
        for name, data in secret["data"].items():
            (folder / name).write_bytes(base64.b64decode(data))
        found[role] = Security(
            certificate=folder / "tls.crt", key=folder / "tls.key", authority=folder / "ca.crt"
        )
    return found


async def greet(
    requests: AsyncIterator[FromShard], send: Callable[[ToShard], Awaitable[None]], peer: str
) -> None:
    async for _ in requests:
        await send(ToShard(dispatcher_epoch=3))


def dialer(port: int, *, security: Security, name: str = NAME) -> Dialer:
    async def resolve(host: str, _: int) -> list[str]:
        return [f"127.0.0.1:{port}"]

    return Dialer(f"{name}:{port}", security=security, rng=random.Random(1), resolve=resolve)


def hello() -> FromShard:
    return FromShard(hello=ShardHello("s", "i"))


@pytest_asyncio.fixture(loop_scope="session")
async def server(certificates: dict[str, Security]) -> AsyncIterator[RpcServer]:
    server = RpcServer("127.0.0.1:0", security=certificates["dispatcher"])
    add_work(server, greet)
    await server.start()
    yield server
    await server.stop(0)


async def test_a_shard_with_a_certificate_is_served(
    server: RpcServer, certificates: dict[str, Security]
) -> None:
    """The server's certificate must carry the name that was dialled."""
    stream, greeting = await dialer(server.port, security=certificates["shard"]).try_once(
        WORK, hello
    )
    assert greeting.dispatcher_epoch == 3
    await stream.close()


async def test_a_peer_without_a_certificate_is_not_served(server: RpcServer) -> None:
    """Plain text does not get past the handshake."""
    with pytest.raises(PeerGone):
        await dialer(server.port, security=Security(insecure=True)).try_once(WORK, hello)


async def test_a_server_with_another_name_is_not_trusted(
    server: RpcServer, certificates: dict[str, Security]
) -> None:
    """Whoever took over the address must have the certificate too."""
    wrong = dialer(server.port, security=certificates["shard"], name="elsewhere.example")
    with pytest.raises(PeerGone):
        await wrong.try_once(WORK, hello)


@pytest.mark.parametrize("wrong", ["certificate", "key", "authority"])
async def test_files_that_hold_something_else_are_refused_by_name(
    wrong: str, certificates: dict[str, Security], tmp_path: Path
) -> None:
    """Text, and a key of somebody else's certificate."""
    text = tmp_path / "text"
    text.write_text("no PEM\n")
    files = {
        "tls_certificate": certificates["shard"].certificate,
        "tls_key": certificates["shard"].key,
        "tls_authority": certificates["shard"].authority,
    }
    assert Security.of(RoleSettings(**files)) == certificates["shard"]
    with pytest.raises(RpcConfigError, match=f"--tls-{wrong} {text}"):
        Security.of(RoleSettings(**{**files, f"tls_{wrong}": text}))
    with pytest.raises(RpcConfigError, match="--tls-key"):
        Security.of(RoleSettings(**{**files, "tls_key": certificates["dispatcher"].key}))
