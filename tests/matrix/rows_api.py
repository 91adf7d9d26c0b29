"""Rows 22–29: the API server refuses, forgets to answer, goes silent, dies, or is another one."""

from __future__ import annotations

import asyncio

from tests.e2e.api import AT_ONCE, PODS
from tests.matrix.field import BINDERS, DISPATCHERS, REFUSED_S, Field, until
from tests.matrix.http_link import Act
from tests.matrix.link import Link
from tests.matrix.row import row
from tests.matrix.second_api_server import SecondApiServer

STORM_S = 10.0


@row(22, "429 storm", "Retry-After honoured, no requeue storm, 0 lost")
async def too_many_requests(field: Field) -> None:
    await field.load.start()
    field.load.fault_begins()
    for role in BINDERS:
        field.api_link(role).on(Act.REFUSE, chance=0.7)
    for role in DISPATCHERS:
        field.api_link(role).on(Act.REFUSE, method="PATCH", ends="/status", chance=0.7)
    await asyncio.sleep(STORM_S)
    for role in (*BINDERS, *DISPATCHERS):
        field.api_link(role).heal()
    await field.load.finish()


@row(23, "500/504 or a reset after commit", "resolve → bound")
async def answers_lost(field: Field) -> None:
    await field.load.start()
    link = field.api_link(await field.leader("binder"))
    field.load.fault_begins()
    rule = link.on(Act.SWALLOW, times=30, chance=0.5)
    await until(lambda: rule.struck == rule.times, timeout_s=40, what="30 answers lost")
    await field.load.finish()


@row(24, "Request lost before A", "resolve → fenced → re-placed")
async def requests_lost(field: Field) -> None:
    await field.load.start()
    link = field.api_link(await field.leader("binder"))
    field.load.fault_begins()
    rule = link.on(Act.LOSE, times=30, chance=0.5)
    await until(lambda: rule.struck == rule.times, timeout_s=40, what="30 binds lost")
    await field.load.finish()


@row(25, "Watch silent (no FIN)", "reconnect; commits refused on an old picture")
async def watches_silent(field: Field) -> None:
    await field.load.start(bound_first=20, pause_s=0.5)
    binder, dispatcher = await field.leader("binder"), await field.leader("dispatcher")
    field.load.fault_begins()
    field.api_link(dispatcher).silence()
    field.api_link(binder).silence(lasting=True)
    await until(lambda: refuses_commits(field, binder), timeout_s=30, what="commits are refused")
    field.saw("commits refused")
    field.api_link(binder).heal()
    await field.load.finish()
    for role in (binder, dispatcher):
        assert field.api_link(role).counts["event withheld"], f"{role} missed nothing"


async def refuses_commits(field: Field, binder: str) -> bool:
    """Whether the Binder's picture is too old and it commits nothing for two seconds, with pods
    that wait for it."""
    before, waiting = await field.stack.metrics(binder), field.load.pending()
    await asyncio.sleep(2)
    after = await field.stack.metrics(binder)
    granted = after.since(before).by_label("stretto_verdicts_total", "kind")
    silent_s = before.total("stretto_watch_silence_seconds")
    return waiting > 0 and silent_s > REFUSED_S and not granted.get("committed")


@row(26, "410 Gone", "relist, no lost delete")
async def history_forgotten(field: Field) -> None:
    assert field.simulated is not None
    await field.load.start(bound_first=60)
    roles = [await field.leader("binder"), await field.leader("dispatcher")]
    field.load.fault_begins()
    links = [field.api_link(role) for role in roles]
    for link in links:
        link.refuse = True
        link.cut()
    before = told_gone(field)
    gone = field.rng.sample(sorted(field.cluster.nodes), 10)
    await field.cluster.all(
        field.cluster.insist("DELETE", f"{PODS}/{name}", AT_ONCE) for name in gone
    )
    field.load.created = [name for name in field.load.created if name not in gone]
    await asyncio.sleep(field.rng.uniform(0.2, 1.5))
    field.simulated.api.compact()
    for link in links:
        link.heal()
    await field.load.finish()
    field.saw("watches told 410", told_gone(field) - before)


def told_gone(field: Field) -> int:
    """Watches that the simulated API server answered 410."""
    assert field.simulated is not None
    answers = field.simulated.http.requests.items()
    return sum(
        count for (method, _, status), count in answers if (method, status) == ("WATCH", 410)
    )


@row(27, "Event duplicated, stale replay", "RV compare drops it")
async def events_repeated(field: Field) -> None:
    await field.load.start()
    roles = [await field.leader("binder"), await field.leader("dispatcher")]
    field.load.fault_begins()
    for role in roles:
        link = field.api_link(role)
        link.repeat_events = 0.5
        link.cut()
    await field.load.finish()
    assert sum(field.api_link(role).counts["event repeated"] for role in roles) > 20


@row(28, "A SIGKILL/restart; etcd SIGSTOP", "stall, recover, I24", real=True, limit_s=180)
async def api_server_dies(field: Field) -> None:
    assert field.plane is not None
    await field.load.start()
    field.load.fault_begins()
    field.stop_pid(field.plane.pid("etcd"))
    field.saw("etcd SIGSTOP")
    await asyncio.sleep(5)
    field.thaw(field.plane.pid("etcd"))
    await until(lambda: field.load.binds > 20, timeout_s=40, what="binds again")
    # A new server tells watches nothing of what was before it: the last changes must have been
    # recorded when it dies. Binds are on their way across its death instead.
    links = [field.api_link(role) for role in BINDERS]
    for link in links:
        link.on(Act.HOLD)
    await until(lambda: sum(link.held for link in links) >= 10, timeout_s=20, what="binds held")
    field.load.paused = True
    await asyncio.sleep(1.0)
    await field.stack.recorder.caught_up()
    field.plane.kill("kube-apiserver")
    field.saw("kube-apiserver SIGKILL")
    await asyncio.sleep(field.rng.uniform(1, 4))
    # Its start is awaited in this thread: children end with the thread that made them.
    field.plane.start_apiserver()
    await asyncio.sleep(3.0)  # for the recorder's watches; then whatever was held goes on
    for link in links:
        link.release()
    field.load.paused = False
    await field.load.finish(within_s=90)


@row(29, "Two As, one lagging", "barrier uses quorum reads; no stale act", real=True, limit_s=180)
async def one_of_two_lags(field: Field) -> None:
    assert field.plane is not None
    async with (
        Link("second>etcd", field.plane.etcd_address, rng=field.rng) as to_etcd,
        SecondApiServer(field.plane, etcd=to_etcd.address) as second,
    ):
        await field.load.start()
        field.load.fault_begins()
        to_etcd.delay_s = (0.2, 0.4)  # what the second knows is so old, and so slow is it to ask
        for turn in range(6):
            if turn == 2:
                await field.kill(await field.leader("binder"))
            for binder in BINDERS:
                link = field.api_link(binder)
                link.lead_to(second.address) if turn % 2 == 0 else link.heal()
                link.cut()
                field.saw("binder moved to the other API server")
            await asyncio.sleep(field.rng.uniform(1.0, 3.0))
        field.evidence.update({"late from etcd": to_etcd.counts["delayed"]})
        for binder in BINDERS:
            field.api_link(binder).heal()
            field.api_link(binder).cut()
        await field.load.finish(within_s=90)
