"""Calls as a Binder at work makes them: the script and its twin say and keep the same.

Beside the random calls of ``test_script_equals_twin``, which look for odd ones: here most units
fit, some of a call do not, attempts are repeated, and the last of a room is asked for again and
again. A call is seeded, so that the same are made each time.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from stretto.ledger.types import Account, Charge, EntryState, LedgerMember, LedgerOp, LedgerUnit
from stretto.model.unit import Attempt
from tests.ledger.test_script_equals_twin import ACCOUNTS, NODES, OTHERS, PODS, compare

MANY = [*PODS, *(f"pod-{number}" for number in range(len(PODS), 16))]


class Busy:
    """Calls as a Binder at work makes them: most units fit, some of a call do not, names repeat."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.attempt = {f"u{number}": 1 for number in range(6)}

    def account(self, uid: str) -> Account:
        """Small rooms, so that the last of them is asked for again and again."""
        names = self.random.sample(["cpu", "pods", "memory"], self.random.choice((2, 3, 3)))
        room = {name: self.random.randint(3, 14) for name in names}
        foreign = {name: self.random.randint(0, 2) for name in self.random.sample(names, 1)}
        return Account(uid, room, foreign, self.random.random() < 0.04)

    def member(self, pod: str) -> LedgerMember:
        lines = tuple(
            (name, self.random.choice((0, 1, 1, 1, 2)))
            for name in self.random.sample(["cpu", "pods", "memory"], self.random.randint(1, 3))
        )
        others = self.random.sample(OTHERS, self.random.choice((0, 0, 1, 2)))
        charged = tuple(Charge(other, (("cpu", 1),)) for other in others)
        node = "absent" if self.random.random() < 0.03 else self.random.choice(NODES)
        return LedgerMember(pod, node, self.random.randint(1, 99), lines, charged)

    def unit(self) -> LedgerUnit:
        name = self.random.choice(list(self.attempt))
        chance = self.random.random()
        if chance < 0.6:
            self.attempt[name] += 1
        number = self.attempt[name] - (1 if chance > 0.95 else 0)
        pods = self.random.sample(MANY, self.random.choice((1, 1, 1, 2, 3)))
        if len(pods) == 1 and self.random.random() < 0.5:
            name, number = pods[0], self.attempt.setdefault(pods[0], 1)
            self.attempt[name] += self.random.random() < 0.7
        return LedgerUnit(name, Attempt(1, number), tuple(map(self.member, pods)))

    def step(self) -> LedgerOp:
        uid = self.random.choice(MANY)
        return self.random.choice((
            LedgerOp.binding(uid), LedgerOp.bound(uid),
            *(LedgerOp.free(uid) for _ in range(4)),
            LedgerOp.rebase(uid, self.random.randint(1, 99)),
            LedgerOp.forget_unit(self.random.choice(list(self.attempt))),
            LedgerOp.adopt(
                self.member(uid), unit_id=self.random.choice(("u1", uid)), attempt=Attempt(1, 1),
                state=self.random.choice(list(EntryState)),
            ),
            LedgerOp.foreign(self.random.choice(ACCOUNTS), (("cpu", self.random.randint(0, 2)),)),
        ))  # fmt: skip

    def call(self) -> tuple[str, Any]:
        chance = self.random.random()
        if chance < 0.5:
            return "reserve", [self.unit() for _ in range(self.random.randint(1, 5))]
        if chance < 0.86:
            return "transition", [self.step() for _ in range(self.random.randint(1, 6))]
        if chance < 0.97:
            chosen = self.random.sample(ACCOUNTS, self.random.randint(1, 3))
            return "set_accounts", [self.account(uid) for uid in chosen]
        if chance < 0.99:
            return "remove", [self.random.choice(ACCOUNTS)]
        return "install", False

    def script(self, calls: int) -> list[tuple[str, Any]]:
        """All accounts, then so many calls."""
        rooms = [self.account(uid) for uid in ACCOUNTS]
        return [("set_accounts", rooms), *(self.call() for _ in range(calls))]


@pytest.mark.parametrize("seed", range(12))
async def test_a_binder_at_work_gets_the_same_replies_and_records(
    server_url: str, seed: int
) -> None:
    await compare(server_url, Busy(seed).script(100))
