"""The Lua script and its Python twin: same replies, same records, after every call."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stretto.ledger.client import Ledger
from stretto.ledger.requests import account_fields, decode, pod_fields
from stretto.ledger.twin import LedgerTwin
from stretto.ledger.types import (
    Account,
    Charge,
    EntryState,
    LedgerMember,
    LedgerOp,
    LedgerUnit,
    account_uid,
)
from stretto.model.unit import Attempt
from tests.ledger.users import sync_hand

OWNERS = itertools.count()
PODS = [f"pod-{i}" for i in range(8)]
NODES = [f"node-{i}" for i in range(3)]
OTHERS = [account_uid("volume", "v"), account_uid("queue", "q"), account_uid("queue", "q", "up")]
ACCOUNTS = [*NODES, *OTHERS]
RESOURCES = ["cpu", "memory", "pods", "example.com/gpu"]

amounts = st.one_of(st.integers(0, 5), st.sampled_from([2**53 - 1, 2**53, 2**60]))
lines = st.lists(st.tuples(st.sampled_from(RESOURCES), amounts), max_size=4).map(
    lambda pairs: tuple(dict(pairs).items())
)
charges = st.lists(st.builds(Charge, st.sampled_from([*OTHERS, "absent"]), lines), max_size=3).map(
    tuple
)
"""The same account twice, too."""
members = st.builds(
    LedgerMember, st.sampled_from(PODS), st.sampled_from([*NODES, "absent"]),
    st.integers(1, 2**53 - 1), lines, st.one_of(st.just(()), charges),
)  # fmt: skip
attempts = st.builds(Attempt, st.integers(1, 2), st.integers(1, 3))
units = st.builds(
    LedgerUnit, st.sampled_from(["u1", "u2", "u3"]), attempts,
    st.lists(members, min_size=1, max_size=3, unique_by=lambda m: m.pod_uid).map(tuple),
)  # fmt: skip
repeated = st.sampled_from(
    [
        LedgerUnit(unit, Attempt(1, number), (LedgerMember(pod, node, 5, (("cpu", 1),)),))
        for unit, pod in (("u1", "pod-0"), ("pod-1", "pod-1"))
        for number in (1, 2)
        for node in NODES[:2]
    ]
)
"""Few enough that attempts are repeated, with the same node and with another."""
uids = st.sampled_from(PODS)
ops = st.one_of(
    st.builds(LedgerOp.binding, uids), st.builds(LedgerOp.bound, uids),
    st.builds(LedgerOp.free, uids), st.builds(LedgerOp.rebase, uids, st.integers(1, 99)),
    st.builds(LedgerOp.forget_unit, st.sampled_from(["u1", "u2"])),
    st.builds(
        lambda member, attempt, state: LedgerOp.adopt(
            member, unit_id="u9", attempt=attempt, state=state
        ),
        members, attempts, st.sampled_from(EntryState),
    ),
    st.builds(LedgerOp.foreign, st.sampled_from([*ACCOUNTS, "absent"]), lines),
)  # fmt: skip
rooms = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 6), max_size=4)
accounts = st.builds(Account, st.sampled_from(ACCOUNTS), rooms, rooms, st.booleans())
calls = st.one_of(
    st.tuples(st.just("reserve"), st.lists(st.one_of(units, repeated), max_size=4)),
    st.tuples(st.just("transition"), st.lists(ops, max_size=5)),
    st.tuples(
        st.just("set_accounts"),
        st.lists(accounts, min_size=1, max_size=6, unique_by=lambda a: a.uid),
    ),
    st.tuples(st.just("install"), st.booleans()),
    st.tuples(st.just("remove"), st.lists(st.sampled_from(ACCOUNTS), min_size=1, max_size=1)),
)  # fmt: skip


DECODERS = {"accounts": account_fields, "open": pod_fields, "bound": pod_fields, "units": decode}


def server_dump(connection: redis.Redis, owner: str) -> dict[str, dict[str, Any]]:
    dump = {}
    for part, decoder in DECODERS.items():
        raw = connection.hgetall(f"{{stretto:{owner}}}:{part}")
        dump[part] = {key.decode(): decoder(value) for key, value in raw.items()}
    return dump


async def compare(url: str, script: list[tuple[str, Any]]) -> None:
    owner = f"differential-{next(OWNERS)}"
    twin = LedgerTwin(owner=owner)
    ledger = await Ledger.open(url, owner=owner)
    connection = sync_hand(url)
    try:
        await ledger.install(7)
        twin.install(7)
        for name, argument in script:
            if name == "remove":
                await ledger.set_accounts((), argument)
                twin.set_accounts((), argument)
            elif name == "install":
                found = await ledger.install(7, force_rebuild=argument)
                expected = twin.install(7, force_rebuild=argument)
                assert replace(found, generation="") == replace(expected, generation="")
            elif argument:
                expected = getattr(twin, name)(argument)
                assert await getattr(ledger, name)(argument) == expected
            assert server_dump(connection, owner) == twin.dump()
            asked = {"accounts": [*ACCOUNTS, "absent"], "pods": PODS}
            assert await ledger.holdings(**asked) == twin.holdings(**asked)
            twin.validate()
    finally:
        connection.close()
        await ledger.close()


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(script=st.lists(calls, max_size=12))
@pytest.mark.timeout(120)
def test_random_calls_give_the_same_replies_and_records(
    server_url: str, script: list[tuple[str, Any]]
) -> None:
    asyncio.run(compare(server_url, script))
