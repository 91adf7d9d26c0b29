"""How many units a second the ledger takes: one client, one call in flight, units of one member.

Each batch size is run several times on a fresh generation; the table gives minimum, median and
maximum, and the CPU of the client (building the call, sending it, reading the answer) and of the
server a unit. The goal is stated for 64 units a call.
"""

from __future__ import annotations

import argparse
import gc
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import uvloop

from stretto.cli.supervisor import process_cpu_s
from stretto.ledger.client import Ledger
from stretto.ledger.server import EmbeddedServer, find_binary
from stretto.ledger.types import Account, LedgerMember, LedgerUnit, ReserveKind
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


@dataclass
class Row:
    """Runs of one batch size."""

    rates: list[float] = field(default_factory=list)
    """Units a second, a run each."""
    client_s: float = 0.0
    server_s: float = 0.0
    units: int = 0


async def one_run(ledger: Ledger, row: Row, *, epoch: int, batch: int, server_pid: int) -> None:
    """Fill a fresh ledger; only the reserve calls are measured."""
    count = min(40_000, batch * 4_000)
    await ledger.install(epoch, force_rebuild=True)
    await ledger.set_accounts([Account(f"node-{i:032x}", ROOM) for i in range(NODES)])
    units = units_of(str(epoch), count=count)
    gc.collect()
    gc.freeze()  # as the Binder does with what lives long
    client, server, began = time.process_time(), process_cpu_s(server_pid), time.perf_counter()
    for first in range(0, count, batch):
        replies = await ledger.reserve(units[first : first + batch])
        assert all(reply.kind is ReserveKind.GRANTED for reply in replies)
    row.rates.append(count / (time.perf_counter() - began))
    row.client_s += time.process_time() - client
    row.server_s += process_cpu_s(server_pid) - server
    row.units += count


def print_row(batch: int, row: Row) -> None:
    """A line of the table."""
    client, server = row.client_s * 1e6 / row.units, row.server_s * 1e6 / row.units
    print(
        f"{batch:12d} | {min(row.rates):11.0f} {statistics.median(row.rates):8.0f} "
        f"{max(row.rates):8.0f} | {client:14.1f} | {server:14.1f}"
    )


async def measure(*, runs: int, batches: Sequence[int] = BATCHES) -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        async with EmbeddedServer(folder=pathlib.Path(folder)) as server:
            ledger = await Ledger.open(server.url, owner="bench")
            print(
                f"ledger: {find_binary().name}, append-only file fsynced every second, unix "
                f"socket, {os.cpu_count()} cores,\nload {os.getloadavg()[0]:.1f} before; {NODES} "
                f"nodes, units of one member with {len(LINES)} amounts, {runs} runs a row\n"
            )
            print("units a call | units/s min   median      max | client µs/unit | server µs/unit")
            rows = {batch: Row() for batch in batches}
            epoch = 0
            for batch, row in rows.items():
                for _ in range(runs):
                    epoch += 1
                    await one_run(ledger, row, epoch=epoch, batch=batch, server_pid=server.pid)
                print_row(batch, row)
            if 64 in rows:
                ratio = statistics.median(rows[64].rates) / GOAL
                print(f"\n64 a call: {ratio:.2f} × the goal of {GOAL:,} units/s (median)")
            await ledger.close()


def run(args: list[str]) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="bench ledger", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="runs a row (default 5)")
    uvloop.run(measure(runs=parser.parse_args(args).runs))
    return 0


if __name__ == "__main__":
    raise SystemExit(run([]))
