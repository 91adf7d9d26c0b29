"""The ledger's script in Python: its specification, and the ledger of tests that need no server.

Same operations, same order of checks, same replies, same end state; ``dump()`` gives the records
as the hashes of the server hold them, so that a differential test compares them after each call.
Every method has the name and meaning of :class:`stretto.ledger.client.Ledger`'s, but is
synchronous. Several twins on one :class:`TwinStore` are several Binders on one server.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from stretto.ledger.requests import (
    REPLY_FIELDS,
    Names,
    ReserveRequest,
    TransitionRequest,
    entry_of,
    nodes_rows,
    pod_fields,
    reserve_replies,
    sums_of,
)
from stretto.ledger.types import (
    MAX_AMOUNT,
    SCHEMA,
    EntryState,
    Holdings,
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
FROZEN_FLAG, REMOVED_FLAG = 1, 2


def slot(node: Record, rid: int) -> int | None:
    """Index of a resource's four fields in a node record."""
    for at in range(1, len(node), 4):
        if node[at] == rid:
            return at
    return None


def ensure(node: Record, rid: int) -> int:
    """As :func:`slot`; a resource that the node lacks is added without room."""
    at = slot(node, rid)
    if at is None:
        at = len(node)
        node += [rid, 0, 0, 0]
    return at


def take(node: Record, lines: Sequence[int]) -> int:
    """Take room for the lines (pairs); or take none and return the resource that does not fit."""
    for at in range(0, len(lines), 2):
        rid, amount = lines[at : at + 2]
        place = slot(node, rid)
        if not amount:
            continue
        total = node[place + 2] + amount if place is not None else 0
        if place is None or total > MAX_AMOUNT or total + node[place + 3] > node[place + 1]:
            give_back(node, lines[:at])
            return rid
        node[place + 2] = total
    return 0


def give_back(node: Record, lines: Sequence[int]) -> None:
    """Undo :func:`take`."""
    for rid, amount in zip(lines[::2], lines[1::2], strict=True):
        if amount:
            place = slot(node, rid)
            assert place is not None, "what was taken has a place"
            node[place + 2] -= amount


def unused(node: Record) -> bool:
    """Nothing is reserved on it."""
    return not any(node[3::4])


@dataclass
class TwinStore:
    """What the server would hold."""

    meta: dict[str, Any] = field(default_factory=dict)
    nodes: dict[str, Record] = field(default_factory=dict)
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
        self.meta, self.nodes, self.pods, self.units = {}, {}, {}, {}


