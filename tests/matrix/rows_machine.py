"""Rows 36–41, 46, 49: clocks, networks, disks and CPUs that fail; upgrades; all at once."""

from __future__ import annotations

import asyncio
import signal
import sys

from tests.matrix.clocks import Clock
from tests.matrix.field import BINDERS, DISPATCHERS, SHARDS, Field
from tests.matrix.http_link import Act
from tests.matrix.link import Link
from tests.matrix.row import NotPossibleHereError, row

HOUR_S = 3600
TEN_YEARS_S = 10 * 365 * 24 * HOUR_S
PARTITION_S = 6.0
ROLES = (*BINDERS, *DISPATCHERS, *SHARDS)


def clock_of(field: Field, role: str) -> Clock:
    """The clock that a role reads."""
    clock = field.clocks.get(role)
    if clock is None:
        raise NotPossibleHereError("no C compiler for the clock that can be set wrong")
    return clock


@row(36, "Wall clock ±1 h, ±10 y", "nothing happens")
async def wall_clock_jumps(field: Field) -> None:
    await field.load.start()
    starts = {name: each.starts for name, each in field.stack.supervisor.roles.items()}
    leaders = [await field.leader("binder"), await field.leader("dispatcher")]
    field.load.fault_begins()
    for jump_s in field.rng.sample([HOUR_S, -HOUR_S, TEN_YEARS_S, -TEN_YEARS_S], 4):
        for role in ROLES:
            if field.rng.random() < 0.7:
                clock_of(field, role).jump(jump_s)
                field.saw("wall clock jumped")
        await asyncio.sleep(0.7)
    await field.load.finish()
    assert leaders == [await field.leader("binder"), await field.leader("dispatcher")]
    assert starts == {n: each.starts for n, each in field.stack.supervisor.roles.items()}


@row(37, "Clock rate ×2 on one process", "lease safe by margins, else epoch")
async def clock_runs_wrong(field: Field) -> None:
    await field.load.start()
    role = await field.leader(field.rng.choice(["binder", "dispatcher"]))
    clock = clock_of(field, role)
    field.load.fault_begins()
    clock.rate(field.rng.choice([2.0, 0.5]))
    await asyncio.sleep(6.0)
    field.saw("seconds gained or lost", int(abs(clock.gained_s())))
    await field.load.finish()
    await field.kill(role)  # its next process starts with a clock that is right
    clock.reset()


@row(38, "Partition B–L only, B–A only, D–B only", "stall, no dual act")
async def partitions(field: Field) -> None:
    await field.load.start()
    field.load.fault_begins()
    for what in field.rng.sample(["ledger", "api", "dispatcher"], 3):
        binder = await field.leader("binder")
        links: list[Link] = {
            "ledger": [field.ledger_link(binder)],
            "api": [field.api_link(binder)],
            "dispatcher": field.between(ours="dispatcher", peer="binder"),
        }[what]
        for link in links:
            link.refuse = True
            link.black()
        await asyncio.sleep(PARTITION_S)
        for link in links:
            link.heal()
        await asyncio.sleep(field.rng.uniform(0.5, 2))
    await field.load.finish()


@row(39, "Loss 5 %, latency 200 ms ± 100", "throughput falls, 0 violations", limit_s=180)
async def bad_network(field: Field) -> None:
    await field.load.start()
    field.load.fault_begins()
    for link in field.links.values():
        link.delay_s = (0.1, 0.3)
        link.stall_chance = 0.05
    await field.load.enough()
    await asyncio.sleep(5)
    for link in field.links.values():
        link.heal()
    await field.load.finish()


@row(40, "CPU starvation", "no act without the Lease; converges")
async def starved(field: Field) -> None:
    await field.load.start()
    field.load.fault_begins()
    spinners = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", "while True: pass")
        for _ in range(6)
    ]
    field.saw("process that spins", len(spinners))
    try:
        await field.load.enough()
        await asyncio.sleep(3)
    finally:
        for spinner in spinners:
            spinner.kill()
            await spinner.wait()
    await field.load.finish()


@row(
    41,
    "Disk full for logs/AOF",
    "logging never blocks scheduling; MISCONF mapped",
    alone=True,
    disk=True,
)
async def disk_full(field: Field) -> None:
    await field.load.start()
    field.load.fault_begins()
    async with field.full_disk() as refused:
        await refused()
        field.saw("write refused: no space")
        await asyncio.sleep(2)
    await field.load.finish(within_s=90)


@row(46, "Rolling restart (upgrade N to N)", "no loss", limit_s=180)
async def rolled(field: Field) -> None:
    await field.load.start(pause_s=0.3)
    field.load.fault_begins()
    for role in field.rng.sample(ROLES, len(ROLES)):
        await field.running(role)
        process = field.stack.supervisor.roles[role].process
        assert process is not None
        process.send_signal(signal.SIGTERM)
        field.saw("role stopped and started")
        await field.exits(role, pid=process.pid)
        await field.stack.ready_again(role)
    await field.load.finish()


@row(49, "Three faults at once, random", "all invariants; convergence", limit_s=600)
async def several(field: Field) -> None:
    await field.load.start(pause_s=0.4)
    field.load.fault_begins()
    for _ in range(field.rounds):
        for fault in field.rng.sample(FAULTS, 3):
            await fault(field)
        await asyncio.sleep(field.rng.uniform(2, 5))
        field.heal()
        await asyncio.sleep(field.rng.uniform(0, 3))
    await field.load.finish(within_s=90)


async def kill_one(field: Field) -> None:
    await field.kill(field.rng.choice(ROLES))


async def stop_one(field: Field) -> None:
    await field.freeze(field.rng.choice(ROLES))


async def ledger_killed(field: Field) -> None:
    await field.stack.restart_ledger(empty=field.rng.random() < 0.3)
    field.saw("ledger SIGKILL")


async def ledger_flushed(field: Field) -> None:
    await field.stack.flush_ledger()
    field.saw("FLUSHALL")


async def binds_spoilt(field: Field) -> None:
    act = field.rng.choice([Act.HOLD, Act.LOSE, Act.SWALLOW, Act.REFUSE, Act.REPEAT])
    for role in BINDERS:
        field.api_link(role).on(act, chance=0.5)


async def watches_spoilt(field: Field) -> None:
    role = field.rng.choice((*BINDERS, *DISPATCHERS))
    link = field.api_link(role)
    if field.rng.random() < 0.5:
        link.silence()
    else:
        link.repeat_events = 0.5
        link.cut()


async def links_cut(field: Field) -> None:
    for link in field.rng.sample(sorted(field.links.values(), key=lambda x: x.name), 5):
        link.cut()


async def links_black(field: Field) -> None:
    for link in field.rng.sample(sorted(field.links.values(), key=lambda x: x.name), 2):
        link.black(*field.rng.choice([("up",), ("down",), ("up", "down")]))


async def links_slow(field: Field) -> None:
    for link in field.links.values():
        link.delay_s = (0.0, 0.2)


FAULTS = (
    kill_one, stop_one, ledger_killed, ledger_flushed, binds_spoilt, watches_spoilt, links_cut,
    links_black, links_slow,
)  # fmt: skip
