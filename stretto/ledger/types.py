"""Records, answers and errors of the ledger."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from stretto.model.errors import OperatorError
from stretto.model.unit import Attempt

SCHEMA = 3
"""Raised whenever the meaning of a key changes; a ledger of another schema is refused."""
MAX_AMOUNT = 2**53 - 1
MAX_MEMBERS = 1024
"""Members a unit may have in one call: 1,024 take the server about 4 ms, which everybody waits."""

NO_ATTEMPT = Attempt(0, 0)
Lines = tuple[tuple[str, int], ...]
"""(resource, amount) pairs, amounts in base units (cpu in milli), "pods" included."""


class Charge(NamedTuple):
    """What a pod takes of an account beside its node's: of a volume, a device, a queue, …"""

    account: str
    """Its uid."""
    lines: Lines


def account_uid(kind: str, *names: str) -> str:
    """The uid of an account that is not a node's: no node's uid has a space."""
    return " ".join((kind, *names))


def account_kind(uid: str) -> str:
    """The kind that :func:`account_uid` was given; "node" for a node's account."""
    kind, space, _ = uid.partition(" ")
    return kind if space else "node"


class ReserveKind(enum.IntEnum):
    """The ledger's answer for a unit."""

    GRANTED = 1
    NO_FIT = 2
    SUPERSEDED = 3
    HELD = 4
    ACCOUNT_MISSING = 5
    """There is none of this uid, or it was removed."""
    FLAGGED = 6
    """An account of the unit is frozen."""


class EntryState(enum.IntEnum):
    """How far a reservation has come."""

    RESERVED = 1
    BINDING = 2
    BOUND = 3


class OpCode(enum.IntEnum):
    """Steps of a reservation after it was granted."""

    BINDING = 1
    BOUND = 2
    FREE = 3
    REBASE = 4
    FORGET_UNIT = 5
    ADOPT = 6
    """Take a pod as an entry in a given state, without asking for room."""
    FOREIGN = 7
    """Set what is held of an account without an entry."""


class LedgerMember(msgspec.Struct, frozen=True, gc=False):
    """A pod of a unit, what it takes of which node, and of which accounts beside it."""

    pod_uid: str
    node_uid: str
    resource_version: int
    lines: Lines
    charges: tuple[Charge, ...] = ()


class LedgerUnit(msgspec.Struct, frozen=True, gc=False):
    """What is reserved whole or not at all."""

    unit_id: str
    attempt: Attempt
    members: tuple[LedgerMember, ...]


class ReserveReply(NamedTuple):
    """Answer for a unit, and what it was lost to."""

    kind: ReserveKind
    account: str = ""
    """NO_FIT, ACCOUNT_MISSING, FLAGGED: which account; HELD: the node where the pod is."""
    detail: str = ""
    """NO_FIT: the resource; HELD: the entry's state, in lower case."""
    pod_uid: str = ""
    """HELD: which pod has an entry already."""


