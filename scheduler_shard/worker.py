"""The brain of a shard: units in, proposals and answers out.

What it holds of a unit is in one of three places: the *desk* (undecided), *open* (proposed, no
verdict yet), or the answers that wait to be sent. The *overlay* counts open and freshly committed
proposals on the snapshot.

Order matters where streams meet:

* Nothing is proposed unless the snapshot and the stream to the Binder are of one epoch. When that
  epoch ends, the overlay goes, and what was open is handed back as unsettled: the new Binder
  decides from its own records what became of it.
* A new stream to the Binder within the epoch gets every open proposal again, marked as resent.
* When the dispatcher's stream ends, the dispatcher gives undecided units to others; so they are
  dropped here, while what is open goes on to its verdict.
* Credits: the dispatcher may send as many units as were granted. A unit that leaves the desk or the
  open table by an answer grants one more.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from scheduler_shard.answers import Answers
from scheduler_shard.asking import (
    Asking,
)
from scheduler_shard.claims import Claims
from scheduler_shard.consulting import Consulting
from scheduler_shard.desk import Batch, Desk
from scheduler_shard.gangs import Gangs
from scheduler_shard.overlay import Overlay
from scheduler_shard.picture import Picture, Step
from scheduler_shard.proposed import Proposed
from scheduler_shard.shapes import ShapeBook, ShapeEntry
from scheduler_shard.stakes import StakeDesk
from scheduler_shard.units import seed_of
from stretto.model.unit import (
    Cause,
    Diagnosis,
    Proposal,
    Unit,
    Verdict,
    VerdictKind,
)
from stretto.placement.extenders import Extender, interested
from stretto.placement.gang import GangPlacer
from stretto.placement.kernel import Kernel
from stretto.placement.prepare import prepare
from stretto.placement.profiles import Profiles
from stretto.rpc.messages import FollowMessage, FromShard, ProposalBatch, ToShard, VerdictBatch
from stretto.snapshot.columns import Settling
from stretto.telemetry.story import StoryLog

PATIENCE_S = 10.0
"""Without a Binder for so long, units are handed back: its successor may be near, and then it is
quickest to keep them; or it is only this shard that does not reach it."""
UNABLE = "the shard does not reach the Binder"
ROUND_UNITS = 64
"""Units decided before the loop may look at its streams again: one message, about a millisecond."""


class Shard(Consulting, Gangs):
    """See the module docstring. Times are seconds on the caller's monotonic clock."""

    def __init__(
        self,
        *,
        profiles: Profiles,
        own_partitions: frozenset[int] = frozenset(),
        window: int = 512,
        spares: int = 2,
        silence_s: float = 5.0,
        stories: StoryLog | None = None,
        extenders: Sequence[Extender] = (),
    ) -> None:
        self.picture = Picture()
        self.kernel = Kernel(self.picture.snapshot, profiles, own_partitions=own_partitions)
        self.counts: Counter[str] = Counter()
        """What happened, for metrics: proposed, unplaceable, handed_back, resyncs …"""
        self.verdict_counts: Counter[tuple[VerdictKind, Cause]] = Counter()
        """Verdicts by (kind, cause)."""
        self.latencies_s: list[float] = []
        """Seconds from proposal to verdict, the longest of each batch since the shell last took
        them: one observation a pod would cost as much as deciding it."""
        self.draining = False
        self._gangs = GangPlacer(self.kernel, self.picture.snapshot)
        self._stakes = StakeDesk(self.kernel, self.picture.snapshot)
        self._profiles = profiles
        self._own_partitions = own_partitions
        self._window = window
        self._spares = spares
        self._silence_s = silence_s
        self._stories = stories
        self._heard_s = float("-inf")
        self._unable_since_s: float | None = None
        self._book = ShapeBook()
        self._desk = Desk()
        self._overlay = Overlay(self.picture.snapshot)
        self._claims = Claims(self.picture.snapshot)
        self._proposed = Proposed(self._book)
        self._answers = Answers(counts=self.counts, stories=stories)
        self._extenders = tuple(extenders)
        self._asking = Asking()

    # ---------------------------------------------------------------------------- the dispatcher
    def work_opened(self) -> None:
        """A new stream to the dispatcher, which was greeted: grant it what is free."""
        free = self._window - len(self._proposed)
        self._answers.opened(credits_free=free, draining=self.draining)

    def work_lost(self) -> None:
        """The stream to the dispatcher has ended: what is undecided goes to others."""
        self._answers.closed()
        self.counts["dropped"] += len(self._desk.clear()) + len(self._asking.clear())
        self._book.new_stream()

    def work(self, message: ToShard) -> None:
        """Shapes and units arrive."""
        self._book.define(message.shapes)
        sequence = self.picture.snapshot.version.sequence
        self._answers.took(len(message.units))
        for unit in message.units:
            entry = self._book.get(unit.members[0].shape)
            unknown = [m.shape for m in unit.members if self._book.get(m.shape) is None]
            if entry is None or unknown:
                self._answers.hand_back([unit], f"shape {unknown[0]} is not defined here")
            elif self.draining:
                self._answers.hand_back([unit], "the shard is draining")
            elif self._answers.withholding:
                self._answers.hand_back([unit], UNABLE)
            else:
                self._desk.add(entry, self._renumbered(unit), sequence=sequence)
        self._book.forget(message.forgotten)

    def _renumbered(self, unit: Unit) -> Unit:
        """The unit with our shape numbers in place of the dispatcher's."""
        base = self._book.base
        if base == 0:
            return unit
        members = tuple(msgspec.structs.replace(m, shape=m.shape + base) for m in unit.members)
        return msgspec.structs.replace(unit, members=members)

    def take_answers(self) -> FromShard | None:
        """What the dispatcher should hear now, None if nothing; it is forgotten here."""
        return self._answers.take()

    def drain(self) -> None:
        """Take no more units, give back the undecided ones, wait for verdicts on the rest."""
        self.draining = True
        self._answers.drain()
        self._give_up("the shard is draining")
        assert not self._desk.ready, "drained and something is left to decide"

    def _give_up(self, reason: str) -> None:
        """Hand back all that is undecided."""
        asked = [question.unit for question in self._asking.clear()]
        self._answers.hand_back([*self._desk.clear(), *asked], reason)

    def tick(self, now: float) -> None:
        """Time has passed. A shard that has been cut off from the Binder for a while keeps no units
        that another could decide, and asks for none until it can decide again."""
        if self.may_decide(now):
            self._unable_since_s = None
            if self._answers.withholding:
                self._answers.resume()
            return
        if self._unable_since_s is None:
            self._unable_since_s = now
        if now - self._unable_since_s >= PATIENCE_S:
            self._answers.withhold()
            self._give_up(UNABLE)

    @property
    def idle(self) -> bool:
        """Nothing is open or left to say."""
        return not len(self._proposed) and not len(self._asking) and self._answers.empty

    # -------------------------------------------------------------------------------- the Binder
    def propose_opened(self, epoch: int) -> None:
        """A new stream to the Binder: send again what is open, or give it back if the epoch is
        another."""
        if len(self._proposed) and self.picture.snapshot.version.epoch != epoch:
            self._end_epoch()
        self._proposed.opened(epoch)

    def propose_lost(self) -> None:
        """The stream to the Binder has ended; what is open stays open."""
        self._proposed.closed()

    def take_proposals(self) -> ProposalBatch | None:
        """Proposals to send now, None if there are none."""
        return self._proposed.take()

    @property
    def unsent(self) -> int:
        """Proposals that wait to be sent."""
        return self._proposed.unsent

    def followed(self, message: FollowMessage, *, now: float) -> Step:
        """A message of the Binder's log; LOST: the shell must follow again from nothing."""
        epoch = self.picture.snapshot.version.epoch
        self._heard_s = now
        settling: Settling = {}
        if len(self._overlay) and message.delta.pod_sign:
            delta = message.delta
            settling = self._overlay.hand_over(
                uid for uid, sign in zip(delta.pod_uid, delta.pod_sign, strict=True) if sign > 0
            )
        step = self.picture.take(message, settling)
        if step is Step.REPLACED:
            self._replace(new_epoch=self.picture.snapshot.version.epoch != epoch)
        elif step is Step.ADVANCED:
            self._overlay.reached(self.picture.snapshot.version.sequence)
            self._claims.reached(self.picture.snapshot.version.sequence)
        elif step is Step.LOST:
            self.counts["resyncs"] += 1
        version = self.picture.snapshot.version
        assert step is not Step.ADVANCED or version.epoch == epoch, "another epoch's step"
        if step is not Step.NOTHING:
            self._desk.reached(self.picture.snapshot.version.sequence)
            self._desk.settled(self._overlay.oldest_serial)
        return step

    def _replace(self, *, new_epoch: bool) -> None:
        """Another snapshot object: count the overlay there, or drop it with its epoch."""
        snapshot = self.picture.snapshot
        for question in self._asking.clear():
            self._desk.add(question.entry, question.unit, sequence=snapshot.version.sequence)
        self.kernel = Kernel(snapshot, self._profiles, own_partitions=self._own_partitions)
        prepare(snapshot)
        self._gangs = GangPlacer(self.kernel, snapshot)
        self._stakes = StakeDesk(self.kernel, snapshot)
        if new_epoch:
            self._end_epoch()
            self._overlay = Overlay(snapshot)
            self._claims = Claims(snapshot)
        else:
            self._overlay.move_to(snapshot)
            self._claims.move_to(snapshot)

    def _end_epoch(self) -> None:
        """The Binder's epoch is over: nothing that was proposed in it will get a verdict."""
        self._overlay.clear()
        self._claims.clear()
        self._answers.hand_back(
            self._proposed.clear(), "the Binder's epoch has ended before a verdict"
        )
        self._answers.hand_back(
            self._desk.clear_waiting(), "waited for a sequence of an epoch that has ended"
        )
        self._desk.settled(None)

    def verdicts(self, batch: VerdictBatch, *, now: float) -> None:
        """The Binder has decided on proposals."""
        slowest = 0.0
        for verdict in batch.verdicts:
            self.verdict_counts[verdict.kind, verdict.cause] += 1
            opened = self._proposed.settle((verdict.unit_id, verdict.attempt))
            if opened is None:
                self.counts["verdicts_unknown"] += 1
                continue
            assert now >= opened.at_s, "a verdict before its proposal"
            slowest = max(slowest, now - opened.at_s)
            self._settle(opened.proposal, verdict)
            self._answers.settled(verdict.unit_id, verdict.attempt)
        if slowest > 0:
            self.latencies_s.append(slowest)
        self._desk.settled(self._overlay.oldest_serial)

    def _settle(self, proposal: Proposal, verdict: Verdict) -> None:
        members = proposal.unit.members
        values: tuple[object, ...]
        if verdict.kind is not VerdictKind.COMMITTED:
            for member in members:
                self._overlay.drop(member.uid)
        if verdict.kind is VerdictKind.NOMINATED:
            for member in members:
                self._claims.won(member.uid, verdict.sequence)
            text, values = "nominated at {}", (verdict.sequence,)
        elif verdict.kind is not VerdictKind.COMMITTED:
            for member in members if proposal.victims else ():
                self._claims.lost(member.uid)
            text, values = "lost: {0.name} {1.name}", (verdict.kind, verdict.cause)
        else:
            nodes = verdict.nodes or proposal.nodes
            for member, node_id in zip(members, nodes, strict=False):
                self._overlay.commit(member.uid, node_id=node_id, sequence=verdict.sequence)
            text, values = "committed at {}", (verdict.sequence,)
        self._answers.note(verdict.unit_id, verdict.attempt, text, *values)

    # ---------------------------------------------------------------------------------- deciding
    def may_decide(self, now: float) -> bool:
        """The snapshot is whole, fresh, and of the epoch of the stream to the Binder."""
        return (
            self.picture.synced
            and self._proposed.epoch == self.picture.snapshot.version.epoch
            and now - self._heard_s <= self._silence_s
        )

    def decide(self, *, now: float) -> bool:
        """Decide up to 64 units; True: there are more that can be decided at once."""
        if not (self._desk.ready or self._asking.ready) or not self.may_decide(now):
            return False
        left = ROUND_UNITS
        while left > 0 and (answered := self._asking.take_answered()) is not None:
            left -= 1
            self._conclude(*answered, now)
        while left > 0 and (batch := self._desk.take(left)) is not None:
            left -= len(batch.units)
            assert left >= 0, "more is decided in a round than was asked for"
            self._decide_batch(batch, now)
        return self._desk.ready or self._asking.ready

    def _decide_batch(self, batch: Batch, now: float) -> None:
        refusal = self.kernel.refusal(batch.entry.shape)
        if refusal:
            nodes = self.picture.snapshot.node_count
            self._unplaceable(batch.entry, batch.units, Diagnosis(refusal, (), nodes))
            return
        extenders = interested(self._extenders, batch.entry.shape) if self._extenders else ()
        if extenders:
            self._ask(batch, extenders, now)
            return
        failed: list[Unit] = []
        plain: dict[bool, list[Unit]] = {}
        together = self._gangs.topologies.of(batch.entry.shape.group) is not None
        for unit in batch.units:
            if len(unit.members) > 1 or together:
                with self._stakes.lifted(unit, batch.entry.shape):
                    self._place_gang(batch, unit, now)
            elif self._stakes.concerns(unit, batch.entry.shape):
                with self._stakes.lifted(unit, batch.entry.shape):
                    if self._place(batch.entry, [unit], now):
                        self._no_room(batch, [unit], now)
            elif unit.avoid:
                failed += self._place(batch.entry, [unit], now)
            else:
                plain.setdefault(unit.own, []).append(unit)
        for units in plain.values():
            failed += self._place(batch.entry, units, now)
        if failed:
            self._no_room(batch, failed, now)

    def _place(self, entry: ShapeEntry, units: list[Unit], now: float) -> list[Unit]:
        """Propose nodes for single pods of one shape; those that found none are returned."""
        first = units[0]
        placement = self.kernel.place(
            entry.shape, len(units), seed=seed_of(first), avoid=first.avoid, spares=self._spares,
            own_first=first.own,
        )  # fmt: skip
        rows = placement.rows
        assert len(rows) <= len(units), "more nodes than pods"
        nodes = self.picture.snapshot.node_id[np.array(rows, dtype=np.int64)].tolist()
        spares = self._spare_nodes(placement.spares, len(rows))
        for unit, node, others in zip(units, nodes, spares, strict=False):
            self._propose((entry,), unit, (node,), others, now)
        return units[len(rows) :]

    def _spare_nodes(self, spares: Sequence[tuple[int, ...]], count: int) -> list[tuple[int, ...]]:
        """Rows to node ids."""
        if not any(spares):
            return [()] * count
        rows = np.fromiter(itertools.chain.from_iterable(spares), dtype=np.int64)
        ids = iter(self.picture.snapshot.node_id[rows].tolist())
        return [tuple(itertools.islice(ids, len(few))) for few in spares]

    def _propose(
        self,
        entries: tuple[ShapeEntry, ...],
        unit: Unit,
        nodes: tuple[int, ...],
        spares: tuple[int, ...],
        now: float,
    ) -> None:
        assert len(nodes) == len(unit.members), f"{unit.unit_id} has members without a node"
        proposal = Proposal(unit, nodes, spares, self.picture.snapshot.version.sequence)
        for member, entry, node_id in zip(unit.members, entries, nodes, strict=True):
            self._overlay.add(member.uid, shape=entry.shape, node_id=node_id)
        self._proposed.add(proposal, entries=entries, at_s=now)
        self.counts["proposed"] += 1
        self._answers.note(unit.unit_id, unit.attempt, "proposed on {}, spares {}", nodes, spares)

    def _no_room(self, batch: Batch, units: list[Unit], now: float) -> None:
        """No node took these. Only the committed state may say so (design §12.2).

        With own proposals open the units are held until those are settled. If there are newer ones
        open by then (a steady stream of other shapes), the committed state is looked at by itself:
        lifting the overlay costs two updates a row, so it is not done the first time.
        """
        left = units
        if not len(self._overlay):
            left = self._hopeless(batch.entry, units, now)
        elif batch.held_before:
            self._overlay.lift()
            if not self.kernel.filter(batch.entry.shape).any():
                left = self._hopeless(batch.entry, units, now)
            self._overlay.put_back()
        if left:
            self.counts["held"] += len(left)
            self._desk.hold(batch.entry, left, barrier=self._overlay.last_serial)

    def _hopeless(self, entry: ShapeEntry, units: list[Unit], now: float) -> list[Unit]:
        """These fit nowhere: propose whom to preempt for each, or say why that does not help.

        Returned are those of which that cannot be said yet: a claim of our own that is still open
        may be what keeps them out.
        """
        units = self._ask_whom(entry, units) if self._extenders else units
        if not units:
            return []
        assert self.picture.synced, "hopeless by a picture that is not whole"
        decided = self._claims.decide(self.kernel, entry.shape, units)
        for proposal in decided.proposals:
            self._preempt(entry, proposal, now)
        self._proposed.release(decided.releases)
        hopeless = [unit for unit in decided.hopeless if not self._stake(unit, (entry,), now)]
        if hopeless:
            self._unplaceable(entry, hopeless, decided.diagnosis)
        return decided.undecided

    def _stake(self, unit: Unit, entries: tuple[ShapeEntry, ...], now: float) -> bool:
        """Propose to keep room for a unit that fits nowhere; False if it is not to be."""
        proposal = self._stakes.proposal(unit, [entry.shape for entry in entries])
        if proposal is None:
            return False
        self._proposed.add(proposal, entries=entries, at_s=now)
        self.counts["staking"] += 1
        text = f"fits nowhere; room to be kept on {proposal.nodes}"
        self._answers.note(unit.unit_id, unit.attempt, text)
        return True

    def _preempt(self, entry: ShapeEntry, proposal: Proposal, now: float) -> None:
        """Propose a claim with its victims."""
        self._proposed.add(proposal, entries=(entry,), at_s=now)
        self.counts["preempting"] += 1
        assert proposal.diagnosis is not None
        unit = proposal.unit
        self._answers.note(unit.unit_id, unit.attempt, proposal.diagnosis.message)

    def _unplaceable(self, entry: ShapeEntry, units: list[Unit], diagnosis: Diagnosis) -> None:
        version = self.picture.snapshot.version
        self._answers.unplaceable(entry, units, diagnosis=diagnosis, version=version)

    # --------------------------------------------------------------------------------- self-check
    def statistics(self) -> dict[str, int]:
        """Units by place."""
        return {
            **self._desk.statistics(),
            "open": len(self._proposed),
            "asked": len(self._asking),
            "overlay": len(self._overlay),
            "claims": len(self._claims),
            "granted": self._answers.granted,
            "shapes": len(self._book),
        }

    def validate(self) -> None:
        """Assert the invariants; O(everything)."""
        self.picture.snapshot.validate()
        self._overlay.validate()
        held = len(self._desk) + len(self._proposed) + len(self._asking)
        self._answers.validate(held=held, window=self._window)
