"""The dispatcher's brain as one object: events go in, what is to be sent comes out.

The shells call a method for each thing that happened and then collect: :meth:`Machine.dispatch`
gives the units for the shards, :meth:`Machine.patches` the conditions to write,
:meth:`Machine.requests` what the Binder is to be told and asked. Nothing here waits, reads a clock
or draws a random number; ``now`` is monotonic seconds.

Start: a new epoch (from the Lease), the Binder's owned set, the lists of the watches; only then is
anything dispatched (reliability I13). Attempt numbers are unique in the epoch, so no answer is
ever taken for another's.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence

import msgspec

from dispatcher.admission import Admission, AdmissionLimits
from dispatcher.auditor import ConservationAudit
from dispatcher.conditions import ConditionLane, LaneLimits, PatchOrder
from dispatcher.group_conditions import GroupOrder
from dispatcher.groups import Groups
from dispatcher.intake import Intake
from dispatcher.job_records import JobOrder
from dispatcher.ladder import Ladder, LadderLimits
from dispatcher.outcomes import OutcomeLimits, Outcomes
from dispatcher.patching import PatchResult
from dispatcher.pods import OUT, Condition, Place, PodRecord, PodSeen, PodTable, State
from dispatcher.queue import Queue
from dispatcher.queue_limits import QueueLimits
from dispatcher.queue_status import StatusLane, StatusOrder
from dispatcher.quota import QuotaGate
from dispatcher.shapes import Mode, ShapeTable
from dispatcher.shard_side import Note, Send, ShardLimits, ShardSide
from dispatcher.slow_lane import SlowLane, SlowLimits
from dispatcher.statistics import Statistics
from stretto.model.groups import GroupRow
from stretto.model.unit import Cause, Diagnosis, Outcome, OutcomeKind, Version
from stretto.placement.events import ASSIGNED_POD, NODE, TIMEOUT, ClusterEvent
from stretto.snapshot.delta import Delta, ObjectRow


class MachineLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Times and bounds of the whole."""

    queue: QueueLimits = msgspec.field(default_factory=QueueLimits)
    outcomes: OutcomeLimits = msgspec.field(default_factory=OutcomeLimits)
    lane: LaneLimits = msgspec.field(default_factory=LaneLimits)
    shards: ShardLimits = msgspec.field(default_factory=ShardLimits)
    ask_after_s: float = 10.0
    """A pod that is with the Binder for longer without a word is asked about."""
    asks_a_tick: int = 64
    ladder: LadderLimits = msgspec.field(default_factory=LadderLimits)
    slow: SlowLimits = msgspec.field(default_factory=SlowLimits)
    admission: AdmissionLimits = msgspec.field(default_factory=AdmissionLimits)
    tidy_s: float = 60.0
    """How often a standby drops what only a leader uses up."""


class Requests(msgspec.Struct, frozen=True):
    """What the Binder is to be told and asked."""

    withdraw: list[str]
    ask: list[str]
    acknowledged: int
    label_keys: tuple[str, ...] = ()
    """All that selectors of pending pods read, if there are new ones."""


WHOLE_UNIT = (OutcomeKind.CONFLICT, OutcomeKind.GONE, OutcomeKind.REFUSED)
"""Outcomes after which the Binder holds no member of the unit."""


def _quiet(_unit: str, _event: str, _text: str) -> None:
    """Tell no story."""


