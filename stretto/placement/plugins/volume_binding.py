"""VolumeBinding: bound volumes that the node reaches, free volumes for claims that wait for a
consumer, or room to provision them.

Wakes on: a class added or changed, a claim or volume added or changed, a node added or relabelled,
a CSINode added or changed, a CSIDriver changed, a CSIStorageCapacity added or larger.
"""

from __future__ import annotations

import numpy as np

from stretto.model.shape import Shape
from stretto.model.unit import Cause
from stretto.placement.claim_args import VolumeArgs
from stretto.placement.framework import (
    MAX_SCORE,
    Bools,
    Code,
    Filter,
    Int64s,
    Plugin,
    Rejection,
    Scorer,
    Status,
    View,
)
from stretto.placement.plugins.volume_restrictions import not_found
from stretto.placement.resource_scoring import Strategy, StrategyType
from stretto.placement.volume_plan import NO_SPACE, NO_VOLUME, Outlook, claims_of, plan
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.volume_rows import CLAIM, CLASS, CSI_DRIVER, VOLUME
from stretto.snapshot.volumes import CAPACITIES, POOL

NAME = "VolumeBinding"
NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"
NOT_ENOUGH_SPACE = "node(s) did not have enough free storage"
VOLUME_MISSING = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"


def dependencies(shape: Shape, snapshot: Snapshot) -> list[int]:
    """Ticks of everything that the plugin reads for a shape, beside the rows."""
    book = snapshot.volumes
    found: list[int] = []
    for claim in shape.claims:
        key = f"{shape.namespace}/{claim.name}"
        found.append(book.tick(CLAIM, key))
        row = book.claims.get(key)
        if row is None:
            continue
        if row.volume_name:
            found.append(book.tick(VOLUME, row.volume_name))
        else:
            name = row.storage_class
            found += [book.tick(kind, name) for kind in (CLASS, POOL, CAPACITIES)]
            storage_class = book.classes.get(name)
            if storage_class is not None:
                found.append(book.tick(CSI_DRIVER, storage_class.provisioner))
    return found


class VolumeBindingFilter(Filter):
    """Rows where every claim of the shape is, or can be, served."""

    name = NAME
    cause = Cause.VOLUMES
    spans = True

    def __init__(self, shape: Shape, snapshot: Snapshot) -> None:
        self._shape = shape
        self._snapshot = snapshot

    def version(self) -> object:
        """Claims, volumes, classes, capacities."""
        return dependencies(self._shape, self._snapshot)

    def passes(self, view: View) -> Bools | None:
        """bool[view.size]."""
        return Outlook(self._shape, self._snapshot, view).passes

    def passes_row(self, row: int) -> bool:
        """The same for one row."""
        view = View(self._snapshot, np.array([row], dtype=np.int64))
        return bool(Outlook(self._shape, self._snapshot, view).passes[0])

    def rejections(self, view: View) -> list[Rejection]:
        """A row may have several reasons."""
        found = Outlook(self._shape, self._snapshot, view)
        reasons = (
            (NODE_CONFLICT, found.bound_elsewhere),
            (BIND_CONFLICT, found.state == NO_VOLUME),
            (NOT_ENOUGH_SPACE, found.state == NO_SPACE),
            (VOLUME_MISSING, found.volume_missing),
        )
        return [Rejection(reason, rows, unresolvable=True) for reason, rows in reasons]


class VolumeBindingScorer(Scorer):
    """How full the volumes would be, or the storage that they are made from, by class."""

    name = NAME

    def __init__(self, shape: Shape, snapshot: Snapshot, table: Int64s) -> None:
        self._shape = shape
        self._snapshot = snapshot
        self._table = table

    def raw(self, view: View) -> Int64s:
        """int64[view.size]; where a claim gets an existing volume, only such claims count."""
        found = Outlook(self._shape, self._snapshot, view)
        static: dict[str, tuple[Int64s, Int64s]] = {}
        for served in found.served:
            size = np.where(served.static, max(served.claim.size, 0), 0)
            capacity = np.where(served.static, served.capacity, 0)
            _add(static, served.claim.storage_class, size, capacity)
        some = np.zeros(view.size, dtype=np.bool_)
        for served in found.served:
            some |= served.static
        dynamic: dict[str, tuple[Int64s, Int64s]] = {}
        for provision in found.provisions:
            if provision.free is not None:
                _fill(dynamic, provision.claim.storage_class, provision.claim.size,
                      provision.rows, provision.free)  # fmt: skip
        present = {
            name: np.logical_or.reduce(
                [s.static for s in found.served if s.claim.storage_class == name]
            )
            for name in static
        }
        provisioned = {
            name: np.logical_or.reduce(
                [
                    p.rows
                    for p in found.provisions
                    if p.claim.storage_class == name and p.free is not None
                ]
            )
            for name in dynamic
        }
        return np.where(
            some, self._mean(static, present, view), self._mean(dynamic, provisioned, view)
        )

    def raw_row(self, row: int) -> int:
        """The same for one row."""
        return int(self.raw(View(self._snapshot, np.array([row], dtype=np.int64)))[0])

    def _mean(
        self, classes: dict[str, tuple[Int64s, Int64s]], present: dict[str, Bools], view: View
    ) -> Int64s:
        """The mean over the classes that are present on a row, rounded half up."""
        total = np.zeros(view.size, dtype=np.int64)
        count = np.zeros(view.size, dtype=np.int64)
        for name, (requested, capacity) in classes.items():
            full = (capacity == 0) | (requested > capacity)
            percent = requested * MAX_SCORE // np.where(capacity == 0, 1, capacity)
            score = self._table[np.where(full, MAX_SCORE, percent)]
            total += np.where(present[name], score, 0)
            count += present[name]
        count = np.maximum(count, 1)
        return (2 * total + count) // (2 * count)


