"""What the client and the twin have in common: requests in ledger terms, records, replies.

Resource names are interned to small numbers so that the script compares numbers; the list travels
with the call in which it has grown and is kept in the ledger, so that a later Binder reads the
records it finds. Pod and unit records are packed here rather than in the script, since the script
holds up everybody; ``ledger.lua`` says what is in them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from stretto.ledger.types import (
    MAX_AMOUNT,
    MAX_MEMBERS,
    Account,
    Charge,
    EntryState,
    LedgerEntry,
    LedgerMember,
    LedgerOp,
    LedgerRefused,
    LedgerUnit,
    Lines,
    OpCode,
    ReserveKind,
    ReserveReply,
)
from stretto.model.unit import Attempt

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder().decode

MAX_RESOURCES = 1_000
"""Resources of an account that count; the script unpacks four numbers a resource on its stack."""
HELD_MAX = 4_096
"""Different holdings remembered."""
REPLY_FIELDS = 5
"""Of an exception in the reply to a reserve call: unit index, kind, account, detail, pod."""
RESERVED = str(int(EntryState.RESERVED)).encode()
GRANTED = ReserveReply(ReserveKind.GRANTED)


class Names:
    """Resource names as numbers from 1, in the order they were first seen."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = list(names)
        self.ids = {name: number for number, name in enumerate(self.names, 1)}
        self.saved = len(self.names)
        """How many of them the ledger holds already."""
        self._held: dict[tuple[Any, ...], tuple[Lines, tuple[Charge, ...]]] = {}

    def id_of(self, name: str) -> int:
        """The number of a name, new if need be."""
        number = self.ids.get(name)
        if number is None:
            self.names.append(name)
            number = self.ids[name] = len(self.names)
        return number

    def name_of(self, number: int) -> str:
        """The name of a number; empty for 0."""
        return self.names[number - 1] if number else ""

    def held(self, fields: tuple[Any, ...]) -> tuple[Lines, tuple[Charge, ...]]:
        """What a pod's record says that it takes of its node and of other accounts; remembered, as
        most pods take what another takes."""
        found = self._held.get(fields)
        if found is None:
            (_, home), *others = _holdings("", fields)
            charges = tuple(Charge(account, _named(pairs, self)) for account, pairs in others)
            if len(self._held) >= HELD_MAX:
                self._held.clear()
            found = self._held[fields] = _named(home, self), charges
        return found

    def header(self) -> bytes:
        """The list as JSON for a call; empty when the ledger has it."""
        return msgspec.json.encode(self.names) if len(self.names) > self.saved else b""


def clamped(amount: int) -> int:
    """An amount that the script's doubles hold exactly."""
    return min(max(amount, 0), MAX_AMOUNT)


def flat(lines: Iterable[tuple[str, int]], names: Names) -> list[int]:
    """(number, amount) pairs, flat."""
    row = []
    for name, amount in lines:
        row.append(names.id_of(name))
        row.append(clamped(amount))
    return row


# ------------------------------------------------------------------------------------------ reserve
def _array_header(count: int) -> bytes:
    """The first bytes of a msgpack array."""
    return bytes([0x90 | count]) if count < 16 else struct.pack(">BH", 0xDC, count)


class _Amounts:
    """Lines that several members share: sent once, their part of a record packed once."""

    __slots__ = ("body", "head", "index", "numbers", "tail")

    def __init__(self, lines: Lines, names: Names, *, index: int, epoch: int) -> None:
        self.numbers = flat(lines, names)
        self.index = index
        self.head = RESERVED + _array_header(6 + len(self.numbers))
        self.body = b"".join(map(encode, self.numbers))
        self.tail = encode(epoch) + self.body


