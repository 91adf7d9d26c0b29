"""VolumeRestrictions: a disk that one node may mount for one pod only, and claims that one pod may
use only (ReadWriteOncePod).

Wakes on: a pod that leaves (it had the disk or the claim), a new node, a new claim.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import numpy as np

from stretto.model.shape import Disk, Shape
from stretto.model.unit import Cause
from stretto.placement.framework import Bools, Code, Filter, Plugin, Rejection, Status, View
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.volumes import DiskKey

NAME = "VolumeRestrictions"
NO_DISK = "node(s) had no available disk"
IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
    "already in-use by another pod"
)
ONE_POD = "ReadWriteOncePod"
_RESTRICTED = frozenset(("gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd"))


def not_found(name: str) -> str:
    """The API's words for a claim that does not exist."""
    return f'persistentvolumeclaim "{name}" not found'


def conflict(disk: Disk, other: Disk) -> bool:
    """Whether two pods on a node may not have these (of one kind and ident)."""
    if disk.kind == "awsElasticBlockStore":
        return True
    if disk.kind == "rbd" and not set(disk.monitors) & set(other.monitors):
        return False
    return not (disk.read_only and other.read_only)


class VolumeRestrictionsFilter(Filter):
    """Rows whose pods have a disk of the shape; every row while an exclusive claim is in use."""

    name = NAME
    reason = NO_DISK
    cause = Cause.VOLUMES
    unresolvable = False
    spans = True

    def __init__(self, shape: Shape, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._of_shape = shape.disks
        self.bind(shape)

    def bind(self, shape: Shape) -> None:
        """Claims are read by name."""
        names = dict.fromkeys(claim.name for claim in shape.claims if not claim.pod)
        self._claims = [f"{shape.namespace}/{name}" for name in names]

    @functools.cached_property
    def _disks(self) -> dict[DiskKey, list[Disk]]:
        found: dict[DiskKey, list[Disk]] = {}
        for disk in self._of_shape:
            if disk.kind in _RESTRICTED:
                found.setdefault((disk.kind, disk.ident), []).append(disk)
        return found

    def version(self) -> object:
        """Who uses the exclusive claims, and which they are."""
        return self._in_use()

    def _in_use(self) -> bool:
        book = self._snapshot.volumes
        for key in self._claims:
            claim = book.claims.get(key)
            if claim is not None and ONE_POD in claim.access_modes and book.uses(key):
                return True
        return False

    def _clashing(self) -> list[int]:
        known, rows = self._snapshot.volumes.disks, set[int]()
        for key in known.keys() & self._disks.keys():
            for row, there in known[key].items():
                if row not in rows and self._clashes(key, there):
                    rows.add(row)
        return list(rows)

    def _clashes(self, key: DiskKey, there: Iterable[Disk]) -> bool:
        return any(conflict(disk, other) for disk in self._disks.get(key, ()) for other in there)

    def _clashes_on(self, row: int) -> bool:
        there = self._snapshot.volumes.disks_on(row)
        return any(self._clashes((disk.kind, disk.ident), (disk,)) for disk in there)

    def _free_disks(self, view: View) -> Bools:
        clashing = self._clashing()
        if view.rows is not None:
            return ~np.isin(view.rows, np.array(clashing, dtype=np.int64))
        passes = np.ones(view.size, dtype=np.bool_)
        passes[clashing] = False
        return passes

    def passes(self, view: View) -> Bools | None:
        """bool[view.size]."""
        if self._in_use():
            return np.zeros(view.size, dtype=np.bool_)
        return self._free_disks(view) if self._disks else None

    def passes_row(self, row: int) -> bool:
        """The same for one row."""
        return not self._in_use() and not self._clashes_on(row)

    def rejections(self, view: View) -> list[Rejection]:
        """A row that has no disk has only that reason."""
        free = self._free_disks(view)
        found = [Rejection(NO_DISK, ~free, unresolvable=False)]
        if self._in_use():
            found.append(Rejection(IN_USE, free, unresolvable=False))
        return found


class VolumeRestrictions(Plugin):
    """PreFilter and filter."""

    name = NAME
    static = False

    def has_prefilter(self, shape: Shape) -> bool:
        """Pods with claims."""
        return bool(shape.claims)

    def prefilter(self, shape: Shape, snapshot: Snapshot) -> Status | None:
        """A claim that does not exist; one of an ephemeral volume is VolumeBinding's business."""
        claims = snapshot.volumes.claims
        for claim in shape.claims:
            if not claim.pod and f"{shape.namespace}/{claim.name}" not in claims:
                return Status(Code.UNRESOLVABLE, NAME, (not_found(claim.name),))
        return None

    def filter(self, shape: Shape, snapshot: Snapshot) -> Filter | None:
        """None for pods without claims and restricted disks."""
        found = VolumeRestrictionsFilter(shape, snapshot)
        return found if shape.claims or any(d.kind in _RESTRICTED for d in shape.disks) else None
