"""What pods in flight are charged on accounts of the ledger beside their node's.

A pod in flight holds more than room on its node: the volumes that its claims are to get, places
among the volumes that the node's CSI drivers attach, devices, shares of devices and what they draw
of shared counters. Each has an account of its own (design §12.16), charged in the same call as the
pod's room, whole or not at all. A charge lasts as long as the pod is in flight. Once it is bound,
the API itself says what is taken: a volume has its claimRef, a claim its devices, and both they and
an attachment count as foreign.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from binder.accounts import (
    ATTACHMENTS,
    DEVICE,
    VOLUME,
    Accounts,
    attachments_account,
    counters_account,
    device_account,
    volume_account,
)
from binder.storage import Storage
from stretto.ledger.types import Charge, Lines
from stretto.model.devices import Result
from stretto.model.shape import Shape
from stretto.model.unit import Member
from stretto.placement.devices.amounts import drawn_by, share_of
from stretto.placement.devices.inventory import DeviceId, PoolId
from stretto.placement.devices.plan import DevicePlan
from stretto.placement.kernel import Kernel
from stretto.placement.volume_plan import VolumePlan
from stretto.snapshot.columns import Snapshot

ONE_VOLUME: Lines = ((VOLUME, 1),)
ONE_DEVICE: Lines = ((DEVICE, 1),)


class Charges:
    """See the module docstring."""

    def __init__(self, snapshot: Snapshot, storage: Storage, kernel: Kernel) -> None:
        self._snapshot = snapshot
        self._storage = storage
        self._kernel = kernel
        self._held: dict[str, tuple[Charge, ...]] = {}
        """Pod uid → what it is charged."""
        self._taken: dict[str, dict[str, int]] = {}
        """Account → resource → the sum of its charges."""
        self.accounts = Accounts(snapshot, storage, self._taken)

    # --------------------------------------------------------------------------------- reserving
    def wanted(
        self, shape: Shape, row: int, volumes: VolumePlan, devices: DevicePlan
    ) -> tuple[Charge, ...]:
        """What a pod takes beside its room, before it is counted on the row."""
        found: list[Charge] = []
        if shape.claims or shape.disks:
            found += self._of_volumes(shape, row, volumes)
        for _, allocation in devices.allocations:
            for result in allocation.results:
                if not result.admin:
                    found += self._of_device(result)
        return tuple(found)

    def _of_volumes(self, shape: Shape, row: int, plan: VolumePlan) -> Iterable[Charge]:
        for claim, name in plan.static:
            volume = self._storage.volume(name)
            assumed = self._snapshot.volumes.assumption(claim)
            if volume is not None and assumed is None and self._storage.promised(claim) is None:
                yield Charge(volume_account(volume.uid), ONE_VOLUME)
        node_uid = self._snapshot.node_uid[row]
        for driver, count in self._kernel.attachments(shape, row):
            yield Charge(attachments_account(node_uid, driver), ((ATTACHMENTS, count),))

    def _of_device(self, result: Result) -> Iterable[Charge]:
        """A device and what it draws, or a share of one. What a device draws that is given away in
        shares is drawn once for all of them: memory alone counts that."""
        id_ = DeviceId(result.driver, result.pool, result.device)
        if result.share_id:
            share = share_of(result)
            if share:
                yield Charge(device_account(id_), tuple(share.items()))
            return
        yield Charge(device_account(id_), ONE_DEVICE)
        device, pool = self.accounts.device(id_), PoolId(id_.driver, id_.pool)
        for name, drawn in () if device is None else drawn_by(device).items():
            yield Charge(counters_account(pool, name), tuple(drawn.items()))

    def hold_all(self, members: Sequence[Member], charges: Sequence[tuple[Charge, ...]]) -> None:
        """The members of a unit have been granted these."""
        for member, held in zip(members, charges, strict=True):
            assert member.uid not in self._held, f"{member.uid} is charged twice"
            if held:
                self._held[member.uid] = held
                self._count(held, 1)

    def _count(self, charges: Iterable[Charge], sign: int) -> None:
        for account, lines in charges:
            sums = self._taken.setdefault(account, {})
            for name, amount in lines:
                sums[name] = sums.get(name, 0) + sign * amount
                assert sums[name] >= 0, f"less than nothing is charged on {account}"
                if not sums[name]:
                    del sums[name]
            if not sums:
                del self._taken[account]
            self.accounts.charged(account)

    def release(self, uid: str) -> bool:
        """A pod is bound, or its reservation is over; False if it was charged nothing."""
        charges = self._held.pop(uid, ())
        self._count(charges, -1)
        return bool(charges)

    def of(self, uid: str) -> tuple[Charge, ...]:
        """What a pod is charged now."""
        return self._held.get(uid, ())

    def used(self, account: str) -> dict[str, int]:
        """What the ledger has to say of an account."""
        return dict(self._taken.get(account, {}))

    def validate(self, holders: Iterable[str]) -> None:
        """Assert that only pods in flight are charged, and that the sums are theirs."""
        assert set(self._held) <= set(holders)
        sums: dict[str, dict[str, int]] = {}
        for account, lines in (charge for charges in self._held.values() for charge in charges):
            for name, amount in lines:
                if amount:
                    there = sums.setdefault(account, {})
                    there[name] = there.get(name, 0) + amount
        assert sums == self._taken
