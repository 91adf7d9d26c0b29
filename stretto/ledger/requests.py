"""What the client and the twin have in common: requests in ledger terms and their replies.

Resource names are interned to small numbers so that the script compares numbers; the list travels
in the header whenever it has grown and is kept in the ledger, so that a later Binder reads the
records it finds.
"""

from __future__ import annotations

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

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


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

    def header(self) -> str:
        """The list as JSON for the header of a call: empty when the ledger has it. Text, since
        the script's msgpack knows no binary type."""
        return msgspec.json.encode(self.names).decode() if len(self.names) > self.saved else ""


def clamped(amount: int) -> int:
    """An amount that the script's doubles hold exactly."""
    return min(max(amount, 0), MAX_AMOUNT)


def flat(lines: Lines, names: Names, into: list[Any]) -> list[Any]:
    """Append (number, amount) pairs."""
    for name, amount in lines:
        into.append(names.id_of(name))
        into.append(clamped(amount))
    return into


class ReserveRequest:
    """Body and packed records of a reserve call; lines that units share are sent once.

    The records are packed here rather than in the script, which holds up everybody.
    """

    def __init__(self, units: Iterable[LedgerUnit], names: Names, *, epoch: int) -> None:
        self._names = names
        self._epoch = epoch
        self._index: dict[Lines, int] = {}
        self.lines: list[list[int]] = []
        """(number, amount) pairs, flat."""
        self.units: list[list[Any]] = []
        """unit, attempt epoch, attempt number, then (pod, node, index of lines from 1)*."""
        self.records: list[bytes] = []
        """For each unit the record of its grant, then one a member."""
        for unit in units:
            self._add(unit)

    def _add(self, unit: LedgerUnit) -> None:
        if len(unit.members) > MAX_MEMBERS:
            raise LedgerRefused(
                f"unit {unit.unit_id} has {len(unit.members)} members; at most {MAX_MEMBERS}"
            )
        epoch, number = unit.attempt
        row: list[Any] = [unit.unit_id, epoch, number]
        self.records.append(_encode([epoch, number, int(ReserveKind.GRANTED), "", 0]))
        for member in unit.members:
            index = self._index.get(member.lines)
            if index is None:
                self.lines.append(flat(member.lines, self._names, []))
                index = self._index[member.lines] = len(self.lines)
            row += (member.pod_uid, member.node_uid, index)
            fixed = (member.node_uid, unit.unit_id, epoch, number, self._epoch)
            rest = (member.resource_version, int(EntryState.RESERVED), *self.lines[index - 1])
            self.records.append(_encode(fixed + rest))
        self.units.append(row)

    @property
    def body(self) -> list[Any]:
        """What the script is sent."""
        return [self.lines, self.units]


def transition_body(ops: Iterable[LedgerOp], names: Names) -> list[Any]:
    """Body of a transition call."""
    body = []
    for op in ops:
        if op.code in (OpCode.ADOPT, OpCode.REBASE):
            attempt = op.attempt
            row = [int(op.code), op.uid, op.resource_version, op.node_uid, op.unit_id, *attempt]
            body.append(flat(op.lines, names, row))
        else:
            body.append([int(op.code), op.uid])
    return body


def nodes_body(changes: Iterable[NodeAccount], removed: Iterable[str], names: Names) -> list[Any]:
    """Body of a nodes call."""
    rows = []
    for node in changes:
        row: list[Any] = [node.node_uid, int(node.frozen), node.name]
        for resource in sorted({*node.allocatable, *node.foreign}):
            row.append(names.id_of(resource))
            row.append(clamped(node.allocatable.get(resource, 0)))
            row.append(clamped(node.foreign.get(resource, 0)))
        rows.append(row)
    return [rows, list(removed)]


def reserve_replies(rows: Iterable[Sequence[Any]], names: Names) -> list[ReserveReply]:
    """Replies of a reserve call."""
    replies = []
    for kind, node_uid, detail in rows:
        if kind == ReserveKind.GRANTED:
            replies.append(GRANTED)
        elif kind == ReserveKind.HELD:
            state = EntryState(detail).name.lower() if detail else ""
            replies.append(ReserveReply(ReserveKind.HELD, node_uid, state))
        else:
            replies.append(ReserveReply(ReserveKind(kind), node_uid, names.name_of(detail)))
    return replies


GRANTED = ReserveReply(ReserveKind.GRANTED)


def entry_of(pod_uid: str, record: Sequence[Any], names: Names) -> LedgerEntry:
    """A reservation from its packed record."""
    node_uid, unit_id, epoch, number, binder_epoch, version, state = record[:7]
    pairs = zip(record[7::2], record[8::2], strict=True)
    return LedgerEntry(
        pod_uid=pod_uid,
        node_uid=node_uid,
        unit_id=unit_id,
        attempt=Attempt(epoch, number),
        epoch=binder_epoch,
        resource_version=version,
        state=EntryState(state),
        lines=tuple((names.name_of(rid), amount) for rid, amount in pairs),
    )


def sums_of(record: Sequence[Any], names: Names) -> dict[str, int]:
    """Amounts that entries use on a node, from its packed record; zero sums left out."""
    return {
        names.name_of(record[at]): record[at + 2]
        for at in range(2, len(record), 4)
        if record[at + 2]
    }


def chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Slices of at most ``size``."""
    for first in range(0, len(items), size):
        yield items[first : first + size]


encode = _encode
decode = _decode
