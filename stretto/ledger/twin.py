"""The ledger's script in Python: its specification, and the ledger of tests that need no server.

Same operations, same order of checks, same replies, same end state; ``dump()`` gives the records
as the hashes of the server hold them, so that a differential test compares them after each call.
Every method has the name and meaning of :class:`stretto.ledger.client.Ledger`'s, but is
synchronous.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from stretto.ledger.requests import (
    Names,
    ReserveRequest,
    decode,
    entry_of,
    nodes_body,
    reserve_replies,
    sums_of,
    transition_body,
)
from stretto.ledger.types import (
    MAX_AMOUNT,
    SCHEMA,
    EntryState,
    InstallReply,
    LedgerEntry,
    LedgerFenced,
    LedgerGap,
    LedgerOp,
    LedgerRefused,
    LedgerUnit,
    NodeAccount,
    OpCode,
    ReserveKind,
    ReserveReply,
)

Record = list[Any]


def slot(node: Record, rid: int) -> int | None:
    """Index of a resource's four fields in a node record."""
    for at in range(2, len(node), 4):
        if node[at] == rid:
            return at
    return None


def misfit(node: Record, lines: Sequence[int]) -> int:
    """The resource of ``lines`` (pairs) that does not fit, 0 if all do."""
    for rid, amount in zip(lines[::2], lines[1::2], strict=True):
        if amount <= 0:
            continue
        at = slot(node, rid)
        if at is None:
            return rid
        total = node[at + 2] + amount
        if total + node[at + 3] > node[at + 1] or total > MAX_AMOUNT:
            return rid
    return 0


def book(node: Record, lines: Sequence[int], sign: int) -> None:
    """Add (or take back) the lines to the node's used sums."""
    for rid, amount in zip(lines[::2], lines[1::2], strict=True):
        at = slot(node, rid)
        if at is None:
            at = len(node)
            node += [rid, 0, 0, 0]
        node[at + 2] += sign * amount


