"""The side of the brain that faces the Binder: outcomes and what it owns in, questions out.

The Binder resends its outcomes until they are acknowledged, and says whose owner it is when it is
asked or when a dispatcher begins. A pod that it does not know, though it was believed to be with
it, is decided again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from dispatcher.conditions import ConditionLane
from dispatcher.elections import Elections
from dispatcher.groups import Groups
from dispatcher.intake import Intake
from dispatcher.outcomes import Outcomes
from dispatcher.pods import Condition, Place, PodRecord, PodTable
from dispatcher.queue import Queue
from dispatcher.shapes import ShapeTable
from dispatcher.shard_side import Note, ShardSide
from dispatcher.statistics import Statistics
from stretto.model.unit import Cause, Diagnosis, Outcome, OutcomeKind, Version

WHOLE_UNIT = (OutcomeKind.CONFLICT, OutcomeKind.GONE, OutcomeKind.REFUSED)
"""Outcomes after which the Binder holds no member of the unit."""


class AskLimits(msgspec.Struct, frozen=True, kw_only=True):
    """When the Binder is asked what became of a pod."""

    after_s: float = 10.0
    """It has been with the Binder for longer without a word."""
    a_tick: int = 64
    """Pods at most that it is asked of at once; a tick is a tenth of a second."""


class Requests(msgspec.Struct, frozen=True):
    """What the Binder is to be told and asked."""

    withdraw: list[str]
    ask: list[str]
    acknowledged: int
    label_keys: tuple[str, ...] = ()
    """All that selectors of pending pods read, if there are new ones."""


class BinderSide:
    """See the module docstring."""

    def __init__(
        self,
        *,
        pods: PodTable,
        shapes: ShapeTable,
        queue: Queue,
        groups: Groups,
        elections: Elections,
        lane: ConditionLane,
        outcomes: Outcomes,
        intake: Intake,
        shards: ShardSide,
        limits: AskLimits,
        statistics: Statistics,
        note: Note,
    ) -> None:
        self._pods = pods
        self._shapes = shapes
        self._queue = queue
        self._groups = groups
        self._elections = elections
        self._lane = lane
        self._outcomes = outcomes
        self._intake = intake
        self._shards = shards
        self._limits = limits
        self._statistics = statistics
        self._note = note
        self.acknowledged = (0, 0)
        """(epoch of the Binder, index) of the last outcome that was applied."""
        self.owned_known = False
        """It has said once whose owner it is."""
        self.up_since: float | None = None
        """Monotonic time since which its log is followed; None: it is not."""

    def connected(self, *, up: bool, now: float) -> None:
        """The connection to the Binder's log is there, or gone."""
        if not up:
            self.up_since = None
        elif self.up_since is None:
            self.up_since = now

    # ------------------------------------------------------------------------------------- outcomes

    def apply_outcomes(
        self, outcomes: Sequence[Outcome], *, first_index: int, epoch: int, now: float
    ) -> None:
        """Apply a piece of the Binder's outcome log; what was applied before is skipped."""
        self._shards.binder_at(epoch, now)
        done_epoch, done = self.acknowledged
        skip = max(0, done - first_index + 1) if done_epoch == epoch else 0
        assert done_epoch != epoch or first_index <= done + 1, "outcomes are left out"
        for outcome in outcomes[skip:]:
            uids = outcome.members or (outcome.unit_id,)
            for uid in uids:
                record = self._pods.get(uid)
                if record is not None and record.place is not Place.SETTLED:
                    self._apply(record, outcome, epoch=epoch, now=now)
        last = first_index + len(outcomes) - 1
        if outcomes and (epoch, last) > self.acknowledged:
            self.acknowledged = (epoch, last)

    def _apply(self, record: PodRecord, outcome: Outcome, *, epoch: int, now: float) -> None:
        whole = self._groups.leads(record) and not outcome.members
        if whole and outcome.kind in WHOLE_UNIT:
            self._groups.unit_lost(record, now)
            if outcome.kind is not OutcomeKind.CONFLICT:
                outcome = self._gang_refused(record, outcome)
        counted = self._outcomes.apply(record, outcome, epoch=epoch, now=now)
        if counted and outcome.kind is OutcomeKind.NOMINATED:
            if self._groups.keeps(record):
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
            for record in self._groups.unit_of(lead):
                self._lane.tell(record, Condition("Unschedulable", outcome.detail))
        return msgspec.structs.replace(outcome, kind=OutcomeKind.CONFLICT, cause=Cause.POD_CHANGED)

    def _nominated(self, record: PodRecord, outcome: Outcome, *, epoch: int, now: float) -> None:
        """Its victims were asked to go: it waits for that, as a pod nominated to that node."""
        self._intake.nominated(record, node=outcome.node, now=now)
        self._park(record, outcome, epoch=epoch, now=now)

    def _park(self, record: PodRecord, outcome: Outcome, *, epoch: int, now: float) -> None:
        diagnosis = outcome.diagnosis or Diagnosis(outcome.detail, (), 0)
        version = Version(epoch, outcome.sequence)
        self._shards.park(record, diagnosis, version=version, now=now)

    def _member_nominated(
        self, record: PodRecord, outcome: Outcome, *, epoch: int, now: float
    ) -> None:
        """The same for a member of a gang. The lead hears last, and then the gang waits."""
        group, last = record.group, self._groups.leads(record)
        self._queue.requeue_front(record, now)
        self._intake.nominated(record, node=outcome.node, now=now)
        if last and group is not None:
            self._elections.refresh(now)
            if group.lead is not None:
                self._groups.unit_of(group.lead)
                self._park(group.lead, outcome, epoch=epoch, now=now)

    # ---------------------------------------------------------------------------------------- owner

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
            record = self._pods.get(uid)
            if record is not None:
                self._outcomes.bound(record, now)
        for uid in unknown:
            record = self._pods.get(uid)
            if record is not None and record.place in (Place.OWNED, Place.SETTLED):
                self._orphan(record, now)
        if complete:
            self._owned_whole(set(owned), now)

    def _owned_whole(self, owned: set[str], now: float) -> None:
        for uid, record in list(self._pods.records.items()):
            if uid not in owned:
                if record.place is Place.OWNED:
                    self._orphan(record, now)
            elif record.place in (Place.WAITING, Place.BACKOFF, Place.GROUPED):
                self._queue.discard(record)
                self._pods.move(record, Place.OWNED, now)
        if not self.owned_known:
            self._intake.owned = {uid for uid in owned if uid not in self._pods.records}
            self.owned_known = True

    def _orphan(self, record: PodRecord, now: float) -> None:
        self._statistics.orphans += 1
        assert record.place not in (Place.WAITING, Place.DISPATCHED), f"{record!r} is no orphan"
        self._note(record.uid, "orphan", "the binder does not know the pod; it is decided again")
        self._queue.requeue_front(record, now)

    # ------------------------------------------------------------------------------------ questions

    def requests(self) -> Requests:
        """What the Binder is to hear now; told once."""
        requests = Requests(
            withdraw=self._intake.withdrawals,
            ask=self._intake.asks,
            acknowledged=self.acknowledged[1],
            label_keys=self._shapes.take_wanted(),
        )
        self._intake.withdrawals = []
        self._intake.asks = []
        return requests

    def wanted_keys(self) -> tuple[str, ...]:
        """Label keys that the Binder must show, for a Binder that has heard nothing yet."""
        return self._shapes.all_wanted()

    def ask_overdue(self, now: float) -> None:
        """Ask about those that have been with the Binder for too long, if it can be heard."""
        if self.up_since is None:
            return
        silent = self._pods.overdue(now=now, age_s=self._limits.after_s, limit=self._limits.a_tick)
        self._intake.asks.extend(record.uid for record in silent)
