"""Rows 13–21, 47, 48: the ledger's server dies, loses, refuses, repeats; is written to."""

from __future__ import annotations

import asyncio
import contextlib

import redis.asyncio
from redis.exceptions import RedisError

from stretto.cli.supervisor import free_port
from stretto.ledger.server import EmbeddedServer
from tests.matrix.field import BINDERS, Field, until
from tests.matrix.http_link import Act
from tests.matrix.link import Link
from tests.matrix.row import row


@row(13, "Redis SIGKILL + restart with AOF", "no loss; calls retried by idempotency")
async def server_killed(field: Field) -> None:
    await field.load.start()
    field.load.fault_begins()
    for _ in range(2):
        await field.stack.restart_ledger(empty=False)
        field.saw("ledger SIGKILL")
        await asyncio.sleep(field.rng.uniform(0.2, 1.5))
    await field.load.finish()


@row(14, "Redis restart empty / FLUSHALL", "FENCED → rebuild ≤ 20 s")
async def server_emptied(field: Field) -> None:
    await field.load.start()
    field.load.fault_begins()
    if field.rng.random() < 0.5:
        await field.stack.flush_ledger()
        field.saw("FLUSHALL")
    else:
        await field.stack.restart_ledger(empty=True)
        field.saw("started empty")
    await field.load.finish()


@row(15, "Redis power loss (end of the AOF cut off)", "GAP → rebuild", alone=True,
     ledger_judged=False)  # fmt: skip
async def power_lost(field: Field) -> None:
    await field.load.start()
    field.load.fault_begins()
    server = field.stack.server
    await server.kill()
    (file,) = server.folder.glob("appendonlydir/*.incr.aof")
    size = file.stat().st_size
    cut = max(200, int(size * field.rng.uniform(0.02, 0.1)))
    with file.open("r+b") as open_file:
        open_file.truncate(size - cut)
    field.saw("bytes lost", cut)
    await server.start()
    # Whether a numbered call finds it (a gap) or the audit's reading comes first (drift), the
    # ledger is written anew before anything more is granted.
    await field.load.finish()


@row(16, "Failover with lost tail", "GAP → rebuild", alone=True, ledger_judged=False)
async def failed_over(field: Field) -> None:
    await field.load.start()
    primary = field.stack.server
    await field.valkey("CONFIG", "SET", "repl-diskless-sync-delay", "0")
    port = free_port()
    await field.valkey("CONFIG", "SET", "port", str(port))
    async with (
        EmbeddedServer(folder=field.folder / "replica") as replica,
        Link("replica>primary", f"127.0.0.1:{port}") as link,
    ):
        _, _, link_port = link.address.partition(":")
        await field.valkey("REPLICAOF", "127.0.0.1", link_port, url=replica.url)

        async def synced() -> bool:
            info = await field.valkey("INFO", "replication", url=replica.url)
            return info["master_link_status"] == "up"

        await until(synced, timeout_s=20, what="the replica is in step")
        field.load.fault_begins()
        link.black()
        before = field.cluster.binds
        await until(lambda: field.cluster.binds > before + 20, timeout_s=20, what="binds it misses")
        field.saw("binds since the replica heard last", field.cluster.binds - before)
        await primary.kill()
        await field.valkey("REPLICAOF", "NO", "ONE", url=replica.url)
        for binder in BINDERS:
            field.ledger_link(binder).lead_to(replica.url.removeprefix("unix://"))
        field.stack.server = replica
        try:
            await field.load.finish()
            await field.stack.settle(timeout_s=30)
            await field.stack.recorder.caught_up()
        finally:
            field.stack.server = primary
            await primary.start()
            for binder in BINDERS:
                field.ledger_link(binder).heal()
                field.ledger_link(binder).cut()


@row(17, "Redis SIGSTOP 10 s", "commits stall, binds in flight finish, no false release")
async def server_stands_still(field: Field) -> None:
    await field.load.start()
    field.load.fault_begins()
    pid = field.stack.server.pid
    field.stop_pid(pid)
    field.saw("ledger SIGSTOP")
    await asyncio.sleep(10)
    field.thaw(pid)
    await field.load.finish()


async def errors_of(field: Field, kind: str) -> int:
    """How often the server has answered with an error of this kind."""
    info = await field.valkey("INFO", "errorstats")
    found = info.get(f"errorstat_{kind}")
    return int(found["count"]) if found else 0


