"""Storage objects and what pods do with them: the part of the snapshot that volume plugins read.

Objects come with deltas and are decoded once. Pods count by (claim, row) and (disk, row), and what
tentative pods would take is kept as *assumptions*: a claim that is to get a volume, or to be
provisioned on a node. An assumption lasts as long as some tentative pod of the claim is counted,
exactly as kube-scheduler's assume cache lasts until the informer or an undo.

``tick(kind, key)`` says when something last changed, so that a filter can tell whether an answer it
gave still stands. Changes that concern single nodes are noted as changed rows instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from stretto.model.shape import Claim, Disk, Requirement
from stretto.snapshot.changes import ChangeLog
from stretto.snapshot.volume_rows import (
    ATTACHMENT,
    CAPACITY,
    CLAIM,
    CLASS,
    CSI_DRIVER,
    CSI_NODE,
    STORAGE_KINDS,
    VOLUME,
    AttachmentRow,
    CapacityRow,
    ClaimRow,
    ClassRow,
    CsiDriverRow,
    CsiNodeRow,
    VolumeRow,
    decode_storage,
)

POOL = "pool"
"""Tick kind, by class: its volumes, or what is assumed of them."""
CAPACITIES = "capacities"
"""Tick kind, by class: its CSIStorageCapacity objects."""
DiskKey = tuple[str, tuple[str, ...]]
"""What names an inline disk: its kind and ident."""


class Assumption(msgspec.Struct):
    """What tentative pods would do to a claim."""

    volume: str
    """The volume it gets; empty: it is to be provisioned."""
    node: str
    """The node to provision on; empty for a volume."""
    pods: int = 1


class Untouched(NamedTuple):
    """A claim without a volume that no pod on a node, volume or assumption knows of, but for its
    name: two of them are alike."""

    storage_class: str
    size: int
    access_modes: tuple[str, ...]
    volume_mode: str
    attributes_class: str
    selector: tuple[Requirement, ...] | None
    owner_uid: str


class VolumeBook:
    """See the module docstring."""

    def __init__(
        self, *, changes: ChangeLog[int], row_of_name: Callable[[str], int | None]
    ) -> None:
        self.volumes: dict[str, VolumeRow] = {}
        self.claims: dict[str, ClaimRow] = {}
        self.classes: dict[str, ClassRow] = {}
        self.nodes: dict[str, CsiNodeRow] = {}
        """By node name."""
        self.drivers: dict[str, CsiDriverRow] = {}
        self.capacities: dict[str, CapacityRow] = {}
        self.attachments: dict[str, AttachmentRow] = {}
        self.attached: dict[str, dict[str, AttachmentRow]] = {}
        """Node name → attachments by key."""
        self.prebound: dict[str, dict[str, None]] = {}
        """Claim key → volumes whose claimRef names it."""
        self.assumed: dict[str, Assumption] = {}
        """By claim key."""
        self.taken: dict[str, str] = {}
        """Volume → the claim it is assumed for."""
        self.disks: dict[DiskKey, dict[int, tuple[Disk, ...]]] = {}
        """What names a disk → row → the disks that its pods have by that name."""
        self.volume_changed: Callable[[str, VolumeRow | None, VolumeRow | None], None] | None = None
        """Told (name, before, after) of each change to a volume, assumptions included."""
        self.row_changes = ChangeLog[int]()
        """Rows whose volumes, attachments or limits changed."""
        self._changes = changes
        self._row_of_name = row_of_name
        self._uses: dict[str, dict[int, int]] = {}
        """Claim key → row → pods; generic ephemeral volumes too."""
        self._exclusive: dict[str, int] = {}
        """Claim key → pods that name it, without generic ephemeral volumes."""
        self._on_row: dict[int, dict[tuple[str, Claim], int]] = {}
        self._disks_on: dict[int, dict[Disk, int]] = {}
        self.plans: dict[int, dict[bytes, list[tuple[str, ...]]]] = {}
        """Row → shape's digest → claims that its tentative pods hold assumptions of."""
        self._ticks: dict[tuple[str, str], int] = {}
        self._tick = 0

    # ------------------------------------------------------------------------------------ reading
    def tick(self, kind: str, key: str) -> int:
        """When the thing last changed; 0: never yet."""
        return self._ticks.get((kind, key), 0)

    def state(self, key: str) -> Untouched | int:
        """All there is to know of a claim as a value to compare: what it asks for while nobody has
        touched it, else when it last changed."""
        claim = self.claims.get(key)
        if (
            claim is None or claim.volume_name or claim.lost or claim.deleting
            or claim.selected_node is not None or key in self._uses or key in self.assumed
            or key in self.prebound
        ):  # fmt: skip
            return self.tick(CLAIM, key)
        return Untouched(
            claim.storage_class, claim.size, claim.access_modes, claim.volume_mode,
            claim.attributes_class, claim.selector, claim.owner_uid,
        )  # fmt: skip

    def uses(self, key: str) -> int:
        """Pods that name the claim in their spec, wherever they are."""
        return self._exclusive.get(key, 0)

    def claims_on(self, row: int) -> Mapping[tuple[str, Claim], int]:
        """(namespace, claim) of the pods of a row, with how many pods."""
        return self._on_row.get(row, {})

    def disks_on(self, row: int) -> Mapping[Disk, int]:
        """Inline disks of the pods of a row, with how many pods."""
        return self._disks_on.get(row, {})

    def selected_node(self, claim: ClaimRow) -> str | None:
        """The node that the claim's volume is (assumed to be) made for."""
        assumption = self.assumed.get(claim.key)
        if assumption is not None and assumption.node:
            return assumption.node
        return claim.selected_node

    def assumption(self, key: str) -> tuple[str, str] | None:
        """(volume, node) that tentative pods would give a claim."""
        found = self.assumed.get(key)
        return None if found is None else (found.volume, found.node)

    def holder(self, volume: VolumeRow) -> str:
        """The claim that (is assumed to) have a volume, as its key; empty: none."""
        taken = self.taken.get(volume.name)
        if taken is not None:
            return taken
        return "" if volume.claim is None else volume.claim.key

    @property
    def empty(self) -> bool:
        """No storage object is known."""
        return not self._ticks

    # ----------------------------------------------------------------------------------- changing
    def put(self, kind: str, key: str, payload: bytes | None) -> None:
        """An object of one of :data:`STORAGE_KINDS` is so now; None: it is gone."""
        assert kind in STORAGE_KINDS
        row = None if payload is None else decode_storage(kind, payload)
        if kind == VOLUME:
            self._put_volume(key, row)
        elif kind == CLAIM:
            self._replace(self.claims, key, row)
            self._note_claim(key)
        elif kind == CLASS:
            self._replace(self.classes, key, row)
        elif kind == CSI_NODE:
            self._replace(self.nodes, key, row)
            self._note_node(key)
        elif kind == CSI_DRIVER:
            self._replace(self.drivers, key, row)
        elif kind == CAPACITY:
            before = self._replace(self.capacities, key, row)
            for each in (before, row):
                if each is not None:
                    self._touch(CAPACITIES, each.storage_class)
        elif kind == ATTACHMENT:
            self._put_attachment(key, row)
        self._touch(kind, key)

    def _replace(self, rows: dict[str, Any], key: str, row: Any) -> Any:
        before = rows.get(key)
        if row is None:
            rows.pop(key, None)
        else:
            rows[key] = row
        return before

    def _put_volume(self, name: str, row: VolumeRow | None) -> None:
        before: VolumeRow | None = self._replace(self.volumes, name, row)
        if before is not None and before.claim is not None:
            names = self.prebound[before.claim.key]
            del names[name]
            if not names:
                del self.prebound[before.claim.key]
        if row is not None and row.claim is not None:
            self.prebound.setdefault(row.claim.key, {})[name] = None
        for each in (before, row):
            if each is not None and each.claim is not None:
                self._note_claim(each.claim.key)
        self._tell_volume(name, before, row)

    def _tell_volume(self, name: str, before: VolumeRow | None, after: VolumeRow | None) -> None:
        for each in (before, after):
            if each is not None:
                self._touch(POOL, each.storage_class)
        if self.volume_changed is not None:
            self.volume_changed(name, before, after)

    def _put_attachment(self, key: str, row: AttachmentRow | None) -> None:
        before: AttachmentRow | None = self._replace(self.attachments, key, row)
        if before is not None:
            there = self.attached[before.node]
            del there[key]
            if not there:
                del self.attached[before.node]
            self._note_node(before.node)
        if row is not None:
            self.attached.setdefault(row.node, {})[key] = row
            self._note_node(row.node)

    def _note_node(self, name: str) -> None:
        row = self._row_of_name(name)
        if row is not None:
            self._changes.note(row)
            self.row_changes.note(row)

    def _note_claim(self, key: str) -> None:
        """What the claim's pods occupy on their nodes may be counted otherwise now."""
        for row in self._uses.get(key, ()):
            self._changes.note(row)
            self.row_changes.note(row)

    def _touch(self, kind: str, key: str) -> None:
        self._tick += 1
        self._ticks[kind, key] = self._tick

    # --------------------------------------------------------------------------------------- pods
    def shift(
        self, row: int, namespace: str, claims: tuple[Claim, ...], disks: tuple[Disk, ...], by: int
    ) -> None:
        """Count ``by`` more (or fewer) pods with these volumes on a row; the caller notes it."""
        for claim in claims:
            self._shift_claim(row, namespace, claim, by)
        if disks:
            self._shift_disks(row, disks, by)
        self.row_changes.note(row)

    def _shift_disks(self, row: int, disks: Iterable[Disk], by: int) -> None:
        on_row = self._disks_on.setdefault(row, {})
        for disk in disks:
            before = on_row.get(disk, 0)
            if before + by > 0:
                on_row[disk] = before + by
                if not before:
                    rows = self.disks.setdefault((disk.kind, disk.ident), {})
                    rows[row] = (*rows.get(row, ()), disk)
            elif before:
                del on_row[disk]
                self._drop_disk(row, disk)
        if not on_row:
            del self._disks_on[row]

    def _drop_disk(self, row: int, disk: Disk) -> None:
        rows = self.disks[disk.kind, disk.ident]
        left = tuple(other for other in rows.pop(row) if other != disk)
        if left:
            rows[row] = left
        elif not rows:
            del self.disks[disk.kind, disk.ident]

    def _shift_claim(self, row: int, namespace: str, claim: Claim, by: int) -> None:
        key = f"{namespace}/{claim.name}"
        rows = self._uses.setdefault(key, {})
        _count(rows, row, by)
        if not rows:
            del self._uses[key]
        on_row = self._on_row.setdefault(row, {})
        _count(on_row, (namespace, claim), by)
        if not on_row:
            del self._on_row[row]
        if not claim.pod:
            _count(self._exclusive, key, by)

    def clear(self, row: int) -> None:
        """Forget the pods of a row."""
        self.row_changes.note(row)
        for (namespace, claim), count in list(self._on_row.get(row, {}).items()):
            self._shift_claim(row, namespace, claim, -count)
        for disk in self._disks_on.pop(row, {}):
            self._drop_disk(row, disk)
        for plans in self.plans.pop(row, {}).values():
            for claims in plans:
                for key in claims:
                    self.forget(key)

    # -------------------------------------------------------------------------------- assumptions
    def assume(self, key: str, *, volume: str = "", node: str = "") -> None:
        """A tentative pod would give the claim this volume, or have it provisioned on this node.

        If it is assumed already, the first pod's choice stands and one more pod holds it.
        """
        known = self.assumed.get(key)
        if known is not None:
            known.pods += 1
            return
        self.assumed[key] = Assumption(volume, node)
        self._touch(CLAIM, key)
        if volume:
            self.taken[volume] = key
            self._tell_taken(volume)

    def forget(self, key: str) -> None:
        """One pod fewer holds what is assumed of a claim."""
        known = self.assumed.get(key)
        assert known is not None, f"nothing is assumed of claim {key}"
        known.pods -= 1
        if known.pods:
            return
        del self.assumed[key]
        self._touch(CLAIM, key)
        if known.volume:
            del self.taken[known.volume]
            self._tell_taken(known.volume)

    def _tell_taken(self, volume: str) -> None:
        row = self.volumes.get(volume)
        self._tell_volume(volume, row, row)

    def validate(self) -> None:
        """Assert that the indexes agree with the objects and with each other."""
        claims = {row.claim.key for row in self.volumes.values() if row.claim is not None}
        assert claims == set(self.prebound)
        held = {a.volume: key for key, a in self.assumed.items() if a.volume}
        assert held == self.taken
        assert sum(map(len, self.attached.values())) == len(self.attachments)
        counted: dict[str, dict[int, int]] = {}
        for row, there in self._on_row.items():
            for (namespace, claim), count in there.items():
                rows = counted.setdefault(f"{namespace}/{claim.name}", {})
                rows[row] = rows.get(row, 0) + count
        assert counted == self._uses
        named = [(row, d) for rows in self.disks.values() for row, ds in rows.items() for d in ds]
        assert len(named) == len(set(named))
        assert set(named) == {(row, d) for row, there in self._disks_on.items() for d in there}


def _count(counts: dict[Any, int], key: Any, by: int) -> None:
    left = counts.get(key, 0) + by
    if left > 0:
        counts[key] = left
    else:
        counts.pop(key, None)