class Account(msgspec.Struct, frozen=True):
    """What the ledger must know of a node, or of anything else that is given away in amounts;
    ``used`` is the ledger's own business."""

    uid: str
    """A node's uid, or :func:`account_uid`."""
    capacity: Mapping[str, int]
    """Resource → amount; of a node: what it has allocatable."""
    foreign: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Held by what has no entry: pods bound by others, static pods, objects of the API."""
    frozen: bool = False


class LedgerOp(msgspec.Struct, frozen=True, gc=False):
    """One step of :class:`OpCode`; ``member`` and ``unit_id`` only where the step needs them."""

    code: OpCode
    uid: str
    resource_version: int = 0
    node_uid: str = ""
    unit_id: str = ""
    attempt: Attempt = NO_ATTEMPT
    lines: Lines = ()
    state: EntryState = EntryState.BOUND
    charges: tuple[Charge, ...] = ()

    @classmethod
    def binding(cls, uid: str) -> LedgerOp:
        """The bind is about to be sent."""
        return cls(OpCode.BINDING, uid)

    @classmethod
    def bound(cls, uid: str) -> LedgerOp:
        """The bind has been seen in the watch."""
        return cls(OpCode.BOUND, uid)

    @classmethod
    def free(cls, uid: str) -> LedgerOp:
        """The pod is gone, fenced, or finished: give its room back."""
        return cls(OpCode.FREE, uid)

    @classmethod
    def rebase(cls, uid: str, resource_version: int) -> LedgerOp:
        """Accept a newer resourceVersion for the bind."""
        return cls(OpCode.REBASE, uid, resource_version=resource_version)

    @classmethod
    def forget_unit(cls, unit_id: str) -> LedgerOp:
        """The Dispatcher has acknowledged the outcome: drop the idempotency record."""
        return cls(OpCode.FORGET_UNIT, unit_id)

    @classmethod
    def adopt(
        cls,
        member: LedgerMember,
        *,
        unit_id: str,
        attempt: Attempt,
        state: EntryState = EntryState.BOUND,
    ) -> LedgerOp:
        """Take a pod as an entry whether there is room or not: it is bound, or may be."""
        return cls(
            OpCode.ADOPT, member.pod_uid, member.resource_version, member.node_uid, unit_id,
            attempt, member.lines, state, member.charges,
        )  # fmt: skip

    @classmethod
    def adopting(cls, entry: LedgerEntry) -> LedgerOp:
        """Make an entry be as it ought to."""
        member = LedgerMember(
            entry.pod_uid, entry.node_uid, entry.resource_version, entry.lines, entry.charges
        )
        return cls.adopt(member, unit_id=entry.unit_id, attempt=entry.attempt, state=entry.state)

    @classmethod
    def foreign(cls, account: str, lines: Lines) -> LedgerOp:
        """What has no entry holds these amounts of the account in all (of the resources named)."""
        return cls(OpCode.FOREIGN, account, lines=lines)


class LedgerEntry(msgspec.Struct, frozen=True):
    """A reservation as the ledger holds it."""

    pod_uid: str
    node_uid: str
    unit_id: str
    attempt: Attempt
    epoch: int
    """Of the Binder that reserved it (or rebased it last)."""
    resource_version: int
    state: EntryState
    lines: Lines
    charges: tuple[Charge, ...] = ()

    def holds(self) -> Iterator[Charge]:
        """What it takes of each account, its node's first."""
        yield Charge(self.node_uid, self.lines)
        yield from self.charges


def sums_of_entries(entries: Iterable[LedgerEntry]) -> dict[str, dict[str, int]]:
    """Account → resource → what the entries take of it in all, as far as it can be counted
    exactly; zero sums left out."""
    sums: dict[str, dict[str, int]] = {}
    for entry in entries:
        for account, lines in entry.holds():
            there = sums.setdefault(account, {})
            for name, amount in lines:
                if amount > 0:
                    there[name] = min(MAX_AMOUNT, there.get(name, 0) + amount)
    return {account: there for account, there in sums.items() if there}


class Holdings(msgspec.Struct, frozen=True):
    """What the ledger says of some accounts and pods; what it has nothing of is left out."""

    used: dict[str, dict[str, int]]
    """Account → resource → amount that entries use; zero sums left out."""
    entries: dict[str, LedgerEntry]
    """By pod uid."""


class InstallReply(msgspec.Struct, frozen=True):
    """What a new Binder finds."""

    generation: str
    intact: bool
    """The ledger was there, and open. False: it was empty, its rebuild had not ended, or force was
    used; a new generation has begun that must be filled."""
    previous_epoch: int
    """0: there was none."""
    open_entries: int
    """Entries that are not BOUND."""
    restarted: bool = False
    """The server is another process than when the ledger was taken last, so that writes it had
    acknowledged may be missing at the end. Whoever made them would notice; a successor cannot."""


class LedgerError(OperatorError):
    """Base of everything the ledger refuses."""

    exit_code = 2


class LedgerFenced(LedgerError):  # noqa: N818 (a state of ours, said as such)
    """Another Binder with a later epoch has taken the ledger: stop."""


class LedgerGap(LedgerError):  # noqa: N818
    """The ledger lost acknowledged writes, or was emptied: rebuild before the next bind."""


class LedgerUnavailable(LedgerError):  # noqa: N818
    """No answer; whether the call took effect is unknown. It is sent again under its number."""


class LedgerRefused(LedgerError):  # noqa: N818
    """The server must not hold a ledger as it is: it evicts, is too old, or is someone else's."""