def _add(
    classes: dict[str, tuple[Int64s, Int64s]], name: str, size: Int64s, capacity: Int64s
) -> None:
    before = classes.get(name)
    classes[name] = (size, capacity) if before is None else (before[0] + size, before[1] + capacity)


def _fill(
    classes: dict[str, tuple[Int64s, Int64s]], name: str, size: int, rows: Bools, free: Int64s
) -> None:
    """Sizes add up; the storage is one, so the last claim's free bytes count (as upstream)."""
    zero = np.zeros(len(rows), dtype=np.int64)
    requested, capacity = classes.get(name, (zero, zero))
    classes[name] = requested + np.where(rows, size, 0), np.where(rows, free, capacity)


class VolumeBinding(Plugin):
    """PreFilter, filter and score."""

    name = NAME
    static = False

    def __init__(self, args: VolumeArgs) -> None:
        self.args = args
        strategy = Strategy(StrategyType.RATIO, args.shape)
        self._table: Int64s = np.array(strategy.table(), dtype=np.int64)

    def has_prefilter(self, shape: Shape) -> bool:
        """Pods with claims."""
        return bool(shape.claims)

    def prefilter(self, shape: Shape, snapshot: Snapshot) -> Status | None:
        """A claim that is lost, being deleted, somebody else's, or waits for its volume."""
        for claim in shape.claims:
            row = snapshot.volumes.claims.get(f"{shape.namespace}/{claim.name}")
            text = ""
            if row is None and claim.pod:
                text = (
                    "waiting for ephemeral volume controller to create the "
                    f'persistentvolumeclaim "{claim.name}"'
                )
            elif row is None:
                text = not_found(claim.name)
            elif row.lost:
                text = (
                    f'persistentvolumeclaim "{claim.name}" bound to non-existent '
                    f'persistentvolume "{row.volume_name}"'
                )
            elif row.deleting:
                text = f'persistentvolumeclaim "{claim.name}" is being deleted'
            elif claim.pod and row.owner_uid != claim.pod_uid:
                text = (
                    f"PVC {row.key} was not created for pod {shape.namespace}/{claim.pod} "
                    "(pod is not owner)"
                )
            if text:
                return Status(Code.UNRESOLVABLE, NAME, (text,))
        if claims_of(shape, snapshot).immediate:
            return Status(Code.UNRESOLVABLE, NAME, (IMMEDIATE,))
        return None

    def filter(self, shape: Shape, snapshot: Snapshot) -> Filter | None:
        """None for pods without claims."""
        return VolumeBindingFilter(shape, snapshot) if shape.claims else None

    def assume(self, shape: Shape, row: int, snapshot: Snapshot) -> None:
        """Volumes are taken, and nodes selected, for the claims that wait."""
        book = snapshot.volumes
        found = plan(shape, row, snapshot)
        for key, volume in found.static:
            book.assume(key, volume=volume)
        for key in found.provision:
            book.assume(key, node=snapshot.name[row])
        claims = (*(key for key, _ in found.static), *found.provision)
        book.plans.setdefault(row, {}).setdefault(shape.digest, []).append(claims)

    def forget(self, shape: Shape, row: int, snapshot: Snapshot) -> None:
        """They are free again, unless another tentative pod has the same claims."""
        book = snapshot.volumes
        plans = book.plans[row]
        for key in plans[shape.digest].pop():
            book.forget(key)
        if not plans[shape.digest]:
            del plans[shape.digest]
            if not plans:
                del book.plans[row]

    def scorer(self, shape: Shape, snapshot: Snapshot) -> Scorer | None:
        """None for pods without claims."""
        return VolumeBindingScorer(shape, snapshot, self._table) if shape.claims else None
