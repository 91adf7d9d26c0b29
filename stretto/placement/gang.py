"""Placing the members of a gang in one decision: all of them or none.

Members are placed one after another on the snapshot, each seeing those before it, as upstream's
pod-group cycle does; if one finds no room, all are taken back. With a topology constraint
(KEP-5732) the domains of the key are tried one by one and the fullest that takes the gang wins
(upstream's placement score: Fit by MostAllocated; the number of pods is equal here). Domains whose
free room is too small in sum are left out without trying. If members run already, theirs is the
only domain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

import msgspec
import numpy as np

from stretto.model.groups import GANG_UNSCHEDULABLE, POD_GROUP, GroupRow, decode_group
from stretto.model.shape import Shape
from stretto.model.unit import Cause, Diagnosis
from stretto.placement.framework import Bools, Int64s
from stretto.placement.gang_preemption import GangDecision
from stretto.placement.kernel import Kernel
from stretto.snapshot.columns import Snapshot

ENOUGH_DOMAINS = 8
"""So many domains that take the gang are compared; fuller ones are tried first."""


class Topologies:
    """What the snapshot's pod groups ask of their members together: number and topology."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def of(self, group: str) -> GroupRow | None:
        """The group, if it constrains where its members go together."""
        row = self.row(group)
        return row if row is not None and row.topology_key else None

    def row(self, group: str) -> GroupRow | None:
        """The group, if its object is there."""
        payload = self._snapshot.object_payload(POD_GROUP, group) if group else None
        return None if payload is None else decode_group(payload)

    def agree(self, group: str, rows: Sequence[int]) -> bool:
        """Whether members on these rows, and those of the group that are placed, share the
        domain that the group requires."""
        wanted = self.row(group)
        return wanted is None or self._share_domain(group, wanted, rows)

    def _share_domain(self, group: str, wanted: GroupRow, rows: Sequence[int]) -> bool:
        if not wanted.topology_key or not wanted.topology_required:
            return True
        column = self._snapshot.label_column(wanted.topology_key)
        domains = {column.ids.item(row) for row in (*rows, *self._snapshot.groups.of(group))}
        return len(domains) == 1 and 0 not in domains

    def lacks(self, group: str, *, coming: int = 0) -> bool:
        """Whether the members that are placed, and so many more, are fewer than run together."""
        wanted = self.row(group)
        return wanted is not None and self._too_few(group, wanted, coming=coming)

    def _too_few(self, group: str, wanted: GroupRow, *, coming: int) -> bool:
        return sum(self._snapshot.groups.of(group).values()) + coming < wanted.min_count

    def objection(self, group: str, rows: Sequence[int]) -> Cause:
        """Why members of the group may not stay on these rows, on which they are counted."""
        wanted = self.row(group)
        if wanted is None:
            return Cause.NONE
        if not self._share_domain(group, wanted, rows):
            return Cause.NODE_CHANGED
        return Cause.GANG if self._too_few(group, wanted, coming=0) else Cause.NONE


