"""Free storage that CSI drivers publish (CSIStorageCapacity), per node, for a volume of a size."""

from __future__ import annotations

import numpy as np

from stretto.placement.framework import Int64s
from stretto.placement.live_mask import terms_of_selector
from stretto.placement.volume_pool import VolumeIndex
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.volume_rows import NONE, CapacityRow
from stretto.snapshot.volumes import CAPACITIES

_KEPT = 64
"""(class, size) pairs whose arrays are kept."""


class Capacities:
    """Arrays by class and size, made anew when an object or a node's labels change."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._made: dict[tuple[str, int], tuple[tuple[int, int], Int64s]] = {}

    @classmethod
    def of(cls, snapshot: Snapshot) -> Capacities:
        """The arrays of a snapshot."""
        found = snapshot.derived.get(("capacities",))
        if not isinstance(found, cls):
            found = snapshot.derived[("capacities",)] = cls(snapshot)
        return found

    def free(self, storage_class: str, size: int) -> Int64s:
        """int64[rows]: free bytes of the storage that a node would take a volume of ``size`` from;
        -1 where none is large enough. Of several the first by key (upstream takes any)."""
        snapshot = self._snapshot
        now = (snapshot.volumes.tick(CAPACITIES, storage_class), snapshot.node_changes.stamp)
        made = self._made.pop((storage_class, size), None)
        if made is None or made[0] != now:
            made = now, self._make(storage_class, size)
            while len(self._made) >= _KEPT:
                del self._made[next(iter(self._made))]
        self._made[storage_class, size] = made
        return made[1]

    def _make(self, storage_class: str, size: int) -> Int64s:
        snapshot = self._snapshot
        free = np.full(snapshot.rows, NONE, dtype=np.int64)
        by_label: dict[str, dict[str, int]] = {}
        objects = snapshot.volumes.capacities
        for key in sorted(objects, reverse=True):
            row = objects[key]
            if row.storage_class != storage_class or not _enough(row, size):
                continue
            label = _one_label(row)
            if label is not None:
                by_label.setdefault(label[0], {})[label[1]] = max(row.capacity, 0)
            else:
                mask = VolumeIndex.of(snapshot).mask(terms_of_selector(row.topology)).get()
                free[mask] = max(row.capacity, 0)
        for label_key, amounts in by_label.items():
            column = snapshot.label_column(label_key)
            table = np.array([amounts.get(v, NONE) for v in column.values], dtype=np.int64)
            table[0] = NONE
            found = table[column.ids[: snapshot.rows]]
            free = np.where(found >= 0, found, free)
        return free


def _enough(row: CapacityRow, size: int) -> bool:
    """The largest volume that can be made decides, where it is known."""
    limit = row.largest if row.largest >= 0 else row.capacity
    return limit >= 0 and limit >= size


def _one_label(row: CapacityRow) -> tuple[str, str] | None:
    """(key, value) of a topology that is one label: one object a node is usual."""
    topology = row.topology
    if topology is None or len(topology) != 1:
        return None
    only = topology[0]
    if only.operator != "In" or len(only.values) != 1 or not only.values[0]:
        return None
    return only.key, only.values[0]
