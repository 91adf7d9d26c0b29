"""A new Binder: what was in flight is resolved before the first commit (reliability §1.4 o–s)."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from msgspec.structs import replace

from binder.recovery import doubt
from stretto.kube.answers import BindKind
from stretto.kube.client import KubeClient
from stretto.kube.lease import Tenure
from stretto.ledger.twin_store import TwinStore
from stretto.ledger.types import EntryState, InstallReply, LedgerFenced
from tests.binder.shells import Rig, create, delete, pod_of, simulated, until

TAKEN = {"cpu": 100, "memory": 64 << 20, "pods": 1}


def node_uid(rig: Rig, name: str = "n1") -> str:
    return rig.machine.cluster.node_uid_of(name)


async def bind(client: KubeClient, pod: dict[str, Any], node: str) -> BindKind:
    """The POST of an earlier Binder."""
    meta = pod["metadata"]
    answer = await client.bind(
        namespace="default",
        name=meta["name"],
        uid=meta["uid"],
        resource_version=meta["resourceVersion"],
        node=node,
    )
    return answer.kind


async def crashed(client: KubeClient, store: TwinStore, *names: str) -> None:
    """A Binder of epoch 10 reserves pods on n1 and dies before their POSTs arrive."""
    rig = Rig(client, epoch=10, store=store)
    await rig.open(clean=True)
    for name in names:
        await rig.reserve(name, "n1")
    assert [entry.state for entry in rig.ledger.twin.entries()] == [EntryState.RESERVED] * len(
        names
    )
    await rig.stop()


def fence_of(pod: dict[str, Any]) -> dict[str, Any] | None:
    conditions = pod["status"].get("conditions", [])
    return next((c for c in conditions if c["type"] == "stretto.io/BindFence"), None)


async def test_a_reservation_that_was_never_bound_is_fenced_and_freed() -> None:
    async with simulated() as (_, client):
        pod = await create(client, "p")
        store = TwinStore()
        await crashed(client, store, "p")
        rig = Rig(client, epoch=11, store=store)
        await rig.open()
        assert rig.ledger.twin.entries() == []
        assert fence_of(await pod_of(client, "p")) is not None
        assert await bind(client, pod, "n1") is BindKind.CONFLICT, "the late bind landed"
        rig.ledger.twin.validate()
        await rig.stop()


async def test_a_bind_that_was_carried_out_stays_an_entry() -> None:
    async with simulated() as (_, client):
        pod = await create(client, "p")
        store = TwinStore()
        await crashed(client, store, "p")
        assert await bind(client, pod, "n1") is BindKind.BOUND
        rig = Rig(client, epoch=11, store=store)
        await rig.open()
        (entry,) = rig.ledger.twin.entries()
        assert entry.state is EntryState.BOUND
        assert rig.machine.book.rooms.account(node_uid(rig)).foreign == {}
        assert fence_of(await pod_of(client, "p")) is None
        await delete(client, "p")
        await until(lambda: not rig.machine.bindings, "the deletion is seen")
        rig.machine.validate()
        await rig.stop()


@pytest.mark.parametrize("when", ["before the lists", "after the lists"])
async def test_a_late_bind_that_lands_while_opening_is_not_missed(when: str) -> None:
    async with simulated() as (_, client):
        pod = await create(client, "p")
        store = TwinStore()
        await crashed(client, store, "p")
        rig = Rig(client, epoch=11, store=store)
        await rig.prepare()
        if when == "before the lists":
            assert await bind(client, pod, "n1") is BindKind.BOUND
        await rig.lists()
        if when == "after the lists":
            assert await bind(client, pod, "n1") is BindKind.BOUND
        await rig.opening.finish(rig.watches.bound_names or {})
        rig.commits.publish()
        # Be it as an entry or as foreign: the room is taken before the first commit.
        entries = rig.ledger.twin.entries()
        foreign = rig.machine.book.rooms.account(node_uid(rig)).foreign
        assert (len(entries), foreign) in ((1, {}), (0, TAKEN))
        rig.machine.validate()
        await rig.stop()


async def test_entries_of_pods_that_are_gone_are_freed() -> None:
    async with simulated() as (_, client):
        for name in ("a", "b"):
            await create(client, name)
        store = TwinStore()
        await crashed(client, store, "a", "b")
        await delete(client, "a")
        await delete(client, "b")
        await create(client, "b")
        rig = Rig(client, epoch=11, store=store)
        await rig.open()
        assert rig.ledger.twin.entries() == []
        assert rig.opening.fenced == 0
        rig.ledger.twin.validate()
        await rig.stop()


async def test_a_lost_ledger_fences_every_pending_pod_of_ours() -> None:
    async with simulated() as (_, client):
        pods = [await create(client, name) for name in ("a", "b")]
        await create(client, "other", scheduler="somebody-else")
        store = TwinStore()
        await crashed(client, store, "a")
        store.flush()
        rig = Rig(client, epoch=11, store=store)
        found = await rig.open()
        assert not found.intact
        assert rig.opening.fenced == 2
        assert fence_of(await pod_of(client, "other")) is None
        assert await bind(client, pods[0], "n1") is BindKind.CONFLICT
        await rig.stop()


FOUND = InstallReply("g", intact=True, previous_epoch=7, open_entries=0)
ENDED = Tenure(9, clean=False, first=False, previous_epoch=7)


@pytest.mark.parametrize(
    ("found", "tenure", "why"),
    [
        (FOUND, ENDED, ""),
        (FOUND, ENDED._replace(first=True, previous_epoch=0), ""),
        (replace(FOUND, intact=False), ENDED, "new"),
        (replace(FOUND, intact=False), ENDED._replace(clean=True), ""),
        # No Lease: the first start ever, or it was deleted while a bind is in flight.
        (replace(FOUND, intact=False), ENDED._replace(first=True, previous_epoch=0), "new"),
        (replace(FOUND, restarted=True), ENDED, "started again"),
        (replace(FOUND, restarted=True), ENDED._replace(clean=True), ""),
        # Another server's ledger, which an earlier Binder left behind.
        (replace(FOUND, previous_epoch=6), ENDED, "last taken in epoch 6"),
        # The last Binder took it and died before it could act.
        (replace(FOUND, previous_epoch=8), ENDED, ""),
    ],
)
def test_what_proves_that_no_unknown_bind_is_in_flight(
    found: InstallReply, tenure: Tenure, why: str
) -> None:
    text = doubt(found, tenure)
    assert (why in text) if why else not text


async def test_a_ledger_that_lost_its_tail_with_the_binder_fences_every_pending_pod() -> None:
    async with simulated() as (_, client):
        pods = [await create(client, name) for name in ("a", "b")]
        store = TwinStore()
        await crashed(client, store)
        before = copy.deepcopy(store)
        await crashed(client, store, "a")  # the same Binder, one acknowledged write later
        before.restart()
        rig = Rig(client, epoch=11, store=before)
        found = await rig.open()
        assert found.intact
        assert rig.ledger.twin.entries() == []
        assert rig.opening.fenced == 2
        assert await bind(client, pods[0], "n1") is BindKind.CONFLICT, "the late bind landed"
        await rig.stop()


async def test_a_deleted_lease_and_an_emptied_ledger_let_no_late_bind_through() -> None:
    async with simulated() as (_, client):
        pod = await create(client, "p")
        store = TwinStore()
        await crashed(client, store, "p")
        store.flush()
        rig = Rig(client, epoch=11, store=store)
        found = await rig.ledger.install(11)
        await rig.opening.prepare(found, Tenure(11, clean=False, first=True))
        await rig.lists()
        await rig.opening.finish(rig.watches.bound_names or {})
        assert await bind(client, pod, "n1") is BindKind.CONFLICT, "the late bind landed"
        await rig.stop()


@pytest.mark.parametrize("clean", [True, False])
async def test_a_new_ledger_after_a_clean_end_fences_nothing(clean: bool) -> None:
    async with simulated() as (_, client):
        await create(client, "p")
        rig = Rig(client, epoch=11)
        await rig.open(clean=clean)
        assert rig.opening.fenced == (0 if clean else 1)
        await rig.stop()


async def test_a_rebuild_that_was_broken_off_counts_as_a_lost_ledger() -> None:
    async with simulated() as (_, client):
        await create(client, "p")
        store = TwinStore()
        Rig(client, epoch=10, store=store).ledger.twin.install(10)
        rig = Rig(client, epoch=11, store=store)
        assert not (await rig.open()).intact
        assert rig.opening.fenced == 1
        assert store.meta["state"] == "OPEN"
        await rig.stop()


async def test_sums_that_cannot_be_right_are_written_anew() -> None:
    async with simulated() as (_, client):
        pod = await create(client, "p")
        store = TwinStore()
        await crashed(client, store, "p")
        await bind(client, pod, "n1")
        (record,) = [node for node in store.accounts.values() if any(node[3::4])]
        record[3] += 7  # somebody changes the server by hand
        rig = Rig(client, epoch=11, store=store)
        await rig.open()
        assert "rebuild" in rig.ledger.calls
        rig.ledger.twin.validate()
        assert len(rig.ledger.twin.entries()) == 1
        await rig.stop()


async def test_an_older_binder_that_wakes_up_is_out() -> None:
    async with simulated() as (_, client):
        await create(client, "p")
        store = TwinStore()
        old = Rig(client, epoch=10, store=store)
        await old.open(clean=True)
        new = Rig(client, epoch=11, store=store)
        await new.open()
        with pytest.raises(LedgerFenced):
            await old.reserve("p", "n1")
        with pytest.raises(LedgerFenced):
            await old.repair()
        assert new.ledger.twin.entries() == []
        await asyncio.gather(old.stop(), new.stop())


async def test_the_account_of_a_node_that_left_meanwhile_is_dropped() -> None:
    async with simulated() as (_, client):
        await create(client, "p")
        store = TwinStore()
        await crashed(client, store, "p")
        await client.delete("/api/v1/nodes/n2")
        rig = Rig(client, epoch=11, store=store)
        await rig.open()
        assert list(rig.ledger.twin.sums()) == [node_uid(rig)]
        await rig.stop()