class GangPlacer:
    """See the module docstring."""

    def __init__(self, kernel: Kernel, snapshot: Snapshot) -> None:
        self._kernel = kernel
        self._snapshot = snapshot
        self.topologies = Topologies(snapshot)
        self.diagnosis = Diagnosis("", (), 0)
        """Why the last gang found no room."""
        self._own_first = False

    def place(
        self,
        shapes: Sequence[Shape],
        *,
        uids: Sequence[str] = (),
        seed: int,
        avoid: Sequence[int],
        own_first: bool = False,
    ) -> list[int]:
        """Rows for members of these shapes, each counted on the snapshot (tentatively); empty if
        they do not all fit, then :attr:`diagnosis` says why. ``uids``: of the members, whose
        nominations do not count against each other. ``own_first``: see :meth:`Kernel.place`."""
        self._own_first = own_first
        with self._snapshot.nominations.lifted(uids):
            return self._place(shapes, seed=seed, avoid=avoid)

    def preempt(
        self, shapes: Sequence[Shape], *, uids: Sequence[str], seed: int, avoid: Sequence[int]
    ) -> GangDecision | None:
        """Whom a gang that does not fit may preempt, nothing being counted; None: its profile does
        not preempt. :attr:`diagnosis` says why it does not fit, this included."""
        asked = self._kernel.gang_preemption(shapes)
        why = self.diagnosis
        if asked is None:
            return None

        def place() -> Sequence[int]:
            rows = self._place(shapes, seed=seed, avoid=avoid)
            self._take_back(shapes, rows)
            return rows

        with self._snapshot.nominations.lifted(uids):
            found = asked.decide(
                place,
                seated=lambda rows: self._kernel.seats(shapes, rows),
                refused=lambda: self.diagnosis.group or self.diagnosis.message,
            )
        text = asked.told(found)
        self.diagnosis = msgspec.structs.replace(
            why, preemption=text, clears=found.clears, waits=found.waits
        )
        return found

    def _place(self, shapes: Sequence[Shape], *, seed: int, avoid: Sequence[int]) -> list[int]:
        wanted = self.topologies.of(shapes[0].group)
        if wanted is None:
            return self._all(shapes, seed=seed, avoid=avoid)
        rows = self._in_one_domain(shapes, wanted.topology_key, seed=seed, avoid=avoid)
        if rows or wanted.topology_required:
            return rows
        return self._all(shapes, seed=seed, avoid=avoid)

    def _all(self, shapes: Sequence[Shape], *, seed: int, avoid: Sequence[int]) -> list[int]:
        rows: list[int] = []
        for shape, run in groupby(shapes, key=lambda shape: shape):
            count = sum(1 for _ in run)
            found = self._kernel.place(
                shape, count, seed=seed, avoid=avoid, own_first=self._own_first
            ).rows
            rows += found
            if len(found) < count:
                self.diagnosis = msgspec.structs.replace(
                    self._kernel.diagnose(shape),
                    group=self._shortfall(shapes, len(rows)),
                    found=len(rows),
                )
                self._take_back(shapes, rows)
                return []
        return rows

    def _shortfall(self, shapes: Sequence[Shape], found: int) -> str:
        """Upstream's words when so many members found nodes and the next one did not
        (gangscheduling.go PlacementFeasible)."""
        group = shapes[0].group
        before = sum(self._snapshot.groups.of(group).values()) - found
        row = self.topologies.row(group)
        minimum = row.min_count if row is not None else before + len(shapes)
        return (
            f"minCount ({minimum}) cannot be satisfied: {before + found} scheduled, "
            f"{len(shapes) - found - 1} remaining"
        )

    def _take_back(self, shapes: Sequence[Shape], rows: Sequence[int]) -> None:
        for shape, row in zip(shapes, rows, strict=False):
            self._snapshot.remove_pod(shape, row)

    # ---------------------------------------------------------------------------------- topology
    def _in_one_domain(
        self, shapes: Sequence[Shape], key: str, *, seed: int, avoid: Sequence[int]
    ) -> list[int]:
        best: list[int] = []
        best_score, feasible = -1, 0
        first: Diagnosis | None = None
        for domain in self._domains(shapes, key):
            value = self._snapshot.label_column(key).values[domain]
            narrowed = [
                msgspec.structs.replace(s, node_selector=(*s.node_selector, (key, value)))
                for s in shapes
            ]
            rows = self._all(narrowed, seed=seed, avoid=avoid)
            if not rows:
                first = first or self.diagnosis
                continue
            score = int(self._fullness(key)[domain])
            self._take_back(narrowed, rows)
            if score > best_score:
                best, best_score = rows, score
            feasible += 1
            if feasible >= ENOUGH_DOMAINS:
                break
        for shape, row in zip(shapes, best, strict=False):
            self._snapshot.add_pod(shape, row)
        if not best:
            self.diagnosis = self._no_domain(key, first)
        return best

    def _no_domain(self, key: str, first: Diagnosis | None) -> Diagnosis:
        """Upstream's words (podGroupSchedulingPlacementAlgorithm); domains that are too small in
        sum were not tried, and count."""
        snapshot = self._snapshot
        live = snapshot.live[: snapshot.rows]
        ids = np.unique(snapshot.label_column(key).ids[: snapshot.rows][live])
        text = (
            f"0/{np.count_nonzero(ids)} placements are available, first placement status: "
            f"{GANG_UNSCHEDULABLE}"
        )
        if first is None:
            return Diagnosis(f"{GANG_UNSCHEDULABLE}, {text}", (), snapshot.node_count, group=text)
        return msgspec.structs.replace(first, group=text)

    def _domains(self, shapes: Sequence[Shape], key: str) -> list[int]:
        """Ids of values of the key whose nodes may take the gang in sum, fullest first. If none has
        slots for the members of each shape, one such: it says why."""
        snapshot = self._snapshot
        ids = snapshot.label_column(key).ids[: snapshot.rows]
        placed = snapshot.groups.of(shapes[0].group)
        if placed:
            return sorted({ids.item(row) for row in placed} - {0})
        live = snapshot.live[: snapshot.rows] & (ids > 0)
        size = int(ids.max(initial=0)) + 1
        possible = np.bincount(ids[live], minlength=size) > 0
        for name, needed in _total(shapes).items():
            column = snapshot.resources.column(name)
            if not column.dense:
                continue
            free = np.maximum((column.alloc - column.used)[: snapshot.rows], 0)
            possible &= np.bincount(ids[live], weights=free[live], minlength=size) >= needed
        fullness = self._fullness(key).tolist()
        found = sorted(
            np.flatnonzero(possible).tolist(), key=lambda domain: (-fullness[domain], domain)
        )
        slotted = self._slotted(shapes, key, size=size).tolist()
        return [domain for domain in found if slotted[domain]] or found[:1]

    def _slotted(self, shapes: Sequence[Shape], key: str, *, size: int) -> Bools:
        """bool[domains]: for each shape by itself, the nodes that may take it at all have room for
        so many pods of it. Where the key is that of host names there may be thousands of domains,
        and to try one costs a pass over all nodes."""
        snapshot, rows = self._snapshot, self._snapshot.rows
        ids = snapshot.label_column(key).ids[:rows]
        found = np.ones(size, dtype=np.bool_)
        counts = Counter(shape.digest for shape in shapes)
        for shape in {shape.digest: shape for shape in shapes}.values():
            count = counts[shape.digest]
            slots = np.full(rows, count, dtype=np.int64)
            for name, amount in _total((shape,)).items():
                column = snapshot.resources.column(name)
                if amount and column.dense:
                    free = np.maximum((column.alloc - column.used)[:rows], 0)
                    np.minimum(slots, free // amount, out=slots)
            slots *= self._kernel.possible(shape)
            found &= np.bincount(ids, weights=slots, minlength=size) >= count
        return found

    def _fullness(self, key: str) -> Int64s:
        """MostAllocated over the nodes of each domain, by its id: 0..100, the mean over cpu and
        memory."""
        snapshot, rows = self._snapshot, self._snapshot.rows
        ids = np.where(snapshot.live[:rows], snapshot.label_column(key).ids[:rows], 0)
        scores = np.zeros(int(ids.max(initial=0)) + 1, dtype=np.int64)
        for name in ("cpu", "memory"):
            column = snapshot.resources.column(name)
            if not column.dense:
                continue
            room, used = np.zeros_like(scores), np.zeros_like(scores)
            np.add.at(room, ids, column.alloc[:rows])
            np.add.at(used, ids, column.used[:rows])
            scores += np.minimum(used, room) * 100 // np.maximum(room, 1)
        return scores // 2


def _total(shapes: Sequence[Shape]) -> dict[str, int]:
    """What the members take together of what every node has; devices may stand for the rest."""
    total = {"pods": len(shapes), "cpu": 0, "memory": 0}
    for shape in shapes:
        for name, amount in shape.requests:
            if name in total:
                total[name] += amount
    return total
