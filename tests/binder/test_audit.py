"""The online audit: drift between ledger and memory is found, frozen and mended."""

from __future__ import annotations

import struct
from typing import Any

import pytest
import redis.asyncio
from msgspec.structs import replace

from binder.auditor import Expected, LedgerAudit, drift
from stretto.ledger.client import Ledger
from stretto.ledger.requests import account_fields, pod_fields
from stretto.ledger.server import EmbeddedServer
from stretto.ledger.types import Charge, EntryState, Holdings, LedgerEntry
from stretto.model.unit import Attempt
from tests.binder.shells import Rig, create, simulated, until

ENTRY = LedgerEntry("p", "n", "p", Attempt(1, 1), 7, 50, EntryState.BOUND, (("cpu", 2), ("x", 0)))
AGREE = Holdings({"n": {"cpu": 2}}, {"p": ENTRY})


def expected(*, changing: set[str] | None = None) -> Expected:
    return Expected({"n": {"p": ENTRY}}, changing or set())


def test_what_agrees_is_no_drift() -> None:
    assert drift(expected(), AGREE) == {}
    assert drift(Expected({"n": {}}), Holdings({"n": {}}, {})) == {}


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (Holdings({"n": {"cpu": 2}}, {}), "pod p is missing"),
        (Holdings({"n": {"cpu": 3}}, {"p": ENTRY}), "says that {'cpu': 3} is used"),
        (Holdings({}, {"p": ENTRY}), "no account"),
        (Holdings(AGREE.used, {"p": replace(ENTRY, node_uid="m")}), "BOUND on m, not BOUND on n"),
        (Holdings(AGREE.used, {"p": replace(ENTRY, state=EntryState.RESERVED)}), "RESERVED on n"),
        (Holdings(AGREE.used, {"p": replace(ENTRY, resource_version=51)}), "version 51, not 50"),
        (
            Holdings(AGREE.used, {"p": replace(ENTRY, lines=(("cpu", 1),))}),
            "holds {'n': {'cpu': 1}}",
        ),
    ],
)
def test_what_differs_is_said(found: Holdings, text: str) -> None:
    assert text in drift(expected(), found)["n"]


def test_a_version_that_is_being_changed_is_not_compared() -> None:
    newer = Holdings(AGREE.used, {"p": replace(ENTRY, resource_version=51)})
    assert drift(expected(changing={"p"}), newer) == {}


def test_what_pods_are_charged_beside_their_room_is_compared() -> None:
    charged = replace(ENTRY, charges=(Charge("volume v", (("volume", 1),)),))
    used = {"n": {"cpu": 2}, "volume v": {"volume": 1}}
    wanted = Expected({"n": {"p": charged}}, used={"volume v": {"volume": 1}, "volume w": {}})
    assert drift(wanted, Holdings(used | {"volume w": {}}, {"p": charged})) == {}
    assert drift(wanted, Holdings(AGREE.used | {"volume v": {}}, {"p": ENTRY})) == {
        "n": "the entry of pod p holds {'n': {'cpu': 2}}, "
        "not {'n': {'cpu': 2}, 'volume v': {'volume': 1}}",
        "volume v": "the ledger says that {} is used, memory {'volume': 1}",
        "volume w": "the ledger has no account of it",
    }


def test_every_node_has_its_turn_once_a_period() -> None:
    audit = LedgerAudit(period_s=10.0, turn_s=1.0)
    nodes = [str(number) for number in range(25)]
    seen = [uid for second in range(9) for uid in audit.due(100.0 + second, lambda: nodes)]
    assert seen == nodes
    assert audit.rounds == 1
    assert audit.due(108.5, lambda: nodes) == [], "between turns"
    assert audit.due(109.5, lambda: nodes) == nodes[:3]


async def one_bound(rig: Rig) -> str:
    """A pod of ours on n1; its uid."""
    rig.start()
    await create(rig.client, "p")
    rig.commits.propose([await rig.proposal("p", "n1")])
    await until(lambda: rig.machine.bindings and not rig.machine.open, "bound")
    await until(lambda: rig.commits.idle, "written")
    return next(iter(rig.machine.bindings))


