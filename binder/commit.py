"""What a batch of proposals gets: the optimistic half of Stretto, decided at one place.

Naively the Binder would check, reserve and answer one proposal after the other: a ledger round trip
a unit. Instead a batch is taken in order against memory, each accepted unit counted tentatively on
the snapshot so that the next one sees it; then one ledger call reserves them all; then the replies
turn each into a commit (a row in the delta, a verdict with its sequence, a binding) or into a
conflict. One batch is in flight at a time, what arrives meanwhile is the next, so memory plus the
tentative rows is exactly what the ledger will see: a refusal for room after memory agreed is drift,
and freezes the node until it is audited (design §12.6).

Order of the checks: epochs, then what is known of the unit and its members (an answer given before
is given again; reliability I18), then the shape, then the nodes, spares included. A conflict is a
normal result and carries the sequence to reach before the next try.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from binder.causes import CAUSE_TEXTS, FOR_ROOM, GONE_CAUSES, LEDGER_CAUSES, OUTCOMES
from binder.charges import Charges
from binder.cluster import Cluster
from binder.fitting import Fitting, NoRoom
from binder.placed import PodFacts
from binder.preemptions import Preemptions
from binder.proposals import Batch, Incoming, Reservation, Settled, Tentative
from binder.stakes import Stakes
from stretto.ledger.types import (
    ReserveKind,
    ReserveReply,
    account_kind,
)
from stretto.model.unit import (
    Attempt,
    Cause,
    Member,
    Outcome,
    UnitId,
    Verdict,
    VerdictKind,
)
from stretto.placement.kernel import Kernel, UnknownProfileError
from stretto.snapshot.stakes import stake_key


class Committer:
    """See the module docstring."""

    def __init__(
        self,
        cluster: Cluster,
        kernel: Kernel,
        holders: Mapping[str, object],
        preemptions: Preemptions,
    ) -> None:
        self.cluster = cluster
        self.kernel = kernel
        self.preemptions = preemptions
        self.charges = Charges(cluster.snapshot, cluster.storage, kernel)
        """What reserved pods hold beside room."""
        self.stakes = Stakes(cluster, kernel)
        self.dispatcher_epoch = 0
        self.withdrawn: dict[str, None] = {}
        """Uids that the dispatcher has withdrawn, the newest last; bounded."""
        self._holders = holders
        """Pods that hold a reservation, by uid."""
        self._fitting = Fitting(cluster, kernel, self.charges)
        self._answered: dict[UnitId, Verdict] = {}
        """The last verdict a unit got, until its outcome is acknowledged."""
        self._details: dict[UnitId, str] = {}
        """Sentences for outcomes of the batch in hand, where the cause does not say it all."""

    # ---------------------------------------------------------------------------- before the ledger
    def take(self, proposals: Sequence[Incoming]) -> Batch:
        """Check proposals in order against memory; the accepted ones count tentatively."""
        batch = Batch()
        batch_pods: set[str] = set()
        for incoming in proposals:
            verdict = self._known(incoming, batch_pods) or self._shape_verdict(incoming)
            if verdict is None:
                verdict = self._beside_stakes(incoming, batch)
            if verdict is not None:
                batch.verdicts.append((incoming.stream, verdict))
            else:
                for member in incoming.proposal.unit.members:
                    batch_pods.add(member.uid)
        return batch

    def _known(self, incoming: Incoming, batch_pods: set[str]) -> Verdict | None:
        """The answer that follows from epochs and from what is known of the unit's pods."""
        unit = incoming.proposal.unit
        if incoming.binder_epoch != self.cluster.epoch:
            return self._verdict(incoming, VerdictKind.CONFLICT, Cause.EPOCH)
        if unit.attempt.epoch < self.dispatcher_epoch:
            return self._verdict(incoming, VerdictKind.SUPERSEDED)
        before = self._answered.get(unit.unit_id)
        if before is not None:
            if before.attempt == unit.attempt:
                return before
            if before.attempt > unit.attempt:
                return self._verdict(incoming, VerdictKind.SUPERSEDED)
        for member in unit.members:
            if (
                member.uid in batch_pods
                or member.uid in self._holders
                or member.uid in self.preemptions.claims
            ):
                return self._verdict(incoming, VerdictKind.HELD)
        if self._any_gone(unit.members):
            return self._verdict(incoming, VerdictKind.GONE, Cause.POD_GONE)
        return None

    def _any_gone(self, members: Sequence[Member]) -> bool:
        """One is bound by somebody else, or given up by the dispatcher. (A loop: a generator
        costs more than what it asks.)"""
        for member in members:
            if member.uid in self.withdrawn or self.cluster.knows(member.uid):
                return True
        return False

    def _shape_verdict(self, incoming: Incoming) -> Verdict | None:
        """The answer that follows from the shapes alone."""
        keys = self.cluster.label_keys
        for shape in incoming.shapes:
            if shape.label_keys != keys or (shape.reads and self.cluster.stale):
                return self._verdict(incoming, VerdictKind.CONFLICT, Cause.LABEL_KEYS)
            try:
                refusal = self.kernel.refusal(shape)
            except UnknownProfileError:
                return self._verdict(incoming, VerdictKind.REFUSED, Cause.INVALID)
            if refusal:
                # Nothing in memory may admit what the shard should have refused itself.
                self._details[incoming.proposal.unit.unit_id] = refusal
                hard = bool(shape.unbuilt_hard)
                kind = VerdictKind.REFUSED if hard else VerdictKind.CONFLICT
                return self._verdict(incoming, kind, Cause.NODE_CHANGED)
        return None

    def _beside_stakes(self, incoming: Incoming, batch: Batch) -> Verdict | None:
        """Nothing is kept from a unit by its own stake."""
        stakes = self.cluster.snapshot.stakes
        if not stakes:
            return self._fits_or_preempts(incoming, batch)
        self.cluster.flush()  # stakes in the picture stay what they are meanwhile
        with stakes.lifted(stake_key(incoming.proposal.unit.unit_id, incoming.shapes[0])):
            return self._fits_or_preempts(incoming, batch)

    def _fits_or_preempts(self, incoming: Incoming, batch: Batch) -> Verdict | None:
        if not incoming.proposal.victims:
            return self._reserve_in_memory(incoming, batch)
        kind, cause = self.preemptions.judge(incoming)
        if kind is VerdictKind.NOMINATED:
            self.stakes.used(incoming)  # it has the nomination in its place
        return self._verdict(incoming, kind, cause)

    def _reserve_in_memory(self, incoming: Incoming, batch: Batch) -> Verdict | None:
        """Members of a gang leave no room for each other's nominations."""
        members = incoming.proposal.unit.members
        if len(members) == 1:
            return self._reserve(incoming, batch)
        with self.cluster.snapshot.nominations.lifted(m.uid for m in members):
            return self._reserve(incoming, batch)

    def _reserve(self, incoming: Incoming, batch: Batch) -> Verdict | None:
        fit = self._fitting.fit(incoming)
        if isinstance(fit, NoRoom):
            return self._no_room(incoming, fit)
        batch.tentative.append(fit)
        batch.units.append(self._fitting.ledger_unit(fit))
        assert len(batch.units) == len(batch.tentative)
        return None

    def _no_room(self, incoming: Incoming, found: NoRoom) -> Verdict:
        unit, cause = incoming.proposal.unit, found.cause
        if cause is Cause.INVALID:
            # An own plugin fails here; sending the unit back would only try that again.
            self._details[unit.unit_id] = "an own plugin fails at the binder"
            return self._verdict(incoming, VerdictKind.REFUSED, cause)
        if found.detail:
            self._details[unit.unit_id] = found.detail
        if unit.stake and cause in FOR_ROOM and self.stakes.ask(incoming, found.nodes):
            cause = Cause.STAKED
        return self._verdict(incoming, VerdictKind.CONFLICT, cause)

    # ----------------------------------------------------------------------------- after the ledger
    def give_up(self, batch: Batch) -> None:
        """The ledger call failed for good: nothing of the batch stands."""
        for tentative in batch.tentative:
            self._untentative(tentative)

    def _untentative(self, tentative: Tentative) -> None:
        snapshot = self.cluster.snapshot
        for shape, node_id, row in zip(
            tentative.incoming.shapes, tentative.nodes, tentative.rows, strict=True
        ):
            if snapshot.row_of(node_id) == row:  # else its node left and took the columns along
                snapshot.remove_pod(shape, row)

    def settle(self, batch: Batch, replies: Sequence[ReserveReply]) -> Settled:
        """Turn the ledger's replies into commits and conflicts."""
        assert len(replies) == len(batch.units) == len(batch.tentative), "replies of another batch"
        settled = Settled(verdicts=list(batch.verdicts))
        sequence = self.cluster.sequence + 1
        for tentative, reply in zip(batch.tentative, replies, strict=True):
            if reply.kind is ReserveKind.GRANTED:
                verdict = self._commit(tentative, settled, sequence=sequence)
            else:
                verdict = self._lost(tentative, reply, settled)
            if verdict.kind is not VerdictKind.COMMITTED:
                self._untentative(tentative)
            settled.verdicts.append((tentative.incoming.stream, verdict))
        reached = self.cluster.next_sequence
        for index, (stream, verdict) in enumerate(settled.verdicts):
            if verdict.kind is VerdictKind.CONFLICT and verdict is not self._answered.get(
                verdict.unit_id
            ):
                # What it was lost to may be a unit of this very batch.
                verdict = msgspec.structs.replace(verdict, sequence=reached)
                settled.verdicts[index] = (stream, verdict)
            self.remember(verdict, settled)
        return settled

    def _commit(self, tentative: Tentative, settled: Settled, *, sequence: int) -> Verdict:
        incoming, cluster, unit = tentative.incoming, self.cluster, tentative.incoming.proposal.unit
        assert incoming.binder_epoch == cluster.epoch, "a proposal of another epoch is committed"
        uids = [self._uid_of(node_id) for node_id in tentative.nodes]
        gone = self._any_gone(unit.members)
        if gone or not all(uids):
            # Seen while the ledger was asked. No bind has been sent, so it may be freed at once.
            settled.free += [member.uid for member in unit.members]
            if gone:
                return self._verdict(incoming, VerdictKind.GONE, Cause.POD_GONE)
            return self._verdict(incoming, VerdictKind.CONFLICT, Cause.NODE_GONE)
        self.charges.hold_all(unit.members, tentative.charges)
        self.stakes.used(incoming)
        places = zip(unit.members, incoming.shapes, tentative.rows, uids, strict=True)
        plans = zip(tentative.volumes, tentative.devices, strict=True)
        for (member, shape, row, node_uid), (volumes, devices) in zip(places, plans, strict=True):
            assert member.uid not in self._holders, f"{member.uid} is committed twice"
            cluster.describe(member.uid, PodFacts(member.namespace, member.name))
            cluster.place(member.uid, shape=shape, node_uid=node_uid)
            cluster.settling[member.uid] = shape, row
            settled.reservations.append(
                Reservation(
                    member, shape, node_uid, cluster.nodes[node_uid].row.name, unit.unit_id,
                    unit.attempt, incoming.shard, volumes, devices, devices.resources,
                )
            )  # fmt: skip
        assert sequence == cluster.next_sequence, "committed in another step than it is shown in"
        return Verdict(
            unit.unit_id, unit.attempt, VerdictKind.COMMITTED, Cause.NONE, sequence,
            tuple(tentative.nodes),
        )  # fmt: skip

    def _uid_of(self, node_id: int) -> str:
        """The node's uid; empty if it is gone, be it only in the open delta."""
        row = self.cluster.snapshot.row_of(node_id)
        uid = "" if row is None else self.cluster.snapshot.node_uid[row]
        return uid if uid in self.cluster.nodes else ""

    def _lost(self, tentative: Tentative, reply: ReserveReply, settled: Settled) -> Verdict:
        incoming = tentative.incoming
        if reply.kind is ReserveKind.SUPERSEDED:
            return self._verdict(incoming, VerdictKind.SUPERSEDED)
        if reply.kind is ReserveKind.HELD:
            return self._verdict(incoming, VerdictKind.HELD)
        cause = LEDGER_CAUSES[reply.kind]
        if reply.kind is ReserveKind.ACCOUNT_MISSING:
            cause = GONE_CAUSES[account_kind(reply.account)]
        elif reply.kind is ReserveKind.NO_FIT:
            settled.drift.append(reply.account)
        return self._verdict(incoming, VerdictKind.CONFLICT, cause)

    def _verdict(self, incoming: Incoming, kind: VerdictKind, cause: Cause = Cause.NONE) -> Verdict:
        assert (kind in OUTCOMES) == (cause is not Cause.NONE), f"{kind.name} for {cause.name}"
        unit = incoming.proposal.unit
        return Verdict(unit.unit_id, unit.attempt, kind, cause, self.cluster.sequence)

    def remember(self, verdict: Verdict, settled: Settled) -> None:
        """Keep a verdict for repeats, and give its outcome unless it was given before."""
        kind = verdict.kind
        detail = self._details.pop(verdict.unit_id, "") if self._details else ""
        if kind in (VerdictKind.SUPERSEDED, VerdictKind.HELD):
            return
        before = self._answered.get(verdict.unit_id)
        if before == verdict:
            return  # given before: its outcome is in the log already
        if before is not None and before.attempt > verdict.attempt:
            return  # both stood in one batch, the newer first: nobody waits for this answer
        self._answered[verdict.unit_id] = verdict
        outcome = OUTCOMES.get(kind)
        if outcome is not None:
            settled.outcomes.append(
                Outcome(
                    verdict.unit_id, verdict.attempt, outcome, verdict.cause, verdict.sequence,
                    detail=detail or CAUSE_TEXTS.get(verdict.cause, ""),
                )
            )  # fmt: skip

    # ----------------------------------------------------------------------------------- dispatcher
    def forget(self, unit_id: UnitId, attempt: Attempt) -> bool:
        """The dispatcher has acknowledged an outcome; True if it was the unit's last answer."""
        answered = self._answered.get(unit_id)
        if answered is None or answered.attempt > attempt:
            return False
        del self._answered[unit_id]
        return True

    def withdraw(self, uid: str, *, keep: int = 65_536) -> None:
        """The dispatcher says that a pod is gone or no longer ours."""
        self.withdrawn[uid] = None
        self.stakes.gone(uid)
        while len(self.withdrawn) > keep:
            del self.withdrawn[next(iter(self.withdrawn))]
