"""ResourceClaims as the API has them, and what reserved pods are about to do to them.

Between a commit and the write that follows it, devices that are promised to a claim look free in
the API. So a commit *holds* the claims of its pod, and the log carries them as they will be:
allocated, and marked as pending, which keeps every other pod away from the claim and every other
claim away from the devices. A hold that was written ends when the API shows the allocation; one
that was not ends with the pod's reservation, and the log says again what the API says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from stretto.model.devices import CLAIM, Allocation, ClaimRow, decode_claim, encode_row
from stretto.placement.devices.plan import DevicePlan


class Hold(msgspec.Struct):
    """Devices that are promised to a claim."""

    pod: str
    """Uid of the pod whose reservation it is."""
    claim_uid: str
    allocation: Allocation
    written: bool = False
    """The API may have it: only the API's word ends the hold."""


class DeviceBook:
    """See the module docstring. ``publish`` writes (kind, key, payload or None) into the log."""

    def __init__(self, publish: Callable[[str, str, bytes | None], None]) -> None:
        self._publish = publish
        self._rows: dict[str, ClaimRow] = {}
        self._holds: dict[str, Hold] = {}
        """By claim key."""
        self._users: dict[str, tuple[str, ...]] = {}
        """Pod uid → the claims that it waits for."""
        self._pods_of: dict[str, set[str]] = {}
        """Claim key → pods that wait for it."""
        self._touched: dict[str, None] = {}

    # ------------------------------------------------------------------------------------ the API
    def seen(self, key: str, payload: bytes | None) -> None:
        """A claim is so in the API; None: it is gone."""
        if payload is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = decode_claim(payload)
        row, hold = self._rows.get(key), self._holds.get(key)
        if hold is not None and hold.written and (row is None or row.allocation is not None
                                                  or row.uid != hold.claim_uid):  # fmt: skip
            del self._holds[key]
        self._show(key)
        self._touched.update(dict.fromkeys(self._pods_of.get(key, ())))

    def claim(self, key: str) -> ClaimRow | None:
        """A claim as the API has it."""
        return self._rows.get(key)

    def claims(self) -> Iterable[ClaimRow]:
        """All claims as the API has them."""
        return self._rows.values()

    def unused(self, key: str, *, uid: str, pod: str) -> bool:
        """Whether nobody but the pod has or is about to have any use of a claim's devices."""
        row = self._rows.get(key)
        return (
            row is not None
            and row.uid == uid
            and row.allocation is not None
            and row.reserved_for in ((), (pod,))
            and key not in self._pods_of
        )

    def take_touched(self) -> list[str]:
        """Pods of whose claims the API has said something new since the last call."""
        touched, self._touched = self._touched, {}
        return list(touched)

    # -------------------------------------------------------------------------------------- holds
    def hold(self, uid: str, plan: DevicePlan, *, special: str) -> None:
        """A pod was reserved with this plan; ``special``: the key under which the log knows the
        claim that is made for extended resources until it exists."""
        assert uid not in self._users, f"{uid} holds claims already"
        for key, allocation in plan.allocations:
            name = key or special
            assert name not in self._holds, f"claim {name} is promised already"
            row = self._rows.get(name)
            self._holds[name] = Hold(uid, "" if row is None else row.uid, allocation)
            self._show(name)
        claims = (*plan.claims, *((special,) if plan.special else ()))
        self._users[uid] = claims
        for key in claims:
            self._pods_of.setdefault(key, set()).add(uid)

    def made(self, special: str, key: str, *, claim_uid: str) -> None:
        """The claim for extended resources exists now, under its own name."""
        assert key not in self._holds, f"claim {key} was made already"
        hold = self._holds.pop(special)
        self._holds[key] = Hold(hold.pod, claim_uid, hold.allocation)
        self._users[hold.pod] = tuple(key if c == special else c for c in self._users[hold.pod])
        self._pods_of.setdefault(key, set()).update(self._pods_of.pop(special))
        self._show(special)
        self._show(key)

    def written(self, key: str) -> None:
        """The allocation was sent to the API server and may be there."""
        hold = self._holds.get(key)
        if hold is not None:
            hold.written = True
            row = self._rows.get(key)
            if row is not None and row.allocation is not None:  # the watch was faster
                del self._holds[key]
                self._show(key)

    def unwritten(self, key: str) -> None:
        """It is certain that the API does not have it."""
        hold = self._holds.get(key)
        if hold is not None:
            hold.written = False
            self._drop_unless_held(key)

    def release(self, uid: str) -> None:
        """A pod is bound, or its reservation is over."""
        for key in self._users.pop(uid, ()):
            pods = self._pods_of[key]
            assert uid in pods, f"{uid} does not wait for claim {key}"
            pods.discard(uid)
            if not pods:
                del self._pods_of[key]
            self._drop_unless_held(key)
        self._touched.pop(uid, None)

    def _drop_unless_held(self, key: str) -> None:
        hold = self._holds.get(key)
        if hold is not None and not hold.written and hold.pod not in self._users:
            del self._holds[key]
            self._show(key)

    # ------------------------------------------------------------------------------------ the log
    def _show(self, key: str) -> None:
        row, hold = self._rows.get(key), self._holds.get(key)
        if hold is not None and (row is None or row.allocation is None):
            if row is None:
                namespace, _, name = key.partition("/")
                row = ClaimRow(namespace, name, hold.claim_uid, extended=True)
            row = msgspec.structs.replace(row, allocation=hold.allocation)
        self._publish(CLAIM, key, None if row is None else encode_row(row))

    def validate(self, holders: Iterable[str]) -> None:
        """Assert that holds are pods' that are open, and that no device is promised twice."""
        assert set(self._users) <= set(holders)
        devices: set[tuple[str, str, str]] = set()
        for key, hold in self._holds.items():
            assert hold.written or hold.pod in self._users, f"claim {key} is held by nobody"
            for result in hold.allocation.results:
                device = result.driver, result.pool, result.device
                if not result.admin and not result.share_id:
                    assert device not in devices, f"device {device} is promised twice"
                    devices.add(device)
        for uid, claims in self._users.items():
            assert all(uid in self._pods_of[key] for key in claims)
