"""A ledger that comes back without its last writes is found out at the very next call (R7).

The server is killed, a random piece of the end of its file is cut off, and it is started again. If
the piece held anything that had been acknowledged, the writer's next call must fail as a gap; the
successor of a writer that died too must be told that the server was started again.
"""

from __future__ import annotations

import pathlib
import random
import tempfile

import redis.asyncio

from stretto.ledger.client import Ledger
from stretto.ledger.server import EmbeddedServer
from stretto.ledger.types import LedgerGap, LedgerOp
from tests.ledger.records import node, unit


async def run(*, repetitions: int, seed: int) -> int:
    """Print the counts; how many losses went unnoticed."""
    rng = random.Random(seed)
    unnoticed = 0
    with tempfile.TemporaryDirectory(prefix="stretto-tails-") as folder:
        async with EmbeddedServer(folder=pathlib.Path(folder)) as server:
            ledger = await Ledger.open(server.url, owner="o")
            for epoch in range(1, repetitions + 1):
                await ledger.install(epoch, force_rebuild=True)
                await ledger.set_accounts([node("n1", cpu=10**9, pods=10**6)])
                await write(ledger, rng)
                await cut(server, rng)
                unnoticed += not await noticed(ledger, epoch)
            await ledger.close()
    print(f"{repetitions:,} crashes with acknowledged calls lost: {unnoticed} unnoticed")
    return unnoticed


async def write(ledger: Ledger, rng: random.Random) -> None:
    """A few acknowledged calls."""
    for number in range(rng.randint(1, 6)):
        await ledger.reserve([unit(f"u{number}", "n1")])
        if rng.random() < 0.5:
            await ledger.transition([LedgerOp.bound(f"u{number}")])


async def cut(server: EmbeddedServer, rng: random.Random) -> None:
    """Kill the server and cut off the end of its file: the last call at least, at most all since
    the ledger was taken."""
    async with redis.asyncio.Redis.from_url(server.url) as hand:
        await hand.execute_command("WAITAOF", 1, 0, 5000)
    await server.kill()
    (file,) = server.folder.glob("appendonlydir/*.incr.aof")
    data = file.read_bytes()
    keep = rng.randint(data.rfind(b"REBUILD"), len(data) - 1)
    file.write_bytes(data[:keep])
    await server.start()


async def noticed(ledger: Ledger, epoch: int) -> bool:
    """By the writer's next call, and by a successor."""
    try:
        await ledger.reserve([unit("next", "n1")])
    except LedgerGap:
        found = await ledger.install(epoch)
        return found.restarted or not found.intact
    return False
