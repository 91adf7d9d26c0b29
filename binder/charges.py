"""Accounts of the ledger beside nodes, and what pods in flight are charged there.

A pod in flight holds more than room on its node: the volumes that its claims are to get, and places
among the volumes that the node's CSI drivers attach. Each is an account of its own (design §12.16),
charged in the same call as the pod's room, whole or not at all. A charge lasts as long as the pod
is in flight. Once it is bound, the API itself says what is taken: a volume has its claimRef, and an
attachment counts as foreign.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from binder.storage import Storage
from stretto.ledger.types import Account, Charge, account_uid
from stretto.model.shape import Shape
from stretto.model.unit import Member
from stretto.placement.attached import Attached
from stretto.placement.kernel import Kernel
from stretto.placement.volume_plan import VolumePlan
from stretto.snapshot.columns import Snapshot

VOLUME = "volume"
ATTACHMENTS = "attachments"
"""Kinds of account, and the one resource of each."""


def volume_account(uid: str) -> str:
    """The account of a volume."""
    return account_uid(VOLUME, uid)


def attachments_account(node_uid: str, driver: str) -> str:
    """The account of a driver on a node."""
    return account_uid(ATTACHMENTS, node_uid, driver)


class Charges:
    """See the module docstring."""

    def __init__(self, snapshot: Snapshot, storage: Storage, kernel: Kernel) -> None:
        self._snapshot = snapshot
        self._storage = storage
        self._kernel = kernel
        self._stamps = (-1, -1)
        self.accounts: dict[str, Account] = {}
        """By uid, as of the last :meth:`changes`."""
        self._changed: dict[str, None] = {}
        self._stale: set[int] = set()
        """Rows to look at though nothing on them has changed."""
        self._volumes: dict[str, str] = {}
        """Volume → its account."""
        self._rows: dict[int, set[str]] = {}
        """Row → accounts of its node."""
        self._row_of: dict[str, int] = {}
        self._held: dict[str, tuple[Charge, ...]] = {}
        """Pod uid → what it is charged."""
        self._taken: dict[str, int] = {}
        """Account → the sum of its charges."""

    # --------------------------------------------------------------------------------- reserving
    def wanted(self, shape: Shape, row: int, plan: VolumePlan) -> tuple[Charge, ...]:
        """What a pod takes beside its room, before it is counted on the row."""
        if not shape.claims and not shape.disks:
            return ()
        found = []
        for claim, name in plan.static:
            volume = self._storage.volume(name)
            assumed = self._snapshot.volumes.assumption(claim)
            if volume is not None and assumed is None and self._storage.promised(claim) is None:
                found.append(Charge(volume_account(volume.uid), ((VOLUME, 1),)))
        node_uid = self._snapshot.node_uid[row]
        for driver, count in self._kernel.attachments(shape, row):
            account = attachments_account(node_uid, driver)
            found.append(Charge(account, ((ATTACHMENTS, count),)))
        return tuple(found)

    def hold_all(self, members: Sequence[Member], charges: Sequence[tuple[Charge, ...]]) -> None:
        """The members of a unit have been granted these."""
        for member, held in zip(members, charges, strict=True):
            if held:
                self._held[member.uid] = held
                self._count(held, 1)

    def _count(self, charges: Iterable[Charge], sign: int) -> None:
        for account, lines in charges:
            taken = self._taken.get(account, 0) + sign * lines[0][1]
            if taken:
                self._taken[account] = taken
            else:
                del self._taken[account]

    def release(self, uid: str) -> bool:
        """A pod is bound, or its reservation is over; False if it was charged nothing."""
        charges = self._held.pop(uid, ())
        self._count(charges, -1)
        self._stale |= {self._row_of[c.account] for c in charges if c.account in self._row_of}
        return bool(charges)

    def of(self, uid: str) -> tuple[Charge, ...]:
        """What a pod is charged now."""
        return self._held.get(uid, ())

    def used(self, account: str) -> dict[str, int]:
        """What the ledger has to say of an account."""
        taken = self._taken.get(account, 0)
        return dict.fromkeys(self.accounts[account].capacity, taken) if taken else {}

    # ---------------------------------------------------------------------------------- accounts
    def changes(self) -> tuple[list[Account], list[str]]:
        """(accounts that changed, accounts that went) since the last call, of the picture as it has
        been published."""
        for name in self._storage.take_touched_volumes():
            self._look_at_volume(name)
        for row in self._changed_rows():
            self._look_at_row(row)
        changed, self._changed = self._changed, {}
        found = [self.accounts[uid] for uid in changed if uid in self.accounts]
        return found, [uid for uid in changed if uid not in self.accounts]

    def _set(self, account: Account) -> None:
        if self.accounts.get(account.uid) != account:
            self.accounts[account.uid] = account
            self._changed[account.uid] = None

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
            self._set(Account(account, {VOLUME: 1}))

    def _look_at_row(self, row: int) -> None:
        here: dict[str, Account] = {}
        live = bool(self._snapshot.live[row])
        node = self._snapshot.volumes.nodes.get(self._snapshot.name[row]) if live else None
        for driver, limit in () if node is None else node.drivers:
            if limit < 0:
                continue
            account = attachments_account(self._snapshot.node_uid[row], driver)
            used = int(Attached.of(self._snapshot).used(driver)[row])
            foreign = max(0, used - self._taken.get(account, 0))
            here[account] = Account(account, {ATTACHMENTS: limit}, {ATTACHMENTS: foreign})
        for account in self._rows.pop(row, set()) - here.keys():
            self._drop(account)
            del self._row_of[account]
        for account, found in here.items():
            self._set(found)
            self._row_of[account] = row
        if here:
            self._rows[row] = set(here)

    def validate(self, holders: Iterable[str]) -> None:
        """Assert that only pods in flight are charged, and that the sums are theirs."""
        assert set(self._held) <= set(holders)
        sums: dict[str, int] = {}
        for account, lines in (charge for charges in self._held.values() for charge in charges):
            sums[account] = sums.get(account, 0) + lines[0][1]
        assert sums == self._taken
