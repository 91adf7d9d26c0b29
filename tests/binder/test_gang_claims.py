"""Claims of gangs, and gangs that go as a whole: all or nobody, whatever happens in between."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from binder.preemption_claims import ClaimStage
from binder.proposals import Incoming
from stretto.model.groups import POD_GROUP, GroupRow, encode_group
from stretto.model.shape import Shape
from stretto.model.unit import Cause, OutcomeKind, VerdictKind
from stretto.placement.gang import GangPlacer
from stretto.snapshot.pod_records import LEAVING, PREEMPTED
from tests.binder.test_preemptions import WHY, Preempting, pdb, pod
from tests.binder.world import ApiPod

NEW, OLD = "default/new", "default/old"


def member(cpu: int, *, group: str, priority: int = 0, app: str = "web") -> Shape:
    return msgspec.structs.replace(pod(cpu, priority=priority, app=app), group=group)


class Ganging(Preempting):
    """A Binder, and a shard that decides gangs on its log."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("n1", "n2"):
            self.node(name, cpu=2000)
        self.group(NEW)
        self.group(OLD, whole=True)

    def group(self, key: str, **fields: bool) -> None:
        payload = encode_group(GroupRow(2, uid=f"{key}-uid", **fields))  # type: ignore[arg-type]
        self.machine.cluster.object_seen(POD_GROUP, key, payload)
        self.round()

    def old(self, *, app: str = "web") -> list[ApiPod]:
        """A gang of two with a member on each node, which goes as a whole."""
        shape = member(2000, group=OLD, app=app)
        return [self.runs(f"old{i}", shape, f"n{i + 1}") for i in range(2)]

    def gang(self, count: int = 2, cpu: int = 1000) -> list[ApiPod]:
        shape = member(cpu, group=NEW, priority=10)
        return [self.api.create(f"new{i}", shape) for i in range(count)]

    def decided_together(self, pods: list[ApiPod]) -> Incoming | None:
        """What a shard proposes for a gang that does not fit; None: nothing."""
        shapes = [
            msgspec.structs.replace(made.shape, nominated_node=self.nominated.get(made.uid, ""))
            for made in pods
        ]
        uids = [made.uid for made in pods]
        placer = GangPlacer(self.shard, self.follower)
        rows = placer.place(shapes, uids=uids, seed=1, avoid=())
        for shape, row in zip(shapes, rows, strict=False):
            self.follower.remove_pod(shape, row)
        found = None if rows else placer.preempt(shapes, uids=uids, seed=1, avoid=())
        if found is None or not found.victims:
            return None
        nodes = tuple(self.follower.name[row] for row in found.rows)
        incoming = self.incoming(*pods, nodes=nodes, shapes=tuple(shapes))
        proposal = msgspec.structs.replace(incoming.proposal, victims=found.victims, diagnosis=WHY)
        return incoming._replace(proposal=proposal)

    def flags(self, pods: list[ApiPod]) -> list[int]:
        facts = self.machine.cluster.facts
        return [facts[made.uid].flags for made in pods if made.uid in facts]

    def binds(self, pods: list[ApiPod]) -> Incoming:
        """The proposal of a gang that has its room now."""
        nodes = tuple(self.nominated[made.uid] for made in pods)
        shapes = tuple(
            msgspec.structs.replace(made.shape, nominated_node=node)
            for made, node in zip(pods, nodes, strict=True)
        )
        return self.incoming(*pods, nodes=nodes, shapes=shapes)


@pytest.fixture
def world() -> Ganging:
    return Ganging()


def test_one_step_of_the_log_has_every_nomination_and_every_victim(world: Ganging) -> None:
    old, pods = world.old(), world.gang()
    incoming = world.decided_together(pods)
    assert incoming is not None
    before = world.machine.cluster.sequence
    (verdict,) = world.propose(incoming)
    assert verdict.kind is VerdictKind.NOMINATED
    claim = world.claim(pods[0])
    assert claim is world.claim(pods[1])
    assert claim.sequence == before + 1
    assert world.flags(old) == [LEAVING | PREEMPTED] * 2
    assert {seat.member.uid for seat in claim.seats} == {made.uid for made in pods}
    assert sorted(world.machine.owned()) == sorted(made.uid for made in pods)


def test_nobody_goes_for_one_member_of_a_gang_that_would_not_be_whole(world: Ganging) -> None:
    old, pods = world.old(), world.gang()
    incoming = world.decided_together(pods)
    assert incoming is not None
    whom = incoming.proposal.victims
    one = world.incoming(pods[0], nodes=("n1",), shapes=(pods[0].shape,))
    alone = one._replace(proposal=msgspec.structs.replace(one.proposal, victims=whom))
    (verdict,) = world.propose(alone)
    assert (verdict.kind, verdict.cause) == (VerdictKind.CONFLICT, Cause.GANG)
    assert world.flags(old) == [0, 0]


