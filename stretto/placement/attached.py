"""How many volumes of each CSI driver are on the nodes, and how many they take."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from stretto.model.csi_migration import DRIVER_OF_PLUGIN, NEVER_MIGRATED, migrated_disk
from stretto.model.shape import Disk
from stretto.placement.framework import Bools, Int64s
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.volume_rows import NONE, ClaimRow
from stretto.snapshot.volumes import VolumeBook

T = TypeVar("T", bound=np.generic)


class Attachable(NamedTuple):
    """A volume that a driver attaches."""

    driver: str
    handle: str
    migrated: bool = False
    """It counts only on nodes that have a CSINode."""


def attachable_claim(claim: ClaimRow, book: VolumeBook) -> Attachable | None:
    """What a claim's volume counts as; None: nothing that is counted.

    A claim without a volume counts as one of its class's driver.
    """
    volume = book.volumes.get(claim.volume_name) if claim.volume_name else None
    if volume is None:
        return _of_class(claim, book)
    if volume.driver:
        return Attachable(volume.driver, volume.handle) if volume.handle else None
    if volume.migrated is None:
        return None
    return Attachable(volume.migrated.driver, volume.migrated.handle, migrated=True)


def _of_class(claim: ClaimRow, book: VolumeBook) -> Attachable | None:
    storage_class = book.classes.get(claim.storage_class) if claim.storage_class else None
    if storage_class is None or not storage_class.provisioner:
        return None
    handle, provisioner = f"claim {claim.key}", storage_class.provisioner
    if provisioner in NEVER_MIGRATED:
        return None
    if provisioner in DRIVER_OF_PLUGIN:
        return Attachable(DRIVER_OF_PLUGIN[provisioner], handle, migrated=True)
    return Attachable(provisioner, handle)


@functools.lru_cache(maxsize=32_768)
def attachable_disk(disk: Disk) -> Attachable | None:
    """What an inline disk counts as."""
    found = migrated_disk(disk)
    return None if found is None else Attachable(found[0].driver, found[1], migrated=True)


class Attached:
    """Columns by driver over rows, refreshed by changed rows; one a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._stamps = (-1, -1)
        self._size = 0
        self._on_row: dict[int, tuple[tuple[str, ...], tuple[tuple[str, str], ...]]] = {}
        """Row → (drivers that count something there, volumes that its pods use)."""
        self._used_by_pods: dict[tuple[str, str], set[int]] = {}
        """(driver, handle) → rows."""
        self._used: dict[str, Int64s] = {}
        self._limit: dict[str, Int64s] = {}
        self._installed: dict[str, Bools] = {}
        self.has_node: Bools = np.zeros(0, dtype=np.bool_)
        """bool[rows]: there is a CSINode."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Attached:
        """The table of a snapshot, up to date."""
        found = snapshot.derived.get(("attached",))
        if not isinstance(found, cls):
            found = snapshot.derived[("attached",)] = cls(snapshot)
        found._refresh()
        return found

    def used(self, driver: str) -> Int64s:
        """int64[rows]: different volumes of a driver on each node that has a limit for it."""
        return self._column(self._used, driver, 0, np.int64)

    def limit(self, driver: str) -> Int64s:
        """int64[rows]: volumes that each node takes; -1: no limit."""
        return self._column(self._limit, driver, NONE, np.int64)

    def limits(self, driver: str) -> bool:
        """Whether any node ever said how many volumes of the driver it takes."""
        return driver in self._limit

    def installed(self, driver: str) -> Bools:
        """bool[rows]: the driver is on the node."""
        return self._column(self._installed, driver, False, np.bool_)

    def rows_with_pod(self, volume: Attachable) -> Collection[int]:
        """Rows with a limit for its driver on which a pod uses a volume. Upstream does not look for
        it among attachments."""
        return self._used_by_pods.get((volume.driver, volume.handle), ())

    def _column(
        self, columns: dict[str, npt.NDArray[T]], driver: str, fill: int, kind: type[T]
    ) -> npt.NDArray[T]:
        found = columns.get(driver)
        if found is None:
            found = columns[driver] = np.full(self._size, fill, dtype=kind)
        return found

    def _refresh(self) -> None:
        snapshot = self._snapshot
        logs = (snapshot.volumes.row_changes, snapshot.node_changes)
        stamps = (logs[0].stamp, logs[1].stamp)
        if stamps == self._stamps:
            return
        changed: set[int] | None = set()
        for log, stamp in zip(logs, self._stamps, strict=True):
            rows = log.since(stamp) if stamp >= 0 else None
            changed = None if rows is None or changed is None else changed | set(rows)
        if changed is None or self._size != snapshot.rows:
            self._size = snapshot.rows
            self._on_row.clear()
            self._used_by_pods.clear()
            self._used.clear()
            self._limit.clear()
            self._installed.clear()
            self.has_node = np.zeros(self._size, dtype=np.bool_)
            changed = set(range(self._size))
        for row in changed:
            self._look(row)
        self._stamps = stamps

    def _look(self, row: int) -> None:
        book = self._snapshot.volumes
        node = book.nodes.get(self._snapshot.name[row]) if self._snapshot.live[row] else None
        drivers, volumes = self._on_row.pop(row, ((), ()))
        for driver in drivers:
            self._used[driver][row] = 0
        for volume in volumes:
            self._used_by_pods[volume].discard(row)
            if not self._used_by_pods[volume]:
                del self._used_by_pods[volume]
        installed = () if node is None else node.drivers
        limited = {driver for driver, limit in installed if limit >= 0}
        if limited:
            self._count(row, book, limited)
        if self.has_node[row]:
            for limit in self._limit.values():
                limit[row] = NONE
            for there in self._installed.values():
                there[row] = False
        self.has_node[row] = node is not None
        for driver, count in installed:
            self.limit(driver)[row] = count
            self.installed(driver)[row] = True

    def _count(self, row: int, book: VolumeBook, limited: set[str]) -> None:
        """Volumes of the drivers that the node limits; those of others may be very many."""
        pods = {each for each in self._of_pods(row, book) if each[0] in limited}
        found: dict[str, set[str]] = {}
        for driver, handle in pods.union(self._attachments(row, book)):
            if driver in limited:
                found.setdefault(driver, set()).add(handle)
        if found:
            self._on_row[row] = (tuple(found), tuple(pods))
        for driver, handles in found.items():
            self.used(driver)[row] = len(handles)
        for volume in pods:
            self._used_by_pods.setdefault(volume, set()).add(row)

    def _of_pods(self, row: int, book: VolumeBook) -> Iterator[tuple[str, str]]:
        """(driver, handle)."""
        for namespace, claim in book.claims_on(row):
            known = book.claims.get(f"{namespace}/{claim.name}")
            if known is not None and (not claim.pod or known.owner_uid == claim.pod_uid):
                counted = attachable_claim(known, book)
                if counted is not None:
                    yield counted.driver, counted.handle
        for disk in book.disks_on(row):
            counted = attachable_disk(disk)
            if counted is not None:
                yield counted.driver, counted.handle

    def _attachments(self, row: int, book: VolumeBook) -> Iterator[tuple[str, str]]:
        for attachment in book.attached.get(self._snapshot.name[row], {}).values():
            volume = book.volumes.get(attachment.volume)
            if attachment.attacher and volume is not None and volume.driver:
                yield attachment.attacher, volume.handle
