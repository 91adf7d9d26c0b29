"""The dispatcher's brain as one object: events go in, what is to be sent comes out.

The shells tell each thing that happened to the part that it concerns (:class:`Intake` for the
watch, :class:`BinderSide`, :class:`ShardSide` …) or to the machine, and then collect:
:meth:`Machine.dispatch` gives the units for the shards, :meth:`Machine.patches` the conditions to
write, :meth:`BinderSide.requests` what the Binder is to be told and asked. Nothing here waits,
reads a clock or draws a random number; ``now`` is monotonic seconds.

Start: a new epoch (from the Lease), the Binder's owned set, the lists of the watches; only then is
anything dispatched (reliability I13). Attempt numbers are unique in the epoch, so no answer is
ever taken for another's.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import msgspec

from dispatcher.admission import Admission, AdmissionLimits
from dispatcher.auditor import ConservationAudit
from dispatcher.batches import Batches
from dispatcher.binder_side import AskLimits, BinderSide
from dispatcher.conditions import ConditionLane, LaneLimits, PatchOrder
from dispatcher.elections import Elections
from dispatcher.group_conditions import GroupOrder
from dispatcher.groups import Groups
from dispatcher.intake import Intake
from dispatcher.job_records import JobOrder
from dispatcher.ladder import Ladder, LadderLimits
from dispatcher.lanes import Lanes
from dispatcher.outcomes import OutcomeLimits, Outcomes
from dispatcher.patching import PatchResult
from dispatcher.pods import OUT, Place, PodTable
from dispatcher.queue import Queue
from dispatcher.queue_limits import QueueLimits
from dispatcher.queue_status import StatusLane, StatusOrder
from dispatcher.quota import QuotaGate
from dispatcher.shape_cycle import ShapeCycle
from dispatcher.shapes import ShapeTable
from dispatcher.shard_side import Note, Send, ShardLimits, ShardSide
from dispatcher.slow_lane import SlowLane, SlowLimits
from dispatcher.statistics import Statistics
from stretto.model.groups import GroupRow
from stretto.model.unit import Version
from stretto.placement.events import ClusterEvent
from stretto.snapshot.delta import Delta, ObjectRow


class MachineLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Times and bounds of the whole."""

    queue: QueueLimits = msgspec.field(default_factory=QueueLimits)
    outcomes: OutcomeLimits = msgspec.field(default_factory=OutcomeLimits)
    lane: LaneLimits = msgspec.field(default_factory=LaneLimits)
    shards: ShardLimits = msgspec.field(default_factory=ShardLimits)
    ask: AskLimits = msgspec.field(default_factory=AskLimits)
    ladder: LadderLimits = msgspec.field(default_factory=LadderLimits)
    slow: SlowLimits = msgspec.field(default_factory=SlowLimits)
    admission: AdmissionLimits = msgspec.field(default_factory=AdmissionLimits)
    tidy_s: float = 60.0
    """How often a standby drops what only a leader uses up."""


def _quiet(_unit: str, _event: str, _text: str) -> None:
    """Tell no story."""