def test_nobody_is_asked_before_every_nomination_is_written(world: Ganging) -> None:
    world.old()
    pods = world.gang()
    incoming = world.decided_together(pods)
    assert incoming is not None
    world.propose(incoming)
    claim = world.claim(pods[0])
    assert world.write_seat(claim, claim.seats[1]) == 200
    assert world.machine.preemptions.next_victims(claim) is None
    assert claim.stage is ClaimStage.NOMINATING
    assert world.write_seat(claim, claim.seats[0]) == 200
    victims = world.machine.preemptions.next_victims(claim)
    assert victims is not None
    assert len(victims) == 2


def test_a_gang_is_placed_whole_when_its_victims_are_gone(world: Ganging) -> None:
    old, pods = world.old(), world.gang(4)
    incoming = world.decided_together(pods)
    assert incoming is not None
    world.propose(incoming)
    assert len(world.carry_out(world.claim(pods[0]))) == 2
    told = [outcome for outcome in world.outcomes() if outcome.kind is OutcomeKind.NOMINATED]
    assert [outcome.members for outcome in told] == [(p.uid,) for p in (*pods[1:], pods[0])]
    for made in old:
        world.end(made)
    (verdict,) = world.propose(world.binds(pods))
    assert verdict.kind is VerdictKind.COMMITTED, "nominations of one gang are not in its way"


def test_a_member_that_is_gone_ends_the_claim_of_all_and_the_others_are_decided_again(
    world: Ganging,
) -> None:
    old, pods = world.old(), world.gang()
    incoming = world.decided_together(pods)
    assert incoming is not None
    world.propose(incoming)
    claim = world.claim(pods[0])
    world.write_nomination(claim)
    world.machine.withdraw(pods[1].uid)
    assert world.evict(claim) == []
    (outcome,) = world.outcomes()
    assert (outcome.kind, outcome.cause) == (OutcomeKind.CONFLICT, Cause.POD_CHANGED)
    assert set(outcome.members) == {made.uid for made in pods}
    world.round()
    assert world.flags(old) == [0, 0]
    assert not world.follower.nominations
    assert not world.machine.preemptions.claims


def test_nobody_goes_for_a_gang_whose_group_is_deleted_meanwhile(world: Ganging) -> None:
    old, pods = world.old(), world.gang()
    incoming = world.decided_together(pods)
    assert incoming is not None
    world.propose(incoming)
    claim = world.claim(pods[0])
    world.write_nomination(claim)
    world.machine.cluster.object_seen(POD_GROUP, NEW, None)
    world.round()
    assert world.evict(claim) == []
    world.round()
    assert world.flags(old) == [0, 0]
    assert {outcome.kind for outcome in world.outcomes()} == {OutcomeKind.CONFLICT}


def test_a_group_of_which_one_has_been_asked_goes_whole_although_the_claim_has_ended(
    world: Ganging,
) -> None:
    world.machine.budgets.seen(pdb("db", 2))
    old, pods = world.old(app="db"), world.gang()
    incoming = world.decided_together(pods)
    assert incoming is not None
    world.propose(incoming)
    claim = world.claim(pods[0])
    world.write_nomination(claim)
    first, *_ = world.machine.preemptions.next_victims(claim) or []
    assert first.guarded
    world.machine.preemptions.asked(first)
    world.machine.withdraw(pods[0].uid)
    (rest,) = world.machine.preemptions.next_victims(claim) or []
    assert {first.uid, rest.uid} == {made.uid for made in old}
    assert rest.deleted, "a budget cannot keep a half"
    world.machine.preemptions.asked(rest)
    assert world.machine.preemptions.next_victims(claim) is None


@pytest.mark.parametrize("there", [True, False])
def test_a_binder_that_dies_between_two_evictions_leaves_the_rest_to_the_next_decision(
    world: Ganging, there: bool
) -> None:
    """Its successor finds the nominations and half a group: the gang has the other half go."""
    old, pods = world.old(), world.gang(4)
    incoming = world.decided_together(pods)
    assert incoming is not None
    world.propose(incoming)
    claim = world.claim(pods[0])
    world.write_nomination(claim)
    first, rest = world.machine.preemptions.next_victims(claim) or []
    successor = Ganging()
    successor.nominated = world.nominated
    again = successor.old()
    successor.api.pods |= {made.name: made for made in pods}
    for made, seat in zip(pods, claim.seats, strict=True):
        successor.machine.preemptions.nominee_seen(
            made.uid, name=("default", made.name), version=made.version, node=seat.node_name,
            shape=made.shape,
        )  # fmt: skip
    gone, left = again if first.uid == old[0].uid else again[::-1]
    if there:
        facts = successor.machine.cluster.facts[gone.uid]
        successor.machine.cluster.describe(gone.uid, facts._replace(flags=LEAVING))
        successor.round()
    else:
        successor.end(gone)
    incoming = successor.decided_together(pods)
    assert incoming is not None
    (verdict,) = successor.propose(incoming)
    assert verdict.kind is VerdictKind.NOMINATED
    assert successor.carry_out(successor.claim(pods[0])) == [left.uid]
    for made in (gone, left) if there else (left,):
        successor.end(made)
    (verdict,) = successor.propose(successor.binds(pods))
    assert verdict.kind is VerdictKind.COMMITTED
    assert rest.uid != first.uid