async def test_a_pod_on_its_way_is_no_drift() -> None:
    async with simulated() as (_, client):
        rig = Rig(client, epoch=10, audit_period_s=0.0)
        await rig.open(clean=True)
        for _ in range(3):
            rig.commits._ledger_audit._next_at = 0.0
            await rig.commits.round()
        await one_bound(rig)
        rig.commits._ledger_audit._next_at = 0.0
        rig.commits.changed()
        await until(lambda: rig.ledger.calls.count("holdings") >= 4, "audited")
        assert not rig.machine.book.drifted
        assert "rebuild" not in rig.ledger.calls
        await rig.stop()


@pytest.mark.parametrize("damage", ["used", "entry", "state", "garbage"])
async def test_drift_planted_by_hand_is_found_frozen_and_mended(tmp_path: Any, damage: str) -> None:
    """Row 48 of the fault matrix, on a real server."""
    async with EmbeddedServer(folder=tmp_path) as server, simulated() as (_, client):
        ledger = await Ledger.open(server.url, owner="o")
        rig = Rig(client, epoch=10, ledger=ledger, audit_period_s=0.0)
        await rig.open(clean=True)
        uid = await one_bound(rig)
        node_uid = rig.machine.bindings[uid].reservation.node_uid
        before = await ledger.entries()
        async with redis.asyncio.Redis.from_url(server.url) as hand:
            await plant(hand, damage, uid=uid, node_uid=node_uid)
        frozen: list[str] = []
        publish = rig.commits._publisher.publish

        def watching(effects: Any, **how: bool) -> None:
            frozen.extend(c.row.name for d in effects.deltas for c in d.nodes if c.frozen)
            publish(effects, **how)

        rig.commits._publisher.publish = watching  # type: ignore[method-assign]
        rig.commits._ledger_audit._next_at = 0.0
        rig.commits.changed()
        await until(lambda: frozen and not rig.machine.book.drifted, "found and mended")
        await until(lambda: rig.commits.idle, "written")
        assert frozen == ["n1"]
        assert rig.metrics.drift._value.get() == 1
        assert await ledger.entries() == before
        assert await ledger.sums() == {
            node: {"cpu": 100, "memory": 64 << 20, "pods": 1} if node == node_uid else {}
            for node in rig.machine.cluster.nodes
        }
        await rig.stop()
        await ledger.close()


async def test_lost_writes_that_the_audit_meets_are_no_drift(
    tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """They are mended at once; a rebuild for drift may have to wait for a minute."""
    async with EmbeddedServer(folder=tmp_path) as server, simulated() as (_, client):
        ledger = await Ledger.open(server.url, owner="o")
        rig = Rig(client, epoch=10, ledger=ledger, audit_period_s=0.0)
        await rig.open(clean=True)
        async with redis.asyncio.Redis.from_url(server.url) as hand:
            meta = await hand.hgetall("{stretto:o}:meta")
            uid = await one_bound(rig)
            before = await ledger.entries()
            await hand.hset("{stretto:o}:meta", mapping=meta)
            await hand.hdel("{stretto:o}:bound", uid)
        rig.commits._ledger_audit._next_at = 0.0
        rig.commits.changed()
        await until(lambda: "the ledger is whole again" in caplog.text, "mended")
        await until(lambda: rig.commits.idle, "written")
        assert rig.metrics.drift._value.get() == 0
        assert await ledger.entries() == before
        await rig.stop()
        await ledger.close()


async def plant(hand: Any, damage: str, *, uid: str, node_uid: str) -> None:
    """Write into the ledger behind its owner's back."""
    nodes, bound = "{stretto:o}:accounts", "{stretto:o}:bound"
    if damage == "used":
        raw = bytearray(await hand.hget(nodes, node_uid))
        fields = account_fields(bytes(raw))
        raw[24:32] = struct.pack("<d", fields[3] + 1)
        await hand.hset(nodes, node_uid, bytes(raw))
    elif damage == "entry":
        await hand.hdel(bound, uid)
    elif damage == "garbage":
        await hand.hset(bound, uid, b"3\xc1")
    else:
        record = await hand.hget(bound, uid)
        assert pod_fields(record)
        await hand.hset(bound, uid, b"1" + record[1:])
