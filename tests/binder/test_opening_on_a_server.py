"""A new Binder on a real ledger server: what it holds afterwards is what the API says."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator

import msgspec
import pytest

from stretto.cli.verdict import difference
from stretto.kube.client import KubeClient
from stretto.ledger.client import Ledger
from stretto.ledger.server import EmbeddedServer
from stretto.ledger.types import EntryState
from tests.binder.shells import Rig, create, delete, pod_of, simulated, until


@pytest.fixture
async def server(tmp_path: pathlib.Path) -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer(folder=tmp_path) as server:
        yield server


async def opened(client: KubeClient, ledger: Ledger, *, epoch: int) -> Rig:
    rig = Rig(client, epoch=epoch, ledger=ledger)
    await rig.open()
    rig.start()
    return rig


async def placed(rig: Rig, name: str, node: str) -> None:
    """Proposed, committed, bound and seen."""
    rig.commits.propose([await rig.proposal(name, node)])
    await until(lambda: name in bound_names(rig), f"{name} is bound")


def bound_names(rig: Rig) -> set[str]:
    held = rig.machine.bindings
    return {b.reservation.member.name for uid, b in held.items() if uid not in rig.machine.open}


async def entries_of(ledger: Ledger) -> dict[str, str]:
    """Pod uid → node uid; all of them BOUND."""
    found = await ledger.entries()
    assert all(entry.state is EntryState.BOUND for entry in found)
    return {entry.pod_uid: entry.node_uid for entry in found}


@pytest.mark.parametrize("how", ["emptied", "an entry was lost", "bound elsewhere"])
async def test_bound_pods_of_ours_are_entries_whatever_the_ledger_was(
    server: EmbeddedServer, how: str
) -> None:
    async with simulated() as (_, client):
        ledger = await Ledger.open(server.url, owner="o")
        first = await opened(client, ledger, epoch=5)
        for name, node in (("a", "n1"), ("b", "n1"), ("c", "n2")):
            await create(client, name)
            await placed(first, name, node)
        await until(lambda: first.commits.idle, "the ledger knows")
        expected = await entries_of(ledger)
        await first.stop()
        await damage(client, ledger, how)
        second = await opened(client, ledger, epoch=6)
        assert await entries_of(ledger) == expected
        assert await difference(client, ledger) == ""
        second.machine.validate()
        await delete(client, "a")
        await until(lambda: len(second.machine.bindings) == 2, "the deletion is seen")
        await until(lambda: second.commits.idle, "the ledger knows")
        assert await difference(client, ledger) == ""
        await second.stop()
        await ledger.close()


async def damage(client: KubeClient, ledger: Ledger, how: str) -> None:
    if how == "emptied":
        await ledger.install(5, force_rebuild=True)
        return
    entries = {entry.pod_uid: entry for entry in await ledger.entries()}
    uid = await uid_of(client, "a")
    if how == "an entry was lost":
        del entries[uid]
    else:
        other = next(e.node_uid for e in entries.values() if e.node_uid != entries[uid].node_uid)
        entries[uid] = msgspec.structs.replace(entries[uid], node_uid=other)
    await ledger.rebuild(accounts=[], entries=entries.values())


async def uid_of(client: KubeClient, name: str) -> str:
    return str((await pod_of(client, name))["metadata"]["uid"])


async def test_pods_of_other_schedulers_stay_foreign(server: EmbeddedServer) -> None:
    async with simulated() as (_, client):
        pod = await create(client, "theirs", scheduler="somebody-else")
        meta = pod["metadata"]
        await client.bind(
            namespace="default",
            name="theirs",
            uid=meta["uid"],
            resource_version=meta["resourceVersion"],
            node="n1",
        )
        ledger = await Ledger.open(server.url, owner="o")
        rig = await opened(client, ledger, epoch=5)
        assert await ledger.entries() == []
        account = rig.machine.book.rooms.account(rig.machine.cluster.node_uid_of("n1"))
        assert account.foreign["pods"] == 1
        await rig.stop()
        await ledger.close()
