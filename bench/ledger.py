"""How many units a second the ledger takes: one client, one call in flight, units of one member.

Each batch size is run several times on a fresh generation; the table gives minimum, median and
maximum, and CPU of client and server a unit. The goal is stated for 64 units a call.
"""

from __future__ import annotations

import argparse
import pathlib
import resource
import statistics
import tempfile
import time

import uvloop

from stretto.cli.supervisor import process_cpu_s
from stretto.ledger.client import Ledger
from stretto.ledger.server import EmbeddedServer, find_binary
from stretto.ledger.types import LedgerMember, LedgerUnit, NodeAccount, ReserveKind
from stretto.model.unit import Attempt

GOAL = 60_000
NODES = 1_000
BATCHES = (1, 16, 64, 256)
LINES = (("cpu", 100), ("memory", 64 << 20), ("pods", 1))
ROOM = {"cpu": 10**9, "memory": 2**50, "pods": 10**6}


def units_of(run: str, *, count: int) -> list[LedgerUnit]:
    """Single-pod units spread over the nodes."""
    units = []
    for number in range(count):
        uid = f"{run}-{number:032x}"
        member = LedgerMember(uid, f"node-{number * 7919 % NODES:032x}", number + 1, LINES)
        units.append(LedgerUnit(uid, Attempt(1, number), (member,)))
    return units


async def one_run(ledger: Ledger, *, epoch: int, batch: int, count: int) -> float:
    """Units a second of one run."""
    await ledger.install(epoch, force_rebuild=True)
    nodes = [NodeAccount(f"node-{i:032x}", f"n{i}", ROOM) for i in range(NODES)]
    await ledger.set_nodes(nodes)
    units = units_of(str(epoch), count=count)
    began = time.perf_counter()
    for first in range(0, count, batch):
        replies = await ledger.reserve(units[first : first + batch])
        assert all(reply.kind is ReserveKind.GRANTED for reply in replies)
    return count / (time.perf_counter() - began)


def own_cpu_s() -> float:
    """CPU seconds of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def measure(*, runs: int) -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        async with EmbeddedServer(folder=pathlib.Path(folder)) as server:
            ledger = await Ledger.open(server.url, owner="bench")
            print(
                f"ledger: {find_binary().name}, append-only file fsynced every second, unix socket,"
            )
            print(
                f"{NODES} nodes, units of one member with {len(LINES)} amounts, {runs} runs a row\n"
            )
            print("units a call | units/s min   median      max | client µs/unit | server µs/unit")
            epoch = 0
            for batch in BATCHES:
                count = 4_000 if batch == 1 else 40_000
                rates, client, backend = [], own_cpu_s(), process_cpu_s(server.pid)
                for _ in range(runs):
                    epoch += 1
                    rates.append(await one_run(ledger, epoch=epoch, batch=batch, count=count))
                scale = 1e6 / (runs * count)
                client = (own_cpu_s() - client) * scale
                backend = (process_cpu_s(server.pid) - backend) * scale
                print(
                    f"{batch:12d} | {min(rates):11.0f} {statistics.median(rates):8.0f} "
                    f"{max(rates):8.0f} | {client:14.1f} | {backend:14.1f}"
                )
                if batch == 64:
                    goal = statistics.median(rates) / GOAL
            print(f"\n64 a call: {goal:.2f} × the goal of {GOAL} units/s")
            await ledger.close()


def run(args: list[str]) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="bench ledger", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="runs a row (default 5)")
    uvloop.run(measure(runs=parser.parse_args(args).runs))
    return 0


if __name__ == "__main__":
    raise SystemExit(run([]))
