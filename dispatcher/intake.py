"""Pods come, change and go: what the watch shows, applied to the records.

Two independent sources say that a pod is bound: the Binder's outcome, and the watch. The watch is
filtered on unbound pods, so a pod that leaves it *without* a deletionTimestamp has been given a
node by someone (checked on a live API server, design §12.5). Whichever comes first settles the
pod; the record goes when the watch has shown it gone, never earlier, because an older sighting
that is still on its way would bring the pod back as a new one.
"""

from __future__ import annotations

import msgspec

from dispatcher.conditions import ConditionLane
from dispatcher.groups import Groups
from dispatcher.outcomes import Outcomes
from dispatcher.pods import OUT, Place, PodRecord, PodSeen, PodTable
from dispatcher.promises import Promises
from dispatcher.queue import Queue
from dispatcher.shape_records import Mode, ShapeRecord
from dispatcher.shapes import ShapeTable
from dispatcher.states import State
from dispatcher.statistics import Statistics
from stretto.placement.hints import QUOTA


class Intake:
    """Applies sightings of pods."""

    def __init__(
        self,
        *,
        pods: PodTable,
        shapes: ShapeTable,
        queue: Queue,
        lane: ConditionLane,
        outcomes: Outcomes,
        groups: Groups,
        promises: Promises,
        statistics: Statistics,
    ) -> None:
        self._pods = pods
        self._shapes = shapes
        self._queue = queue
        self._lane = lane
        self._outcomes = outcomes
        self._groups = groups
        self._promises = promises
        self._statistics = statistics
        self.owned: set[str] = set()
        """Pods that the Binder owned when we started and that the list has not shown yet."""
        self.withdrawals: list[str] = []
        self.asks: list[str] = []

    def seen(self, seen: PodSeen, now: float) -> None:
        """A pod was listed, added or changed."""
        record = self._pods.records.get(seen.uid)
        if record is None:
            if not seen.leaving:
                self._new(seen, now)
            return
        if seen.resource_version <= record.seen_version:
            return
        if seen.leaving:
            self.drop(record, withdraw=True)
            return
        if seen.gated and record.place not in (Place.GATED, Place.SETTLED):
            self._gate(record, now)
        self._changed(record, seen, now)

    def deleted(self, uid: str, *, leaving: bool | None, now: float) -> None:
        """A pod left the watch; ``leaving`` is None if only a relist shows that it is not there
        any more.
        """
        record = self._pods.get(uid)
        if record is None:
            return
        with_others = record.place in OUT
        if leaving is False:
            self._promises.bound(uid)
            if with_others:
                self._outcomes.bound(record, now)
            elif record.place is not Place.SETTLED:
                self._statistics.bound_elsewhere += 1
        elif leaving is None and with_others:
            self.asks.append(uid)
            self._pods.perhaps_bound(record)
        self.drop(record, withdraw=leaving is True)

    def drop(self, record: PodRecord, *, withdraw: bool) -> None:
        """Forget a pod; whoever works on it, or keeps room for it, is told if ``withdraw``."""
        if withdraw and (record.place in OUT or record.asked_s >= 0):
            self.withdrawals.append(record.uid)
        self._groups.leave(record)
        self._queue.discard(record)
        assert record.group is None, f"{record!r} is gone and in a group"
        self._outcomes.refused.pop(record.uid, None)
        self._pods.remove(record)
        self._promises.pod_left(record.uid)
        self._shapes.release(record.shape)

    def _gate(self, record: PodRecord, now: float) -> None:
        """Gates were added late, which the API server lets nobody do: what is under way is taken
        back, no answer counts any more, and the pod waits as one that came with them."""
        if record.place in OUT or record.asked_s >= 0:
            self.withdrawals.append(record.uid)
        self._groups.leave(record)
        self._queue.discard(record)
        self._outcomes.refused.pop(record.uid, None)
        record.attempt = 0
        record.wanted = None
        self._pods.move(record, Place.GATED, now)

    def enqueue(self, record: PodRecord, *, event: str, now: float) -> None:
        """A pod may be decided from now on."""
        self._statistics.came_in(State.ACTIVE, event)
        self._queue.add(record, now)

    def reproject(self, keys: tuple[str, ...], now: float) -> None:
        """More label keys are read by selectors: give every pod the shape it has under them."""
        self._shapes.label_keys = keys
        for record in list(self._pods.records.values()):
            self._reshape(record, self._shapes.project(record), now)

    def nominated(self, record: PodRecord, *, node: str, now: float) -> None:
        """The Binder has nominated a pod; the watch will say the same."""
        shape = record.shape.shape
        if shape is not None and shape.nominated_node != node:
            waiting = msgspec.structs.replace(shape, nominated_node=node)
            self._reshape(record, self._shapes.intern(waiting), now)

    def _shape_of(self, seen: PodSeen) -> ShapeRecord:
        if seen.shape is None:
            return self._shapes.refused(seen.refusal)
        return self._shapes.projected(seen.shape, seen.labels)

    def _new(self, seen: PodSeen, now: float) -> None:
        shape = self._shape_of(seen)
        self._shapes.hold(shape)
        record = PodRecord(seen=seen, shape=shape, now=now)
        self._pods.insert(record)
        if seen.job:
            self._promises.pod_seen(seen.uid, seen.job)
        if seen.group:
            self._groups.join(record, seen.group)
        if seen.gated:
            self._statistics.came_in(State.GATED, "UnscheduledPodAdd")
        elif seen.uid in self.owned:
            self.owned.discard(seen.uid)
            self._pods.move(record, Place.OWNED, now)
        else:
            self.enqueue(record, event="UnscheduledPodAdd", now=now)
            if seen.job and self._promises.has(seen.uid):
                self._go_ahead(record)

    def _go_ahead(self, record: PodRecord) -> None:
        """A pod was promised room: that others of its line wait for some is nothing to it."""
        shape = record.shape
        parked = shape.mode is Mode.PARKED and QUOTA in shape.plugins
        if parked and record.place is Place.WAITING:
            self._queue.urge(record)

    def _changed(self, record: PodRecord, seen: PodSeen, now: float) -> None:
        before = record.shape
        assert seen.resource_version > record.seen_version, f"{record!r} is shown as it was before"
        other = seen.generation != record.generation or seen.labels != record.labels
        record.seen_version = seen.resource_version
        if seen.resource_version >= record.resource_version:
            record.resource_version = seen.resource_version
            record.condition = seen.condition
        record.generation = seen.generation
        record.labels = seen.labels
        record.document = seen.document
        self._regroup(record, seen.group, now)
        shape = self._shape_of(seen)
        if shape is not self._shapes.own_of(record.shape):  # else a lead stays in its group's line
            self._reshape(record, shape, now)
        if record.place is Place.GATED and not seen.gated:
            record.first_queued = now
            self.enqueue(record, event="UnscheduledPodUpdate", now=now)
        elif (other or record.shape is not before) and record.place in (
            Place.REFUSED,
            Place.BACKOFF,
        ):
            self._outcomes.refused.pop(record.uid, None)
            record.backoff_token = 0
            self.enqueue(record, event="UnscheduledPodUpdate", now=now)
        else:
            self._lane.retell(record)

    def _regroup(self, record: PodRecord, key: str, now: float) -> None:
        """A pod may name another group than before, or none any more (scheduler-plugins' label can
        be changed): if it waits, it waits with that group from now on, or alone."""
        if key == (record.group.key if record.group is not None else ""):
            return
        waits = record.place in (Place.WAITING, Place.GROUPED)
        if waits:
            self._queue.discard(record)
        self._groups.join(record, key)
        if waits:
            self._queue.add(record, now)
        assert record.place is not Place.GROUPED or record.group is not None

    def _reshape(self, record: PodRecord, shape: ShapeRecord, now: float) -> None:
        """Give a record another shape; what is in flight under the old one is caught by its
        resourceVersion.
        """
        old = record.shape
        if shape is old:
            return
        assert old.refs > 0, f"{record!r} has a shape that nobody uses"
        waiting = record.place is Place.WAITING
        if waiting:
            self._queue.discard(record)
        self._queue.left(record)
        self._shapes.hold(shape)
        record.shape = shape
        self._shapes.release(old)
        if waiting:
            self._queue.add(record, now)
