"""A process that talks over gRPC starts others without a word about it."""

from __future__ import annotations

import asyncio
import sys

SERVES_AND_FORKS = """
import asyncio
from stretto.rpc.security import Security
from stretto.rpc.servers import RpcServer
import grpc.aio

async def main():
    server = RpcServer("127.0.0.1:0", security=Security())
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        await channel.channel_ready()
        # A callable between fork and exec: Python forks, as for the ledger's server.
        for _ in range(3):
            child = await asyncio.create_subprocess_exec("true", preexec_fn=lambda: None)
            assert await child.wait() == 0
    await server.stop(0)

asyncio.run(main())
"""


async def test_a_fork_beside_grpc_says_nothing() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVES_AND_FORKS, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    assert b"fork" not in said
