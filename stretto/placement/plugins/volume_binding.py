"""VolumeBinding: bound volumes that the node reaches, free volumes for claims that wait for a
consumer, or room to provision them.

Wakes on: a class added or changed, a claim or volume added or changed, a node added or relabelled,
a CSINode added or changed, a CSIDriver changed, a CSIStorageCapacity added or larger.
"""

from __future__ import annotations

from typing import NamedTuple

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
from stretto.snapshot.volume_rows import CLASS, CSI_DRIVER, VOLUME
from stretto.snapshot.volumes import CAPACITIES, POOL

NAME = "VolumeBinding"
NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"
NOT_ENOUGH_SPACE = "node(s) did not have enough free storage"
VOLUME_MISSING = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
EXACT = 1 << 46
"""Up to this many bytes a percentage may be computed in doubles."""
IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"


def dependencies(shape: Shape, snapshot: Snapshot) -> list[object]:
    """States and ticks of everything that the plugin reads for a shape, beside the rows."""
    book = snapshot.volumes
    found: list[object] = []
    for claim in shape.claims:
        key = f"{shape.namespace}/{claim.name}"
        found.append(book.state(key))
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

    def bind(self, shape: Shape) -> None:
        """Claims are read by name."""
        self._shape = shape

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

    def bind(self, shape: Shape) -> None:
        """Claims are read by name."""
        self._shape = shape

    def raw(self, view: View) -> Int64s | None:
        """int64[view.size]; where a claim gets an existing volume, only such claims count."""
        found = Outlook(self._shape, self._snapshot, view)
        existing = [
            _Part(s.claim.storage_class, s.static, max(s.claim.size, 0), s.capacity)
            for s in found.served
            if s.static.any()
        ]
        made = [
            _Part(p.claim.storage_class, p.rows, p.claim.size, p.free, shared=True)
            for p in found.provisions
            if p.free is not None
        ]
        if not existing and not made:
            return None
        if not made:
            return self._mean(existing, view)
        dynamic = self._mean(made, view)
        if not existing:
            return dynamic
        some = np.logical_or.reduce([part.rows for part in existing])
        return np.where(some, self._mean(existing, view), dynamic)

    def raw_row(self, row: int) -> int:
        """The same for one row."""
        found = self.raw(View(self._snapshot, np.array([row], dtype=np.int64)))
        return 0 if found is None else int(found[0])

    def _mean(self, parts: list[_Part], view: View) -> Int64s:
        """The mean over the classes that are present on a row, rounded half up."""
        if len(parts) == 1:
            return self._score(parts[0].size, parts[0].capacity, parts[0].rows)
        total = np.zeros(view.size, dtype=np.int64)
        count = np.zeros(view.size, dtype=np.int64)
        for name in dict.fromkeys(part.storage_class for part in parts):
            requested, capacity = np.zeros((2, view.size), dtype=np.int64)
            present = np.zeros(view.size, dtype=np.bool_)
            for part in parts:
                if part.storage_class != name:
                    continue
                requested[part.rows] += part.size
                # Storage that volumes are made from is one, so the last claim's free bytes count.
                kept = 0 if part.shared else capacity
                capacity = np.where(part.rows, kept + part.capacity, capacity)
                present |= part.rows
            total += self._score(requested, capacity, present)
            count += present
        count = np.maximum(count, 1)
        mean: Int64s = (2 * total + count) // (2 * count)
        return mean

    def _score(self, requested: Int64s | int, capacity: Int64s, rows: Bools) -> Int64s:
        """By how full it would be, in percent; 0 outside ``rows``."""
        held = np.where(rows, np.maximum(np.maximum(capacity, requested), 1), 1)
        exact = int(np.max(requested)) <= EXACT
        if exact:  # a quotient of doubles below 2^53 is the integer one
            percent = (np.multiply(requested, MAX_SCORE) / held).astype(np.int64)
        else:
            percent = np.multiply(requested, MAX_SCORE) // held
        percent = np.where(capacity < np.maximum(requested, 1), MAX_SCORE, percent)
        score: Int64s = np.where(rows, self._table[np.where(rows, percent, 0)], 0)
        return score


class _Part(NamedTuple):
    """A claim on the rows where it counts: what it asks for and what is there."""

    storage_class: str
    rows: Bools
    size: int
    capacity: Int64s
    shared: bool = False
    """All claims of the class draw on the same bytes."""


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
        if not shape.claims:
            return
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
        if not shape.claims:
            return
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
