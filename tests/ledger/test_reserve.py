"""What the ledger answers, on the real server."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from stretto.ledger.client import Ledger
from stretto.ledger.types import (
    MAX_AMOUNT,
    Account,
    Charge,
    EntryState,
    LedgerMember,
    LedgerOp,
    LedgerRefused,
    LedgerUnit,
    ReserveKind,
    ReserveReply,
    account_kind,
    account_uid,
)
from stretto.model.unit import Attempt
from tests.ledger.records import LINES, node, unit

GRANTED = ReserveReply(ReserveKind.GRANTED)


async def test_a_unit_is_reserved_whole_or_not_at_all(ledger: Ledger) -> None:
    await ledger.install(1)
    await ledger.set_accounts([node("n1", cpu=2000), node("n2", cpu=500)])
    replies = await ledger.reserve([unit("gang", "n1", "n2"), unit("u2", "n1"), unit("u3", "n1")])
    assert replies == [ReserveReply(ReserveKind.NO_FIT, "n2", "cpu"), GRANTED, GRANTED]
    assert (await ledger.sums())["n1"] == {"cpu": 2000, "pods": 2}
    assert (await ledger.sums())["n2"] == {}


async def test_room_is_taken_to_the_last_piece_and_not_one_more(ledger: Ledger) -> None:
    await ledger.install(1)
    await ledger.set_accounts([node("n1", cpu=1000, foreign={"cpu": 3})])
    assert await ledger.reserve([unit("u1", "n1", cpu=998)]) == [
        ReserveReply(ReserveKind.NO_FIT, "n1", "cpu")
    ]
    assert await ledger.reserve([unit("u2", "n1", cpu=997)]) == [GRANTED]
    assert await ledger.reserve([unit("u3", "n1", cpu=1)]) == [
        ReserveReply(ReserveKind.NO_FIT, "n1", "cpu")
    ]


async def test_room_of_the_largest_exact_number_is_taken_whole(ledger: Ledger) -> None:
    await ledger.install(1)
    await ledger.set_accounts([node("n1", cpu=MAX_AMOUNT)])
    assert await ledger.reserve([unit("u1", "n1", cpu=MAX_AMOUNT)]) == [GRANTED]
    assert (await ledger.sums())["n1"] == {"cpu": MAX_AMOUNT, "pods": 1}


async def test_no_amount_is_taken_for_the_place_of_another_resource(ledger: Ledger) -> None:
    """The script keeps an account as a row of numbers, and remembers where a resource stood."""
    await ledger.install(1)
    amounts = [(cpu, foreign) for cpu in range(1, 13) for foreign in range(1, 4)]
    names = {pair: f"n{pair[0]}-{pair[1]}" for pair in amounts}
    await ledger.set_accounts(
        [node(names[pair], cpu=100, foreign={"cpu": pair[1]}) for pair in amounts]
    )
    for pair in amounts:
        assert await ledger.reserve([unit(f"u{names[pair]}", names[pair], cpu=pair[0])]) == [
            GRANTED
        ]
    sums = await ledger.sums()
    assert {name: sums[name] for name in names.values()} == {
        names[pair]: {"cpu": pair[0], "pods": 1} for pair in amounts
    }


async def test_nothing_of_a_resource_that_is_not_there_is_nothing(ledger: Ledger) -> None:
    await ledger.install(1)
    await ledger.set_accounts([node("n1", cpu=5)])

    def wanting(name: str, cpu: int) -> LedgerUnit:
        lines = (("example.com/card", 0), ("cpu", cpu), ("pods", 1))
        return LedgerUnit(name, Attempt(1, 1), (LedgerMember(name, "n1", 7, lines),))

    assert await ledger.reserve([wanting("u1", 6), wanting("u2", 5), wanting("u3", 1)]) == [
        ReserveReply(ReserveKind.NO_FIT, "n1", "cpu"), GRANTED,
        ReserveReply(ReserveKind.NO_FIT, "n1", "cpu"),
    ]  # fmt: skip
    assert (await ledger.sums())["n1"] == {"cpu": 5, "pods": 1}


VOLUME, QUEUE, ROOT = (account_uid(*n) for n in (("volume", "v"), ("queue", "q"), ("queue", "r")))


def charged(name: str, *charges: Charge, node: str = "n1") -> LedgerUnit:
    """A unit of one pod that takes of other accounts beside its node."""
    return LedgerUnit(name, Attempt(1, 1), (LedgerMember(name, node, 7, LINES, charges),))


def queued(cpu: int) -> tuple[Charge, ...]:
    """What a pod takes of its queue and of the queue above."""
    return tuple(Charge(queue, (("cpu", cpu),)) for queue in (QUEUE, ROOT))


async def test_a_unit_takes_all_that_it_is_charged_or_nothing(ledger: Ledger) -> None:
    await ledger.install(1)
    queues = [Account(QUEUE, {"cpu": 9}), Account(ROOT, {"cpu": 12}, {"cpu": 2})]
    await ledger.set_accounts([node("n1", cpu=9000), Account(VOLUME, {"volume": 1}), *queues])
    volume = Charge(VOLUME, (("volume", 1),))
    replies = await ledger.reserve(
        [
            charged("u1", volume, *queued(5)), charged("u2", *queued(4), volume),
            charged("u3", *queued(5)), charged("u4", *queued(4)), charged("u5", *queued(1)),
        ]
    )  # fmt: skip
    assert replies == [
        GRANTED, ReserveReply(ReserveKind.NO_FIT, VOLUME, "volume"),
        ReserveReply(ReserveKind.NO_FIT, QUEUE, "cpu"), GRANTED,
        ReserveReply(ReserveKind.NO_FIT, QUEUE, "cpu"),
    ]  # fmt: skip
    used = {"n1": {"cpu": 2000, "pods": 2}, VOLUME: {"volume": 1}}
    assert await ledger.sums() == used | {QUEUE: {"cpu": 9}, ROOT: {"cpu": 9}}
    entries = {entry.pod_uid: entry for entry in await ledger.entries()}
    assert entries["u1"].charges == (volume, *queued(5))
    await ledger.transition([LedgerOp.free("u1")])
    used = {"n1": {"cpu": 1000, "pods": 1}, VOLUME: {}}
    assert await ledger.sums() == used | {QUEUE: {"cpu": 4}, ROOT: {"cpu": 4}}
    assert await ledger.reserve([charged("u6", volume)]) == [GRANTED]


async def test_the_last_ancestor_refuses_what_its_children_have_room_for(ledger: Ledger) -> None:
    await ledger.install(1)
    queues = [Account(QUEUE, {"cpu": 9}), Account(ROOT, {"cpu": 5}, {"cpu": 2})]
    await ledger.set_accounts([node("n1", cpu=9000), *queues])
    assert await ledger.reserve([charged("u1", *queued(4)), charged("u2", *queued(3))]) == [
        ReserveReply(ReserveKind.NO_FIT, ROOT, "cpu"), GRANTED,
    ]  # fmt: skip


async def test_missing_and_frozen_accounts_are_named(ledger: Ledger) -> None:
    await ledger.install(1)
    await ledger.set_accounts([node("n1"), Account(QUEUE, {"cpu": 9}, frozen=True)])
    volume, queue = Charge(VOLUME, (("volume", 1),)), Charge(QUEUE, (("cpu", 1),))
    assert await ledger.reserve([charged("u1", volume), charged("u2", queue)]) == [
        ReserveReply(ReserveKind.ACCOUNT_MISSING, VOLUME), ReserveReply(ReserveKind.FLAGGED, QUEUE),
    ]  # fmt: skip
    assert (await ledger.sums())["n1"] == {}
    assert (account_kind(VOLUME), account_kind("n1")) == ("volume", "node")


async def test_adopting_an_entry_changes_what_it_is_charged(ledger: Ledger) -> None:
    await ledger.install(1)
    await ledger.set_accounts([node("n1"), Account(VOLUME, {"volume": 1})])
    await ledger.reserve([charged("u1", Charge(VOLUME, (("volume", 1),)))])
    (entry,) = await ledger.entries()
    fewer = replace(entry, state=EntryState.BOUND, charges=())
    await ledger.transition([LedgerOp.adopting(fewer)])
    assert await ledger.entries() == [fewer]
    assert await ledger.sums() == {"n1": {"cpu": 1000, "pods": 1}, VOLUME: {}}
    await ledger.transition([LedgerOp.adopting(replace(entry, charges=queued(3)))])
    assert (await ledger.sums())[ROOT] == {"cpu": 3}, "also where no account is"
    await ledger.transition([LedgerOp.free("u1")])
    assert await ledger.sums() == {"n1": {}, VOLUME: {}}


async def test_later_units_of_a_call_see_earlier_grants(ledger: Ledger) -> None:
    await ledger.install(1)
    await ledger.set_accounts([node("n1", cpu=1000)])
    replies = await ledger.reserve([unit(f"u{i}", "n1") for i in range(300)])
    assert replies[0] == GRANTED
    assert {reply.kind for reply in replies[1:]} == {ReserveKind.NO_FIT}


async def test_a_held_pod_is_named_and_nothing_written(ledger: Ledger) -> None:
    await ledger.install(1)
    await ledger.set_accounts([node("n1"), node("n2")])
    await ledger.reserve([unit("u1", "n1")])
    await ledger.transition([LedgerOp.binding("u1")])
    again = await ledger.reserve([unit("u1", "n2", number=2)])
    assert again == [ReserveReply(ReserveKind.HELD, "n1", "binding", "u1")]
    assert (await ledger.sums())["n2"] == {}


async def test_attempts_are_compared_as_pairs(ledger: Ledger) -> None:
    await ledger.install(1)
    await ledger.set_accounts([node("n1")])
    big = unit("u1", "n1", number=9, cpu=9000)
    refused = await ledger.reserve([big])
    assert refused == [ReserveReply(ReserveKind.NO_FIT, "n1", "cpu")]
    assert await ledger.reserve([big]) == refused, "a repeated attempt gets its stored answer"
    assert (await ledger.reserve([unit("u1", "n1", number=8)]))[0].kind is ReserveKind.SUPERSEDED
    later = LedgerUnit("u1", Attempt(2, 1), unit("u1", "n1").members)
    assert await ledger.reserve([later]) == [GRANTED]
    assert await ledger.reserve([later]) == [GRANTED]
    assert (await ledger.sums())["n1"] == {"cpu": 1000, "pods": 1}


async def test_a_grant_is_not_repeated_once_it_was_freed(ledger: Ledger) -> None:
    """Otherwise a proposal that arrives again would be bound without a reservation."""
    await ledger.install(1)
    await ledger.set_accounts([node("n1"), node("n2")])
    await ledger.reserve([unit("u1", "n1")])
    elsewhere = await ledger.reserve([unit("u1", "n2")])
    assert elsewhere == [ReserveReply(ReserveKind.HELD, "n1", "reserved", "u1")]
    await ledger.transition([LedgerOp.free("u1")])
    assert (await ledger.reserve([unit("u1", "n1")]))[0].kind is ReserveKind.SUPERSEDED
    await ledger.transition([LedgerOp.forget_unit("u1")])
    assert await ledger.reserve([unit("u1", "n1")]) == [GRANTED]


async def test_flags_and_missing_nodes(ledger: Ledger) -> None:
    await ledger.install(1)
    await ledger.set_accounts([node("n1", frozen=True)])
    replies = await ledger.reserve([unit("u1", "n1"), unit("u2", "n2")])
    assert replies == [
        ReserveReply(ReserveKind.FLAGGED, "n1"),
        ReserveReply(ReserveKind.ACCOUNT_MISSING, "n2"),
    ]


async def test_foreign_pods_take_room(ledger: Ledger) -> None:
    await ledger.install(1)
    await ledger.set_accounts([node("n1", cpu=2000, foreign={"cpu": 500})])
    replies = await ledger.reserve([unit("u1", "n1"), unit("u2", "n1")])
    assert [reply.kind for reply in replies] == [ReserveKind.GRANTED, ReserveKind.NO_FIT]
    applied = await ledger.transition(
        [LedgerOp.foreign("n1", (("cpu", 0),)), LedgerOp.foreign("n9", (("cpu", 0),))]
    )
    assert applied == [True, False]
    assert await ledger.reserve([unit("u3", "n1")]) == [GRANTED]


async def test_amounts_at_the_edge_of_exact_numbers(ledger: Ledger) -> None:
    await ledger.install(1)
    await ledger.set_accounts([Account("n1", {"x": 2**60, "pods": 9})])
    members = [LedgerMember(f"p{i}", "n1", 1, (("x", 2**53 - 2 + i),)) for i in range(3)]
    units = [LedgerUnit(m.pod_uid, Attempt(1, 1), (m,)) for m in members]
    replies = await ledger.reserve(units)
    assert [reply.kind for reply in replies] == [ReserveKind.GRANTED] + [ReserveKind.NO_FIT] * 2
    await ledger.transition(
        [LedgerOp.adopt(members[2], unit_id="p2", attempt=Attempt(1, 1), state=EntryState.BOUND)]
    )
    assert (await ledger.sums())["n1"] == {"x": MAX_AMOUNT}
    await ledger.transition([LedgerOp.free("p0"), LedgerOp.free("p2")])
    assert (await ledger.sums())["n1"] == {}


async def test_the_life_of_an_entry(ledger: Ledger) -> None:
    await ledger.install(3)
    await ledger.set_accounts([node("n1")])
    await ledger.reserve([unit("u1", "n1"), unit("gang", "n1", "n1", cpu=10)])
    assert {e.pod_uid for e in await ledger.entries(open_only=True)} == {"u1", "gang-0", "gang-1"}
    steps = [
        LedgerOp.binding("u1"), LedgerOp.binding("u1"), LedgerOp.rebase("u1", 99),
        LedgerOp.bound("u1"), LedgerOp.bound("u1"), LedgerOp.free("gang-0"), LedgerOp.free("none"),
    ]  # fmt: skip
    applied = [True, False, True, True, False, True, False]
    assert await ledger.transition(steps) == applied
    entries = {entry.pod_uid: entry for entry in await ledger.entries()}
    assert set(entries) == {"u1", "gang-1"}
    first = entries["u1"]
    assert (first.unit_id, first.node_uid, first.attempt) == ("u1", "n1", Attempt(1, 1))
    assert (first.state, first.resource_version, first.epoch) == (EntryState.BOUND, 99, 3)
    assert first.lines == LINES
    assert [e.pod_uid for e in await ledger.entries(open_only=True)] == ["gang-1"]


async def test_a_removed_node_is_counted_until_its_last_entry_is_freed(ledger: Ledger) -> None:
    await ledger.install(1)
    await ledger.set_accounts([node("n1"), node("n2")])
    await ledger.reserve([unit("u1", "n1")])
    await ledger.set_accounts((), ["n1", "n2"])
    assert await ledger.sums() == {"n1": {"cpu": 1000, "pods": 1}}
    assert (await ledger.reserve([unit("u2", "n1")]))[0].kind is ReserveKind.ACCOUNT_MISSING
    await ledger.set_accounts([node("n1", cpu=1000)])
    assert (await ledger.reserve([unit("u3", "n1")]))[0].kind is ReserveKind.NO_FIT
    await ledger.set_accounts((), ["n1"])
    await ledger.transition([LedgerOp.free("u1")])
    assert await ledger.sums() == {}


async def test_large_units_and_large_calls(ledger: Ledger) -> None:
    await ledger.install(1)
    await ledger.set_accounts([node(f"n{i}", cpu=10**6, pods=2000) for i in range(1200)])
    assert await ledger.reserve([unit("gang", *[f"n{i}" for i in range(1024)])]) == [GRANTED]
    many = [unit(f"u{i}", f"n{i % 1200}") for i in range(2500)]
    assert await ledger.reserve(many) == [GRANTED] * 2500
    assert all(await ledger.transition([LedgerOp.bound(f"u{i}") for i in range(2500)]))
    assert len(await ledger.entries()) == 3524
    with pytest.raises(LedgerRefused, match="has 1025 members"):
        await ledger.reserve([unit("big", *["n1"] * 1025)])


async def test_a_pod_named_twice_in_a_unit_is_a_defect(ledger: Ledger) -> None:
    await ledger.install(1)
    member = LedgerMember("p", "n1", 1, LINES)
    with pytest.raises(AssertionError, match="names a pod twice"):
        await ledger.reserve([LedgerUnit("u", Attempt(1, 1), (member, member))])


async def test_only_one_call_is_in_flight(ledger: Ledger) -> None:
    await ledger.install(1)
    with pytest.raises(AssertionError, match="one ledger call in flight"):
        await asyncio.gather(ledger.reserve([unit("a", "n")]), ledger.reserve([unit("b", "n")]))


async def test_rebuild_writes_what_is_true(ledger: Ledger) -> None:
    await ledger.install(1)
    await ledger.set_accounts([node("n1"), node("gone")])
    await ledger.reserve([unit("u1", "n1"), unit("u2", "gone")])
    await ledger.transition([LedgerOp.bound("u1")])
    entries = await ledger.entries()
    reply = await ledger.rebuild(accounts=[node("n1")], entries=entries)
    assert not reply.intact
    assert sorted(await ledger.entries(), key=str) == sorted(entries, key=str)
    assert await ledger.sums() == {
        "n1": {"cpu": 1000, "pods": 1}, "gone": {"cpu": 1000, "pods": 1}
    }  # fmt: skip
    assert (await ledger.install(2)).intact
