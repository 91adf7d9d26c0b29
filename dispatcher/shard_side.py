"""The side of the brain that faces the shards: units out, answers in.

A shard's answer counts only if it is about the current attempt of a pod that is still out; every
other one merely tells that the shard no longer holds something.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence

import msgspec

from dispatcher.assignment import BATCH_ENOUGH, BATCH_UNITS, Assignment, Batch, ShardRecord
from dispatcher.batches import Batches, Wish
from dispatcher.conditions import ConditionLane
from dispatcher.groups import Groups
from dispatcher.ladder import Ladder
from dispatcher.pods import Condition, Place, PodRecord, PodTable
from dispatcher.queue import Queue
from dispatcher.queue_limits import QueueLimits
from dispatcher.quota import WAITS_FOR_QUOTA
from dispatcher.shapes import ShapeTable
from dispatcher.states import State
from dispatcher.statistics import Statistics
from stretto.model.groups import GANG_UNSCHEDULABLE, GroupCondition
from stretto.model.shape import Shape
from stretto.model.unit import (
    Attempt,
    Diagnosis,
    HandBack,
    Member,
    Unit,
    UnitId,
    Unplaceable,
    Version,
)
from stretto.placement.hints import QUOTA

Note = Callable[[str, str, str], None]
"""(unit, what happened, in a sentence): writes the story of a unit."""


class ShardLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Patience with shards, and with pods that shards die of."""

    deadline_s: float = 60.0
    """A unit that a living shard holds for longer is given to another."""
    fast_returns: int = 5
    """Returns in a row that requeue at the front; later ones back off."""
    blamed_limit: int = 3
    quarantine_s: float = 300.0
    """A unit in whose company so many shards died waits for so long (reliability §2.5)."""


class Send(msgspec.Struct, frozen=True, gc=False):
    """Units for one stream, and the definitions of the shapes it has not heard of."""

    stream: int
    shapes: list[tuple[int, Shape]]
    units: list[Unit]
    forgotten: list[int]
    """Shape numbers that will not be used again on this stream."""


