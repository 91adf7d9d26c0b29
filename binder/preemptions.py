"""Preemption at the Binder: a unit's claim on nodes, from the proposal to the last eviction.

A shard proposes {unit, a node for each member, victims}. Naively the victims would be deleted and
the unit tried again; then another pod takes the hole, or the unit no longer fits when the hole is
there. So, in this order:

1. *Judge* on the authoritative state, with the code that the shard used: who would have to go now?
   Nobody else than proposed, or it is a conflict. From here on the claim stands: the nomination,
   the victims' marks and what they spend of their budgets are in the log, so nobody is promised the
   room or the disruption a second time.
2. *Nominate*: status.nominatedNodeName of every member, with the pod's resourceVersion as
   precondition. Whoever dies now, a successor finds the nominations there.
3. *Evict*, each victim by its uid, if the claim still holds and still needs it.
4. Tell the dispatcher, which waits for the victims to be gone.

Unhappy path: a claim that cannot be carried out is taken back as a whole (marks, budgets,
nomination), and the unit is decided again. What was evicted by then stays evicted.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from binder.budgets import Budgets
from binder.cluster import Cluster
from binder.preemption_claims import Claim, ClaimStage, Leaving, Seat
from binder.proposals import Incoming
from stretto.model.groups import group_name_of
from stretto.model.shape import Shape
from stretto.model.unit import Cause, Diagnosis, Outcome, OutcomeKind, VerdictKind
from stretto.placement.framework import Status
from stretto.placement.gang import Topologies
from stretto.placement.kernel import Kernel
from stretto.placement.lots import Lot, Victim
from stretto.placement.victims import Victims
from stretto.snapshot.pod_records import LEAVING, PREEMPTED

DOOMED = LEAVING | PREEMPTED


class Preemptions:
    """See the module docstring."""

    def __init__(self, cluster: Cluster, kernel: Kernel, budgets: Budgets) -> None:
        self._cluster = cluster
        self._kernel = kernel
        self._budgets = budgets
        self._topologies = Topologies(cluster.snapshot)
        self.claims: dict[str, Claim] = {}
        """Claims that are not over, by the uid of each member."""
        self._nominees: dict[str, tuple[str, str]] = {}
        """Unbound pods with a nomination in their status: uid → (namespace, name)."""
        self._unshown: dict[str, int] = {}
        """Pods that we have nominated and the watch has not shown yet → their version then."""
        self._shown = 0
        """Up to this version the watch of nominees has shown everything."""
        self.asked_to_go: set[str] = set()
        """Victims that the API server has agreed to let go, and that are still there."""
        self.fresh: list[Claim] = []
        """Claims for the shell to carry out."""
        self.outcomes: list[Outcome] = []
        """For the dispatcher."""

    # ------------------------------------------------------------------------------------- judging
    def judge(self, incoming: Incoming) -> tuple[VerdictKind, Cause]:
        """Whether a proposal with victims becomes a claim."""
        self._cluster.flush()
        proposal, snapshot = incoming.proposal, self._cluster.snapshot
        if len(proposal.unit.members) != len(proposal.nodes):
            return VerdictKind.REFUSED, Cause.INVALID
        found = [snapshot.row_of(node) for node in proposal.nodes]
        rows = [row for row in found if row is not None]
        if len(rows) < len(found):
            return VerdictKind.CONFLICT, Cause.NODE_GONE
        if any(snapshot.frozen[row] for row in rows):
            return VerdictKind.CONFLICT, Cause.FROZEN
        if self._topologies.lacks(incoming.shapes[0].group, coming=len(rows)):
            return VerdictKind.CONFLICT, Cause.GANG
        needed = self._needed(incoming, rows)
        uids = {pod.record.uid for pod in needed.pods} if needed is not None else set()
        if not uids or not uids <= set(proposal.victims) or not uids <= self._cluster.facts.keys():
            return VerdictKind.CONFLICT, Cause.VICTIMS
        assert needed is not None
        self._claim(incoming, needed, rows)
        return VerdictKind.NOMINATED, Cause.NONE

    def _needed(self, incoming: Incoming, rows: list[int]) -> Victims | None:
        """Who has to go for a unit now; no pods: nobody; None: nobody's going would help."""
        shapes, kernel = incoming.shapes, self._kernel
        if len(shapes) == 1:
            if kernel.check_one(shapes[0], rows[0]) is Cause.NONE:
                return None
            found = kernel.victims_on(shapes[0], rows[0])
            return None if isinstance(found, Status) else found
        if not self._topologies.agree(shapes[0].group, rows):
            return None
        members = [member.uid for member in incoming.proposal.unit.members]
        uids = self._cluster.rows_of(incoming.proposal.victims)
        with self._cluster.snapshot.nominations.lifted(members):
            lots = kernel.needed_of(shapes, rows, uids, leaving=())
        if not lots:
            return None
        found = Victims(rows[0], tuple(lots), kernel.violating(lots))
        return None if found.violating and kernel.strict_budgets(shapes[0]) else found

    def _claim(self, incoming: Incoming, needed: Victims, rows: list[int]) -> None:
        cluster, proposal = self._cluster, incoming.proposal
        victims = [
            self._leaving(pod, lot, deleted=pod.record.uid in needed.violating)
            for lot in needed.lots
            for pod in lot.pods
        ]
        seats = []
        for member, shape, row, node_id in zip(
            proposal.unit.members, incoming.shapes, rows, proposal.nodes, strict=True
        ):
            waiting = msgspec.structs.replace(shape, nominated_node="")
            name, version = cluster.snapshot.name[row], member.resource_version
            seats.append(Seat(member, waiting, node_id, name, version))
            cluster.nominate(member.uid, node=name, shape=waiting)
        cluster.flush()
        claim = Claim(
            proposal.unit, seats, victims, incoming.shard, cluster.sequence, proposal.diagnosis
        )
        assert len(seats) == len(proposal.unit.members)
        assert victims, "a claim without victims"
        assert not any(seat.member.uid in self.claims for seat in seats), "a pod claims twice"
        self.claims.update((seat.member.uid, claim) for seat in seats)
        self.fresh.append(claim)

    def _leaving(self, pod: Victim, lot: Lot, *, deleted: bool) -> Leaving:
        """A pod becomes a victim: it is marked, and its budgets are charged."""
        uid = pod.record.uid
        facts = self._cluster.facts[uid]
        if facts.flags & LEAVING and not self._listed(uid):
            self.asked_to_go.add(uid)  # somebody else has begun to delete it
        over = self._budgets.over(pod.shape)
        deleted = deleted or over > 1
        guarded = not deleted and over == 1
        self._cluster.mark(uid, flags=facts.flags | DOOMED)
        self._budgets.charge(uid, pod.shape)
        together = lot.uids if len(lot.pods) > 1 else frozenset()
        return Leaving(uid, facts.namespace, facts.name, deleted, guarded, together)

    # ------------------------------------------------------------------------------- carrying out
    def nominated(self, claim: Claim, seat: Seat, resource_version: int) -> None:
        """The nomination of a member is written."""
        seat.resource_version = resource_version or seat.resource_version
        assert seat in claim.seats, "a nomination of another claim"
        seat.written = True
        if claim.stage is ClaimStage.NOMINATING and all(each.written for each in claim.seats):
            claim.stage = ClaimStage.EVICTING
        uid = seat.member.uid
        if uid in self._nominees:
            return
        if 0 < resource_version <= self._shown:
            # The watch was faster than the answer: it has shown the nomination come and go.
            self.nominee_gone(uid, version=0)
        else:
            self._unshown[uid] = seat.resource_version

    def next_victims(self, claim: Claim) -> list[Leaving] | None:
        """Whom to ask to go now; an empty list: nobody any more, or (``claim.waits``) it is for an
        earlier claim to ask them; None: the claim does not hold, and nobody may be asked.

        Asked again before each round of evictions: room may have come free, and then nobody else
        has to go; or it may have been taken by a unit of more priority. Those that the API server
        may refuse come first, so that nobody goes in vain. A group of which some have been asked
        goes whole, whatever becomes of the claim; what is left of it is deleted, not evicted.
        """
        if claim.stage is not ClaimStage.EVICTING:
            return None
        self._cluster.flush()
        needed = None if claim.withdrawn else self._still_needed(claim)
        begun = {uid for victim in claim.victims if self._asked(victim) for uid in victim.lot}
        if needed is None and not any(self._unasked(victim, begun) for victim in claim.victims):
            return None
        left = [v for v in claim.victims if self._unasked(v, begun.union(needed or ()))]
        own = [v for v in left if v.uid in begun or self._wanted(v.uid) is claim]
        claim.waits = len(own) < len(left)
        for victim in own:
            if victim.uid in begun and not self._kernel.strict_budgets(claim.seats[0].shape):
                victim.deleted, victim.guarded = True, False
        return [victim for victim in own if victim.guarded] or own

    def _asked(self, victim: Leaving) -> bool:
        """Whether the API server has agreed that it goes, or it is gone."""
        return victim.uid in self.asked_to_go or victim.uid not in self._cluster.facts

    def _unasked(self, victim: Leaving, wanted: Collection[str]) -> bool:
        return victim.uid in wanted and not self._asked(victim)

    def _still_needed(self, claim: Claim) -> set[str] | None:
        """Uids of the victims that have to go as things are; None: the claim does not hold."""
        snapshot, group = self._cluster.snapshot, claim.seats[0].shape.group
        if len(claim.seats) > 1 and self._topologies.row(group) is None:
            return None  # the group was deleted, and nothing is placed against it
        found = [snapshot.row_of(seat.node_id) for seat in claim.seats]
        rows = [row for row in found if row is not None and not snapshot.frozen[row]]
        if len(rows) < len(found):
            return None
        shapes = [seat.shape for seat in claim.seats]
        uids = self._cluster.rows_of(victim.uid for victim in claim.victims)
        with snapshot.nominations.lifted(seat.member.uid for seat in claim.seats):
            lots = self._kernel.needed_of(shapes, rows, uids, leaving=self.asked_to_go)
        if lots is None:
            return None
        known = {victim.uid for victim in claim.victims}
        for lot in lots:
            for pod in lot.pods:  # a group that goes as a whole may have got another member
                if pod.record.uid not in known and pod.record.uid in self._cluster.facts:
                    claim.victims.append(self._leaving(pod, lot, deleted=False))
        return {uid for lot in lots for uid in lot.uids}

    def _each(self) -> list[Claim]:
        """Every claim once, the earliest first."""
        return list({id(claim): claim for claim in self.claims.values()}.values())

    def _wanted(self, uid: str) -> Claim | None:
        """The first claim that wants a pod to go."""
        return next((claim for claim in self._listed(uid) if not claim.withdrawn), None)

    def _listed(self, uid: str) -> list[Claim]:
        """The claims that have a pod among their victims: its marks are of our making."""
        return [claim for claim in self._each() if any(v.uid == uid for v in claim.victims)]

    def asked(self, victim: Leaving) -> None:
        """The API server has accepted that a victim goes, or does not know it any more."""
        assert not victim.lot or victim.uid in victim.lot, "a victim is no member of its group"
        if victim.uid in self._cluster.facts:
            self.asked_to_go.add(victim.uid)
        self._budgets.accepted(victim.uid)

    def group_of(self, claim: Claim) -> str:
        """The uid of the PodGroup that a gang is of; its name if it has no object."""
        key = claim.seats[0].shape.group
        row = self._topologies.row(key)
        return row.uid if row is not None and row.uid else group_name_of(key)

    def lower_nominations(self, claim: Claim) -> list[tuple[str, str, str]]:
        """(uid, namespace, name) of pods of less priority that are nominated to the same node: they
        may no longer fit, and should look elsewhere (upstream clears them too)."""
        nodes = claim.nodes
        return [
            (uid, *self._nominees[uid])
            for uid, (node, shape) in self._cluster.nominated.items()
            if node in nodes and shape.priority < claim.priority and uid in self._nominees
        ]

    def done(self, claim: Claim) -> None:
        """Every victim was asked: from here on the nominations speak for themselves."""
        if claim.stage is ClaimStage.OVER:
            return
        self._end(claim)
        assert all(seat.written for seat in claim.seats), "evicted before all were nominated"
        lead, *others = claim.seats
        for seat in (*others, lead):  # the others wait by then, and the unit may be decided again
            self._tell(
                claim, OutcomeKind.NOMINATED, members=[seat], sequence=claim.sequence,
                node=seat.node_name, diagnosis=claim.diagnosis,
            )  # fmt: skip

    def failed(self, claim: Claim, cause: Cause, detail: str) -> None:
        """It cannot be carried out: take it back."""
        if claim.stage is ClaimStage.OVER:
            return
        for seat in claim.seats:
            self._cluster.denominate(seat.member.uid)
        self._end(claim)
        kind = OutcomeKind.CONFLICT
        if cause is Cause.POD_GONE and len(claim.seats) == 1:
            kind = OutcomeKind.GONE
        elif cause is Cause.POD_GONE:
            cause = Cause.POD_CHANGED  # the others are there, and are decided again
        sequence = self._cluster.next_sequence
        self._tell(claim, kind, members=claim.seats, sequence=sequence, cause=cause, detail=detail)

    def _spare(self, claim: Claim) -> None:
        """Who was not asked, and whom no other claim wants, stays."""
        for victim in claim.victims:
            assert claim.stage is ClaimStage.OVER, "spared while its claim is open"
            if victim.uid not in self.asked_to_go and self._wanted(victim.uid) is None:
                self._cluster.mark(victim.uid, flags=0)
                self._budgets.discharge(victim.uid)

    def _end(self, claim: Claim) -> None:
        assert claim.stage is not ClaimStage.OVER, "a claim ends twice"
        claim.stage = ClaimStage.OVER
        for seat in claim.seats:
            assert self.claims.get(seat.member.uid) is claim, "another claim's seat"
            del self.claims[seat.member.uid]
        self._spare(claim)

    def _tell(
        self,
        claim: Claim,
        kind: OutcomeKind,
        *,
        members: list[Seat],
        sequence: int,
        node: str = "",
        cause: Cause = Cause.NONE,
        detail: str = "",
        diagnosis: Diagnosis | None = None,
    ) -> None:
        assert claim.stage is ClaimStage.OVER, "told before its end"
        assert members, "told of nobody"
        self.outcomes.append(
            Outcome(
                claim.unit.unit_id, claim.unit.attempt, kind, cause, sequence, node=node,
                shard=claim.shard, detail=detail,
                members=tuple(seat.member.uid for seat in members),
                resource_version=members[0].resource_version if len(members) == 1 else 0,
                diagnosis=diagnosis,
            )
        )  # fmt: skip

    # ------------------------------------------------------------------------------------- watches
    def pod_gone(self, uid: str) -> None:
        """A pod is gone for good."""
        self._cluster.forget(uid)
        self.asked_to_go.discard(uid)
        self._budgets.discharge(uid)

    def nominee_seen(
        self, uid: str, *, name: tuple[str, str], version: int, node: str, shape: Shape
    ) -> None:
        """The watch shows an unbound pod (namespace, name) that is nominated to a node."""
        self._shown = max(self._shown, version)
        self._nominees[uid] = name
        self._unshown.pop(uid, None)
        if not self._older(uid, version):
            self._cluster.nominate(uid, node=node, shape=shape)

    def nominee_gone(self, uid: str, *, version: int) -> None:
        """The watch shows that a pod is bound, gone, or not nominated any more."""
        self._shown = max(self._shown, version)
        self._nominees.pop(uid, None)
        self._unshown.pop(uid, None)
        if self._older(uid, version):
            return
        self._cluster.denominate(uid)
        self.withdraw(uid)

    def nominees_listed(self, version: int) -> None:
        """A list of the nominated pods is complete and shows ``version``. A pod that we nominated
        before, and that it lacks, was gone before the watch could show it."""
        self._shown = max(self._shown, version)
        for uid, written in list(self._unshown.items()):
            if written <= version:
                self.nominee_gone(uid, version=0)

    def _older(self, uid: str, version: int) -> bool:
        """Whether what the watch shows is older than the claim that the pod has."""
        claim = self.claims.get(uid)
        if claim is None:
            return False
        # 0: a comparison of lists has shown it, which no later answer contradicts.
        seat = claim.seat_of(uid)
        return not seat.written or 0 < version < seat.resource_version

    def withdraw(self, uid: str) -> None:
        """The dispatcher says that a pod is gone or no longer ours."""
        claim = self.claims.get(uid)
        if claim is not None:
            claim.withdrawn = True

    def take_fresh(self) -> list[Claim]:
        """Claims to carry out, each once."""
        fresh, self.fresh = self.fresh, []
        return fresh

    def take_outcomes(self) -> list[Outcome]:
        """Outcomes since the last call."""
        outcomes, self.outcomes = self.outcomes, []
        return outcomes

    def validate(self) -> None:
        """Assert that open claims stand in the picture."""
        for uid, claim in self.claims.items():
            assert claim.stage is not ClaimStage.OVER
            if not claim.withdrawn:
                seat = claim.seat_of(uid)
                assert self._cluster.nominated.get(uid) == (seat.node_name, seat.shape)
