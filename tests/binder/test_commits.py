"""What proposals get: first come first served, whole or not at all, each once."""

from __future__ import annotations

import msgspec
import pytest

from stretto.ledger.types import LedgerOp, ReserveKind, ReserveReply
from stretto.model.groups import POD_GROUP, GroupRow, encode_group
from stretto.model.shape import PodTerm, Requirement
from stretto.model.unit import Attempt, Cause, OutcomeKind, VerdictKind
from stretto.snapshot.delta import Taint
from tests.binder.world import DISPATCHER, EPOCH, Fate, World, node_of, shape_of

ONE = shape_of(1000)


@pytest.fixture
def world() -> World:
    """Two nodes of four cpus."""
    world = World()
    world.node("n1")
    world.node("n2")
    world.round()
    return world


def kinds(verdicts: list) -> list[tuple[VerdictKind, Cause]]:  # type: ignore[type-arg]
    return [(verdict.kind, verdict.cause) for verdict in verdicts]


def test_a_commit_is_in_the_log_before_its_verdict_names_the_sequence(world: World) -> None:
    pod = world.api.create("p", ONE)
    (verdict,) = world.propose(world.incoming(pod, nodes=("n1",)))
    assert verdict.kind is VerdictKind.COMMITTED
    assert verdict.nodes == (world.id_of("n1"),)
    assert world.follower.version == (EPOCH, verdict.sequence)
    row = world.follower.row_of_name("n1")
    assert row is not None
    assert sum(world.follower.pods_on(row).values()) == 1
    assert world.used("n1") == {"cpu": 1000, "pods": 1}


def test_of_two_proposals_for_the_last_room_the_first_wins(world: World) -> None:
    big = shape_of(3000)
    first, second = world.api.create("a", big), world.api.create("b", big)
    verdicts = world.propose(
        world.incoming(first, nodes=("n1",)), world.incoming(second, nodes=("n1",))
    )
    assert kinds(verdicts) == [
        (VerdictKind.CONFLICT, Cause.CAPACITY), (VerdictKind.COMMITTED, Cause.NONE),
    ] or kinds(verdicts) == [
        (VerdictKind.COMMITTED, Cause.NONE), (VerdictKind.CONFLICT, Cause.CAPACITY),
    ]  # fmt: skip
    lost = next(v for v in verdicts if v.kind is VerdictKind.CONFLICT)
    assert lost.unit_id == second.uid
    # The sequence to reach contains what it was lost to.
    assert lost.sequence == world.machine.cluster.sequence
    assert [o.kind for o in world.outcomes()] == [OutcomeKind.CONFLICT]
    world.check()


def test_a_spare_is_taken_before_a_rejection(world: World) -> None:
    big = shape_of(3000)
    world.bound(world.api.create("a", big), "n1")
    pod = world.api.create("b", big)
    (verdict,) = world.propose(world.incoming(pod, nodes=("n1",), spares=("n1", "n2")))
    assert verdict.kind is VerdictKind.COMMITTED
    assert verdict.nodes == (world.id_of("n2"),)
    world.settle_all()
    assert world.api.pods["b"].node == "n2"


def test_a_gang_is_reserved_whole_or_not_at_all(world: World) -> None:
    big = shape_of(3000)
    gang = [world.api.create(f"g{i}", big) for i in range(3)]
    (verdict,) = world.propose(world.incoming(*gang, nodes=("n1", "n2", "n1"), unit_id="group"))
    assert kinds([verdict]) == [(VerdictKind.CONFLICT, Cause.CAPACITY)]
    assert world.twin.entries() == []
    assert world.machine.cluster.pods == {}
    assert world.machine.cluster.snapshot.tentative == 0
    small = [world.api.create(f"s{i}", ONE) for i in range(3)]
    (verdict,) = world.propose(world.incoming(*small, nodes=("n1", "n2", "n1"), unit_id="group"))
    assert verdict.kind is VerdictKind.COMMITTED
    world.settle_all()
    assert [o.kind for o in world.outcomes()][1:] == [OutcomeKind.BOUND] * 3
    world.check_at_rest()


def test_a_repeated_proposal_gets_the_answer_it_got(world: World) -> None:
    pod = world.api.create("p", ONE)
    proposal = world.incoming(pod, nodes=("n1",))
    (first,) = world.propose(proposal)
    (again,) = world.propose(proposal)
    assert again == first
    assert world.used("n1") == {"cpu": 1000, "pods": 1}


def test_a_later_attempt_at_a_pod_that_holds_a_reservation_is_held(world: World) -> None:
    pod = world.api.create("p", ONE)
    world.propose(world.incoming(pod, nodes=("n1",), attempt=Attempt(DISPATCHER, 1)))
    (verdict,) = world.propose(world.incoming(pod, nodes=("n2",), attempt=Attempt(DISPATCHER, 2)))
    assert verdict.kind is VerdictKind.HELD
    world.settle_all()
    assert world.api.binds == {pod.uid: ["n1"]}


