"""The online audit of the ledger: a few accounts at a time are compared with memory.

Naively one would stop, read the whole ledger and compare; at 50,000 entries that is a second
without commits. Instead each turn takes the next accounts in line, so that all have been looked at
once a period. What memory expects is taken down at the moment at which the pending writes are
taken, and the ledger is read right after these writes by the one loop that writes to it: so the
two can be compared exactly, though memory goes on changing meanwhile.

An account's sum betrays entries that memory does not know; a node's entries betray all the rest,
what they are charged beside it included. A node that has drifted takes no commits until the ledger
has been written anew.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from stretto.ledger.types import MAX_AMOUNT, Holdings, LedgerEntry, sums_of_entries

PERIOD_S = 30.0
"""In which every account is looked at once (reliability §1.1: Δa)."""
TURN_S = 1.0


class Expected(msgspec.Struct):
    """What the ledger must say of some accounts."""

    entries: dict[str, dict[str, LedgerEntry]] = msgspec.field(default_factory=dict)
    """Node uid → pod uid → entry."""
    changing: set[str] = msgspec.field(default_factory=set)
    """Pods whose accepted version is being changed just now."""
    used: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    """Account that is no node's → resource → amount."""

    @property
    def accounts(self) -> list[str]:
        """Uids."""
        return [*self.entries, *self.used]

    @property
    def pods(self) -> list[str]:
        """Uids."""
        return [uid for there in self.entries.values() for uid in there]


class LedgerAudit:
    """Whose turn it is, and what disagrees."""

    def __init__(self, *, period_s: float = PERIOD_S, turn_s: float = TURN_S) -> None:
        self.rounds = 0
        """How often all accounts have been looked at."""
        self._turns = max(1, math.ceil(period_s / turn_s))
        self._turn_s = turn_s
        self._line: list[str] = []
        self._a_turn = 0
        self._next_at = 0.0

    def due(self, now: float, accounts: Callable[[], Iterable[str]]) -> list[str]:
        """The accounts to look at now; none between turns."""
        if now < self._next_at:
            return []
        self._next_at = now + self._turn_s
        if not self._line:
            self._line = list(accounts())
            self._a_turn = math.ceil(len(self._line) / self._turns)
            self.rounds += 1
        assert self._a_turn > 0 or not self._line, "the audit stands still"
        taken = self._line[: self._a_turn]
        del self._line[: self._a_turn]
        return taken


def drift(expected: Expected, found: Holdings) -> dict[str, str]:
    """Account → what is wrong there, in a sentence."""
    wrong = {}
    for node_uid, entries in expected.entries.items():
        text = _entries_differ(entries, expected.changing, found)
        wanted = _sums_of(node_uid, entries.values())
        if text := text or _sums_differ(wanted, found.used.get(node_uid)):
            wrong[node_uid] = text
    for account, wanted in expected.used.items():
        if text := _sums_differ(wanted, found.used.get(account)):
            wrong[account] = text
    return wrong


def _sums_of(node_uid: str, entries: Iterable[LedgerEntry]) -> dict[str, int]:
    """What entries take of their node. Most take what another takes, so the kinds are counted."""
    kinds = Counter(entry.lines for entry in entries if entry.node_uid == node_uid)
    sums: dict[str, int] = {}
    for lines, count in kinds.items():
        for name, amount in lines:
            if amount > 0:
                sums[name] = min(MAX_AMOUNT, sums.get(name, 0) + amount * count)
    return sums


def _sums_differ(wanted: dict[str, int], used: dict[str, int] | None) -> str:
    if used is None:
        return "the ledger has no account of it"
    if used != wanted and MAX_AMOUNT not in (*used.values(), *wanted.values()):
        return f"the ledger says that {used} is used, memory {wanted}"
    return ""


def _entries_differ(entries: dict[str, LedgerEntry], changing: set[str], found: Holdings) -> str:
    for uid, entry in entries.items():
        there = found.entries.get(uid)
        if there is None:
            return f"the entry of pod {uid} is missing"
        if (there.node_uid, there.state) != (entry.node_uid, entry.state):
            return (
                f"the entry of pod {uid} is {there.state.name} on {there.node_uid}, not "
                f"{entry.state.name} on {entry.node_uid}"
            )
        if there.resource_version != entry.resource_version and uid not in changing:
            return (
                f"the entry of pod {uid} has version {there.resource_version}, not "
                f"{entry.resource_version}"
            )
        if (there.lines, there.charges) == (entry.lines, entry.charges):
            continue
        held, wanted = sums_of_entries([there]), sums_of_entries([entry])
        if held != wanted:
            return f"the entry of pod {uid} holds {held}, not {wanted}"
    return ""
