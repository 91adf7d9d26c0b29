"""Lost requests, lost replies, late copies, lost data, and successors."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from stretto.ledger.client import Ledger
from stretto.ledger.twin import LedgerTwin
from stretto.ledger.twin_store import TwinStore
from stretto.ledger.types import (
    LedgerFenced,
    LedgerGap,
    LedgerOp,
    LedgerRefused,
    LedgerUnavailable,
    ReserveKind,
    ReserveReply,
)
from tests.ledger.proxy import Loss, LossyProxy
from tests.ledger.records import node, unit
from tests.ledger.users import by_hand

GRANTED = ReserveReply(ReserveKind.GRANTED)
QUICK = {"timeout_s": 0.2, "first_pause_s": 0.001}


async def connected(url: str, owner: str) -> Ledger:
    """A ledger with a node of two places, that gives up soon."""
    ledger = await Ledger.open(url, owner=owner, **QUICK)
    await ledger.install(5)
    await ledger.set_accounts([node("n1", cpu=2000)])
    return ledger


@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.REPLY, Loss.SILENCE])
async def test_a_call_without_an_answer_is_sent_again_and_happens_once(
    proxy: LossyProxy, owner: str, loss: Loss
) -> None:
    ledger = await connected(proxy.url, owner)
    proxy.losses = [loss, loss]
    assert await ledger.reserve([unit("u1", "n1")]) == [GRANTED]
    assert ledger.resends == 2
    proxy.losses = [loss]
    assert await ledger.transition([LedgerOp.free("u1")]) == [True]
    assert await ledger.sums() == {"n1": {}}
    await ledger.close()


@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.REPLY])
async def test_a_call_that_was_given_up_is_settled_by_the_next(
    proxy: LossyProxy, owner: str, loss: Loss
) -> None:
    ledger = await connected(proxy.url, owner)
    proxy.losses = [loss] * 4
    with pytest.raises(LedgerUnavailable, match="does not answer"):
        await ledger.reserve([unit("u1", "n1")])
    assert await ledger.reserve([unit("u1", "n1"), unit("u2", "n1"), unit("u3", "n1")]) == [
        GRANTED, GRANTED, ReserveReply(ReserveKind.NO_FIT, "n1", "cpu"),
    ]  # fmt: skip
    await ledger.close()


async def test_a_cancelled_call_is_settled_by_the_next(proxy: LossyProxy, owner: str) -> None:
    ledger = await connected(proxy.url, owner)
    proxy.losses = [Loss.SILENCE]
    call = asyncio.create_task(ledger.reserve([unit("u1", "n1")]))
    await asyncio.sleep(0.02)
    call.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await call
    assert await ledger.transition([LedgerOp.binding("u1")]) == [True]
    await ledger.close()


async def test_a_copy_that_arrives_late_changes_nothing(proxy: LossyProxy, owner: str) -> None:
    """Even when the same epoch has been installed anew and its numbers have come round."""
    ledger = await connected(proxy.url, owner)
    await ledger.reserve([unit("u1", "n1")])
    proxy.losses = [Loss.SILENCE]
    await ledger.transition([LedgerOp.free("u1")])
    await ledger.reserve([unit("u1", "n1", number=2)])
    assert b"gap" in await proxy.deliver()
    proxy.losses = [Loss.SILENCE] * 4
    with pytest.raises(LedgerUnavailable):
        await ledger.transition([LedgerOp.free("u1")])
    assert (await ledger.install(5)).intact
    for _ in range(4):
        await ledger.transition([LedgerOp.binding("none")])
    assert b"fenced" in await proxy.deliver()
    assert [entry.pod_uid for entry in await ledger.entries()] == ["u1"]
    await ledger.close()


async def test_install_whose_reply_was_lost_says_the_same_again(
    proxy: LossyProxy, owner: str
) -> None:
    ledger = await Ledger.open(proxy.url, owner=owner, **QUICK)
    proxy.losses = [Loss.REPLY]
    reply = await ledger.install(5)
    assert (reply.intact, reply.previous_epoch) == (False, 0)
    assert ledger.generations == 1, "a call that is sent again begins one generation"
    await ledger.close()


async def test_a_successor_fences_its_predecessor(server_url: str, owner: str) -> None:
    old = await connected(server_url, owner)
    await old.reserve([unit("u1", "n1"), unit("u2", "n1")])
    await old.transition([LedgerOp.bound("u1")])
    new = await Ledger.open(server_url, owner=owner)
    reply = await new.install(6)
    assert (reply.intact, reply.previous_epoch, reply.open_entries) == (True, 5, 1)
    with pytest.raises(LedgerFenced, match="belongs to epoch 6 now, ours is 5"):
        await old.reserve([unit("u3", "n1")])
    with pytest.raises(LedgerFenced, match="taken by epoch 6, ours is 5"):
        await old.install(5)
    assert {entry.pod_uid for entry in await new.entries()} == {"u1", "u2"}
    assert (await new.entries(open_only=True))[0].lines == (("cpu", 1000), ("pods", 1))
    await old.close()
    await new.close()


async def test_a_successor_that_began_anew_fences_too(server_url: str, owner: str) -> None:
    old = await connected(server_url, owner)
    new = await Ledger.open(server_url, owner=owner)
    assert not (await new.install(6, force_rebuild=True)).intact
    assert (await new.install(6)).intact is False, "its rebuild has not ended"
    assert new.generations == 2
    with pytest.raises(LedgerFenced):
        await old.reserve([unit("u3", "n1")])
    await old.close()
    await new.close()


async def test_a_rebuild_that_did_not_end_is_not_taken_for_intact(
    server_url: str, owner: str
) -> None:
    first = await connected(server_url, owner)
    second = await Ledger.open(server_url, owner=owner)
    assert not (await second.install(6)).intact
    await second.set_accounts([node("n1")])
    await second.opened()
    assert (await second.install(7)).intact
    await first.close()
    await second.close()


async def test_an_emptied_server_is_noticed_at_the_next_call(server_url: str, owner: str) -> None:
    ledger = await connected(server_url, owner)
    await ledger.reserve([unit("u1", "n1")])
    async with by_hand(server_url) as other:
        await other.delete(
            *[f"{{stretto:{owner}}}:{part}" for part in ("meta", "accounts", "open")]
        )
    with pytest.raises(LedgerGap, match="emptied or replaced"):
        await ledger.reserve([unit("u2", "n1")])
    assert not (await ledger.install(5)).intact
    await ledger.set_accounts([node("n1")])
    assert await ledger.reserve([unit("u2", "n1")]) == [GRANTED]
    await ledger.close()


async def test_lost_writes_are_noticed_at_the_next_call(server_url: str, owner: str) -> None:
    ledger = await connected(server_url, owner)
    meta = f"{{stretto:{owner}}}:meta"
    async with by_hand(server_url) as other:
        before = await other.hgetall(meta)
        await ledger.reserve([unit("u1", "n1")])
        await ledger.reserve([unit("u2", "n1")])
        await other.hset(meta, mapping=before)
    with pytest.raises(LedgerGap, match="is at call 1, we at 4"):
        await ledger.reserve([unit("u3", "n1")])
    await ledger.close()


@pytest.mark.parametrize("loss", ["emptied", "rolled back"])
async def test_a_loss_is_noticed_by_a_read_too(server_url: str, owner: str, loss: str) -> None:
    """What it showed would be taken for drift, which may be mended only now and then."""
    ledger, meta = await connected(server_url, owner), f"{{stretto:{owner}}}:meta"
    asked: dict[str, list[str]] = {"accounts": ["n1"], "pods": ["u1"]}
    async with by_hand(server_url) as other:
        before = await other.hgetall(meta)
        await ledger.reserve([unit("u1", "n1")])
        assert set((await ledger.holdings(**asked)).entries) == {"u1"}
        if loss == "emptied":
            await other.delete(meta)
        else:
            await other.hset(meta, mapping=before)
    with pytest.raises(LedgerGap, match="lost writes that it had acknowledged"):
        await ledger.holdings(**asked)
    await ledger.close()


async def test_a_read_waits_for_no_answer_that_is_missing(proxy: LossyProxy, owner: str) -> None:
    """Whether the call happened is not known: the next one settles it."""
    ledger = await connected(proxy.url, owner)
    proxy.losses = [Loss.REPLY] * 4
    with pytest.raises(LedgerUnavailable):
        await ledger.reserve([unit("u1", "n1")])
    assert set((await ledger.holdings(accounts=[], pods=["u1"])).entries) == {"u1"}
    await ledger.close()


async def test_a_forgotten_script_is_loaded_again(ledger: Ledger, server_url: str) -> None:
    await ledger.install(1)
    async with by_hand(server_url) as other:
        await other.script_flush()
    await ledger.set_accounts([node("n1")])
    assert await ledger.reserve([unit("u1", "n1")]) == [GRANTED]


async def test_another_schema_is_refused(ledger: Ledger, server_url: str, owner: str) -> None:
    await ledger.install(1)
    async with by_hand(server_url) as other:
        await other.hset(f"{{stretto:{owner}}}:meta", "schema", "99")
    with pytest.raises(LedgerRefused, match="has schema 99, not ours"):
        await ledger.install(2)


def test_the_twin_knows_fences_and_losses() -> None:
    store = TwinStore()
    old, new = LedgerTwin(store=store), LedgerTwin(store=store)
    old.install(1)
    old.set_accounts([node("n1")])
    old.reserve([unit("u1", "n1")])
    assert new.install(2).intact
    with pytest.raises(LedgerFenced):
        old.reserve([unit("u2", "n1")])
    with pytest.raises(LedgerGap):
        old.holdings(accounts=[], pods=[])
    store.flush()
    with pytest.raises(LedgerGap):
        new.holdings(accounts=[], pods=[])
    with pytest.raises(LedgerGap):
        new.reserve([unit("u2", "n1")])
    assert not new.install(2).intact
    new.validate()


def test_the_twin_refuses_another_owner_and_a_call_that_was_lost() -> None:
    store = TwinStore()
    twin = LedgerTwin(store=store, owner="ours")
    twin.install(1)
    twin.set_accounts([node("n1")])
    with pytest.raises(LedgerRefused, match="belongs to ours"):
        LedgerTwin(store=store, owner="theirs").install(2)
    assert twin.reserve([]) == []
    assert twin.transition([]) == []
    store.meta["seq"] -= 1  # the server lost what was written last
    with pytest.raises(LedgerGap):
        twin.reserve([unit("u1", "n1")])