class ReserveRequest:
    """The arguments of a reserve call, in the layout that ``ledger.lua`` describes."""

    def __init__(self, units: Iterable[LedgerUnit], names: Names, *, epoch: int) -> None:
        self._names = names
        self._epoch = epoch
        self._by_identity: dict[int, _Amounts] = {}
        self._by_value: dict[Lines, _Amounts] = {}
        self.lines: list[list[int]] = []
        """(number, amount, the script's own field)*, flat."""
        self.accounts: dict[str, int] = {}
        """Account → its index from 1."""
        self.numbers: list[int] = [0, 0, 0]
        self.units: list[Any] = []
        """Unit id, its record if it is granted, and so on."""
        self.pods: list[Any] = []
        """Pod uid, its record if it is granted, and so on."""
        kept = units if isinstance(units, Sequence) else list(units)
        for unit in kept:
            self._add(unit)
        self.numbers[:3] = len(self.units) // 2, len(self.pods) // 2, len(self.accounts)

    def _amounts_of(self, lines: Lines) -> _Amounts:
        """Callers share a tuple among the pods of a shape; to hash it each time is what costs."""
        amounts = self._by_value.get(lines)
        if amounts is None:
            index = len(self.lines) + 1
            amounts = _Amounts(lines, self._names, index=index, epoch=self._epoch)
            self._by_value[lines] = amounts
            pairs = zip(amounts.numbers[::2], amounts.numbers[1::2], strict=True)
            self.lines.append([field for rid, amount in pairs for field in (rid, amount, 2)])
        self._by_identity[id(lines)] = amounts
        return amounts

    def _add(self, unit: LedgerUnit) -> None:
        members, unit_id, attempt = unit.members, unit.unit_id, unit.attempt
        if len(members) != 1:
            _check_members(unit)
        epoch, number = attempt
        numbers, accounts, known = self.numbers, self.accounts, self._by_identity
        numbers += (epoch, number, len(members), 0)
        charged_at = len(numbers) - 1
        self.units += (unit_id, encode(attempt))
        charged: list[int] = []
        for member in members:
            lines, node_uid, pod_uid = member.lines, member.node_uid, member.pod_uid
            amounts = known.get(id(lines)) or self._amounts_of(lines)
            node = accounts.get(node_uid)
            if node is None:
                node = accounts[node_uid] = len(accounts) + 1
            numbers += (node, amounts.index)
            owner = "" if unit_id == pod_uid else unit_id
            fields = encode((node_uid, owner, epoch, number, member.resource_version))
            if member.charges:
                record = self._charge(member, charged, fields=fields, amounts=amounts)
            else:
                record = amounts.head + fields[1:] + amounts.tail
            self.pods += (pod_uid, record)
        if charged:
            numbers[charged_at] = len(charged) // 2
            numbers += charged

    def _charge(
        self, member: LedgerMember, charged: list[int], *, fields: bytes, amounts: _Amounts
    ) -> bytes:
        """Add a member's charges to those of its unit; its record."""
        accounts, holdings, count = self.accounts, b"", len(amounts.numbers)
        for account, lines in member.charges:
            other = self._by_identity.get(id(lines)) or self._amounts_of(lines)
            charged += (accounts.setdefault(account, len(accounts) + 1), other.index)
            holdings += encode(account) + other.body
            count += 1 + len(other.numbers)
        return RESERVED + _array_header(6 + count) + fields[1:] + amounts.tail + holdings

    def numbers_of(self, lines: Lines) -> list[int]:
        """The lines as the script is sent them."""
        return self._by_value[lines].numbers

    def arguments(self) -> list[Any]:
        """What the script is sent."""
        return [encode(self.numbers), encode(self.lines), *self.accounts, *self.units, *self.pods]


def _check_members(unit: LedgerUnit) -> None:
    count = len(unit.members)
    if not 0 < count <= MAX_MEMBERS:
        raise LedgerRefused(
            f"unit {unit.unit_id} has {count} members; a unit has 1 to {MAX_MEMBERS}"
        )
    uids = {member.pod_uid for member in unit.members}
    assert len(uids) == count, f"unit {unit.unit_id} names a pod twice"


def reserve_replies(exceptions: Sequence[Any], names: Names, *, count: int) -> list[ReserveReply]:
    """Replies of a reserve call of ``count`` units from what was not granted afresh."""
    replies = [GRANTED] * count
    for at in range(0, len(exceptions), REPLY_FIELDS):
        index, kind, account, detail, pod_uid = exceptions[at : at + REPLY_FIELDS]
        if kind == ReserveKind.HELD:
            text = EntryState(detail).name.lower()
        else:
            text = names.name_of(detail)
        replies[index - 1] = ReserveReply(ReserveKind(kind), account, text, pod_uid)
    return replies


