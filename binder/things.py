"""Accounts of the ledger beside nodes: volumes, and the attachments that a node has left.

A pod in flight holds more than room on its node: the volumes that its claims are to get, and places
among the volumes that the node's CSI drivers attach. Each is an account of its own (design §12.16),
and the pod has an entry on each, reserved in the same call as its room, whole or not at all. These
entries last as long as the pod is in flight. Once it is bound, the API itself says what is taken: a
volume has its claimRef, and an attachment counts as foreign.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from binder.storage import Storage
from stretto.ledger.types import LedgerEntry, LedgerMember, NodeAccount
from stretto.model.shape import Shape
from stretto.model.unit import Member
from stretto.placement.attached import Attached
from stretto.placement.kernel import Kernel
from stretto.placement.volume_plan import VolumePlan
from stretto.snapshot.columns import Snapshot

VOLUME = "volume"
ATTACHMENTS = "attachments"
"""Resources, one of each kind of account."""


def volume_account(uid: str) -> str:
    """The account of a volume."""
    return f"volume {uid}"


def attachments_account(node_uid: str, driver: str) -> str:
    """The account of a driver on a node."""
    return f"attachments {node_uid} {driver}"


class Things:
    """See the module docstring."""

    def __init__(self, snapshot: Snapshot, storage: Storage, kernel: Kernel) -> None:
        self._snapshot = snapshot
        self._storage = storage
        self._kernel = kernel
        self._stamps = (-1, -1)
        self.accounts: dict[str, NodeAccount] = {}
        """By uid, as of the last :meth:`changes`."""
        self._changed: dict[str, None] = {}
        self._stale: set[int] = set()
        """Rows to look at though nothing on them has changed."""
        self._volumes: dict[str, str] = {}
        """Volume → its account."""
        self._rows: dict[int, set[str]] = {}
        """Row → accounts of its node."""
        self._row_of: dict[str, int] = {}
        self._held: dict[str, tuple[LedgerMember, ...]] = {}
        """Pod uid → its entries."""
        self._taken: dict[str, int] = {}
        """Account → what entries hold of it."""

    # --------------------------------------------------------------------------------- reserving
    def wanted(
        self, member: Member, shape: Shape, row: int, plan: VolumePlan
    ) -> tuple[LedgerMember, ...]:
        """The entries that a pod needs beside its room, before it is counted on the row."""
        if not shape.claims and not shape.disks:
            return ()
        found = []
        for claim, name in plan.static:
            volume = self._storage.volume(name)
            assumed = self._snapshot.volumes.assumption(claim)
            if volume is not None and assumed is None and self._storage.promised(claim) is None:
                account = volume_account(volume.uid)
                found.append(self._entry(member, account, VOLUME, 1))
        node_uid = self._snapshot.node_uid[row]
        for driver, count in self._kernel.attachments(shape, row):
            account = attachments_account(node_uid, driver)
            found.append(self._entry(member, account, ATTACHMENTS, count))
        return tuple(found)

    @staticmethod
    def _entry(member: Member, account: str, resource: str, amount: int) -> LedgerMember:
        uid = f"{member.uid} {account}"
        return LedgerMember(uid, account, member.resource_version, ((resource, amount),))

    def hold_all(
        self, members: Sequence[Member], things: Sequence[tuple[LedgerMember, ...]]
    ) -> None:
        """The members of a unit have been granted these."""
        for member, entries in zip(members, things, strict=True):
            if entries:
                self._hold(member.uid, entries)

    def _hold(self, uid: str, entries: tuple[LedgerMember, ...]) -> None:
        self._held[uid] = entries
        for entry in entries:
            self._taken[entry.node_uid] = self._taken.get(entry.node_uid, 0) + entry.lines[0][1]

    def release(self, uid: str) -> list[str]:
        """A pod is bound, or its reservation is over: uids of entries to free."""
        entries = self._held.pop(uid, ())
        for entry in entries:
            if entry.node_uid in self._row_of:
                self._stale.add(self._row_of[entry.node_uid])
            self._taken[entry.node_uid] -= entry.lines[0][1]
            if not self._taken[entry.node_uid]:
                del self._taken[entry.node_uid]
        return [entry.pod_uid for entry in entries]

    def held(self) -> Iterable[tuple[str, LedgerMember]]:
        """(pod uid, entry) of everything in flight."""
        return [(uid, entry) for uid, entries in self._held.items() for entry in entries]

    def entries(self, of_pod: Callable[[str], LedgerEntry]) -> list[LedgerEntry]:
        """Everything in flight as the ledger ought to have it, by the entries of its pods."""
        return [
            replace(of_pod(uid), pod_uid=e.pod_uid, node_uid=e.node_uid, lines=e.lines)
            for uid, e in self.held()
        ]

    # ---------------------------------------------------------------------------------- accounts
    def changes(self) -> tuple[list[NodeAccount], list[str]]:
        """(accounts that changed, accounts that went) since the last call, of the picture as it has
        been published."""
        for name in self._storage.take_touched_volumes():
            self._look_at_volume(name)
        for row in self._changed_rows():
            self._look_at_row(row)
        changed, self._changed = self._changed, {}
        found = [self.accounts[uid] for uid in changed if uid in self.accounts]
        return found, [uid for uid in changed if uid not in self.accounts]

    def _set(self, account: NodeAccount) -> None:
        if self.accounts.get(account.node_uid) != account:
            self.accounts[account.node_uid] = account
            self._changed[account.node_uid] = None

    def _drop(self, uid: str) -> None:
        if self.accounts.pop(uid, None) is not None:
            self._changed[uid] = None

    def _changed_rows(self) -> Iterable[int]:
        rows, self._stale = self._stale, set()
        logs = (self._snapshot.volumes.row_changes, self._snapshot.node_changes)
        stamps = (logs[0].stamp, logs[1].stamp)
        if stamps != self._stamps:
            for log, stamp in zip(logs, self._stamps, strict=True):
                changed = log.since(stamp) if stamp >= 0 else None
                rows |= set(range(self._snapshot.rows) if changed is None else changed)
            self._stamps = stamps
        return rows

    def _look_at_volume(self, name: str) -> None:
        volume = self._storage.volume(name)
        free = volume is not None and (volume.claim is None or not volume.claim.uid)
        account = volume_account(volume.uid) if volume is not None and free else ""
        known = self._volumes.pop(name, "")
        if known and known != account:
            self._drop(known)
        if account:  # else nobody's business but the API's
            self._volumes[name] = account
            self._set(NodeAccount(account, name, {VOLUME: 1}))

    def _look_at_row(self, row: int) -> None:
        here: dict[str, NodeAccount] = {}
        live = bool(self._snapshot.live[row])
        node = self._snapshot.volumes.nodes.get(self._snapshot.name[row]) if live else None
        for driver, limit in () if node is None else node.drivers:
            if limit < 0:
                continue
            account = attachments_account(self._snapshot.node_uid[row], driver)
            used = int(Attached.of(self._snapshot).used(driver)[row])
            foreign = max(0, used - self._taken.get(account, 0))
            here[account] = NodeAccount(
                account, driver, {ATTACHMENTS: limit}, {ATTACHMENTS: foreign}
            )
        for account in self._rows.pop(row, set()) - here.keys():
            self._drop(account)
            del self._row_of[account]
        for account, found in here.items():
            self._set(found)
            self._row_of[account] = row
        if here:
            self._rows[row] = set(here)

    def validate(self, holders: Iterable[str]) -> None:
        """Assert that only pods in flight hold entries, and that the sums are theirs."""
        assert set(self._held) <= set(holders)
        sums: dict[str, int] = {}
        for _, entry in self.held():
            sums[entry.node_uid] = sums.get(entry.node_uid, 0) + entry.lines[0][1]
        assert sums == self._taken
