"""What preemption takes away together: a pod, or all members of a group whose disruptionMode is
``all``; and which of two it takes first.

A member's priority is that of its group. At one priority a lot of a group is more important than a
pod of none, a larger lot than a smaller one, and of equals the one that runs for longer. Source:
kube-scheduler 1.37, framework/preemption (GetPodPriority, getHighestAllAncestor,
MoreImportantVictim).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from stretto.model.groups import LEGACY_GROUPS, POD_GROUP, decode_group
from stretto.model.shape import Shape
from stretto.quota.view import OUTSIDE, Standing
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.pod_records import LEAVING, PREEMPTED, PodRecord, uid_key

NEVER_STARTED = (1 << 32) - 1
"""A pod without a start time counts as started just now: later than all others."""


class Victim(NamedTuple):
    """A pod that may have to leave."""

    record: PodRecord
    shape: Shape
    row: int
    priority: int
    """Of its group, if that has one of its own."""

    @property
    def start_s(self) -> int:
        """Its start, for comparing."""
        return self.record.start_s or NEVER_STARTED

    @property
    def importance(self) -> tuple[int, int, bytes]:
        """Sorts the members of a lot, the most important first."""
        return -self.priority, self.start_s, uid_key(self.record.uid)


class Lot(msgspec.Struct, frozen=True):
    """Pods that go together or not at all."""

    pods: tuple[Victim, ...]
    """Most important first."""
    group: bool
    """Of a pod group, be it one member of it."""

    @property
    def priority(self) -> int:
        """Who has more may take it away."""
        return self.pods[0].priority

    @property
    def importance(self) -> tuple[int, bool, int, int, bytes]:
        """Sorts the most important first; the uid where upstream leaves the order to chance."""
        start = min(pod.start_s for pod in self.pods)
        return -self.priority, not self.group, -len(self.pods), start, self.pods[0].importance[2]

    @property
    def uids(self) -> frozenset[str]:
        """Its pods."""
        return frozenset(pod.record.uid for pod in self.pods)

    def suppose(self, snapshot: Snapshot, by: int, *, noted: bool = False) -> None:
        """Count its pods off their nodes (-1), or on them again."""
        for pod in self.pods:
            snapshot.suppose(pod.shape, pod.row, by, noted=noted)
            if snapshot.quota.on and not pod.record.flags & (LEAVING | PREEMPTED):
                snapshot.quota.suppose(pod.shape, by)  # else it counts as gone there anyway

    def unchosen(self, snapshot: Snapshot, by: int) -> Lot:
        """The lot as if nobody had chosen its pods as victims yet (1), or the end of that (-1):
        quota counts those as gone who are chosen, before they are asked."""
        pods = []
        for pod in self.pods:
            record = pod.record
            if snapshot.quota.on and record.flags & (LEAVING | PREEMPTED):
                snapshot.quota.suppose(pod.shape, by)
                record = record._replace(flags=record.flags & ~(LEAVING | PREEMPTED))
            pods.append(pod._replace(record=record))
        return msgspec.structs.replace(self, pods=tuple(pods))


class _Group(NamedTuple):
    priority: int | None
    whole: bool


class Lots:
    """The lots of a snapshot. Keeps what the groups' objects say, until they say otherwise."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._groups: dict[str, _Group] = {}
        self._whole: set[str] = set()
        self._seen = -1
        self.version = 0
        """Grows when the priority, the mode or the existence of a group has changed."""

    def refresh(self) -> None:
        """Read the groups that have changed."""
        snapshot = self._snapshot
        if snapshot.kind_version(POD_GROUP) <= self._seen:
            return
        changed = snapshot.objects_changed(POD_GROUP, self._seen) if self._seen >= 0 else None
        self._seen = snapshot.object_version
        keys: Iterable[str] = changed if changed is not None else {
            *self._groups, *snapshot.objects(POD_GROUP)
        }  # fmt: skip
        for key in keys:
            payload = snapshot.object_payload(POD_GROUP, key)
            row = None if payload is None else decode_group(payload)
            found = None if row is None else _Group(row.priority, row.whole)
            if found == self._groups.get(key):
                continue
            self.version += 1
            self._whole.discard(key)
            self._groups.pop(key, None)
            if found is not None:
                self._groups[key] = found
                if found.whole:
                    self._whole.add(key)

    def whole(self) -> Mapping[str, Mapping[int, int]]:
        """Groups that go as a whole, with their members per row."""
        rows = self._snapshot.groups
        return {key: there for key in self._whole if (there := rows.of(key))}

    def lowest_priority(self) -> int:
        """No lot has less."""
        of_groups = (g.priority for g in self._groups.values() if g.priority is not None)
        return min(self._snapshot.lowest_priority, *of_groups, 1 << 31)

    def priority_of(self, shape_id: int) -> int:
        """The priority of the lot that a pod of this shape is in."""
        group = self._groups.get(self._snapshot.group_of(shape_id))
        own = self._snapshot.priority_of(shape_id)
        return own if group is None or group.priority is None else group.priority

    def grouped(self, shape_id: int) -> bool:
        """Whether a pod of this shape is of a pod group. A label alone names none."""
        key = self._snapshot.group_of(shape_id)
        return bool(key) and (key in self._groups or not key.endswith(LEGACY_GROUPS))

    def may_leave(self, record: PodRecord, *, unit: Shape, standing: Standing) -> bool:
        """Whether a pod may be made to leave for a unit: it is of less priority, or, where there
        are queues, as :func:`stretto.quota.accounts.may_leave` says."""
        lower = self.priority_of(record.shape_id) < unit.priority
        if standing.queue is None:
            return lower
        victim = self._snapshot.shape(record.shape_id)
        return self._snapshot.quota.may_leave(standing, victim, record.flags, lower=lower)

    def standing(self, unit: Shape) -> Standing:
        """What quota makes of a unit."""
        quota = self._snapshot.quota
        return quota.standing(unit) if quota.on else OUTSIDE

    def on(self, rows: Iterable[int], *, unit: Shape) -> list[Lot]:
        """The lots that may be made to leave for a unit and have pods on some rows, in no
        particular order. The caller has refreshed."""
        standing = self.standing(unit)
        found: list[Lot] = []
        met: set[str] = set()
        for row in rows:
            for record in self._snapshot.records.of(row):
                if not self.may_leave(record, unit=unit, standing=standing):
                    continue
                key = self._snapshot.group_of(record.shape_id)
                if key not in self._whole:
                    pods = (self._victim(row, record),)
                    found.append(Lot(pods, self.grouped(record.shape_id)))
                elif key not in met:
                    met.add(key)
                    lot = self._whole_lot(key)
                    records = (pod.record for pod in lot.pods)
                    if all(self.may_leave(r, unit=unit, standing=standing) for r in records):
                        found.append(lot)
        return found

    def _whole_lot(self, key: str) -> Lot:
        snapshot = self._snapshot
        pods = [
            self._victim(row, record)
            for row in snapshot.groups.of(key)
            for record in snapshot.records.of(row)
            if snapshot.group_of(record.shape_id) == key
        ]
        return Lot(tuple(sorted(pods, key=lambda pod: pod.importance)), True)

    def _victim(self, row: int, record: PodRecord) -> Victim:
        shape = self._snapshot.shape(record.shape_id)
        return Victim(record, shape, row, self.priority_of(record.shape_id))


def pods_of(lots: Iterable[Lot]) -> tuple[Victim, ...]:
    """The pods of lots, in the lots' order."""
    return tuple(pod for lot in lots for pod in lot.pods)


def touching(lots: Iterable[Lot], uids: Collection[str]) -> list[Lot]:
    """Those of the lots that some of these pods are in."""
    return [lot for lot in lots if not lot.uids.isdisjoint(uids)]