class ShardSide:
    """Sends units to shards and applies their answers."""

    def __init__(
        self,
        *,
        pods: PodTable,
        shapes: ShapeTable,
        queue: Queue,
        batches: Batches,
        groups: Groups,
        lane: ConditionLane,
        limits: ShardLimits,
        backoff: QueueLimits,
        statistics: Statistics,
        note: Note,
        ladder: Ladder,
    ) -> None:
        self._ladder = ladder
        self.assignment = Assignment()
        self.epoch = 0
        self.binder_epoch = 0
        self._pods = pods
        self._shapes = shapes
        self._queue = queue
        self._batches = batches
        self._groups = groups
        self._lane = lane
        self._limits = limits
        self._backoff = backoff
        self._statistics = statistics
        self._note = note
        self._attempts = 0

    def binder_at(self, epoch: int, now: float) -> None:
        """A new Binder's sequences mean nothing to units sent under the old one: send them anew."""
        if epoch <= self.binder_epoch:
            return
        self.binder_epoch = epoch
        for unit, _ in list(self.assignment.holders()):
            record = self._pods.get(unit)
            if record and record.place is Place.DISPATCHED and record.dispatched_version.sequence:
                self._queue.requeue_front(record, now)

    def opened(self, *, stream: int, name: str, incarnation: str, now: float) -> list[int]:
        """A shard said hello; gives its older streams, which are dead and to be closed."""
        shard = self.assignment.open(stream=stream, name=name, incarnation=incarnation)
        older = self.assignment.others_of(shard)
        for other in older:
            self.closed(other, now)
        return older

    def credits(self, stream: int, credits_: int) -> None:
        """A shard is ready to take so many units more."""
        if shard := self.assignment.shards.get(stream):
            assert credits_ >= 0, f"{shard!r} takes credits back"
            shard.credits += credits_

    def draining(self, stream: int) -> None:
        """A shard takes no more units."""
        if shard := self.assignment.shards.get(stream):
            shard.draining = True

    def settled(self, stream: int, settled: Iterable[tuple[UnitId, Attempt]], now: float) -> None:
        """The Binder has given verdicts on these; its outcomes decide what comes next."""
        for unit, attempt in settled:
            record = self._answered(stream, unit, attempt)
            if record is not None:
                record.blamed = 0
                assert record.shard is not None, f"{record!r} is out at no shard"
                self._pods.move(record, Place.OWNED, now)
                for member in self._groups.members_out(record):
                    if member.place is Place.GROUPED:
                        self._pods.move(member, Place.OWNED, now)

    def handed_back(self, stream: int, handed: Iterable[HandBack], now: float) -> None:
        """A shard returns units undecided."""
        for item in handed:
            record = self._answered(stream, item.unit_id, item.attempt)
            if record is None:
                continue
            self._statistics.handed_back += 1
            self._note(record.uid, "handed back", item.reason)
            record.conflicts += 1
            over = record.conflicts - self._limits.fast_returns
            if over > 0:
                self._queue.back_off(record, now=now, delay=self._backoff.backoff(over))
            else:
                self._queue.requeue_front(record, now)

    def unplaceable(self, stream: int, answers: Sequence[Unplaceable], now: float) -> None:
        """A shard found no node for these. The last first, so that they stand in line as before."""
        for answer in reversed(answers):
            record = self._answered(stream, answer.unit_id, answer.attempt)
            if record is None:
                continue
            record.blamed = 0
            record.conflicts = 0
            if answer.shape != record.shape.number:
                self._queue.requeue_front(record, now)
                continue
            self.park(record, answer.diagnosis, version=answer.version, now=now)

    def park(
        self, record: PodRecord, diagnosis: Diagnosis, *, version: Version, now: float
    ) -> None:
        """The pod's shape fits nowhere at a version, or its victims have yet to go."""
        shape = record.shape
        if diagnosis.error:
            self._failed(record, diagnosis.message, now)
            return
        shape.diagnosis = diagnosis
        self._statistics.ended("unschedulable", record.profile, seconds=record.seconds_out(now))
        self._statistics.came_in(State.UNSCHEDULABLE, "ScheduleAttemptFailure")
        plugins = diagnosis.rejectors
        news = self._queue.unplaceable(record, version=version, plugins=plugins, now=now)
        self._note(record.uid, "unplaceable", diagnosis.message)
        if news and not diagnosis.waits:
            nominated = shape.shape is not None and bool(shape.shape.nominated_node)
            clear = diagnosis.clears and nominated
            reason = WAITS_FOR_QUOTA if diagnosis.plugins == (QUOTA,) else "Unschedulable"
            self._lane.tell_shape(shape, Condition(reason, diagnosis.message, clear))
            self._tell_gang(record, diagnosis)
        else:
            self._lane.retell(record)

    def _tell_gang(self, lead: PodRecord, diagnosis: Diagnosis) -> None:
        """The other members and the group hear why the gang found no room.

        As upstream: those that had found room are told that the group does not fit, those that were
        not looked at only why.
        """
        group, text = lead.group, diagnosis.group
        if group is None or group.lead is not lead:
            return
        for number, member in enumerate(self._groups.members_out(lead)):
            fitted = number < diagnosis.found or not text
            parts = (GANG_UNSCHEDULABLE, text, diagnosis.preemption) if fitted else (text,)
            shape = member.shape.shape
            clear = diagnosis.clears and shape is not None and bool(shape.nominated_node)
            message = ", ".join(filter(None, parts))
            self._lane.tell(member, Condition("Unschedulable", message, clear))
        text = ", ".join(filter(None, (text, diagnosis.preemption)))
        self._groups.tell(group, GroupCondition("False", "Unschedulable", text))

    def _failed(self, record: PodRecord, text: str, now: float) -> None:
        """The attempt itself failed: no event may mend that, so the pod tries again by itself."""
        self._statistics.ended("error", record.profile, seconds=record.seconds_out(now))
        self._note(record.uid, "failed", text)
        record.errors += 1
        self._queue.back_off(record, now=now, delay=self._backoff.backoff(record.errors))
        self._lane.tell(record, Condition("SchedulerError", text))

    def closed(self, stream: int, now: float) -> None:
        """A stream has ended: what it held goes to others at once."""
        closed = self.assignment.close(stream)
        if closed is None:
            return
        shard, held = closed
        self._statistics.shard_deaths += not shard.draining
        for unit, attempt, blamed in held:
            record = self._pods.get(unit)
            if record is None or record.shard is not shard or record.attempt != attempt:
                continue
            record.blamed += blamed
            if record.blamed >= self._limits.blamed_limit:
                self._quarantine(record, now)
            else:
                self._note(record.uid, "shard lost", f"{shard.name} is gone; to be decided again")
                self._queue.requeue_front(record, now)

    def _quarantine(self, record: PodRecord, now: float) -> None:
        text = (
            f"{record.blamed} shards ended while deciding on this pod; it waits before the next try"
        )
        assert record.blamed >= self._limits.blamed_limit, f"{record!r} is not to blame"
        record.blamed = 2
        self._statistics.quarantined += 1
        self._note(record.uid, "quarantined", text)
        self._queue.back_off(record, now=now, delay=self._limits.quarantine_s)
        self._lane.tell(record, Condition("SchedulerError", text))

    def _answered(self, stream: int, unit: str, attempt: Attempt) -> PodRecord | None:
        """The record whose current attempt a shard has answered; None for any other."""
        self.assignment.settle(stream=stream, unit=unit, attempt=attempt.number)
        record = self._pods.get(unit)
        if record is None or record.place is not Place.DISPATCHED:
            return None
        return record if attempt == (self.epoch, record.attempt) else None

    def dispatch(self, now: float) -> list[Send]:
        """Units for shards, as far as there are units and credits."""
        sends: list[Send] = []
        slow = self._batches.slow
        while (ready := self.assignment.ready(busy=slow.shard)) and self._batches.active():
            send = self._next(ready, now)
            if send is None:
                break
            sends.append(send)
        if self._batches.over_quota:
            self._tell_over_quota()
        if self._shapes.dropped:
            for stream, forgotten in self.assignment.forget_shapes(self._shapes.dropped):
                sends.append(Send(stream=stream, shapes=[], units=[], forgotten=forgotten))
            self._shapes.dropped.clear()
        return sends

    def _tell_over_quota(self) -> None:
        """Those that were not sent hear why."""
        held, self._batches.over_quota = self._batches.over_quota, []
        for record, why, news in held:
            diagnosis = record.shape.diagnosis = Diagnosis(why, (QUOTA,), 0)
            if news:
                self._lane.tell_shape(record.shape, Condition(WAITS_FOR_QUOTA, why))
                self._tell_gang(record, diagnosis)
            else:
                self._lane.retell(record)

    def _next(self, ready: Sequence[ShardRecord], now: float) -> Send | None:
        """A batch for the first shard that may have what waits."""
        names = self.assignment.deciding()
        for shard in ready:
            limit = min(BATCH_UNITS, shard.credits)
            may_go = functools.partial(self._ladder.may_go, shard=shard.name, names=names)
            enough = min(limit, BATCH_ENOUGH)
            records = self._batches.take(Wish(limit=limit, enough=enough, now=now, may_go=may_go))
            if records:
                return self._send(shard, records, now)
        return None

    def _send(self, shard: ShardRecord, records: list[PodRecord], now: float) -> Send:
        assert 0 < len(records) <= shard.credits, f"{shard!r} is sent more than it asked for"
        assert not shard.draining, f"{shard!r} is leaving and is sent units"
        for record in records:
            self._attempts += 1
            for member in self._groups.unit_of(record):
                member.attempt = self._attempts
                member.attempts += 1
                member.dispatched_at = now
                record.min_version = max(record.min_version, member.min_version)
            assert record.attempt == self._attempts, f"{record!r} is not of its own unit"
            self._pods.move(record, Place.DISPATCHED, now)
            record.shard = shard
            record.sent_to = shard.name
            record.dispatched_version = max(record.min_version, record.shape.min_version)
            self._note(record.uid, "dispatched", f"attempt {record.attempts} at {shard.name}")
        self._statistics.dispatched += len(records)
        self._statistics.batches += 1
        batch = self.assignment.assign(
            shard=shard,
            records=records,
            shapes=(member.shape for lead in records for member in self._groups.unit_of(lead)),
            now=now,
        )
        return Send(
            stream=shard.stream,
            shapes=[(s.number, s.shape) for s in batch.shapes if s.shape is not None],
            units=self._units(batch, now),
            forgotten=[],
        )

    def _units(self, batch: Batch, now: float) -> list[Unit]:
        units = []
        for record in batch.records:
            version = record.dispatched_version
            members = tuple(
                Member(
                    pod.uid,
                    pod.namespace,
                    pod.name,
                    pod.resource_version,
                    pod.shape.number,
                    pod.document,
                )
                for pod in self._groups.unit_of(record)
            )
            units.append(
                Unit(
                    UnitId(record.uid),
                    Attempt(self.epoch, record.attempt),
                    members,
                    version.sequence if version.epoch == self.binder_epoch else 0,
                    own=self._ladder.keeps_to_own(record),
                    stake=self._ladder.asks(record, now),
                )
            )
        return units

    def overdue(self, now: float) -> None:
        """Give to others what living shards have held for too long."""
        for shard, unit, attempt in self.assignment.overdue(
            now=now, age_s=self._limits.deadline_s, limit=BATCH_UNITS
        ):
            record = self._pods.get(unit)
            if record is None or record.shard is not shard or record.attempt != attempt:
                continue
            assert record.place is Place.DISPATCHED, f"{record!r} is late and not out"
            self._statistics.overdue += 1
            self._note(record.uid, "overdue", f"{shard.name} has not answered; to be decided again")
            self._queue.requeue_front(record, now)
