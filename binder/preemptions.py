"""Preemption at the Binder: a unit's claim on a node, from the proposal to the last eviction.

A shard proposes {unit, node, victims}. Naively the victims would be deleted and the unit tried
again; then another pod takes the hole, or the unit no longer fits when the hole is there. So, in
this order:

1. *Judge* on the authoritative state, with the code that the shard used: who would have to go now?
   Nobody else than proposed, or it is a conflict. From here on the claim stands: the nomination,
   the victims' marks and what they spend of their budgets are in the log, so nobody is promised the
   room or the disruption a second time.
2. *Nominate*: status.nominatedNodeName, with the pod's resourceVersion as precondition. Whoever
   dies now, a successor finds the nomination there.
3. *Evict*, each victim by its uid, if the claim still holds and still needs it.
4. Tell the dispatcher, which waits for the victims to be gone.

Unhappy path: a claim that cannot be carried out is taken back as a whole (marks, budgets,
nomination), and the unit is decided again. What was evicted by then stays evicted.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from binder.budgets import Budgets
from binder.cluster import Cluster
from stretto.model.shape import Shape
from stretto.model.unit import Cause, Diagnosis, Member, Outcome, OutcomeKind, Unit, VerdictKind
from stretto.placement.framework import Status
from stretto.placement.kernel import Kernel
from stretto.placement.victims import Victims
from stretto.snapshot.pod_records import LEAVING, PREEMPTED

if TYPE_CHECKING:
    from binder.commit import Incoming

DOOMED = LEAVING | PREEMPTED


class ClaimStage(enum.IntEnum):
    """Where a claim is."""

    NOMINATING = 1
    """The nomination is not known to be written."""
    EVICTING = 2
    OVER = 3


@dataclass(slots=True)
class Leaving:
    """A victim."""

    uid: str
    namespace: str
    name: str
    deleted: bool
    """It is deleted and not evicted: its leaving violates a disruption budget, or more than one
    covers it, and then the API server refuses every eviction."""
    guarded: bool = False
    """A budget covers it, so the API server may refuse that it goes."""


@dataclass(slots=True)
class Claim:
    """A unit's claim on a node."""

    unit: Unit
    shape: Shape
    """As the pod will have it on the node."""
    node_id: int
    node_name: str
    victims: list[Leaving]
    shard: str
    sequence: int
    """Of the log: contains the claim."""
    resource_version: int
    """Of the pod, newest known."""
    diagnosis: Diagnosis | None = None
    stage: ClaimStage = ClaimStage.NOMINATING
    withdrawn: bool = False
    """The pod is gone or no longer ours: nobody else has to go for it."""
    waits: bool = False
    """Some of its victims are for an earlier claim to ask, which has not asked them yet."""

    @property
    def member(self) -> Member:
        """The pod."""
        return self.unit.members[0]


