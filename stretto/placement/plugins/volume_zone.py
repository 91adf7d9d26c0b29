"""VolumeZone: a bound volume with zone or region labels is reached from nodes with these labels.

Wakes on: a new class, a claim or volume added or changed, a node added or relabelled.
"""

from __future__ import annotations

import numpy as np

from stretto.model.csi_migration import BETA_REGION, BETA_ZONE, GA_REGION, GA_ZONE
from stretto.model.shape import Shape
from stretto.model.unit import Cause
from stretto.placement.framework import Bools, Code, Filter, Plugin, Status, View
from stretto.placement.plugins.volume_restrictions import not_found
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.volume_rows import VOLUME, ZONE_LABELS, ClaimRow
from stretto.snapshot.volumes import VolumeBook

NAME = "VolumeZone"
_NEWER = {BETA_ZONE: GA_ZONE, BETA_REGION: GA_REGION}
Zones = list[tuple[str, tuple[str, ...]]]


class VolumeZoneFilter(Filter):
    """Rows whose zone and region labels are among those of every bound volume."""

    name = NAME
    reason = "node(s) had no available volume zone"
    cause = Cause.VOLUMES

    def __init__(self, shape: Shape, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.bind(shape)

    def bind(self, shape: Shape) -> None:
        """Claims are read by name."""
        self._keys = [f"{shape.namespace}/{claim.name}" for claim in shape.claims if not claim.pod]

    def version(self) -> object:
        """The claims and their volumes."""
        book = self._snapshot.volumes
        found = []
        for key in self._keys:
            claim = book.claims.get(key)
            volume = "" if claim is None else claim.volume_name
            found.append((book.state(key), book.tick(VOLUME, volume) if volume else 0))
        return found

    def _zones(self) -> Zones:
        book = self._snapshot.volumes
        claims = (book.claims.get(key) for key in self._keys)
        names = [claim.volume_name for claim in claims if claim is not None]
        return [pair for name in names if name in book.volumes for pair in book.volumes[name].zones]

    def passes(self, view: View) -> Bools | None:
        """bool[view.size]; a node without any such label passes."""
        zones = self._zones()
        if not zones:
            return None
        columns = {key: self._snapshot.label_column(key) for key in ZONE_LABELS}
        some = np.zeros(view.size, dtype=np.bool_)
        for column in columns.values():
            some |= view.of(column.ids) != 0
        passes = np.ones(view.size, dtype=np.bool_)
        for key, values in zones:
            ids = view.of(columns[key].ids)
            met = np.isin(ids, [columns[key].id_of(value) for value in values])
            newer = _NEWER.get(key)
            if newer is not None:
                other = np.isin(
                    view.of(columns[newer].ids), [columns[newer].id_of(v) for v in values]
                )
                met = np.where(ids != 0, met, other)
            passes &= met
        return passes | ~some

    def passes_row(self, row: int) -> bool:
        """The same for one row."""
        passes = self.passes(View(self._snapshot, np.array([row], dtype=np.int64)))
        return passes is None or bool(passes[0])


class VolumeZone(Plugin):
    """PreFilter and filter."""

    name = NAME
    static = False

    def has_prefilter(self, shape: Shape) -> bool:
        """Pods with claims."""
        return any(not claim.pod for claim in shape.claims)

    def prefilter(self, shape: Shape, snapshot: Snapshot) -> Status | None:
        """A claim, volume or class that does not exist, or a claim that should be bound."""
        book = snapshot.volumes
        for claim in shape.claims:
            if claim.pod:
                continue
            row = book.claims.get(f"{shape.namespace}/{claim.name}")
            text = not_found(claim.name) if row is None else _problem(row, book)
            if text:
                return Status(Code.UNRESOLVABLE, NAME, (text,))
        return None

    def filter(self, shape: Shape, snapshot: Snapshot) -> Filter | None:
        """None for pods without claims."""
        return VolumeZoneFilter(shape, snapshot) if self.has_prefilter(shape) else None


def _problem(claim: ClaimRow, book: VolumeBook) -> str:
    if claim.volume_name:
        known = claim.volume_name in book.volumes
        return "" if known else f'persistentvolume "{claim.volume_name}" not found'
    if not claim.storage_class:
        return "PersistentVolumeClaim had no pv name and storageClass name"
    storage_class = book.classes.get(claim.storage_class)
    if storage_class is None:
        return f'storageclass.storage.k8s.io "{claim.storage_class}" not found'
    if not storage_class.mode:
        return f'VolumeBindingMode not set for StorageClass "{claim.storage_class}"'
    return "" if storage_class.waits else "PersistentVolume had no name"