# ---------------------------------------------------------------------------- transitions, accounts
def _extra(op: LedgerOp, names: Names, *, epoch: int) -> Any:
    if op.code is OpCode.REBASE:
        return [op.resource_version, epoch]
    if op.code is OpCode.ADOPT:
        owner = "" if op.unit_id == op.uid else op.unit_id
        fixed = [str(int(op.state)), op.node_uid, owner, *op.attempt, op.resource_version, epoch]
        charges = (f for c in op.charges for f in (c.account, *flat(c.lines, names)))
        return [*fixed, *flat(op.lines, names), *charges]
    return flat(op.lines, names) if op.code is OpCode.FOREIGN else 0


class TransitionRequest:
    """The arguments of a transition call, in the layout that ``ledger.lua`` describes."""

    def __init__(self, ops: Iterable[LedgerOp], names: Names, *, epoch: int) -> None:
        self.codes: list[int] = []
        self.extras: list[Any] = []
        self.uids: list[str] = []
        for op in ops:
            self.codes.append(op.code)
            self.extras.append(_extra(op, names, epoch=epoch))
            self.uids.append(op.uid)

    def arguments(self) -> list[Any]:
        """What the script is sent."""
        return ["".join(map(str, map(int, self.codes))), encode(self.extras), *self.uids]


def account_rows(changes: Iterable[Account], names: Names) -> list[list[Any]]:
    """Rows of an accounts call: uid, flags, (number, capacity, foreign)*."""
    rows = []
    for account in changes:
        row: list[Any] = [account.uid, int(account.frozen)]
        capacity, foreign = account.capacity, account.foreign
        resources = sorted({*capacity, *foreign} if foreign else capacity)
        for resource in resources[:MAX_RESOURCES]:
            row.append(names.id_of(resource))
            row.append(clamped(capacity.get(resource, 0)))
            row.append(clamped(foreign[resource]) if resource in foreign else 0)
        rows.append(row)
    return rows


# ------------------------------------------------------------------------------------------ records
def pod_fields(packed: bytes) -> list[Any]:
    """A pod's record: state, node, unit, attempt epoch, number, resourceVersion, binder epoch,
    (number, amount)*, then (account, (number, amount)*)*."""
    return [int(packed[:1]), *decode(packed[1:])]


def entry_of(pod_uid: str, record: Sequence[Any], names: Names) -> LedgerEntry:
    """A reservation from its record's fields."""
    state, node_uid, unit_id, epoch, number, version, binder_epoch = record[:7]
    lines, charges = names.held(tuple(record[7:]))
    return LedgerEntry(
        pod_uid=pod_uid,
        node_uid=node_uid,
        unit_id=unit_id or pod_uid,
        attempt=Attempt(epoch, number),
        epoch=binder_epoch,
        resource_version=version,
        state=EntryState(state),
        lines=lines,
        charges=charges,
    )


def holdings_of(record: Sequence[Any]) -> list[tuple[str, list[int]]]:
    """(account, numbers and amounts in turn), its node's first, from a pod's record's fields."""
    return _holdings(record[1], record[7:])


def _holdings(node_uid: str, fields: Sequence[Any]) -> list[tuple[str, list[int]]]:
    found: list[tuple[str, list[int]]] = [(node_uid, [])]
    for value in fields:
        if isinstance(value, str):
            found.append((value, []))
        else:
            found[-1][1].append(value)
    return found


def _named(flat_pairs: Sequence[int], names: Names) -> Lines:
    pairs = zip(flat_pairs[::2], flat_pairs[1::2], strict=True)
    return tuple((names.name_of(rid), amount) for rid, amount in pairs)


def account_fields(packed: bytes) -> list[int]:
    """An account's record: flags, (number, capacity, used, foreign)*."""
    return [int(value) for value in struct.unpack(f"<{len(packed) // 8}d", packed)]


def sums_of(record: Sequence[int], names: Names) -> dict[str, int]:
    """Amounts that entries use of an account, from its record's fields; zero sums left out."""
    return {
        names.name_of(record[at]): record[at + 2]
        for at in range(1, len(record), 4)
        if record[at + 2]
    }


def chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Slices of at most ``size``."""
    for first in range(0, len(items), size):
        yield items[first : first + size]
