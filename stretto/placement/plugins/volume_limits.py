"""NodeVolumeLimits: how many volumes of a CSI driver a node takes (CSINode), with those that are
attached still.

Wakes on: a CSINode added or with a higher limit, a pod with volumes that leaves, a new claim, an
attachment that ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from stretto.model.shape import Shape
from stretto.model.unit import Cause
from stretto.placement.attached import Attachable, Attached, attachable_claim, attachable_disk
from stretto.placement.framework import Bools, Filter, Int64s, Plugin, Rejection, View
from stretto.placement.plugins.volume_restrictions import not_found
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.volume_rows import CLASS, CSI_DRIVER, VOLUME

NAME = "NodeVolumeLimits"
EXCEEDED = "node(s) exceed max volume count"


Volumes = dict[str, dict[Attachable, None]]
"""Different volumes by driver."""


def by_driver(volumes: Iterable[Attachable | None]) -> Volumes:
    """Those that are counted, by driver."""
    found: Volumes = {}
    for each in volumes:
        if each is not None:
            found.setdefault(each.driver, {})[each] = None
    return found


def new_volumes(shape: Shape, snapshot: Snapshot, disks: Volumes) -> Volumes:
    """The volumes that a pod of the shape would add to a node that has none of them; ``disks`` are
    its inline ones."""
    book = snapshot.volumes
    claims = (book.claims.get(f"{shape.namespace}/{claim.name}") for claim in shape.claims)
    found = by_driver(attachable_claim(claim, book) for claim in claims if claim is not None)
    for driver, volumes in disks.items():
        found[driver] = {**found.get(driver, {}), **volumes}
    return found


def taken_on(shape: Shape, row: int, snapshot: Snapshot) -> list[tuple[str, int]]:
    """(driver, volumes more) that a pod of the shape takes of the limits of a row."""
    table, counts = Attached.of(snapshot), dict[str, int]()
    disks = by_driver(map(attachable_disk, shape.disks))
    for driver, volumes in new_volumes(shape, snapshot, disks).items():
        if not table.limits(driver) or table.limit(driver)[row] < 0:
            continue
        for each in volumes:
            counted = table.has_node[row] or not each.migrated
            if counted and row not in table.rows_with_pod(each):
                counts[driver] = counts.get(driver, 0) + 1
    return sorted(counts.items())


class NodeVolumeLimitsFilter(Filter):
    """Rows where each driver has room for the volumes that are not there yet."""

    name = NAME
    reason = EXCEEDED
    cause = Cause.VOLUMES
    unresolvable = False

    def __init__(self, shape: Shape, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._disks = by_driver(map(attachable_disk, shape.disks))
        self.bind(shape)

    def bind(self, shape: Shape) -> None:
        """Claims are read by name."""
        self._shape = shape
        self._keys = [f"{shape.namespace}/{claim.name}" for claim in shape.claims]

    def version(self) -> object:
        """The claims, their volumes, classes and drivers."""
        book = self._snapshot.volumes
        found: list[object] = []
        for key in self._keys:
            found.append(book.state(key))
            claim = book.claims.get(key)
            if claim is not None:
                found.append(book.tick(VOLUME, claim.volume_name))
                found.append(book.tick(CLASS, claim.storage_class))
        volumes = new_volumes(self._shape, self._snapshot, self._disks)
        return found + [book.tick(CSI_DRIVER, driver) for driver in volumes]

    def _missing_claim(self) -> str:
        """Text for a claim that is not there; only where no PreFilter has said so before."""
        for claim in self._shape.claims:
            key = f"{self._shape.namespace}/{claim.name}"
            if key not in self._snapshot.volumes.claims:
                return f"looking up PVC {key}: {not_found(claim.name)}"
        return ""

    def rejections(self, view: View) -> list[Rejection]:
        """A row without a driver that must be there has only that reason."""
        missing = self._missing_claim()
        if missing:
            everywhere = np.ones(view.size, dtype=np.bool_)
            return [Rejection(missing, everywhere, unresolvable=True)]
        open_rows = np.ones(view.size, dtype=np.bool_)
        over = np.zeros(view.size, dtype=np.bool_)
        found = []
        for driver, absent, exceeded in self._look(view):
            if absent is not None:
                absent &= open_rows
                open_rows &= ~absent
                text = f"{driver} CSI driver is not installed on the node"
                found.append(Rejection(text, absent, unresolvable=False))
            if exceeded is not None:
                over |= exceeded
        return [*found, Rejection(EXCEEDED, over & open_rows, unresolvable=False)]

    def _look(self, view: View) -> Iterator[tuple[str, Bools | None, Bools | None]]:
        """(driver, rows that lack it though it must be there, rows without room); None: none."""
        table = Attached.of(self._snapshot)
        by_drivers = new_volumes(self._shape, self._snapshot, self._disks)
        for driver in sorted(by_drivers):
            volumes = by_drivers[driver]
            new: Int64s | int = len(volumes)
            migrated = sum(each.migrated for each in volumes)
            if migrated:  # these count where there is a CSINode
                new = new - migrated + view.of(table.has_node) * migrated
            known = self._snapshot.volumes.drivers.get(driver)
            absent = None
            if known is not None and known.prevent_if_missing:
                absent = (new > 0) & ~view.of(table.installed(driver))
            exceeded = None
            if table.limits(driver):
                extra = new - self._shared(volumes, view, table)
                limit = view.of(table.limit(driver))
                exceeded = view.of(table.used(driver)) + extra > limit
                exceeded &= (limit >= 0) & (extra > 0)
            yield driver, absent, exceeded

    def _shared(self, volumes: Iterable[Attachable], view: View, table: Attached) -> Int64s | int:
        """How many of the volumes pods of each row use already, as far as the row has a limit."""
        rows = [row for volume in volumes for row in table.rows_with_pod(volume)]
        if not rows:
            return 0
        counts = np.bincount(rows, minlength=self._snapshot.rows)
        return view.of(counts)

    def passes(self, view: View) -> Bools | None:
        """bool[view.size]."""
        if self._missing_claim():
            return np.zeros(view.size, dtype=np.bool_)
        passes: Bools | None = None
        for _, *rejected in self._look(view):
            for rows in rejected:
                if rows is not None:
                    passes = ~rows if passes is None else passes & ~rows
        return passes

    def passes_row(self, row: int) -> bool:
        """The same for one row."""
        passes = self.passes(View(self._snapshot, np.array([row], dtype=np.int64)))
        return passes is None or bool(passes[0])


class NodeVolumeLimits(Plugin):
    """Filter."""

    name = NAME
    static = False

    def filter(self, shape: Shape, snapshot: Snapshot) -> Filter | None:
        """None for pods without claims and inline disks that are counted."""
        counted = shape.claims or any(attachable_disk(disk) for disk in shape.disks)
        return NodeVolumeLimitsFilter(shape, snapshot) if counted else None
