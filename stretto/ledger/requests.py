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
    EntryState,
    LedgerEntry,
    LedgerOp,
    LedgerRefused,
    LedgerUnit,
    Lines,
    NodeAccount,
    OpCode,
    ReserveKind,
    ReserveReply,
)
from stretto.model.unit import Attempt

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder().decode

MAX_RESOURCES = 1_000
"""Resources of a node that count; the script unpacks four numbers a resource on its stack."""
REPLY_FIELDS = 5
"""Of an exception in the reply to a reserve call: unit index, kind, node, detail, pod."""
RESERVED = str(int(EntryState.RESERVED)).encode()
GRANTED = ReserveReply(ReserveKind.GRANTED)


class Names:
    """Resource names as numbers from 1, in the order they were first seen."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = list(names)
        self.ids = {name: number for number, name in enumerate(self.names, 1)}
        self.saved = len(self.names)
        """How many of them the ledger holds already."""

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

    __slots__ = ("head", "index", "numbers", "tail")

    def __init__(self, lines: Lines, names: Names, *, index: int, epoch: int) -> None:
        self.numbers = flat(lines, names)
        self.index = index
        self.head = RESERVED + _array_header(6 + len(self.numbers))
        self.tail = encode(epoch) + b"".join(map(encode, self.numbers))


class ReserveRequest:
    """The arguments of a reserve call, in the layout that ``ledger.lua`` describes."""

    def __init__(self, units: Iterable[LedgerUnit], names: Names, *, epoch: int) -> None:
        self._names = names
        self._epoch = epoch
        self._by_identity: dict[int, _Amounts] = {}
        self._by_value: dict[Lines, _Amounts] = {}
        self.lines: list[list[int]] = []
        """(number, amount, the script's own field)*, flat."""
        self.nodes: dict[str, int] = {}
        """Node uid → its index from 1."""
        self.numbers: list[int] = [0, 0, 0]
        self.units: list[Any] = []
        """Unit id, its record if it is granted, and so on."""
        self.pods: list[Any] = []
        """Pod uid, its record if it is granted, and so on."""
        kept = units if isinstance(units, Sequence) else list(units)
        for unit in kept:
            self._add(unit)
        self.numbers[:3] = len(self.units) // 2, len(self.pods) // 2, len(self.nodes)

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
        self.numbers += (epoch, number, len(members))
        self.units += (unit_id, encode(attempt))
        nodes, known = self.nodes, self._by_identity
        for member in members:
            lines, node_uid, pod_uid = member.lines, member.node_uid, member.pod_uid
            amounts = known.get(id(lines)) or self._amounts_of(lines)
            node = nodes.get(node_uid)
            if node is None:
                node = nodes[node_uid] = len(nodes) + 1
            self.numbers += (node, amounts.index)
            owner = "" if unit_id == pod_uid else unit_id
            fields = encode((node_uid, owner, epoch, number, member.resource_version))
            self.pods += (pod_uid, amounts.head + fields[1:] + amounts.tail)

    def numbers_of(self, lines: Lines) -> list[int]:
        """The lines as the script is sent them."""
        return self._by_value[lines].numbers

    def arguments(self) -> list[Any]:
        """What the script is sent."""
        return [encode(self.numbers), encode(self.lines), *self.nodes, *self.units, *self.pods]


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
        index, kind, node_uid, detail, pod_uid = exceptions[at : at + REPLY_FIELDS]
        if kind == ReserveKind.HELD:
            text = EntryState(detail).name.lower()
        else:
            text = names.name_of(detail)
        replies[index - 1] = ReserveReply(ReserveKind(kind), node_uid, text, pod_uid)
    return replies


# ---------------------------------------------------------------------------- transitions and nodes
def _extra(op: LedgerOp, names: Names, *, epoch: int) -> Any:
    if op.code is OpCode.REBASE:
        return [op.resource_version, epoch]
    if op.code is OpCode.ADOPT:
        owner = "" if op.unit_id == op.uid else op.unit_id
        fixed = [str(int(op.state)), op.node_uid, owner, *op.attempt, op.resource_version, epoch]
        return [*fixed, *flat(op.lines, names)]
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


def nodes_rows(changes: Iterable[NodeAccount], names: Names) -> list[list[Any]]:
    """Rows of a nodes call: node, flags, (number, allocatable, foreign)*."""
    rows = []
    for node in changes:
        row: list[Any] = [node.node_uid, int(node.frozen)]
        for resource in sorted({*node.allocatable, *node.foreign})[:MAX_RESOURCES]:
            row.append(names.id_of(resource))
            row.append(clamped(node.allocatable.get(resource, 0)))
            row.append(clamped(node.foreign.get(resource, 0)))
        rows.append(row)
    return rows


# ------------------------------------------------------------------------------------------ records
def pod_fields(packed: bytes) -> list[Any]:
    """A pod's record: state, node, unit, attempt epoch, number, resourceVersion, binder epoch,
    (number, amount)*."""
    return [int(packed[:1]), *decode(packed[1:])]


def entry_of(pod_uid: str, record: Sequence[Any], names: Names) -> LedgerEntry:
    """A reservation from its record's fields."""
    state, node_uid, unit_id, epoch, number, version, binder_epoch = record[:7]
    pairs = zip(record[7::2], record[8::2], strict=True)
    return LedgerEntry(
        pod_uid=pod_uid,
        node_uid=node_uid,
        unit_id=unit_id or pod_uid,
        attempt=Attempt(epoch, number),
        epoch=binder_epoch,
        resource_version=version,
        state=EntryState(state),
        lines=tuple((names.name_of(rid), amount) for rid, amount in pairs),
    )


def node_fields(packed: bytes) -> list[int]:
    """A node's record: flags, (number, allocatable, used, foreign)*."""
    return [int(value) for value in struct.unpack(f"<{len(packed) // 8}d", packed)]


def sums_of(record: Sequence[int], names: Names) -> dict[str, int]:
    """Amounts that entries use on a node, from its record's fields; zero sums left out."""
    return {
        names.name_of(record[at]): record[at + 2]
        for at in range(1, len(record), 4)
        if record[at + 2]
    }


def chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Slices of at most ``size``."""
    for first in range(0, len(items), size):
        yield items[first : first + size]