class LedgerTwin:
    """A ledger in memory; see the module docstring."""

    def __init__(self, *, owner: str = "test", names: Names | None = None) -> None:
        self.owner = owner
        self.names = names or Names()
        self.meta: dict[str, Any] = {}
        self.nodes: dict[str, Record] = {}
        self.pods: dict[str, Record] = {}
        self.units: dict[str, Record] = {}
        self._generation = ""
        self._epoch = 0
        self._sequence = 0

    # ------------------------------------------------------------------- the script's operations
    def install(
        self, epoch: int, *, generation: str = "g1", force_rebuild: bool = False
    ) -> InstallReply:
        """Take the ledger for an epoch.

        Raises:
            LedgerFenced: a later epoch has it.
            LedgerRefused: it belongs to another owner.
        """
        if self.meta.get("owner", self.owner) != self.owner:
            raise LedgerRefused(f"the ledger belongs to {self.meta['owner']}")
        previous = self.meta.get("epoch", 0)
        if epoch < previous:
            raise LedgerFenced(f"epoch {epoch} is older than the ledger's {previous}")
        intact = "generation" in self.meta and not force_rebuild
        if not intact:
            self.nodes, self.pods, self.units = {}, {}, {}
            self.meta["generation"] = generation
        self.meta |= {"owner": self.owner, "schema": SCHEMA, "epoch": epoch, "seq": 0}
        self._generation, self._epoch, self._sequence = self.meta["generation"], epoch, 0
        return InstallReply(self._generation, intact, previous, len(self.pods))

    def _enter(self) -> None:
        if self.meta.get("generation") != self._generation or not self._generation:
            raise LedgerGap("the ledger is of another generation")
        if self.meta["epoch"] != self._epoch:
            raise LedgerFenced(f"epoch {self._epoch} has been succeeded by {self.meta['epoch']}")
        if self.meta["seq"] != self._sequence:
            raise LedgerGap(f"call {self._sequence + 1} meets a ledger at {self.meta['seq']}")
        self._sequence += 1
        self.meta["seq"] = self._sequence

    def reserve(self, units: Sequence[LedgerUnit]) -> list[ReserveReply]:
        """Reserve each unit whole or not at all, in order, later ones seeing earlier grants."""
        request = ReserveRequest(units, self.names, epoch=self._epoch)
        self._enter()
        return reserve_replies(self._decide_all(request), self.names)

    def _decide_all(self, request: ReserveRequest) -> list[Record]:
        replies, at = [], 0
        for unit in request.units:
            members = (len(unit) - 3) // 3
            records = request.records[at + 1 : at + 1 + members]
            replies.append(self._decide(unit, request.lines, records))
            at += 1 + members
        return replies

    def _decide(self, unit: Record, lines: list[list[int]], records: list[bytes]) -> Record:
        unit_id, epoch, number, *flat_members = unit
        stored = self.units.get(unit_id)
        if stored is not None:
            if stored[:2] == [epoch, number]:
                return stored[2:]
            if stored[:2] > [epoch, number]:
                return [int(ReserveKind.SUPERSEDED), "", 0]
        for pod_uid in flat_members[::3]:
            held = self.pods.get(pod_uid)
            if held is not None:
                return [int(ReserveKind.HELD), held[0], held[6]]
        numbers = [lines[index - 1] for index in flat_members[2::3]]
        members = list(zip(flat_members[::3], flat_members[1::3], numbers, strict=True))
        reply = self._misfit(members)
        if not reply:
            reply = [int(ReserveKind.GRANTED), "", 0]
            for pod_uid, record in zip(flat_members[::3], records, strict=True):
                self.pods[pod_uid] = decode(record)
        self.units[unit_id] = [epoch, number, *reply]
        return reply

    def _misfit(self, members: list[tuple[str, str, list[int]]]) -> Record:
        """Book all members; if one has no place, book none and say which and why."""
        for _, node_uid, _ in members:
            node = self.nodes.get(node_uid)
            if node is None:
                return [int(ReserveKind.NODE_MISSING), node_uid, 0]
            if node[0]:
                return [int(ReserveKind.FLAGGED), node_uid, 0]
        for index, (_, node_uid, lines) in enumerate(members):
            rid = misfit(self.nodes[node_uid], lines)
            if rid:
                for _, earlier, taken in members[:index]:
                    book(self.nodes[earlier], taken, -1)
                return [int(ReserveKind.NO_FIT), node_uid, rid]
            book(self.nodes[node_uid], lines, 1)
        return []

    def transition(self, ops: Sequence[LedgerOp]) -> list[bool]:
        """Move reservations on; True where the step applied."""
        body = transition_body(ops, self.names)
        self._enter()
        return [self._step(row) for row in body]

    def _step(self, row: Record) -> bool:
        code, uid = row[0], row[1]
        record = self.pods.get(uid)
        if code == OpCode.FORGET_UNIT:
            self.units.pop(uid, None)
            return True
        if code == OpCode.ADOPT:
            if record is not None:
                self._release(uid)
            _, _, version, node_uid, unit_id, epoch, number, *lines = row
            state = int(EntryState.BOUND)
            self.pods[uid] = [
                node_uid, unit_id, epoch, number, self._epoch, version, state, *lines,
            ]  # fmt: skip
            if node_uid in self.nodes:
                book(self.nodes[node_uid], lines, 1)
            return True
        if record is None:
            return False
        if code == OpCode.FREE:
            self._release(uid)
        elif code == OpCode.BOUND:
            record[6] = int(EntryState.BOUND)
        elif code == OpCode.REBASE:
            record[5], record[4] = row[2], self._epoch
        elif record[6] == EntryState.RESERVED:
            record[6] = int(EntryState.BINDING)
        else:
            return False
        return True

    def _release(self, uid: str) -> None:
        record = self.pods.pop(uid)
        if record[0] in self.nodes:
            book(self.nodes[record[0]], record[7:], -1)

    def set_nodes(self, changes: Sequence[NodeAccount], removed: Iterable[str] = ()) -> None:
        """Add, change or remove node accounts; what entries use on them stays."""
        rows, gone = nodes_body(changes, removed, self.names)
        self._enter()
        for uid, flags, name, *triples in rows:
            old = self.nodes.get(uid, [0, ""])
            record: Record = [flags, name]
            for at in range(0, len(triples), 3):
                rid, allocatable, foreign = triples[at : at + 3]
                before = slot(old, rid)
                record += [rid, allocatable, old[before + 2] if before is not None else 0, foreign]
            for at in range(2, len(old), 4):
                if old[at + 2] and slot(record, old[at]) is None:
                    record += [old[at], 0, old[at + 2], 0]
            self.nodes[uid] = record
        for uid in gone:
            self.nodes.pop(uid, None)

    # -------------------------------------------------------------------------------- reading
    def entries(self) -> list[LedgerEntry]:
        """All reservations."""
        return [entry_of(uid, record, self.names) for uid, record in self.pods.items()]

    def node_sums(self) -> dict[str, dict[str, int]]:
        """Used amounts per node."""
        return {uid: sums_of(record, self.names) for uid, record in self.nodes.items()}

    def dump(self) -> dict[str, dict[str, Record]]:
        """Every record, as the server's hashes hold them."""
        return {"nodes": self.nodes, "pods": self.pods, "units": self.units}

    def validate(self) -> None:
        """Each node's used sums are those of its entries, and nothing exceeds its room."""
        expected: dict[str, dict[str, int]] = {uid: {} for uid in self.nodes}
        for entry in self.entries():
            if entry.node_uid in expected:
                sums = expected[entry.node_uid]
                for name, amount in entry.lines:
                    sums[name] = sums.get(name, 0) + amount
        for uid, sums in self.node_sums().items():
            assert sums == {name: value for name, value in expected[uid].items() if value}, uid