class Machine:
    """See the module docstring."""

    _tidied_at = 0.0

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
        self.shapes = ShapeTable()
        self.groups = groups = Groups(pods=pods, shapes=self.shapes)
        self.queue = queue = Queue(
            pods=pods, groups=groups, limits=limits.queue, statistics=counts,
            slow=SlowLane(limits.slow),
        )  # fmt: skip
        self.quota = QuotaGate()
        self.admission = Admission(self.quota, self.shapes, limits.admission)
        self.queue_status = StatusLane(self.quota, self.shapes, self.admission)
        self.lane = ConditionLane(queue=queue, limits=limits.lane)
        self.outcomes = Outcomes(
            pods=pods, queue=self.queue, lane=self.lane, limits=limits.outcomes,
            backoff=limits.queue, statistics=counts,
        )  # fmt: skip
        self.intake = Intake(
            pods=pods, shapes=self.shapes, queue=queue, lane=self.lane, outcomes=self.outcomes,
            groups=groups, promises=self.quota.promises, statistics=counts,
        )  # fmt: skip
        self.ladder = Ladder(shapes=self.shapes, limits=limits.ladder)
        self.shards = ShardSide(
            pods=self.pods,
            shapes=self.shapes,
            queue=self.queue,
            groups=self.groups,
            lane=self.lane,
            limits=self.limits.shards,
            backoff=self.limits.queue,
            statistics=self.statistics,
            note=note,
            ladder=self.ladder,
        )
        self.epoch = 0
        self.acknowledged = (0, 0)
        """(epoch of the Binder, index) of the last outcome that was applied."""
        self._note = note
        self._synced, self._sources = 0, 1
        self._owned_known = False
        self._binder_up_since: float | None = None

    @functools.cached_property
    def audit(self) -> ConservationAudit:
        """Looks after pods that nothing would find any more."""
        return ConservationAudit(
            self.pods, queue=self.queue, shards=self.shards, outcomes=self.outcomes
        )

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
        return self.epoch > 0 and self._synced >= self._sources and self._owned_known

    # ---------------------------------------------------------------------------------------- watch

    def pod_seen(self, seen: PodSeen, now: float) -> None:
        """A pod was listed, added or changed."""
        self.intake.seen(seen, now)

    def pod_deleted(self, uid: str, *, leaving: bool | None, now: float) -> None:
        """A pod left the watch, see :meth:`Intake.deleted`."""
        self.intake.deleted(uid, leaving=leaving, now=now)

    # --------------------------------------------------------------------------------- Binder's log

    def events(self, events: Sequence[ClusterEvent], *, version: Version, now: float) -> None:
        """A step of the log changed something in the cluster that may make a parked pod fit."""
        self.shards.binder_at(version.epoch, now)
        self.queue.wake(events, version=version, now=now)
        if not self.outcomes.refused:
            return
        objects = [e for e in events if e.resource not in (ASSIGNED_POD, NODE)]
        if objects:
            self._try_refused(list(self.outcomes.refused.values()), objects[0].label, now)

    def _try_refused(self, records: Sequence[PodRecord], event: str, now: float) -> None:
        """What the Binder refused gets another attempt, but not at each of many events."""
        for record in records:
            assert record.place is Place.REFUSED, f"{record!r} is not refused"
            del self.outcomes.refused[record.uid]
            wait_s = record.since + self.limits.queue.backoff(record.refusals) - now
            if wait_s > 0:
                self.statistics.came_in(State.BACKOFF, event)
                self.queue.back_off(record, now=now, delay=wait_s)
            else:
                self.intake.enqueue(record, event=event, now=now)

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
        if gate is not self.queue.gate or (gate is not None and gate.changed_tree()):
            if gate is not None and self.queue.gate is None:
                gate.count_out(r for r in self.pods.records.values() if r.place in OUT)
            self.queue.use_gate(gate)
            self.pods.came_back = self.quota.released  # also of what comes back without queues
            self.pods.got_a_node = self.quota.bound

    def label_keys(self, keys: tuple[str, ...], now: float) -> None:
        """The set of label keys that selectors read, as the log has it now."""
        if keys != self.shapes.label_keys:
            self.intake.reproject(keys, now)

    def binder_connected(self, *, up: bool, now: float) -> None:
        """The connection to the Binder's log is there, or gone."""
        if not up:
            self._binder_up_since = None
        elif self._binder_up_since is None:
            self._binder_up_since = now

    # ------------------------------------------------------------------------------------- outcomes

    def apply_outcomes(
        self, outcomes: Sequence[Outcome], *, first_index: int, epoch: int, now: float
    ) -> None:
        """Apply a piece of the Binder's outcome log; what was applied before is skipped."""
        self.shards.binder_at(epoch, now)
        done_epoch, done = self.acknowledged
        skip = max(0, done - first_index + 1) if done_epoch == epoch else 0
        assert done_epoch != epoch or first_index <= done + 1, "outcomes are left out"
        for outcome in outcomes[skip:]:
            uids = outcome.members or (outcome.unit_id,)
            for uid in uids:
                record = self.pods.get(uid)
                if record is not None and record.place is not Place.SETTLED:
                    self._apply(record, outcome, epoch=epoch, now=now)
        last = first_index + len(outcomes) - 1
        if outcomes and (epoch, last) > self.acknowledged:
            self.acknowledged = (epoch, last)

    def _apply(self, record: PodRecord, outcome: Outcome, *, epoch: int, now: float) -> None:
        whole = self.groups.leads(record) and not outcome.members
        if whole and outcome.kind in WHOLE_UNIT:
            self.groups.unit_lost(record, now)
            if outcome.kind is not OutcomeKind.CONFLICT:
                outcome = self._gang_refused(record, outcome)
        counted = self.outcomes.apply(record, outcome, epoch=epoch, now=now)
        if counted and outcome.kind is OutcomeKind.NOMINATED:
            if self.groups.keeps(record):
                self._member_nominated(record, outcome, epoch=epoch, now=now)
            else:
                self._nominated(record, outcome, epoch=epoch, now=now)
        kind = outcome.kind.name.lower()
        if outcome.kind is OutcomeKind.BOUND:
            self._note(record.uid, kind, f"bound to {outcome.node}, proposed by {outcome.shard}")
        else:
            late = "" if counted else " (of an attempt that no longer counts)"
            cause = outcome.cause.name.lower()
            self._note(record.uid, kind, f"{outcome.detail or cause}{late}")

    def _gang_refused(self, lead: PodRecord, outcome: Outcome) -> Outcome:
        """A member is gone, or refused as it is: the watch will show what became of it, and the
        others are decided again then."""
        if outcome.kind is OutcomeKind.REFUSED:
            for record in self.groups.unit_of(lead):
                self.lane.tell(record, Condition("Unschedulable", outcome.detail))
        return msgspec.structs.replace(outcome, kind=OutcomeKind.CONFLICT, cause=Cause.POD_CHANGED)

    def _nominated(self, record: PodRecord, outcome: Outcome, *, epoch: int, now: float) -> None:
        """Its victims were asked to go: it waits for that, as a pod nominated to that node."""
        self.intake.nominated(record, node=outcome.node, now=now)
        self._park(record, outcome, epoch=epoch, now=now)

    def _park(self, record: PodRecord, outcome: Outcome, *, epoch: int, now: float) -> None:
        diagnosis = outcome.diagnosis or Diagnosis(outcome.detail, (), 0)
        version = Version(epoch, outcome.sequence)
        self.shards.park(record, diagnosis, version=version, now=now)

    def _member_nominated(
        self, record: PodRecord, outcome: Outcome, *, epoch: int, now: float
    ) -> None:
        """The same for a member of a gang. The lead hears last, and then the gang waits."""
        group, last = record.group, self.groups.leads(record)
        self.queue.requeue_front(record, now)
        self.intake.nominated(record, node=outcome.node, now=now)
        if last and group is not None:
            self.groups.refresh(queue=self.queue, lane=self.lane, now=now)
            if group.lead is not None:
                self.groups.unit_of(group.lead)
                self._park(group.lead, outcome, epoch=epoch, now=now)

    def owned_set(
        self,
        *,
        owned: Iterable[str],
        bound: Iterable[str] = (),
        unknown: Iterable[str] = (),
        complete: bool,
        now: float,
    ) -> None:
        """The Binder says whose owner it is: all of them (``complete``), or those that were
        asked for.
        """
        for uid in bound:
            record = self.pods.get(uid)
            if record is not None:
                self.outcomes.bound(record, now)
        for uid in unknown:
            record = self.pods.get(uid)
            if record is not None and record.place in (Place.OWNED, Place.SETTLED):
                self._orphan(record, now)
        if complete:
            self._owned_whole(set(owned), now)

    def _owned_whole(self, owned: set[str], now: float) -> None:
        for uid, record in list(self.pods.records.items()):
            if uid not in owned:
                if record.place is Place.OWNED:
                    self._orphan(record, now)
            elif record.place in (Place.WAITING, Place.BACKOFF, Place.GROUPED):
                self.queue.discard(record)
                self.pods.move(record, Place.OWNED, now)
        if not self._owned_known:
            self.intake.owned = {uid for uid in owned if uid not in self.pods.records}
            self._owned_known = True

    def _orphan(self, record: PodRecord, now: float) -> None:
        self.statistics.orphans += 1
        assert record.place not in (Place.WAITING, Place.DISPATCHED), f"{record!r} is no orphan"
        self._note(record.uid, "orphan", "the binder does not know the pod; it is decided again")
        self.outcomes.free(record, now)

    def requests(self) -> Requests:
        """What the Binder is to hear now; told once."""
        requests = Requests(
            withdraw=self.intake.withdrawals,
            ask=self.intake.asks,
            acknowledged=self.acknowledged[1],
            label_keys=self.shapes.take_wanted(),
        )
        self.intake.withdrawals = []
        self.intake.asks = []
        return requests

    def wanted_keys(self) -> tuple[str, ...]:
        """Label keys that the Binder must show, for a Binder that has heard nothing yet."""
        return self.shapes.all_wanted()

    # -------------------------------------------------------------------------- conditions and time

    def dispatch(self, now: float) -> list[Send]:
        """Units for shards, as far as there are units and credits."""
        self.queue.slow.look(now)
        self.groups.refresh(queue=self.queue, lane=self.lane, now=now)
        if self.quota.on and self.quota.take_returned():
            self.queue.came_back(now)
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
        self.quota.tick(now, followed_since=self._binder_up_since)
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
        # In the order in which they were refused. Nobody waits longer than this (design §12.22).
        before = now - self.limits.queue.leftover_s
        refused = self.outcomes.refused.values()
        late = list(itertools.takewhile(lambda record: record.since <= before, refused))
        self._try_refused(late, TIMEOUT.label, now)
        up = self._binder_up_since
        if up is None:
            return
        silent = self.pods.overdue(
            now=now, age_s=self.limits.ask_after_s, limit=self.limits.asks_a_tick
        )
        self.intake.asks.extend(record.uid for record in silent)
        if now - up >= self.limits.shards.deadline_s:
            self.shards.overdue(now)

    def _tidy(self, now: float) -> None:
        """Nothing is sent yet, and a standby may wait for months: pods, shapes and groups that have
        come and gone meanwhile must not be kept."""
        self.groups.refresh(queue=self.queue, lane=self.lane, now=now)
        self.queue.tidy()
        self.lane.tidy()
        self.shapes.dropped.clear()

    # ----------------------------------------------------------------------------------- for people

    def pending(self) -> dict[State, int]:
        """How many pods are in each state."""
        counts = dict.fromkeys(State, 0)
        for place, state in _PLACE_STATES.items():
            counts[state] = self.pods.counts[place]
        for shape in self.shapes.by_number.values():
            counts[_MODE_STATES[shape.mode]] += len(shape)
        return counts

    def state_of(self, record: PodRecord) -> State:
        """The public name of where a pod is."""
        if record.place is Place.WAITING:
            return _MODE_STATES[record.shape.mode]
        return _PLACE_STATES[record.place]

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


_PLACE_STATES = {
    Place.GATED: State.GATED,
    Place.BACKOFF: State.BACKOFF,
    Place.REFUSED: State.REFUSED,
    Place.PATCHING: State.PATCHING,
    Place.DISPATCHED: State.DISPATCHED,
    Place.OWNED: State.OWNED,
    Place.SETTLED: State.SETTLED,
    Place.GROUPED: State.INCOMPLETE,
}
_MODE_STATES = {
    Mode.OPEN: State.ACTIVE,
    Mode.PARKED: State.UNSCHEDULABLE,
    Mode.BACKOFF: State.BACKOFF,
    Mode.PROBING: State.BACKOFF,
    Mode.REFUSED: State.REFUSED,
    Mode.UNREAD: State.ACTIVE,
}