def test_a_member_that_joined_a_doomed_group_goes_with_it(world: Ganging) -> None:
    world.node("n3", cpu=2000)
    old, pods = world.old(), world.gang(3)
    world.runs("stays", pod(2000, priority=50), "n3")
    pods = pods[:2]
    incoming = world.decided_together(pods)
    assert incoming is not None
    world.propose(incoming)
    claim = world.claim(pods[0])
    world.write_nomination(claim)
    world.node("n4", cpu=2000)
    late = world.runs("late", member(100, group=OLD), "n4")
    victims = world.machine.preemptions.next_victims(claim) or []
    assert {victim.uid for victim in victims} == {made.uid for made in (*old, late)}


@pytest.mark.parametrize("what", ["one left", "fits", "other"])
def test_a_claim_on_an_old_picture_is_a_conflict(world: Ganging, what: str) -> None:
    old, pods = world.old(), world.gang()
    incoming = world.decided_together(pods)
    assert incoming is not None
    if what == "one left":
        world.machine.cluster.object_seen(POD_GROUP, OLD, encode_group(GroupRow(2, whole=True)))
        world.node("n3", cpu=2000)
        world.runs("late", member(2000, group=OLD), "n3")  # the group has a member more
    elif what == "fits":
        for made in old:
            world.end(made)
    else:
        world.end(old[0])
        world.runs("other", pod(2000), "n1")
    (verdict,) = world.propose(incoming)
    assert (verdict.kind, verdict.cause) == (VerdictKind.CONFLICT, Cause.VICTIMS)
    assert not world.machine.preemptions.claims


def test_two_gangs_do_not_spend_one_disruption_twice(world: Ganging) -> None:
    world.machine.budgets.seen(pdb("db", 2))
    for node in ("n1", "n2"):
        world.runs(f"a-{node}", pod(2000, app="db"), node)
    first = world.gang(2, 2000)
    incoming = world.decided_together(first)
    assert incoming is not None
    world.propose(incoming)
    victims = world.claim(first[0]).victims
    assert [victim.deleted for victim in victims] == [False, False], "within their budget"
    world.node("n3", cpu=2000)
    world.runs("a-n3", pod(2000, app="db"), "n3")
    shape = member(1000, group="default/third", priority=10)
    second = [world.api.create(f"third{i}", shape) for i in range(2)]
    again = world.decided_together(second)
    assert again is not None
    world.propose(again)
    assert [victim.deleted for victim in world.claim(second[0]).victims] == [True], "beyond it"


class AnyOrder(RuleBasedStateMachine):
    """A gang preempts groups, of which members come and go, while budgets refuse and pods end."""

    def __init__(self) -> None:
        super().__init__()
        self.world = Ganging()
        self.world.machine.budgets.seen(pdb("db", 1))
        self.old = self.world.old(app="db")
        self.pods = self.world.gang()
        self.begun = False

    @rule()
    def a_shard_proposes(self) -> None:
        if not self.world.machine.preemptions.claims and all(
            made.name in self.world.api.pods for made in self.pods
        ):
            incoming = self.world.decided_together(self.pods)
            if incoming is not None:
                self.world.propose(incoming)

    @rule(which=st.integers(0, 1))
    def a_nomination_is_written(self, which: int) -> None:
        for claim in set(map(id, self.world.machine.preemptions.claims.values())):
            found = next(
                c for c in self.world.machine.preemptions.claims.values() if id(c) == claim
            )
            if found.stage is ClaimStage.NOMINATING and not found.seats[which].written:
                self.world.write_seat(found, found.seats[which])

    @rule(refused=st.sets(st.integers(0, 1)))
    def victims_are_asked(self, refused: set[int]) -> None:
        claims = list(self.world.machine.preemptions.claims.values())
        if not claims or claims[0].stage is not ClaimStage.EVICTING:
            return
        names = {self.old[i].uid for i in refused}
        for uid in self.world.evict(claims[0], refuse_uids=names):
            assert all(made.uid in self.world.nominated for made in self.pods)
            self.begun |= uid in {made.uid for made in self.old}

    @rule(allowed=st.integers(0, 2))
    def the_budget_changes(self, allowed: int) -> None:
        self.world.machine.budgets.seen(pdb("db", allowed))
        self.world.round()

    @rule(which=st.integers(0, 1))
    def a_pending_member_is_deleted(self, which: int) -> None:
        self.world.api.pods.pop(self.pods[which].name, None)
        self.world.machine.withdraw(self.pods[which].uid)

    @invariant()
    def nothing_is_out_of_step(self) -> None:
        self.world.round()
        self.world.check()
        self.world.follower.validate()
        gone = set(self.world.evicted)
        if self.begun and not self.world.machine.preemptions.claims:
            assert {made.uid for made in self.old} <= gone, "a part of a gang was evicted"

    def teardown(self) -> None:
        for _ in range(20):
            for which in (0, 1):
                self.a_nomination_is_written(which=which)
            self.victims_are_asked(refused=set())
        assert not self.world.machine.preemptions.claims
        self.nothing_is_out_of_step()


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