class Machine:
    """See the module docstring."""

    def __init__(
        self,
        *,
        limits: MachineLimits | None = None,
        statistics: Statistics | None = None,
        note: Note = _quiet,
    ) -> None:
        self.limits = limits = limits or MachineLimits()
        self.statistics = counts = statistics or Statistics()
        self.pods = pods = PodTable()
        self.shapes = shapes = ShapeTable()
        self.groups = groups = Groups(pods=pods, shapes=shapes)
        self.slow = slow = SlowLane(limits.slow)
        self.lanes = lanes = Lanes(slow)
        self.cycle = cycle = ShapeCycle(lanes=lanes, limits=limits.queue, statistics=counts)
        self.queue = queue = Queue(
            pods=pods, groups=groups, lanes=lanes, cycle=cycle, statistics=counts
        )
        self.quota = QuotaGate()
        self.admission = Admission(self.quota, shapes, limits.admission)
        self.queue_status = StatusLane(self.quota, shapes, self.admission)
        self.lane = lane = ConditionLane(queue=queue, limits=limits.lane)
        self.elections = elections = Elections(pods=pods, groups=groups, queue=queue, lane=lane)
        self.outcomes = outcomes = Outcomes(
            pods=pods, queue=queue, lane=lane, limits=limits.outcomes, backoff=limits.queue,
            statistics=counts,
        )  # fmt: skip
        self.intake = intake = Intake(
            pods=pods, shapes=shapes, queue=queue, lane=lane, outcomes=outcomes, groups=groups,
            promises=self.quota.promises, statistics=counts,
        )  # fmt: skip
        self.ladder = Ladder(shapes=shapes, limits=limits.ladder)
        batches = Batches(
            pods=pods, groups=groups, queue=queue, cycle=cycle, lanes=lanes, slow=slow
        )
        self.shards = ShardSide(
            pods=pods, shapes=shapes, queue=queue, batches=batches, groups=groups, lane=lane,
            limits=limits.shards, backoff=limits.queue, statistics=counts, note=note,
            ladder=self.ladder,
        )  # fmt: skip
        self.binder = BinderSide(
            pods=pods, shapes=shapes, queue=queue, groups=groups, elections=elections, lane=lane,
            outcomes=outcomes, intake=intake, shards=self.shards, limits=limits.ask,
            statistics=counts, note=note,
        )  # fmt: skip
        self.epoch = 0
        self._note = note
        self._synced, self._sources = 0, 1
        self._tidied_at = 0.0

    @functools.cached_property
    def audit(self) -> ConservationAudit:
        """Looks after pods that nothing would find any more."""
        return ConservationAudit(
            self.pods, queue=self.queue, groups=self.groups, shards=self.shards,
            outcomes=self.outcomes, longest_backoff_s=self.limits.queue.max_backoff_s,
        )  # fmt: skip

    # ---------------------------------------------------------------------------------------- start

    def begin(self, epoch: int, *, sources: int) -> None:
        """The Lease is ours under a new epoch; ``sources`` watches will be synced."""
        assert self.epoch == 0, "a dispatcher has one epoch in its life"
        assert epoch > 0, "an epoch is a version that the API server gave"
        self.epoch = epoch
        self.outcomes.dispatcher_epoch = epoch
        self.shards.epoch = epoch
        self._sources = sources

    def synced(self) -> None:
        """The first list of one more watch is complete; a standby hears of it before it leads."""
        self._synced += 1

    def open(self) -> bool:
        """True once units may be dispatched."""
        return self.epoch > 0 and self._synced >= self._sources and self.binder.owned_known

    # --------------------------------------------------------------------------------- Binder's log

    def events(self, events: Sequence[ClusterEvent], *, version: Version, now: float) -> None:
        """A step of the log changed something in the cluster that may make a parked pod fit."""
        self.shards.binder_at(version.epoch, now)
        self.cycle.wake(events, version=version, now=now)
        if self.outcomes.refused:
            self.outcomes.retry_after(events, now)

    def group_states(
        self, states: Sequence[tuple[str, GroupRow | None, int]], *, anew: bool
    ) -> None:
        """The log shows (namespace/name, object, members on nodes) of groups; of all that it
        knows, if it was read ``anew``."""
        for key, row, assigned in states:
            self.groups.define(key, row)
            self.groups.count(key, assigned)
        if anew:
            self.groups.forget_others(frozenset(key for key, _, _ in states))

    def quota_anew(self, rows: Sequence[ObjectRow]) -> None:
        """The log was read anew: these are its objects that say something of quota."""
        self.quota.anew(rows)
        self._use_quota()

    def quota_step(self, delta: Delta) -> None:
        """A step of the log."""
        if not delta.objects and not self.quota.on:
            return
        pods = zip(delta.pod_uid, delta.pod_sign, strict=False)
        self.quota.step(delta.objects, (uid for uid, sign in pods if sign > 0))
        if delta.objects:
            self._use_quota()

    def _use_quota(self) -> None:
        gate = self.quota if self.quota.on else None
        if gate is not self.lanes.gate or (gate is not None and gate.changed_tree()):
            if gate is not None and self.lanes.gate is None:
                gate.count_out(r for r in self.pods.records.values() if r.place in OUT)
            self.lanes.use_gate(gate)
            self.pods.came_back = self.quota.released  # also of what comes back without queues
            self.pods.got_a_node = self.quota.bound

    def label_keys(self, keys: tuple[str, ...], now: float) -> None:
        """The set of label keys that selectors read, as the log has it now."""
        if keys != self.shapes.label_keys:
            self.intake.reproject(keys, now)

    # -------------------------------------------------------------------------- conditions and time

    def dispatch(self, now: float) -> list[Send]:
        """Units for shards, as far as there are units and credits."""
        self.slow.look(now)
        self.elections.refresh(now)
        if self.quota.on and self.quota.take_returned():
            self.cycle.quota_came_back(now)
        return self.shards.dispatch(now) if self.open() else []

    def patches(self, now: float) -> list[PatchOrder]:
        """Conditions to write now."""
        return self.lane.take(now) if self.open() else []

    def group_patches(self, now: float) -> list[GroupOrder]:
        """Conditions of pod groups to write now."""
        return self.groups.lane.take(now) if self.open() else []

    def queue_patches(self, now: float) -> list[StatusOrder]:
        """Statuses of queues to write now."""
        return self.queue_status.take(now) if self.open() else []

    def job_writes(self, now: float) -> list[JobOrder]:
        """Jobs to resume, or to tell what they wait for."""
        return self.admission.take(now) if self.open() else []

    def patch_replied(
        self, uid: str, result: PatchResult, *, resource_version: int = 0, now: float,
        pause_s: float = 0.0,
    ) -> None:  # fmt: skip
        """A condition patch was answered."""
        name = result.value
        self.statistics.patches[name] = self.statistics.patches.get(name, 0) + 1
        record = self.lane.reply(
            uid, result, resource_version=resource_version, now=now, pause_s=pause_s
        )
        lead = record.group.lead if record is not None and record.group is not None else None
        for waiting in (record, lead):
            if waiting is not None and waiting.place is Place.PATCHING:
                self.queue.requeue_front(waiting, now)

    def tick(self, now: float) -> None:
        """Time has passed: backoffs end, the forgotten is looked after."""
        self.queue.tick(now)
        self.cycle.tick(now)
        self.quota.tick(now, followed_since=self.binder.up_since)
        if not self.open() and now - self._tidied_at >= self.limits.tidy_s:
            self._tidied_at = now
            self._tidy(now)
        for record in self.ladder.scan(now) if self.open() else ():
            record.wants_stake = True
            self.queue.urge(record)
        for record, why in self.audit.lost(now):
            self.statistics.drift += 1
            self._note(record.uid, "audit", f"{why}; it begins anew")
            self.outcomes.refused.pop(record.uid, None)
            self.queue.begin_anew(record, now)
        self.outcomes.retry_leftover(now)
        self.binder.ask_overdue(now)
        up = self.binder.up_since
        if up is not None and now - up >= self.limits.shards.deadline_s:
            self.shards.overdue(now)

    def _tidy(self, now: float) -> None:
        """Nothing is sent yet, and a standby may wait for months: pods, shapes and groups that have
        come and gone meanwhile must not be kept."""
        self.elections.refresh(now)
        self.lanes.tidy()
        self.lane.tidy()
        self.shapes.dropped.clear()

    def validate(self) -> None:
        """Check the invariants between all parts."""
        self.pods.validate()
        self.shapes.validate(self.pods.records.values(), held=self.groups.lines())
        self.groups.validate()
        self.admission.validate()
        self.quota.validate(lambda uid: (r := self.pods.get(uid)) is not None and r.place in OUT)
        self.queue.validate()
        self.shards.assignment.validate(self.pods.records.values())
        for uid, record in self.outcomes.refused.items():
            assert self.pods.get(uid) is record
            assert record.place is Place.REFUSED, f"{record!r} is not refused"
        refused = self.pods.counts[Place.REFUSED]
        assert refused == len(self.outcomes.refused), "a refused pod would never wake"
        assert self.pods.counts[Place.WAITING] == sum(map(len, self.shapes.by_number.values()))