class Preemptions:
    """See the module docstring."""

    def __init__(self, cluster: Cluster, kernel: Kernel, budgets: Budgets) -> None:
        self._cluster = cluster
        self._kernel = kernel
        self._budgets = budgets
        self.claims: dict[str, Claim] = {}
        """Claims that are not over, by the pod's uid."""
        self._nominees: dict[str, tuple[str, str]] = {}
        """Unbound pods with a nomination in their status: uid → (namespace, name)."""
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
        proposal = incoming.proposal
        if len(proposal.unit.members) != 1 or len(proposal.nodes) != 1:
            return VerdictKind.REFUSED, Cause.INVALID
        snapshot = self._cluster.snapshot
        row = snapshot.row_of(proposal.nodes[0])
        if row is None:
            return VerdictKind.CONFLICT, Cause.NODE_GONE
        if snapshot.frozen[row]:
            return VerdictKind.CONFLICT, Cause.FROZEN
        shape = incoming.shapes[0]
        needed = self._needed(shape, row)
        if needed is None or not needed.pods:
            return VerdictKind.CONFLICT, Cause.VICTIMS
        uids = {pod.record.uid for pod in needed.pods}
        if not uids <= set(proposal.victims) or not uids <= self._cluster.facts.keys():
            return VerdictKind.CONFLICT, Cause.VICTIMS
        self._claim(incoming, needed, row)
        return VerdictKind.NOMINATED, Cause.NONE

    def _needed(self, shape: Shape, row: int) -> Victims | None:
        """Who has to go for a shape now; no pods: nobody; None: nobody's going would help."""
        if self._kernel.check_one(shape, row) is Cause.NONE:
            return Victims(row, (), frozenset())
        found = self._kernel.victims_on(shape, row)
        return None if isinstance(found, Status) else found

    def _claim(self, incoming: Incoming, needed: Victims, row: int) -> None:
        cluster, proposal = self._cluster, incoming.proposal
        member = proposal.unit.members[0]
        shape = msgspec.structs.replace(incoming.shapes[0], nominated_node="")
        name = cluster.snapshot.name[row]
        victims = []
        for pod in needed.pods:
            uid = pod.record.uid
            facts = cluster.facts[uid]
            if facts.flags & LEAVING and not self._listed(uid):
                self.asked_to_go.add(uid)  # somebody else has begun to delete it
            over = self._budgets.over(pod.shape)
            deleted = uid in needed.violating or over > 1
            guarded = not deleted and over == 1
            victims.append(Leaving(uid, facts.namespace, facts.name, deleted, guarded))
            cluster.mark(uid, flags=facts.flags | DOOMED)
            self._budgets.charge(uid, pod.shape)
        cluster.nominate(member.uid, node=name, shape=shape)
        cluster.flush()
        claim = Claim(
            proposal.unit, shape, proposal.nodes[0], name, victims, incoming.shard,
            cluster.sequence, member.resource_version, proposal.diagnosis,
        )  # fmt: skip
        self.claims[member.uid] = claim
        self.fresh.append(claim)

    # ------------------------------------------------------------------------------- carrying out
    def nominated(self, claim: Claim, resource_version: int) -> None:
        """The nomination is written."""
        claim.resource_version = resource_version or claim.resource_version
        if claim.stage is ClaimStage.NOMINATING:
            claim.stage = ClaimStage.EVICTING

    def next_victims(self, claim: Claim) -> list[Leaving] | None:
        """Whom to ask to go now; an empty list: nobody any more, or (``claim.waits``) it is for an
        earlier claim to ask them; None: the claim does not hold, and nobody may be asked.

        Asked again before each round of evictions: room may have come free, and then nobody else
        has to go; or it may have been taken by a unit of more priority. Those that the API server
        may refuse come first, so that nobody goes in vain.
        """
        if claim.stage is not ClaimStage.EVICTING or claim.withdrawn:
            return None
        self._cluster.flush()
        snapshot = self._cluster.snapshot
        row = snapshot.row_of(claim.node_id)
        if row is None or snapshot.frozen[row]:
            return None
        waiting = msgspec.structs.replace(claim.shape, nominated_node=claim.node_name)
        uids = {victim.uid for victim in claim.victims}
        needed = self._kernel.needed_of(waiting, row, uids, leaving=self.asked_to_go)
        if needed is None:
            return None
        left = [
            victim
            for victim in claim.victims
            if victim.uid in needed and victim.uid not in self.asked_to_go
        ]
        own = [victim for victim in left if self._wanted(victim.uid) is claim]
        claim.waits = len(own) < len(left)
        return [victim for victim in own if victim.guarded] or own

    def _wanted(self, uid: str) -> Claim | None:
        """The first claim that wants a pod to go."""
        return next((claim for claim in self._listed(uid) if not claim.withdrawn), None)

    def _listed(self, uid: str) -> list[Claim]:
        """The claims that have a pod among their victims: its marks are of our making."""
        claims = self.claims.values()
        return [claim for claim in claims if any(v.uid == uid for v in claim.victims)]

    def asked(self, victim: Leaving) -> None:
        """The API server has accepted that a victim goes, or does not know it any more."""
        if victim.uid in self._cluster.facts:
            self.asked_to_go.add(victim.uid)
        self._budgets.accepted(victim.uid)

    def lower_nominations(self, claim: Claim) -> list[tuple[str, str, str]]:
        """(uid, namespace, name) of pods of less priority that are nominated to the same node: they
        may no longer fit, and should look elsewhere (upstream clears them too)."""
        return [
            (uid, *self._nominees[uid])
            for uid, (node, shape) in self._cluster.nominated.items()
            if node == claim.node_name
            and shape.priority < claim.shape.priority
            and uid in self._nominees
        ]

    def done(self, claim: Claim) -> None:
        """Every victim was asked: from here on the nomination speaks for itself."""
        if claim.stage is not ClaimStage.OVER:
            self._end(claim, OutcomeKind.NOMINATED)

    def failed(self, claim: Claim, cause: Cause, detail: str) -> None:
        """It cannot be carried out: take it back."""
        if claim.stage is not ClaimStage.OVER:
            self._cluster.denominate(claim.member.uid)
            gone = cause is Cause.POD_GONE
            kind = OutcomeKind.GONE if gone else OutcomeKind.CONFLICT
            self._end(claim, kind, cause, detail)

    def _spare(self, claim: Claim) -> None:
        """Who was not asked, and whom no other claim wants, stays."""
        for victim in claim.victims:
            if victim.uid not in self.asked_to_go and self._wanted(victim.uid) is None:
                self._cluster.mark(victim.uid, flags=0)
                self._budgets.discharge(victim.uid)

    def _end(
        self, claim: Claim, kind: OutcomeKind, cause: Cause = Cause.NONE, detail: str = ""
    ) -> None:
        claim.stage = ClaimStage.OVER
        del self.claims[claim.member.uid]
        self._spare(claim)
        nominated = kind is OutcomeKind.NOMINATED
        self.outcomes.append(
            Outcome(
                claim.unit.unit_id, claim.unit.attempt, kind, cause,
                claim.sequence if nominated else self._cluster.next_sequence,
                node=claim.node_name if nominated else "", shard=claim.shard, detail=detail,
                members=(claim.member.uid,), resource_version=claim.resource_version,
                diagnosis=claim.diagnosis if nominated else None,
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
        self._nominees[uid] = name
        if not self._older(uid, version):
            self._cluster.nominate(uid, node=node, shape=shape)

    def nominee_gone(self, uid: str, *, version: int) -> None:
        """The watch shows that a pod is bound, gone, or not nominated any more."""
        self._nominees.pop(uid, None)
        if self._older(uid, version):
            return
        self._cluster.denominate(uid)
        self.withdraw(uid)

    def _older(self, uid: str, version: int) -> bool:
        """Whether what the watch shows is older than the claim that the pod has."""
        claim = self.claims.get(uid)
        if claim is None:
            return False
        # 0: a comparison of lists has shown it, which no later answer contradicts.
        return claim.stage is ClaimStage.NOMINATING or 0 < version < claim.resource_version

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
                assert self._cluster.nominated.get(uid) == (claim.node_name, claim.shape)