def test_an_older_attempt_is_superseded(world: World) -> None:
    pod, other = world.api.create("p", shape_of(9000)), world.api.create("q", ONE)
    world.propose(world.incoming(pod, nodes=("n1",), attempt=Attempt(DISPATCHER, 5)))
    (verdict,) = world.propose(world.incoming(pod, nodes=("n2",), attempt=Attempt(DISPATCHER, 4)))
    assert verdict.kind is VerdictKind.SUPERSEDED
    (verdict,) = world.propose(
        world.incoming(other, nodes=("n2",), attempt=Attempt(DISPATCHER - 1, 9))
    )
    assert verdict.kind is VerdictKind.SUPERSEDED
    assert world.twin.entries() == []


def test_a_dispatcher_that_has_been_succeeded_is_not_heard(world: World) -> None:
    assert world.machine.subscribed(DISPATCHER + 1)
    assert not world.machine.subscribed(DISPATCHER)
    pod = world.api.create("p", ONE)
    (verdict,) = world.propose(world.incoming(pod, nodes=("n1",)))
    assert verdict.kind is VerdictKind.SUPERSEDED


def test_a_proposal_of_another_epoch_of_the_log_is_a_conflict(world: World) -> None:
    pod = world.api.create("p", ONE)
    (verdict,) = world.propose(world.incoming(pod, nodes=("n1",), epoch=EPOCH - 1))
    assert kinds([verdict]) == [(VerdictKind.CONFLICT, Cause.EPOCH)]


def test_a_node_that_is_gone_or_changed_takes_nothing(world: World) -> None:
    pod = world.api.create("p", ONE)
    gone = world.incoming(pod, nodes=("n2",))
    world.drop_node("n2-uid")
    (verdict,) = world.propose(gone)
    assert kinds([verdict]) == [(VerdictKind.CONFLICT, Cause.NODE_GONE)]
    world.node("n1", taints=(Taint("a", "", "NoSchedule"),))
    (verdict,) = world.propose(world.incoming(pod, nodes=("n1",)))
    assert kinds([verdict]) == [(VerdictKind.CONFLICT, Cause.NODE_CHANGED)]
    assert world.outcomes()[-1].sequence <= world.machine.cluster.sequence


def test_a_node_deleted_while_the_ledger_was_asked_takes_nothing(world: World) -> None:
    pod = world.api.create("p", ONE)
    world.proposed.append(world.incoming(pod, nodes=("n1",)))
    world.begin()
    world.drop_node("n1-uid")
    world.finish()
    assert kinds(world.verdicts) == [(VerdictKind.CONFLICT, Cause.NODE_GONE)]
    world.settle_all()
    assert world.twin.entries() == []
    world.check_at_rest()


def test_the_ledgers_no_after_memorys_yes_freezes_the_node(world: World) -> None:
    world.twin.store.accounts["n1-uid"][2] = 0  # somebody lowers the account by hand
    pod = world.api.create("p", ONE)
    (verdict,) = world.propose(world.incoming(pod, nodes=("n1",)))
    assert kinds([verdict]) == [(VerdictKind.CONFLICT, Cause.LEDGER)]
    assert world.machine.cluster.nodes["n1-uid"].frozen
    row = world.follower.row_of_name("n1")
    assert row is not None
    assert world.follower.frozen[row]
    (verdict,) = world.propose(world.incoming(pod, nodes=("n1",)))
    assert kinds([verdict]) == [(VerdictKind.CONFLICT, Cause.FROZEN)]
    (verdict,) = world.propose(world.incoming(pod, nodes=("n2",)))
    assert verdict.kind is VerdictKind.COMMITTED


def test_a_pod_bound_by_somebody_else_is_gone(world: World) -> None:
    pod = world.api.create("p", ONE)
    world.api.put(pod, "n2", foreign=True)
    world.deliver()
    (verdict,) = world.propose(world.incoming(pod, nodes=("n1",)))
    assert verdict.kind in (VerdictKind.GONE, VerdictKind.HELD)
    assert world.twin.entries() == []


def test_a_pod_seen_bound_elsewhere_while_the_ledger_was_asked_is_not_ours(world: World) -> None:
    pod = world.api.create("p", ONE)
    world.proposed.append(world.incoming(pod, nodes=("n1",)))
    world.begin()
    world.api.put(pod, "n2", foreign=True)
    world.deliver()
    world.finish()
    world.check()
    world.settle_all()
    world.check_at_rest()
    assert world.twin.entries() == []


