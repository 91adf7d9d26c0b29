"""Storage objects as the API has them, and what reserved pods are about to do to them.

Between a commit and the writes that follow it, a volume that is promised to a claim looks free in
the API, and a claim that is to be provisioned looks undecided. So a commit *holds* the claims of
its pod, and the log carries what the objects will be: the volume with its claimRef, the claim with
its selected node (kube-scheduler's assume cache does the same for one process; the log does it for
all shards). When the API shows it itself, the two are equal and nothing more is published; when a
hold is given up before, the log says again what the API says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from stretto.placement.volume_plan import VolumePlan
from stretto.snapshot.volume_rows import (
    CLAIM,
    VOLUME,
    ClaimOfVolume,
    ClaimRow,
    VolumeRow,
    decode_storage,
    encode_storage,
)

HELD_KINDS = (VOLUME, CLAIM)


class Hold(msgspec.Struct):
    """What is promised to a claim."""

    volume: str
    """The volume it gets; empty: it is provisioned."""
    node: str
    """The node it is provisioned on; empty for a volume."""
    pods: set[str] = msgspec.field(default_factory=set)
    shown: bool = False
    """The API has shown it, be it for a moment between two looks."""


class Storage:
    """See the module docstring. ``publish`` writes (kind, key, payload or None) into the log."""

    def __init__(self, publish: Callable[[str, str, bytes | None], None]) -> None:
        self._publish = publish
        self._rows: dict[tuple[str, str], Any] = {}
        self._holds: dict[str, Hold] = {}
        """By claim key."""
        self._promised: dict[str, str] = {}
        """Volume → the claim that it is held for."""
        self._claims_of: dict[str, tuple[str, ...]] = {}
        """Pod uid → claims that it holds."""
        self._touched: dict[str, None] = {}
        self._volumes_touched: dict[str, None] = {}

    # ------------------------------------------------------------------------------------ the API
    def seen(self, kind: str, key: str, payload: bytes | None) -> None:
        """A volume or a claim is so in the API; None: it is gone."""
        if payload is None:
            before = self._rows.pop((kind, key), None)
        else:
            before = self._rows.get((kind, key))
            self._rows[kind, key] = decode_storage(kind, payload)
        self._note_shown(kind, key)
        self._show(kind, key)
        if kind == VOLUME:
            self._volumes_touched[key] = None
        for claim in self._claims_with(kind, key, before):
            hold = self._holds.get(claim)
            self._touched.update(dict.fromkeys(hold.pods if hold is not None else ()))

    def _note_shown(self, kind: str, key: str) -> None:
        claim = self._promised.get(key, "") if kind == VOLUME else key
        hold, owner = self._holds.get(claim), self.claim(claim)
        if hold is None or owner is None:
            return
        if kind == VOLUME:
            volume = self.volume(key)
            ref = None if volume is None else volume.claim
            hold.shown = hold.shown or (ref is not None and ref.uid == owner.uid)
        elif hold.node:
            hold.shown = hold.shown or owner.selected_node == hold.node

    def shown(self, claim: str) -> bool:
        """Whether the API has ever shown what is promised to a claim."""
        hold = self._holds.get(claim)
        return hold is not None and hold.shown

    def claim(self, key: str) -> ClaimRow | None:
        """A claim as the API has it."""
        row: ClaimRow | None = self._rows.get((CLAIM, key))
        return row

    def volume(self, name: str) -> VolumeRow | None:
        """A volume as the API has it."""
        row: VolumeRow | None = self._rows.get((VOLUME, name))
        return row

    def take_touched(self) -> list[str]:
        """Pods that hold something of which the API has said something new since the last call."""
        touched, self._touched = self._touched, {}
        return list(touched)

    def take_touched_volumes(self) -> list[str]:
        """Volumes of which the API has said something new since the last call, by name."""
        touched, self._volumes_touched = self._volumes_touched, {}
        return list(touched)

    def promised(self, claim: str) -> tuple[str, str] | None:
        """(volume, node) that a claim is to get; None: nothing is promised to it."""
        hold = self._holds.get(claim)
        return None if hold is None else (hold.volume, hold.node)

    def _claims_with(self, kind: str, key: str, before: Any) -> Iterable[str]:
        if kind == CLAIM:
            return (key,)
        rows = (before, self.volume(key))
        claims = {row.claim.key for row in rows if row is not None and row.claim is not None}
        return claims | ({self._promised[key]} if key in self._promised else set())

    # -------------------------------------------------------------------------------------- holds
    def hold(self, uid: str, plan: VolumePlan, *, node: str) -> None:
        """A pod was reserved on a node with this plan."""
        assert uid not in self._claims_of, f"{uid} holds claims already"
        for claim, volume in plan.static:
            self._hold(uid, claim, volume=volume, node="")
        for claim in plan.provision:
            self._hold(uid, claim, volume="", node=node)
        self._claims_of[uid] = (*(claim for claim, _ in plan.static), *plan.provision)

    def _hold(self, uid: str, claim: str, *, volume: str, node: str) -> None:
        hold = self._holds.setdefault(claim, Hold(volume, node))
        assert (hold.volume, hold.node) == (volume, node), f"claim {claim} is promised otherwise"
        hold.pods.add(uid)
        assert bool(volume) != bool(node), f"claim {claim} gets a volume, or a place for one"
        if volume:
            assert self._promised.setdefault(volume, claim) == claim, f"{volume} promised twice"
        self._show(VOLUME, volume) if volume else self._show(CLAIM, claim)

    def release(self, uid: str) -> None:
        """A pod is bound, or its reservation is over."""
        for claim in self._claims_of.pop(uid, ()):
            hold = self._holds[claim]
            assert uid in hold.pods, f"{uid} does not hold claim {claim}"
            hold.pods.discard(uid)
            if not hold.pods:
                del self._holds[claim]
                assert not hold.volume or self._promised.get(hold.volume) == claim
                self._promised.pop(hold.volume, None)
                self._show(VOLUME, hold.volume) if hold.volume else self._show(CLAIM, claim)
        self._touched.pop(uid, None)

    def held_by_others(self, uid: str, claim: str) -> bool:
        """Whether another pod holds the claim too."""
        hold = self._holds.get(claim)
        return hold is not None and bool(hold.pods - {uid})

    # ------------------------------------------------------------------------------------ the log
    def _show(self, kind: str, key: str) -> None:
        row = self._rows.get((kind, key))
        if row is not None and kind == CLAIM:
            row = self._with_node(row)
        elif row is not None:
            row = self._with_claim(row)
        self._publish(kind, key, None if row is None else encode_storage(row))

    def _with_node(self, claim: ClaimRow) -> ClaimRow:
        hold = self._holds.get(claim.key)
        if hold is None or not hold.node or claim.volume_name:
            return claim
        return msgspec.structs.replace(claim, selected_node=hold.node)

    def _with_claim(self, volume: VolumeRow) -> VolumeRow:
        if volume.claim is not None and volume.claim.uid:
            return volume
        key = self._promised.get(volume.name)
        if key is None:
            return volume
        claim = self.claim(key)
        namespace, _, name = key.partition("/")
        ref = ClaimOfVolume(namespace, name, "" if claim is None else claim.uid)
        return msgspec.structs.replace(volume, claim=ref)

    def validate(self, holders: Iterable[str]) -> None:
        """Assert that holds are pods' that are open, and that no volume is promised twice."""
        assert set(self._claims_of) <= set(holders)
        pods = {uid for hold in self._holds.values() for uid in hold.pods}
        assert pods == {uid for uid, claims in self._claims_of.items() if claims}
        promised = {hold.volume: key for key, hold in self._holds.items() if hold.volume}
        assert promised == self._promised
