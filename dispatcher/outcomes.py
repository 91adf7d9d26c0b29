"""What the Binder says happened to a unit, applied to its record.

The Binder owns a unit from the moment it accepts an attempt until its outcome is acknowledged,
whoever sent the attempt (design §12.5). So BOUND settles a pod under any attempt, of any shard,
dead or alive. An outcome that gives the unit back counts if it is about the current attempt, or if
the pod was believed to be with the Binder: a later attempt that was answered `held` has no outcome
of its own.

Outcomes are resent until acknowledged; applying one twice changes nothing, because a settled or
requeued record no longer matches it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from dispatcher.conditions import ConditionLane
from dispatcher.contention import RACES, Contention, ContentionLimits
from dispatcher.pods import Condition, Place, PodRecord, PodTable
from dispatcher.queue import Queue
from dispatcher.queue_limits import QueueLimits
from dispatcher.shape_records import ShapeRecord
from dispatcher.states import State
from dispatcher.statistics import Statistics
from stretto.model.unit import Cause, Outcome, OutcomeKind, Version
from stretto.placement.events import ASSIGNED_POD, NODE, TIMEOUT, ClusterEvent

PATIENT = frozenset({Cause.STALE, Cause.OVERLOAD, Cause.POD_CHANGED})
"""Causes that trying again at once would not mend."""


class OutcomeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """When patience begins."""

    fast_conflicts: int = 5
    """Conflicts in a row that requeue at the front; later ones back off."""


class Outcomes:
    """Applies outcomes to records."""

    def __init__(
        self,
        *,
        pods: PodTable,
        queue: Queue,
        lane: ConditionLane,
        limits: OutcomeLimits,
        backoff: QueueLimits,
        statistics: Statistics,
    ) -> None:
        self._pods = pods
        self._queue = queue
        self._lane = lane
        self._limits = limits
        self._backoff = backoff
        self._statistics = statistics
        self.dispatcher_epoch = 0
        self.refused: dict[str, PodRecord] = {}
        """Pods that the Binder refused: they wait for a change of themselves or of an object."""

    def apply(self, record: PodRecord, outcome: Outcome, *, epoch: int, now: float) -> bool:
        """Apply one outcome; ``epoch`` is the Binder's. False if it is about an attempt that no
        longer counts.
        """
        if outcome.kind is OutcomeKind.BOUND:
            self.bound(record, now)
            return True
        current = outcome.attempt == (self.dispatcher_epoch, record.attempt)
        member = current and outcome.kind is OutcomeKind.NOMINATED and record.place is Place.GROUPED
        if not (
            member or record.place is Place.OWNED or (current and record.place is Place.DISPATCHED)
        ):
            self._statistics.late_outcomes += 1
            return False
        assert record.attempt > 0 or record.place is Place.OWNED, f"{record!r} was never sent"
        record.min_version = max(record.min_version, Version(epoch, outcome.sequence))
        record.resource_version = max(record.resource_version, outcome.resource_version)
        if outcome.kind is OutcomeKind.CONFLICT:
            self._conflict(record, outcome, now)
        elif outcome.kind is OutcomeKind.FAILED:
            self._failed(record, outcome, now)
        elif outcome.kind is OutcomeKind.REFUSED:
            self._refused(record, outcome, now)
        elif outcome.kind is OutcomeKind.NOMINATED:
            record.conflicts = 0  # the machine parks it
        else:
            self._gone(record, now)
        return True

    def bound(self, record: PodRecord, now: float) -> None:
        """The pod has a node. It stays known until the watch shows it gone from the unbound
        ones.
        """
        if record.place is Place.SETTLED:
            return
        if record.place is Place.WAITING:
            self._queue.discard(record)
        self._statistics.bound(
            attempts=max(record.attempts, 1),
            seconds=now - record.first_queued,
            out_s=record.seconds_out(now),
            profile=record.profile,
        )
        if record.shape.contention is not None:
            record.shape.contention.decided(lost=False, now=now)
        self._pods.bound(record, now)
        self.refused.pop(record.uid, None)
        self._queue.placed(record)

    def retry_after(self, events: Sequence[ClusterEvent], now: float) -> None:
        """What was refused gets another attempt when an object has changed that is neither a node
        nor a pod on one."""
        objects = [e for e in events if e.resource not in (ASSIGNED_POD, NODE)]
        if objects:
            self._retry(list(self.refused.values()), objects[0].label, now)

    def retry_leftover(self, now: float) -> None:
        """Nobody waits longer than this (design §12.22)."""
        before = now - self._backoff.leftover_s
        # In the order in which they were refused.
        late = itertools.takewhile(lambda record: record.since <= before, self.refused.values())
        self._retry(list(late), TIMEOUT.label, now)

    def _retry(self, records: Sequence[PodRecord], event: str, now: float) -> None:
        """Not at each of many events: a pod backs off as often as it was refused."""
        for record in records:
            assert record.place is Place.REFUSED, f"{record!r} is not refused"
            del self.refused[record.uid]
            wait_s = record.since + self._backoff.backoff(record.refusals) - now
            self._statistics.came_in(State.BACKOFF if wait_s > 0 else State.ACTIVE, event)
            if wait_s > 0:
                self._queue.back_off(record, now=now, delay=wait_s)
            else:
                self._queue.add(record, now)

    def _gone(self, record: PodRecord, now: float) -> None:
        self._pods.move(record, Place.SETTLED, now)
        self._queue.left(record)

    def _conflict(self, record: PodRecord, outcome: Outcome, now: float) -> None:
        self._statistics.conflict(outcome.cause.name.lower())
        if outcome.cause is Cause.STAKED:
            record.conflicts = 0
            self._queue.requeue_front(record, now)
            return
        if outcome.cause in RACES:
            self._contended(record.shape, now).decided(lost=True, now=now)
        record.conflicts += 1
        assert record.place is not Place.SETTLED, f"{record!r} is settled and conflicts"
        over = record.conflicts - self._limits.fast_conflicts
        if over > 0 or outcome.cause in PATIENT:
            self._statistics.came_in(State.BACKOFF, "ScheduleAttemptFailure")
            delay = self._backoff.backoff(max(over, 1))
            self._queue.back_off(record, now=now, delay=delay)
            return
        self._queue.requeue_front(record, now)

    @staticmethod
    def _contended(shape: ShapeRecord, now: float) -> Contention:
        if shape.contention is None:
            shape.contention = Contention(ContentionLimits(), now)
        return shape.contention

    def _refused(self, record: PodRecord, outcome: Outcome, now: float) -> None:
        """The pod is not tried again as it is."""
        self._pods.move(record, Place.REFUSED, now)
        record.refusals += 1
        assert record.uid not in self.refused, f"{record!r} is refused twice"
        self.refused[record.uid] = record
        self._queue.left(record)
        text = outcome.detail or f"refused by the binder: {outcome.cause.name.lower()}"
        self._lane.tell(record, Condition("Unschedulable", text))
        self._statistics.ended("unschedulable", record.profile)

    def _failed(self, record: PodRecord, outcome: Outcome, now: float) -> None:
        self._statistics.ended("error", record.profile, seconds=record.seconds_out(now))
        self._statistics.came_in(State.BACKOFF, "ScheduleAttemptFailure")
        record.errors += 1
        assert record.place is not Place.SETTLED, f"{record!r} is settled and fails"
        self._queue.back_off(record, now=now, delay=self._backoff.backoff(record.errors))
        text = outcome.detail or f"binding failed: {outcome.cause.name.lower()}"
        self._lane.tell(record, Condition("SchedulerError", text))