def test_a_pod_withdrawn_while_the_ledger_was_asked_is_let_go(world: World) -> None:
    pod = world.api.create("p", ONE)
    world.proposed.append(world.incoming(pod, nodes=("n1",)))
    world.begin()
    world.api.delete(pod)
    world.machine.withdraw(pod.uid)
    world.finish()
    world.settle_all()
    world.check_at_rest()
    assert world.outcomes()[-1].kind is OutcomeKind.GONE
    (verdict,) = world.propose(world.incoming(pod, nodes=("n1",)))
    assert verdict.kind is VerdictKind.GONE


def test_a_batch_without_the_ledgers_answer_goes_back(world: World) -> None:
    pod = world.api.create("p", ONE)
    world.proposed.append(world.incoming(pod, nodes=("n1",)))
    world.begin()
    assert world.batch is not None
    settled = world.machine.abandon(world.batch)
    world.batch = None
    world.conclude(settled)
    assert kinds(world.verdicts) == [(VerdictKind.CONFLICT, Cause.STALE)]
    assert world.machine.cluster.snapshot.tentative == 0
    world.machine.validate()


def test_a_shape_formed_before_a_new_selector_is_formed_anew(world: World) -> None:
    selector = (Requirement("app", "In", ("web",)),)
    world.node("n1", labels=(("zone", "a"),))
    keeper = shape_of(100, anti_affinity=(PodTerm("zone", ("default",), None, selector),))
    world.bound(world.api.create("keeper", keeper), "n1")
    pod = world.api.create("p", ONE)
    (verdict,) = world.propose(world.incoming(pod, nodes=("n1",)))
    assert kinds([verdict]) == [(VerdictKind.CONFLICT, Cause.LABEL_KEYS)]
    keyed = shape_of(1000, label_keys=("app",), labels=(("app", "web"),))
    (verdict,) = world.propose(world.incoming(pod, nodes=("n1",), shapes=(keyed,)))
    assert kinds([verdict]) == [(VerdictKind.CONFLICT, Cause.AFFINITY)]
    free = shape_of(1000, label_keys=("app",))
    (verdict,) = world.propose(world.incoming(pod, nodes=("n1",), shapes=(free,)))
    assert verdict.kind is VerdictKind.COMMITTED


def test_a_hard_constraint_that_is_not_built_is_refused_also_here(world: World) -> None:
    pod = world.api.create("p", shape_of(100, unbuilt_hard=("GangScheduling: a group",)))
    (verdict,) = world.propose(world.incoming(pod, nodes=("n1",)))
    assert verdict.kind is VerdictKind.REFUSED
    assert "GangScheduling: a group" in world.outcomes()[-1].detail


def test_a_unit_is_forgotten_when_its_outcome_is_acknowledged(world: World) -> None:
    pod = world.api.create("p", ONE)
    world.bound(pod, "n1")
    assert [o.kind for o in world.outcomes()] == [OutcomeKind.BOUND]
    assert pod.uid in world.twin.store.units
    world.machine.acknowledge(1)
    world.round()
    assert world.outcomes() == []
    assert world.twin.store.units == {}
    assert world.machine.outcomes.last == 1


def test_outcomes_are_sent_again_until_acknowledged(world: World) -> None:
    for number in range(3):
        world.bound(world.api.create(f"p{number}", ONE), "n1")
    log = world.machine.outcomes
    assert log.after(0)[0] == 1
    log.acknowledge(2)
    first, outcomes = log.after(0)
    assert (first, len(outcomes)) == (3, 1)
    log.acknowledge(1)  # an old one, late
    assert log.after(0) == (first, outcomes)


def test_a_lost_connection_before_the_bind_was_sent_is_no_failure(world: World) -> None:
    pod = world.api.create("p", ONE)
    world.propose(world.incoming(pod, nodes=("n1",)))
    world.act(pod.uid, Fate.NOT_SENT)
    world.settle_all()
    assert world.api.binds == {pod.uid: ["n1"]}
    world.check_at_rest()


def test_a_gang_outside_of_the_domain_its_group_requires_is_a_conflict(world: World) -> None:
    group = GroupRow(min_count=2, topology_key="rack", topology_required=True)
    world.machine.cluster.object_seen(POD_GROUP, "default/g", encode_group(group))
    for name in ("n1", "n2"):
        row = msgspec.structs.replace(node_of(name), labels=(("rack", name),))
        world.machine.node_seen(row)
    shape = shape_of(1000, group="default/g")
    pods = [world.api.create(f"g{i}", shape) for i in range(3)]
    (verdict,) = world.propose(world.incoming(*pods[:2], nodes=("n1", "n2"), unit_id="group"))
    assert kinds([verdict]) == [(VerdictKind.CONFLICT, Cause.NODE_CHANGED)]
    (verdict,) = world.propose(world.incoming(*pods[:2], nodes=("n1", "n1"), unit_id="group"))
    assert verdict.kind is VerdictKind.COMMITTED
    (verdict,) = world.propose(world.incoming(pods[2], nodes=("n2",), unit_id="late"))
    assert kinds([verdict]) == [(VerdictKind.CONFLICT, Cause.NODE_CHANGED)]