async def while_refused(field: Field, kind: str, *, since: int, times: int = 2) -> None:
    """Wait until the server has refused calls with this error, counted from ``since``."""

    async def refused() -> bool:
        return await errors_of(field, kind) >= since + times

    await until(refused, timeout_s=15, what=f"the ledger answers {kind}")
    field.saw(f"answers {kind}", await errors_of(field, kind) - since)


@row(18, "Redis OOM", "function refused, NACK-retry, alarm")
async def out_of_memory(field: Field) -> None:
    await field.load.start()
    field.load.fault_begins()
    before = await errors_of(field, "OOM")
    await field.valkey("CONFIG", "SET", "maxmemory", "1")
    await while_refused(field, "OOM", since=before)
    await asyncio.sleep(field.rng.uniform(1, 4))
    await field.valkey("CONFIG", "SET", "maxmemory", "0")
    await field.load.finish()


@row(19, "SCRIPT FLUSH, FUNCTION FLUSH", "reload; no partial writes")
async def scripts_gone(field: Field) -> None:
    await field.load.start()
    field.load.fault_begins()
    for _ in range(3):
        before = await errors_of(field, "NOSCRIPT")
        await field.valkey("SCRIPT", "FLUSH")
        await field.valkey("FUNCTION", "FLUSH")
        await while_refused(field, "NOSCRIPT", since=before, times=1)
    await field.load.finish()


@row(20, "READONLY replica, LOADING, BUSY", "each mapped, no unknown treated as OK")
async def refusals(field: Field) -> None:
    await field.load.start(pause_s=0.25)
    field.load.fault_begins()
    before = await errors_of(field, "READONLY")
    await field.valkey("REPLICAOF", "127.0.0.1", "1")
    await while_refused(field, "READONLY", since=before)
    await field.valkey("REPLICAOF", "NO", "ONE")
    before = field.cluster.binds
    await until(lambda: field.cluster.binds > before + 10, timeout_s=20, what="binds again")
    await field.valkey("CONFIG", "SET", "busy-reply-threshold", "100")
    before = await errors_of(field, "BUSY")
    busy = asyncio.create_task(endless_script(field))
    await asyncio.sleep(3)  # meanwhile the server answers nothing else
    await field.valkey("SCRIPT", "KILL")
    await busy
    field.saw("answers BUSY", await errors_of(field, "BUSY") - before)
    before = field.cluster.binds
    await until(lambda: field.cluster.binds > before + 10, timeout_s=20, what="binds again")
    with contextlib.suppress(RedisError):
        await field.valkey("DEBUG", "RELOAD")  # LOADING meanwhile, where it is allowed
    await field.load.finish()


async def endless_script(field: Field) -> None:
    """Somebody else's script, which ends when it is killed."""
    async with redis.asyncio.Redis.from_url(field.stack.server.url) as hand:
        with contextlib.suppress(RedisError):
            await hand.execute_command("EVAL", "while true do end", 0)


@row(21, "Reply lost after the ledger's call ran", "idempotent answer")
async def replies_lost(field: Field) -> None:
    await field.load.start()
    link = field.ledger_link(await field.leader("binder"))
    field.load.fault_begins()
    for _ in range(5):
        link.drop_replies = 1
        await until(lambda: not link.drop_replies, timeout_s=10, what="a reply to lose")
        await asyncio.sleep(field.rng.uniform(0.05, 0.3))
    await field.load.finish()


@row(47, "Client library re-sends FCALL/POST by itself", "one effect")
async def sent_twice(field: Field) -> None:
    await field.load.start()
    binder = await field.leader("binder")
    field.load.fault_begins()
    field.ledger_link(binder).copy_chance = 0.5
    field.api_link(binder).on(Act.REPEAT, chance=0.5)
    await field.load.finish()


@row(48, "Audit finds drift planted by hand", "detected ≤ Δa, frozen for commits, rebuilt",
     alone=True, ledger_judged=False)  # fmt: skip
async def drift_planted(field: Field) -> None:
    await field.load.start()
    field.load.fault_begins()
    before = await field.metric("stretto_ledger_drift_total", *BINDERS)
    await field.load.enough()
    bound = [key for key in await field.valkey("KEYS", "*") if key.endswith(b":bound")]
    assert bound, "no entries of bound pods"
    uids = await field.valkey("HKEYS", bound[0])
    await field.valkey("HDEL", bound[0], field.rng.choice(sorted(uids)))
    field.saw("entry deleted by hand")

    async def found() -> bool:
        return await field.metric("stretto_ledger_drift_total", *BINDERS) > before

    await until(found, timeout_s=15, what="the audit finds it")
    await field.load.finish()
    await field.stack.settle(timeout_s=90)
