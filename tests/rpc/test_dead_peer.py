"""A peer that stops answering without closing its connection is noticed within five seconds."""

from __future__ import annotations

import asyncio
import random
import signal
import sys

import pytest

from stretto.rpc.channels import Dialer
from stretto.rpc.errors import PeerGone
from stretto.rpc.messages import FromShard, ShardHello
from stretto.rpc.security import Security
from stretto.rpc.services import WORK

pytestmark = pytest.mark.asyncio(loop_scope="session")
SERVER = """
import asyncio
from stretto.rpc.messages import ToShard
from stretto.rpc.security import Security
from stretto.rpc.servers import RpcServer, add_work

async def greet(requests, send, peer):
    async for _ in requests:
        await send(ToShard(dispatcher_epoch=1))

async def main():
    server = RpcServer("127.0.0.1:0", security=Security())
    add_work(server, greet)
    await server.start()
    print(server.port, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_a_frozen_peer_is_gone() -> None:
    """Its kernel still acknowledges; only the keepalive can tell."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    port = int(await child.stdout.readline())
    dialer = Dialer(f"127.0.0.1:{port}", security=Security(), rng=random.Random(1))
    stream, _ = await dialer.connect(WORK, lambda: FromShard(hello=ShardHello("s", "i")))
    try:
        await asyncio.sleep(0.5)
        child.send_signal(signal.SIGSTOP)
        with pytest.raises(PeerGone, match="UNAVAILABLE"):
            await stream.receive()
    finally:
        child.kill()
        await child.wait()
        await stream.close()