class LedgerTwin:
    """A ledger in memory; see the module docstring."""

    def __init__(self, *, owner: str = "test", store: TwinStore | None = None) -> None:
        self.owner = owner
        self.store = store or TwinStore()
        self._stamp: tuple[str, int, str] = ("", 0, "")
        """Generation, epoch, writer."""
        self._sequence = 0

    @property
    def names(self) -> Names:
        """The resource names' numbers."""
        return self.store.names

    # ------------------------------------------------------------------- the script's operations
    def install(self, epoch: int, *, force_rebuild: bool = False) -> InstallReply:
        """Take the ledger for an epoch; see the client's.

        Raises:
            LedgerFenced: a later epoch has it.
            LedgerRefused: it belongs to another owner.
        """
        store, meta = self.store, self.store.meta
        if meta.get("owner", self.owner) != self.owner:
            raise LedgerRefused(f"the ledger belongs to {meta['owner']}")
        previous = meta.get("epoch", 0)
        if epoch < previous:
            raise LedgerFenced(f"epoch {epoch} is older than the ledger's {previous}")
        store.installs += 1
        token = f"token-{store.installs}"
        intact = meta.get("state") == "OPEN" and not force_rebuild
        if not intact:
            store.flush()
            store.names = Names()
        generation = meta["generation"] if intact else token
        restarted = intact and meta["server"] != store.server
        self._stamp, self._sequence = (generation, epoch, token), 0
        store.meta = {
            "owner": self.owner, "schema": SCHEMA, "generation": generation, "epoch": epoch,
            "state": "OPEN" if intact else "REBUILD", "stamp": self._stamp, "seq": 0,
            "server": store.server,
        }  # fmt: skip
        waiting = sum(record[0] != EntryState.BOUND for record in store.pods.values())
        return InstallReply(generation, intact, previous, waiting, restarted)

    def _enter(self) -> None:
        meta = self.store.meta
        if meta.get("stamp") != self._stamp:
            epoch = meta.get("epoch", 0)
            if epoch > self._stamp[1] or (
                epoch == self._stamp[1] and meta["stamp"][2] != self._stamp[2]
            ):
                raise LedgerFenced(f"epoch {self._stamp[1]} has been succeeded by {epoch}")
            raise LedgerGap("the ledger was emptied or replaced")
        if meta["seq"] != self._sequence:
            raise LedgerGap(f"call {self._sequence + 1} meets a ledger at {meta['seq']}")
        self._sequence += 1
        meta["seq"] = self._sequence

    def reserve(self, units: Sequence[LedgerUnit]) -> list[ReserveReply]:
        """Reserve each unit whole or not at all, in order, later ones seeing earlier grants."""
        if not units:
            return []
        request = ReserveRequest(units, self.names, epoch=self._stamp[1])
        self._enter()
        exceptions: Record = []
        pods_at = 0
        for index, unit in enumerate(units):
            width = 2 * len(unit.members)
            records = request.pods[pods_at : pods_at + width]
            pods_at += width
            reply = self._decide(unit, request, dict(zip(records[::2], records[1::2], strict=True)))
            if reply:
                exceptions += [index + 1, *reply]
        assert len(exceptions) % REPLY_FIELDS == 0
        self.store.meta["state"] = "OPEN"
        return reserve_replies(exceptions, self.names, count=len(units))

    def _decide(
        self, unit: LedgerUnit, request: ReserveRequest, records: dict[str, bytes]
    ) -> Record:
        """Empty if granted now, else kind, node, rid or state, pod."""
        attempt = list(unit.attempt)
        seen = self.store.units.get(unit.unit_id)
        if seen is not None:
            if seen[:2] == attempt:
                return [*seen[2:], ""] if seen[2:] else self._granted_before(unit)
            if seen[:2] > attempt:
                return [int(ReserveKind.SUPERSEDED), "", 0, ""]
        for member in unit.members:
            held = self.store.pods.get(member.pod_uid)
            if held is not None:
                return [int(ReserveKind.HELD), held[1], held[0], member.pod_uid]
        reply = self._misplaced(unit, request)
        if not reply:
            for pod_uid, record in records.items():
                self.store.pods[pod_uid] = pod_fields(record)
        self.store.units[unit.unit_id] = attempt + reply
        return [*reply, ""] if reply else []

    def _granted_before(self, unit: LedgerUnit) -> Record:
        """The same attempt was granted: still so for a repetition that names the same pods and
        nodes, while they are held."""
        for member in unit.members:
            held = self.store.pods.get(member.pod_uid)
            if held is None:
                return [int(ReserveKind.SUPERSEDED), "", 0, ""]
            same = (held[2] or member.pod_uid) == unit.unit_id and held[3:5] == [*unit.attempt]
            if not same or held[1] != member.node_uid:
                return [int(ReserveKind.HELD), held[1], held[0], member.pod_uid]
        return [int(ReserveKind.GRANTED), "", 0, ""]

    def _misplaced(self, unit: LedgerUnit, request: ReserveRequest) -> Record:
        """Book all members; if one has no place, book none and say why: kind, node, rid."""
        nodes = self.store.nodes
        for member in unit.members:
            node = nodes.get(member.node_uid)
            if node is None or node[0] == REMOVED_FLAG:
                return [int(ReserveKind.NODE_MISSING), member.node_uid, 0]
            if node[0]:
                return [int(ReserveKind.FLAGGED), member.node_uid, 0]
        taken: list[tuple[str, list[int]]] = []
        for member in unit.members:
            lines = request.numbers_of(member.lines)
            rid = take(nodes[member.node_uid], lines)
            if rid:
                for node_uid, earlier in taken:
                    give_back(nodes[node_uid], earlier)
                return [int(ReserveKind.NO_FIT), member.node_uid, rid]
            taken.append((member.node_uid, lines))
        return []

    def transition(self, ops: Sequence[LedgerOp]) -> list[bool]:
        """Move reservations on; True where the step applied."""
        if not ops:
            return []
        request = TransitionRequest(ops, self.names, epoch=self._stamp[1])
        self._enter()
        applied = [
            self._step(code, uid, extra)
            for code, uid, extra in zip(request.codes, request.uids, request.extras, strict=True)
        ]
        self._drop_unused()
        return applied

    def _step(self, code: int, uid: str, extra: Any) -> bool:
        pods, nodes = self.store.pods, self.store.nodes
        if code == OpCode.FORGET_UNIT:
            self.store.units.pop(uid, None)
            return True
        if code == OpCode.FOREIGN:
            return self._set_foreign(nodes.get(uid), extra)
        if code == OpCode.ADOPT:
            self._adopt(uid, extra)
            return True
        record = pods.get(uid)
        if record is None:
            return False
        if code == OpCode.FREE:
            self._release(uid)
        elif code == OpCode.REBASE:
            record[5:7] = extra
        elif code == OpCode.BINDING and record[0] == EntryState.RESERVED:
            record[0] = int(EntryState.BINDING)
        elif code == OpCode.BOUND and record[0] != EntryState.BOUND:
            record[0] = int(EntryState.BOUND)
        else:
            return False
        return True

    @staticmethod
    def _set_foreign(node: Record | None, lines: Sequence[int]) -> bool:
        if node is None or node[0] == REMOVED_FLAG:
            return False
        for rid, amount in zip(lines[::2], lines[1::2], strict=True):
            node[ensure(node, rid) + 3] = amount
        return True

    def _adopt(self, uid: str, extra: Record) -> None:
        if uid in self.store.pods:
            self._release(uid)
        record = [int(extra[0]), *extra[1:]]
        node = self.store.nodes.setdefault(record[1], [REMOVED_FLAG])
        for at in range(7, len(record), 2):
            # What exceeds an exact number is not counted, neither here nor in the record.
            place = ensure(node, record[at])
            record[at + 1] = min(record[at + 1], MAX_AMOUNT - node[place + 2])
            node[place + 2] += record[at + 1]
        self.store.pods[uid] = record

    def _release(self, uid: str) -> None:
        record = self.store.pods.pop(uid)
        node = self.store.nodes.get(record[1])
        if node is not None:
            give_back(node, record[7:])

    def _drop_unused(self) -> None:
        nodes = self.store.nodes
        for uid in [uid for uid, node in nodes.items() if node[0] == REMOVED_FLAG and unused(node)]:
            del nodes[uid]

    def set_nodes(self, changes: Sequence[NodeAccount], removed: Iterable[str] = ()) -> None:
        """Add, change or remove node accounts; what entries use on them stays."""
        rows, nodes = nodes_rows(changes, self.names), self.store.nodes
        self._enter()
        for uid, frozen, *triples in rows:
            old = nodes.get(uid, [0])
            node: Record = [FROZEN_FLAG if frozen else 0]
            for at in range(0, len(triples), 3):
                rid, allocatable, foreign = triples[at : at + 3]
                before = slot(old, rid)
                node += [rid, allocatable, old[before + 2] if before is not None else 0, foreign]
            for at in range(1, len(old), 4):
                if old[at + 2] and slot(node, old[at]) is None:
                    node += [old[at], 0, old[at + 2], 0]
            nodes[uid] = node
        for uid in removed:
            if uid in nodes:
                node = nodes[uid]
                node[0] = REMOVED_FLAG
                node[2::4] = node[4::4] = [0] * (len(node) // 4)
        self._drop_unused()

    def opened(self) -> None:
        """The rebuild has ended."""
        self._enter()
        self.store.meta["state"] = "OPEN"

    # -------------------------------------------------------------------------------- reading
    def entries(self, *, open_only: bool = False) -> list[LedgerEntry]:
        """All reservations, or those that are not BOUND."""
        return [
            entry_of(uid, record, self.names)
            for uid, record in self.store.pods.items()
            if not open_only or record[0] != EntryState.BOUND
        ]

    def holdings(self, *, nodes: Sequence[str], pods: Sequence[str]) -> Holdings:
        """What the ledger says of these nodes and pods."""
        store = self.store
        return Holdings(
            {uid: sums_of(store.nodes[uid], self.names) for uid in nodes if uid in store.nodes},
            {uid: entry_of(uid, store.pods[uid], self.names) for uid in pods if uid in store.pods},
        )

    def node_sums(self) -> dict[str, dict[str, int]]:
        """Used amounts per node."""
        return {uid: sums_of(record, self.names) for uid, record in self.store.nodes.items()}

    def dump(self) -> dict[str, dict[str, Record]]:
        """Every record, as the server's hashes hold them."""
        split: dict[str, dict[str, Record]] = {"open": {}, "bound": {}}
        for uid, record in self.store.pods.items():
            split["bound" if record[0] == EntryState.BOUND else "open"][uid] = record
        return {"nodes": self.store.nodes, "units": self.store.units, **split}

    def validate(self) -> None:
        """Each node's used sums are those of its entries."""
        expected: dict[str, dict[str, int]] = {}
        for entry in self.entries():
            sums = expected.setdefault(entry.node_uid, {})
            for name, amount in entry.lines:
                sums[name] = sums.get(name, 0) + amount
        found = {uid: sums for uid, sums in self.node_sums().items() if sums}
        counted = {
            uid: kept
            for uid, sums in expected.items()
            if (kept := {name: amount for name, amount in sums.items() if amount})
        }
        assert found == counted, "the nodes' sums are not those of the entries"
