"""Claims: who is asked to go, for whom, when; whatever happens in between."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
import pytest

from binder.placed import PodFacts
from binder.preemption_claims import Claim, ClaimStage, Seat
from binder.proposals import Incoming
from stretto.model.objects import ObjectMeta
from stretto.model.selector import RawSelector
from stretto.model.shape import Shape
from stretto.model.unit import Cause, Diagnosis, OutcomeKind, Verdict, VerdictKind
from stretto.placement.kernel import Kernel
from stretto.placement.profiles import Profiles
from stretto.quota.rows import QUEUE, QUOTA_API, QueueRow, encode_quota
from stretto.snapshot.budgets import (
    BUDGET,
    BudgetSpec,
    BudgetStatus,
    PodDisruptionBudget,
    budgets,
)
from stretto.snapshot.pod_records import LEAVING, PREEMPTED
from tests.binder.world import ApiPod, World, shape_of

WHY = Diagnosis("0/2 nodes are available: 2 Insufficient cpu.", ("NodeResourcesFit",), 2)


def pod(cpu: int = 1000, *, priority: int = 0, app: str = "web") -> Shape:
    return shape_of(cpu, priority=priority, labels=(("app", app),), label_keys=("app",))


def pdb(
    app: str, allowed: int, *, disrupted: tuple[str, ...] = (), name: str = ""
) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        ObjectMeta(name=name or app, namespace="default"),
        BudgetSpec(RawSelector({"app": app})),
        BudgetStatus(allowed, dict.fromkeys(disrupted)),
    )


class Preempting(World):
    """A Binder beside an API server, and a shard that follows its log."""

    def __init__(self) -> None:
        super().__init__()
        self.shard = Kernel(self.follower, Profiles.default(("stretto",)))
        self.nominated: dict[str, str] = {}
        """status.nominatedNodeName by uid."""
        self.evicted: list[str] = []
        """Uids that the API server has agreed to let go, in order."""
        self.machine.budgets.seen(pdb("db", 0))
        self.round()

    def runs(self, name: str, shape: Shape, node: str, *, start: int = 1) -> ApiPod:
        """A pod that somebody has put on a node."""
        made = self.api.create(name, shape)
        self.api.put(made, node, foreign=True)
        self.deliver(99)
        self.machine.cluster.describe(made.uid, PodFacts("default", name, start))
        self.round()
        return made

    def decided(self, made: ApiPod) -> Incoming | None:
        """What a shard proposes for a pod that fits nowhere; None: nothing."""
        shape = msgspec.structs.replace(made.shape, nominated_node=self.nominated.get(made.uid, ""))
        found = self.shard.post_filter(shape, seed=1)
        if not found.victims or found.nominate is None:
            return None
        incoming = self.incoming(made, nodes=(found.nominate,), shapes=(shape,))
        proposal = msgspec.structs.replace(incoming.proposal, victims=found.victims, diagnosis=WHY)
        return incoming._replace(proposal=proposal)

    def preempt(self, made: ApiPod) -> Verdict:
        incoming = self.decided(made)
        assert incoming is not None
        (verdict,) = self.propose(incoming)
        return verdict

    def claim(self, made: ApiPod) -> Claim:
        return self.machine.preemptions.claims[made.uid]

    def write_nomination(self, claim: Claim) -> int:
        """The statuses that the nominating patches are answered with: the last."""
        return [self.write_seat(claim, seat) for seat in claim.seats][-1]

    def write_seat(self, claim: Claim, seat: Seat) -> int:
        """The status that one nominating patch is answered with."""
        made = self.api.pods.get(seat.member.name)
        if made is None or made.uid != seat.member.uid:
            self.machine.preemptions.failed(claim, Cause.POD_GONE, "")
            return 404
        if made.version != seat.resource_version or made.node:
            self.machine.preemptions.failed(claim, Cause.POD_CHANGED, "")
            return 409
        self.api.touch(made)
        self.nominated[made.uid] = seat.node_name
        self.machine.preemptions.nominated(claim, seat, made.version)
        return 200

    def evict(
        self, claim: Claim, *, refuse: bool = False, refuse_uids: Collection[str] = ()
    ) -> list[str]:
        """One round of evictions: who was asked."""
        victims = self.machine.preemptions.next_victims(claim)
        if victims is None:
            for seat in claim.seats:
                self.nominated.pop(seat.member.uid, None)
            cause = Cause.POD_GONE if claim.withdrawn else Cause.VICTIMS
            self.machine.preemptions.failed(claim, cause, "")
            return []
        if not victims and not claim.waits:
            self.machine.preemptions.done(claim)
        asked = []
        for victim in victims:
            if (refuse or victim.uid in refuse_uids) and not victim.deleted:
                continue
            asked.append(victim.uid)
            if self.api.pods.get(victim.name) is not None:
                self.evicted.append(victim.uid)
            self.machine.preemptions.asked(victim)
        return asked

    def carry_out(self, claim: Claim) -> list[str]:
        """From the first write to the outcome; who was asked to go."""
        self.write_nomination(claim)
        asked = self.evict(claim)
        assert self.evict(claim) == []
        self.round()
        return asked

    def end(self, made: ApiPod) -> None:
        """A pod is deleted, and the watch says so."""
        self.api.delete(made)
        self.deliver(99)
        self.round()


@pytest.fixture
def world() -> Preempting:
    """One node of two cpus with two pods of low priority."""
    world = Preempting()
    world.node("n1", cpu=2000)
    return world


def test_a_claim_is_in_the_log_before_its_verdict_and_keeps_the_room(world: Preempting) -> None:
    old = world.runs("old", pod(), "n1", start=1)
    young = world.runs("young", pod(), "n1", start=9)
    high = world.api.create("high", pod(priority=10))
    verdict = world.preempt(high)
    assert verdict.kind is VerdictKind.NOMINATED
    assert world.follower.version.sequence >= verdict.sequence
    row = world.follower.row_of_name("n1")
    assert row is not None
    assert dict(world.follower.nominations.on("n1")).keys() == {high.uid}
    flags = {record.uid: record.flags for record in world.follower.records.of(row)}
    assert flags == {old.uid: 0, young.uid: LEAVING | PREEMPTED}
    claim = world.claim(high)
    assert claim.stage is ClaimStage.NOMINATING
    assert world.machine.preemptions.next_victims(claim) is None, "nobody goes before it is written"
    assert world.carry_out(claim) == [young.uid]
    (outcome,) = world.outcomes()
    assert outcome.kind is OutcomeKind.NOMINATED
    assert (outcome.node, outcome.sequence, outcome.diagnosis) == ("n1", verdict.sequence, WHY)
    world.end(young)
    # Another of no more priority does not get the room; the nominee does.
    other = world.api.create("other", pod(priority=10))
    (lost,) = world.propose(world.incoming(other, nodes=("n1",)))
    assert (lost.kind, lost.cause) == (VerdictKind.CONFLICT, Cause.CAPACITY)
    waiting = msgspec.structs.replace(high.shape, nominated_node="n1")
    (won,) = world.propose(world.incoming(high, nodes=("n1",), shapes=(waiting,)))
    assert won.kind is VerdictKind.COMMITTED
    assert not world.follower.nominations, "it is on its node now"
    world.check()


def test_a_victim_that_goes_before_its_bind_is_no_longer_charged(world: Preempting) -> None:
    """No watch of bound pods ever shows it: the answer to its bind says that it is gone."""
    world.machine.budgets.seen(pdb("web", 1))
    made = world.api.create("reserved", pod(2000))
    (verdict,) = world.propose(world.incoming(made, nodes=("n1",)))
    assert verdict.kind is VerdictKind.COMMITTED
    world.round()
    high = world.api.create("high", pod(2000, priority=10))
    assert world.preempt(high).kind is VerdictKind.NOMINATED
    assert world.carry_out(world.claim(high)) == [made.uid]
    assert allowed(world, "web") == 0
    world.api.delete(made)
    world.act(made.uid)
    world.round()
    assert allowed(world, "web") == 1
    assert world.machine.preemptions.asked_to_go == set()
    world.check()


def allowed(world: Preempting, app: str) -> int:
    rows = budgets(world.follower.objects(BUDGET))
    return next(row.allowed for row in rows if row.selector[0].values == (app,))


def test_two_units_never_get_one_victim(world: Preempting) -> None:
    world.runs("v", pod(2000), "n1")
    first, second = (world.api.create(name, pod(2000, priority=10)) for name in ("a", "b"))
    proposals = [world.decided(first), world.decided(second)]
    assert None not in proposals
    verdicts = world.propose(*[p for p in proposals if p is not None])
    assert [v.kind for v in verdicts] == [VerdictKind.NOMINATED, VerdictKind.CONFLICT]
    assert verdicts[1].cause is Cause.VICTIMS
    assert world.decided(second) is None
    world.check()


def test_two_units_never_spend_one_disruption(world: Preempting) -> None:
    world.node("n2", cpu=2000)
    world.machine.budgets.seen(pdb("db", 1))
    guarded = [world.runs(f"db{i}", pod(2000, app="db"), f"n{i}") for i in (1, 2)]
    first, second = (world.api.create(name, pod(2000, priority=10)) for name in ("a", "b"))
    world.round()
    assert world.preempt(first).kind is VerdictKind.NOMINATED
    claim = world.claim(first)
    assert [victim.deleted for victim in claim.victims] == [False]
    assert world.preempt(second).kind is VerdictKind.NOMINATED
    assert [victim.deleted for victim in world.claim(second).victims] == [True]
    # The API server has counted the first, and says so: the charge is its own from then on.
    world.carry_out(claim)
    gone = next(g for g in guarded if g.uid == claim.victims[0].uid)
    world.machine.budgets.seen(pdb("db", 0, disrupted=(gone.name,)))
    world.end(gone)
    world.machine.budgets.seen(pdb("db", 1))
    third = world.api.create("c", pod(2000, priority=20))
    world.round()
    incoming = world.decided(third)
    assert incoming is not None
    world.check()


def test_those_that_may_be_refused_are_asked_first(world: Preempting) -> None:
    world.machine.budgets.seen(pdb("db", 1))
    plain = world.runs("plain", pod(), "n1")
    guarded = world.runs("guarded", pod(app="db"), "n1")
    high = world.api.create("high", pod(2000, priority=10))
    assert world.preempt(high).kind is VerdictKind.NOMINATED
    claim = world.claim(high)
    world.write_nomination(claim)
    first = world.machine.preemptions.next_victims(claim)
    assert first is not None
    assert [victim.uid for victim in first] == [guarded.uid]
    world.machine.preemptions.asked(first[0])
    then = world.machine.preemptions.next_victims(claim)
    assert then is not None
    assert [victim.uid for victim in then] == [plain.uid]


def test_a_pod_under_two_budgets_is_deleted(world: Preempting) -> None:
    world.machine.budgets.seen(pdb("db", 1))
    world.machine.budgets.seen(pdb("db", 1, name="other"))
    world.round()
    world.runs("victim", pod(2000, app="db"), "n1")
    high = world.api.create("high", pod(2000, priority=10))
    world.preempt(high)
    (victim,) = world.claim(high).victims
    assert victim.deleted
    assert not victim.guarded
    rows = budgets(world.follower.objects(BUDGET))
    assert [row.allowed for row in rows] == [0, 0], "both are spent"


def test_a_claim_waits_for_the_victims_of_an_earlier_one_and_asks_them_if_that_ends(
    world: Preempting,
) -> None:
    victim = world.runs("victim", pod(2000), "n1")
    first = world.api.create("first", pod(2000, priority=5))
    urgent = world.api.create("urgent", pod(2000, priority=10))
    for made in (first, urgent):
        world.preempt(made)
        world.write_nomination(world.claim(made))
    claim = world.claim(urgent)
    assert world.evict(claim) == [], "it is for the first claim to ask"
    assert claim.stage is ClaimStage.EVICTING
    assert world.evict(world.claim(first)) == [], "its room is the urgent pod's now"
    assert first.uid not in world.machine.preemptions.claims
    assert world.evict(claim) == [victim.uid]
    assert world.evict(claim) == []
    assert claim.stage is ClaimStage.OVER
    world.check()


def test_room_that_comes_free_spares_the_victims(world: Preempting) -> None:
    stays = world.runs("stays", pod(), "n1", start=1)
    victim = world.runs("victim", pod(), "n1", start=9)
    high = world.api.create("high", pod(priority=10))
    world.preempt(high)
    claim = world.claim(high)
    world.end(victim)
    assert world.carry_out(claim) == []
    assert world.evicted == []
    (outcome,) = world.outcomes()
    assert outcome.kind is OutcomeKind.NOMINATED
    row = world.follower.row_of_name("n1")
    assert row is not None
    assert [(r.uid, r.flags) for r in world.follower.records.of(row)] == [(stays.uid, 0)]


def test_nobody_goes_for_a_pod_that_no_longer_fits(world: Preempting) -> None:
    victim = world.runs("victim", pod(2000), "n1")
    high = world.api.create("high", pod(2000, priority=10))
    world.preempt(high)
    claim = world.claim(high)
    world.write_nomination(claim)
    world.node("n1", cpu=1000)
    assert world.evict(claim) == []
    assert world.evicted == []
    (outcome,) = world.outcomes()
    assert (outcome.kind, outcome.cause) == (OutcomeKind.CONFLICT, Cause.VICTIMS)
    assert not world.follower.nominations
    assert world.machine.cluster.facts[victim.uid].flags == 0
    world.check()


def test_a_proposal_that_is_overtaken_is_a_conflict(world: Preempting) -> None:
    world.runs("low", pod(), "n1", start=9)
    top = world.runs("top", pod(priority=5), "n1", start=1)
    high = world.api.create("high", pod(priority=10))
    incoming = world.decided(high)
    assert incoming is not None
    world.end(world.api.pods["low"])
    (free,) = world.propose(incoming)
    assert (free.kind, free.cause) == (VerdictKind.CONFLICT, Cause.VICTIMS), "it fits as it is"
    world.runs("new", pod(), "n1", start=9)
    again = world.incoming(high, nodes=("n1",))
    proposal = msgspec.structs.replace(again.proposal, victims=(top.uid,))
    (other,) = world.propose(again._replace(proposal=proposal))
    assert other.cause is Cause.VICTIMS, "somebody else would have to go now"
    world.check()


def test_a_pod_that_changed_is_decided_anew_and_one_that_is_gone_ends_its_claim(
    world: Preempting,
) -> None:
    world.runs("victim", pod(2000), "n1")
    high = world.api.create("high", pod(2000, priority=10))
    world.preempt(high)
    world.api.touch(high)
    assert world.write_nomination(world.claim(high)) == 409
    assert [o.cause for o in world.outcomes()] == [Cause.POD_CHANGED]
    assert not world.follower.nominations
    world.preempt(high)
    claim = world.claim(high)
    world.write_nomination(claim)
    world.machine.withdraw(high.uid)
    assert world.evict(claim) == []
    assert world.evicted == []
    assert world.outcomes()[-1].kind is OutcomeKind.GONE
    assert world.machine.owned() == []


def test_nominations_come_back_from_status_after_a_restart() -> None:
    world = Preempting()
    world.node("n1", cpu=1000)
    shape = pod(1000, priority=10)
    world.machine.preemptions.nominee_seen(
        "nominee", name=("default", "p"), version=5, node="n1", shape=shape
    )
    world.round()
    low = world.api.create("low", pod(1000))
    (lost,) = world.propose(world.incoming(low, nodes=("n1",)))
    assert lost.kind is VerdictKind.CONFLICT
    world.machine.preemptions.nominee_gone("nominee", version=6)
    world.round()
    (won,) = world.propose(world.incoming(low, nodes=("n1",)))
    assert won.kind is VerdictKind.COMMITTED


def test_a_nominee_that_came_and_went_between_two_lists_is_nominated_no_longer(
    world: Preempting,
) -> None:
    """The watch had a gap in which the pod was nominated and deleted: only a list shows it."""
    world.runs("low", pod(2000), "n1")
    high = world.api.create("high", pod(2000, priority=10))
    world.preempt(high)
    claim = world.claim(high)
    world.write_nomination(claim)
    version = claim.seats[0].resource_version
    preemptions, nominated = world.machine.preemptions, world.machine.cluster.nominated
    preemptions.nominees_listed(version - 1)
    assert high.uid in nominated, "the list is older than the nomination"
    preemptions.nominees_listed(version)
    assert high.uid not in nominated
    assert claim.withdrawn


@pytest.mark.parametrize("by", ["watch", "list"])
def test_a_nominee_that_came_and_went_before_the_answer_is_nominated_no_longer(
    world: Preempting, by: str
) -> None:
    """The answer to the write is slower than the watch, which shows nothing of that pod again: its
    room would be promised to a ghost for ever."""
    world.runs("low", pod(2000), "n1")
    high = world.api.create("high", pod(2000, priority=10))
    world.preempt(high)
    claim = world.claim(high)
    seat, preemptions = claim.seats[0], world.machine.preemptions
    written = high.version + 1
    preemptions.nominee_seen(
        high.uid, name=("default", "high"), version=written, node=seat.node_name, shape=high.shape
    )
    if by == "watch":
        preemptions.nominee_gone(high.uid, version=written + 1)
    else:
        preemptions.nominee_gone(high.uid, version=0)
        preemptions.nominees_listed(written + 1)
    assert high.uid in world.machine.cluster.nominated, "the claim stands until it is answered"
    preemptions.nominated(claim, seat, written)
    assert high.uid not in world.machine.cluster.nominated
    assert world.evict(claim) == []
    assert world.outcomes()[-1].kind is OutcomeKind.GONE


def test_an_answer_before_the_watch_takes_back_no_nomination(world: Preempting) -> None:
    world.runs("low", pod(2000), "n1")
    high = world.api.create("high", pod(2000, priority=10))
    world.preempt(high)
    claim = world.claim(high)
    world.machine.preemptions.nominees_listed(high.version)
    world.write_nomination(claim)
    assert high.uid in world.machine.cluster.nominated
    assert not claim.withdrawn


def test_a_nominee_that_a_list_shows_stays(world: Preempting) -> None:
    world.runs("low", pod(2000), "n1")
    high = world.api.create("high", pod(2000, priority=10))
    world.preempt(high)
    claim = world.claim(high)
    world.write_nomination(claim)
    seat = claim.seats[0]
    preemptions = world.machine.preemptions
    preemptions.nominee_seen(
        high.uid, name=("default", "high"), version=seat.resource_version, node=seat.node_name,
        shape=high.shape,
    )  # fmt: skip
    preemptions.nominees_listed(seat.resource_version + 10)
    assert high.uid in world.machine.cluster.nominated


def test_a_borrower_goes_where_only_a_queue_above_is_full(world: Preempting) -> None:
    """The nodes have room, so quota alone says who has to go: being chosen is not yet going."""
    world.node("n2", cpu=9000)
    cluster = world.machine.cluster
    cluster.api_served(QUOTA_API)
    rows = {
        "org": QueueRow(limit=(("cpu", 3000),)),
        "a": QueueRow(parent="org", guaranteed=(("cpu", 1000),)),
        "b": QueueRow(parent="org", guaranteed=(("cpu", 1000),)),
    }
    for name, row in rows.items():
        cluster.object_seen(QUEUE, name, encode_quota(row))
    world.round()
    web = {"labels": (("app", "web"),), "label_keys": ("app",)}
    lent = shape_of(1000, queue="b", **web)
    borrowers = [world.runs(f"b{n}", lent, "n2", start=n) for n in (1, 2, 3)]
    cluster.quota.tick(100)
    world.round()
    due = world.api.create("due", shape_of(1000, queue="a", **web))
    assert world.preempt(due).kind is VerdictKind.NOMINATED
    (gone,) = world.carry_out(world.claim(due))
    assert gone in {each.uid for each in borrowers[1:]}, "not the one that is guaranteed"
    world.machine.cluster.quota.validate()


def test_a_victim_that_is_going_may_be_chosen_for_a_pod_that_is_more_urgent(
    world: Preempting,
) -> None:
    victim = world.runs("victim", pod(2000), "n1")
    first = world.api.create("first", pod(2000, priority=5))
    world.preempt(first)
    assert world.carry_out(world.claim(first)) == [victim.uid]
    urgent = world.api.create("urgent", pod(2000, priority=10))
    assert world.preempt(urgent).kind is VerdictKind.NOMINATED
    world.write_nomination(world.claim(urgent))
    assert world.evict(world.claim(urgent)) == [], "it is not asked twice"