def test_members_of_a_gang_that_has_left_are_not_placed_one_by_one(world: World) -> None:
    """The dispatcher sends one that follows, or replaces another, by a picture that may be old."""
    group = GroupRow(min_count=2)
    world.machine.cluster.object_seen(POD_GROUP, "default/g", encode_group(group))
    shape = shape_of(500, group="default/g")
    pods = [world.api.create(f"g{i}", shape) for i in range(6)]

    def proposed(*members: int) -> tuple[VerdictKind, Cause]:
        chosen = [pods[i] for i in members]
        (verdict,) = world.propose(world.incoming(*chosen, nodes=("n1",) * len(chosen)))
        return verdict.kind, verdict.cause

    assert proposed(0) == (VerdictKind.CONFLICT, Cause.GANG)
    assert world.used("n1") == {}, "what was counted for the check is taken back"
    assert proposed(0, 1)[0] is VerdictKind.COMMITTED
    world.settle_all()
    world.api.delete(pods[0])
    world.deliver()
    assert proposed(2)[0] is VerdictKind.COMMITTED, "it replaces one of a gang that runs"
    world.settle_all()
    for pod in pods[1:3]:
        world.api.delete(pod)
    world.deliver(2)
    assert proposed(3) == (VerdictKind.CONFLICT, Cause.GANG)
    assert proposed(3, 4)[0] is VerdictKind.COMMITTED
    assert proposed(5)[0] is VerdictKind.COMMITTED, "one more follows by itself"


def test_of_two_attempts_in_one_batch_the_newer_is_remembered(world: World) -> None:
    """The dispatcher sent again after a lost stream; the older waited behind others of its own."""
    pod = world.api.create("p", ONE)
    newer = world.incoming(pod, nodes=("n1",), attempt=Attempt(DISPATCHER, 2), epoch=1)
    older = world.incoming(pod, nodes=("n1",), attempt=Attempt(DISPATCHER, 1))
    verdicts = {verdict.attempt.number: verdict.kind for verdict in world.propose(newer, older)}
    assert verdicts == {1: VerdictKind.COMMITTED, 2: VerdictKind.CONFLICT}
    again = world.incoming(pod, nodes=("n1",), attempt=Attempt(DISPATCHER, 1))
    (verdict,) = world.propose(again)
    assert verdict.kind is VerdictKind.SUPERSEDED
    world.settle_all()
    assert world.api.binds == {pod.uid: ["n1"]}


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (ReserveReply(ReserveKind.SUPERSEDED), (VerdictKind.SUPERSEDED, Cause.NONE)),
        (ReserveReply(ReserveKind.HELD, "n2-uid"), (VerdictKind.HELD, Cause.NONE)),
        (ReserveReply(ReserveKind.FLAGGED, "n1-uid"), (VerdictKind.CONFLICT, Cause.FROZEN)),
        (
            ReserveReply(ReserveKind.ACCOUNT_MISSING, "n1-uid"),
            (VerdictKind.CONFLICT, Cause.NODE_GONE),
        ),
    ],
)
def test_the_ledgers_word_counts_whatever_memory_thought(
    world: World, reply: ReserveReply, answer: tuple[VerdictKind, Cause]
) -> None:
    pod = world.api.create("p", ONE)
    world.proposed.append(world.incoming(pod, nodes=("n1",)))
    world.begin()
    world.twin.transition([LedgerOp.free(pod.uid)])
    world.replies = [reply]
    world.finish()
    assert kinds(world.verdicts) == [answer]
    assert world.machine.cluster.snapshot.tentative == 0
    assert not world.machine.bindings
    assert not world.machine.book.drifted, "only room that was promised and is not there is drift"
    told = [outcome.cause for outcome in world.outcomes()]
    assert told == ([answer[1]] if answer[0] is VerdictKind.CONFLICT else [])
    world.check()


def test_amounts_are_right_also_when_more_shapes_come_than_are_remembered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("binder.fitting._REMEMBERED_LINES", 2)
    for cpu in (100, 200, 300, 100, 400):
        pod = world.api.create(f"p{world.api.made}", shape_of(cpu))
        world.bound(pod, "n1")
    assert world.used("n1") == {"cpu": 1100, "pods": 5}
    world.check_at_rest()


def test_of_pods_that_were_withdrawn_the_latest_are_remembered(world: World) -> None:
    committer = world.machine.committer
    for number in range(5):
        committer.withdraw(f"u{number}", keep=3)
    assert list(committer.withdrawn) == ["u2", "u3", "u4"]
