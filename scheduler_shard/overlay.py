"""A shard's own proposals, counted on the snapshot until the Binder's log says the same.

The snapshot is the Binder's state at a version; between a proposal and the delta that contains its
commit a shard would otherwise hand out the same room again. A row is a pod counted tentatively on
a node. It goes

* at once when the proposal lost,
* when the verdict said "committed at s" and the snapshot has reached s,
* or when a delta names the pod, if that comes first (design §12.3).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from stretto.model.shape import Shape
from stretto.snapshot.columns import Settling, Snapshot


class OverlayRow:
    """One pod on one node."""

    __slots__ = ("node_id", "sequence", "serial", "shape")

    def __init__(self, *, shape: Shape, node_id: int, serial: int) -> None:
        self.shape = shape
        self.node_id = node_id
        self.serial = serial
        """Grows with each row; says which proposals are older than a question."""
        self.sequence = 0
        """The commit's sequence once it is known."""


class Overlay:
    """Rows by pod uid, oldest first."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._rows: dict[str, OverlayRow] = {}
        self._committed: list[tuple[int, str, int]] = []
        """Heap of (sequence, uid, serial) that wait for the snapshot."""
        self._serial = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def last_serial(self) -> int:
        """The serial number of the youngest row ever."""
        return self._serial

    @property
    def oldest_serial(self) -> int | None:
        """The serial number of the oldest row that is still counted."""
        first = next(iter(self._rows.values()), None)
        return None if first is None else first.serial

    def add(self, uid: str, *, shape: Shape, node_id: int) -> None:
        """Keep a pod that the kernel has just counted on the snapshot."""
        self.drop(uid)
        self._serial += 1
        assert node_id > 0, f"{uid} is counted on no node"
        self._rows[uid] = OverlayRow(shape=shape, node_id=node_id, serial=self._serial)

    def drop(self, uid: str) -> None:
        """Count this pod no longer; nothing happens if it is not counted."""
        row = self._rows.pop(uid, None)
        if row is not None:
            self._uncount(row)

    def hand_over(self, uids: Iterable[str]) -> Settling:
        """Give up the rows of pods that a delta names, before it is applied; they stay counted on
        the snapshot, for :meth:`Snapshot.apply` to settle."""
        rows, found, row_of = self._rows, Settling(), self._snapshot.row_of
        for uid in uids:
            row = rows.pop(uid, None)
            if row is not None and (place := row_of(row.node_id)) is not None:
                found[uid] = row.shape, place
        return found

    def commit(self, uid: str, *, node_id: int, sequence: int) -> None:
        """The pod was reserved on a node, in the commit with this sequence."""
        row = self._rows.get(uid)
        if row is None:
            return
        if sequence <= self._snapshot.version.sequence:
            self.drop(uid)
            return
        if row.node_id != node_id:
            self._uncount(row)
            row.node_id = node_id
            self._count(row)
        assert row.sequence in (0, sequence), f"{uid} was committed twice"
        row.sequence = sequence
        heapq.heappush(self._committed, (sequence, uid, row.serial))

    def reached(self, sequence: int) -> None:
        """The snapshot contains every commit up to here."""
        committed = self._committed
        assert sequence <= self._snapshot.version.sequence, "ahead of the snapshot"
        while committed and committed[0][0] <= sequence:
            _, uid, serial = heapq.heappop(committed)
            row = self._rows.get(uid)
            if row is not None and row.serial == serial:
                self.drop(uid)

    def clear(self) -> None:
        """Drop all rows."""
        for row in self._rows.values():
            self._uncount(row)
        self._rows.clear()
        self._committed.clear()
        assert self._snapshot.tentative == 0, "something is counted that nobody proposed"

    def move_to(self, snapshot: Snapshot) -> None:
        """Count the same rows on another snapshot of the same epoch instead."""
        assert snapshot.tentative == 0, "another overlay counts on this snapshot"
        self._snapshot = snapshot
        for row in self._rows.values():
            self._count(row)
        self.reached(snapshot.version.sequence)

    def lift(self) -> None:
        """Show the committed state for a moment; :meth:`put_back` must follow."""
        for row in self._rows.values():
            self._uncount(row)

    def put_back(self) -> None:
        """Undo :meth:`lift`."""
        for row in self._rows.values():
            self._count(row)

    def _count(self, row: OverlayRow) -> None:
        place = self._snapshot.row_of(row.node_id)
        if place is not None:
            self._snapshot.add_pod(row.shape, place)

    def _uncount(self, row: OverlayRow) -> None:
        place = self._snapshot.row_of(row.node_id)
        if place is not None:  # otherwise its node has left and took the sums along
            self._snapshot.remove_pod(row.shape, place)

    def validate(self) -> None:
        """Assert that the snapshot counts these rows and nothing else tentatively."""
        snapshot = self._snapshot
        counted = sum(snapshot.row_of(row.node_id) is not None for row in self._rows.values())
        assert snapshot.tentative == counted, (
            f"{snapshot.tentative} pods are counted for {counted} overlay rows on live nodes"
        )
        serials = [row.serial for row in self._rows.values()]
        assert serials == sorted(serials)
