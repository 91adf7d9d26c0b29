"""What the server of a ledger would hold, for its twin: the records, and how an account gives room.

A record is a list of plain values, as the script packs it. An account's is its flag and four fields
a resource: number of the name, what may be used, what entries use, what others use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from stretto.ledger.requests import Names
from stretto.ledger.types import MAX_AMOUNT

Record = list[Any]
FROZEN_FLAG, REMOVED_FLAG = 1, 2


def slot(account: Record, rid: int) -> int | None:
    """Index of a resource's four fields in an account's record."""
    for at in range(1, len(account), 4):
        if account[at] == rid:
            return at
    return None


def ensure(account: Record, rid: int) -> int:
    """As :func:`slot`; a resource that the account lacks is added without room."""
    at = slot(account, rid)
    if at is None:
        at = len(account)
        account += [rid, 0, 0, 0]
    return at


def take(account: Record, lines: Sequence[int]) -> int:
    """Take room for the lines (pairs); or take none and return the resource that does not fit."""
    for at in range(0, len(lines), 2):
        rid, amount = lines[at : at + 2]
        place = slot(account, rid)
        if not amount:
            continue
        total = account[place + 2] + amount if place is not None else 0
        if place is None or total > MAX_AMOUNT or total + account[place + 3] > account[place + 1]:
            give_back(account, lines[:at])
            return rid
        assert 0 < total <= account[place + 1], "more is taken than there is"
        account[place + 2] = total
    return 0


def give_back(account: Record, lines: Sequence[int]) -> None:
    """Undo :func:`take`."""
    for rid, amount in zip(lines[::2], lines[1::2], strict=True):
        if amount:
            place = slot(account, rid)
            assert place is not None, "what was taken has a place"
            account[place + 2] -= amount
            assert account[place + 2] >= 0, "more is given back than was taken"


def unused(account: Record) -> bool:
    """Nothing of it is reserved."""
    return not any(account[3::4])


@dataclass
class TwinStore:
    """What the server would hold."""

    meta: dict[str, Any] = field(default_factory=dict)
    accounts: dict[str, Record] = field(default_factory=dict)
    pods: dict[str, Record] = field(default_factory=dict)
    """Of every state; the server keeps BOUND ones in a hash of their own."""
    units: dict[str, Record] = field(default_factory=dict)
    names: Names = field(default_factory=Names)
    installs: int = 0
    server: int = 1
    """Which process of the server this is."""

    def restart(self) -> None:
        """The server is started again on its file."""
        self.server += 1

    def flush(self) -> None:
        """FLUSHALL."""
        self.meta, self.accounts, self.pods, self.units = {}, {}, {}, {}
