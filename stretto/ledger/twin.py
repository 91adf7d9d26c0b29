"""The ledger's script in Python: its specification, and the ledger of tests that need no server.

Same operations, same order of checks, same replies, same end state; ``dump()`` gives the records
as the hashes of the server hold them, so that a differential test compares them after each call.
Every method has the name and meaning of :class:`stretto.ledger.client.Ledger`'s, but is
synchronous. Several twins on one :class:`TwinStore` are several Binders on one server.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from stretto.ledger.requests import (
    REPLY_FIELDS,
    Names,
    ReserveRequest,
    TransitionRequest,
    account_rows,
    entry_of,
    holdings_of,
    pod_fields,
    reserve_replies,
    sums_of,
)
from stretto.ledger.twin_store import (
    FROZEN_FLAG,
    REMOVED_FLAG,
    Record,
    TwinStore,
    ensure,
    give_back,
    slot,
    take,
    unused,
)
from stretto.ledger.types import (
    MAX_AMOUNT,
    SCHEMA,
    Account,
    EntryState,
    Holdings,
    InstallReply,
    LedgerEntry,
    LedgerFenced,
    LedgerGap,
    LedgerOp,
    LedgerRefused,
    LedgerUnit,
    OpCode,
    ReserveKind,
    ReserveReply,
    sums_of_entries,
)


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
        assert epoch >= previous, "an epoch went back"
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
        assert meta["epoch"] == self._stamp[1], "a stamp of another epoch"
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
        assert pods_at == len(request.pods), "a member has no record"
        self.store.meta["state"] = "OPEN"
        return reserve_replies(exceptions, self.names, count=len(units))

    def _decide(
        self, unit: LedgerUnit, request: ReserveRequest, records: dict[str, bytes]
    ) -> Record:
        """Empty if granted now, else kind, account, rid or state, pod."""
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
                assert pod_uid not in self.store.pods, f"{pod_uid} is reserved twice"
                self.store.pods[pod_uid] = pod_fields(record)
        assert seen is None or seen[:2] < attempt, "an attempt is decided twice"
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
        """Book all that the unit takes; if of one thing there is too little, book nothing and say
        why: kind, account, rid."""
        accounts = self.store.accounts
        wanted = [(member.node_uid, member.lines) for member in unit.members]
        wanted += [charge for member in unit.members for charge in member.charges]
        for uid, _ in wanted:
            account = accounts.get(uid)
            if account is None or account[0] == REMOVED_FLAG:
                return [int(ReserveKind.ACCOUNT_MISSING), uid, 0]
            if account[0]:
                return [int(ReserveKind.FLAGGED), uid, 0]
        for index, (uid, lines) in enumerate(wanted):
            rid = take(accounts[uid], request.numbers_of(lines))
            if rid:
                for earlier, taken in wanted[:index]:
                    give_back(accounts[earlier], request.numbers_of(taken))
                return [int(ReserveKind.NO_FIT), uid, rid]
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
        pods, accounts = self.store.pods, self.store.accounts
        if code == OpCode.FORGET_UNIT:
            self.store.units.pop(uid, None)
            return True
        if code == OpCode.FOREIGN:
            return self._set_foreign(accounts.get(uid), extra)
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
    def _set_foreign(account: Record | None, lines: Sequence[int]) -> bool:
        if account is None or account[0] == REMOVED_FLAG:
            return False
        for rid, amount in zip(lines[::2], lines[1::2], strict=True):
            assert amount >= 0, "foreign pods hold less than nothing"
            account[ensure(account, rid) + 3] = amount
        return True

    def _adopt(self, uid: str, extra: Record) -> None:
        if uid in self.store.pods:
            self._release(uid)
        record = [int(extra[0]), *extra[1:7]]
        for index, (name, pairs) in enumerate(holdings_of(extra)):
            account = self.store.accounts.setdefault(name, [REMOVED_FLAG])
            record += [name] if index else []
            for rid, amount in zip(pairs[::2], pairs[1::2], strict=True):
                # What exceeds an exact number is not counted, neither here nor in the record.
                place = ensure(account, rid)
                counted = min(amount, MAX_AMOUNT - account[place + 2])
                assert counted >= 0, "an account holds more than an exact number"
                account[place + 2] += counted
                record += [rid, counted]
        assert uid not in self.store.pods, f"{uid} is adopted beside itself"
        self.store.pods[uid] = record

    def _release(self, uid: str) -> None:
        for name, pairs in holdings_of(self.store.pods.pop(uid)):
            account = self.store.accounts.get(name)
            if account is not None:
                give_back(account, pairs)

    def _drop_unused(self) -> None:
        accounts = self.store.accounts
        for uid in [
            uid
            for uid, account in accounts.items()
            if account[0] == REMOVED_FLAG and unused(account)
        ]:
            del accounts[uid]

    def set_accounts(self, changes: Sequence[Account], removed: Iterable[str] = ()) -> None:
        """Add, change or remove accounts; what entries use of them stays."""
        rows, accounts = account_rows(changes, self.names), self.store.accounts
        self._enter()
        for uid, frozen, *triples in rows:
            old = accounts.get(uid, [0])
            account: Record = [FROZEN_FLAG if frozen else 0]
            for at in range(0, len(triples), 3):
                rid, allocatable, foreign = triples[at : at + 3]
                before = slot(old, rid)
                account += [rid, allocatable, old[before + 2] if before is not None else 0, foreign]
            for at in range(1, len(old), 4):
                if old[at + 2] and slot(account, old[at]) is None:
                    account += [old[at], 0, old[at + 2], 0]
            assert sums_of(account, self.names) == sums_of(old, self.names), "what is used stays"
            accounts[uid] = account
        for uid in removed:
            if uid in accounts:
                account = accounts[uid]
                account[0] = REMOVED_FLAG
                account[2::4] = account[4::4] = [0] * (len(account) // 4)
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

    def holdings(self, *, accounts: Sequence[str], pods: Sequence[str]) -> Holdings:
        """What the ledger says of these accounts and pods.

        Raises:
            LedgerGap: it is not where our last call left it.
        """
        store = self.store
        if (store.meta.get("stamp"), store.meta.get("seq")) != (self._stamp, self._sequence):
            raise LedgerGap(f"the ledger is at call {store.meta.get('seq')}, not {self._sequence}")
        return Holdings(
            {
                uid: sums_of(store.accounts[uid], self.names)
                for uid in accounts
                if uid in store.accounts
            },
            {uid: entry_of(uid, store.pods[uid], self.names) for uid in pods if uid in store.pods},
        )

    def sums(self) -> dict[str, dict[str, int]]:
        """Amounts that entries use, per account."""
        return {uid: sums_of(record, self.names) for uid, record in self.store.accounts.items()}

    def dump(self) -> dict[str, dict[str, Record]]:
        """Every record, as the server's hashes hold them."""
        split: dict[str, dict[str, Record]] = {"open": {}, "bound": {}}
        for uid, record in self.store.pods.items():
            split["bound" if record[0] == EntryState.BOUND else "open"][uid] = record
        return {"accounts": self.store.accounts, "units": self.store.units, **split}

    def validate(self) -> None:
        """Each account's used sums are those of its entries."""
        found = {uid: sums for uid, sums in self.sums().items() if sums}
        assert found == sums_of_entries(self.entries()), "the sums are not those of the entries"
