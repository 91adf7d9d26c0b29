"""A reservation's way to its bind: every answer of reliability §2.4, the subtle cases of §1.4."""

from __future__ import annotations

import pytest

from binder.bindings import ActionKind, Stage
from stretto.model.unit import Cause, OutcomeKind, VerdictKind
from tests.binder.world import ApiPod, Fate, World, shape_of

ONE = shape_of(1000)


@pytest.fixture
def world() -> World:
    """Two nodes of four cpus."""
    world = World()
    world.node("n1")
    world.node("n2")
    world.round()
    return world


@pytest.fixture
def pod(world: World) -> ApiPod:
    """A pod that is reserved on n1; its bind is due."""
    pod = world.api.create("p", ONE)
    world.propose(world.incoming(pod, nodes=("n1",)))
    return pod


def end_of(world: World) -> tuple[OutcomeKind, Cause]:
    outcome = world.outcomes()[-1]
    return outcome.kind, outcome.cause


def freed(world: World) -> bool:
    world.round()
    return not world.twin.entries() and not world.machine.cluster.pods


# --------------------------------------------------------------------------------- the table's rows
def test_201_waits_for_the_watch(world: World, pod: ApiPod) -> None:
    world.act(pod.uid)
    assert world.stage(pod) is Stage.CONFIRMING
    assert end_of(world) == (OutcomeKind.BOUND, Cause.NONE)
    world.deliver()
    assert world.stage(pod) is Stage.BOUND
    world.round()
    assert [entry.state.name for entry in world.twin.entries()] == ["BOUND"]
    assert len(world.outcomes()) == 1


def test_the_watch_may_be_ahead_of_the_201(world: World, pod: ApiPod) -> None:
    binding = world.machine.bindings[pod.uid]
    binding.send()
    world.api.put(pod, "n1")
    world.deliver()
    assert world.stage(pod) is Stage.BOUND
    assert binding.posted().kind is ActionKind.NOTHING
    world.machine.endings.stepped(binding)
    assert [o.kind for o in world.outcomes()] == [OutcomeKind.BOUND]


def test_404_frees(world: World, pod: ApiPod) -> None:
    world.api.delete(pod)
    world.act(pod.uid)
    assert end_of(world) == (OutcomeKind.GONE, Cause.POD_GONE)
    assert freed(world)


def test_recreated_under_the_same_name(world: World, pod: ApiPod) -> None:
    world.api.delete(pod)
    other = world.api.create("p", ONE)
    world.act(pod.uid)
    world.act(pod.uid)
    assert end_of(world) == (OutcomeKind.GONE, Cause.POD_GONE)
    assert freed(world)
    assert other.node == ""


def test_429_sends_the_same_again_after_the_wait(world: World, pod: ApiPod) -> None:
    binding = world.machine.bindings[pod.uid]
    binding.send()
    action = binding.throttled(3.0)
    assert (action.kind, action.delay_s) == (ActionKind.POST, 3.0)
    assert not freed(world)


@pytest.mark.parametrize("earlier_unknown", [False, True])
def test_a_refusal_frees_unless_an_earlier_bind_may_land(
    world: World, pod: ApiPod, earlier_unknown: bool
) -> None:
    binding = world.machine.bindings[pod.uid]
    binding.send()
    if earlier_unknown:
        binding.unknown()
    action = binding.refused("403 forbidden")
    world.machine.endings.stepped(binding)
    if earlier_unknown:
        assert action.kind is ActionKind.READ
        assert not freed(world)
    else:
        assert end_of(world) == (OutcomeKind.FAILED, Cause.BIND_FAILED)
        assert freed(world)


def test_409_of_our_own_success_is_bound(world: World, pod: ApiPod) -> None:
    world.api.put(pod, "n1")  # an earlier copy of the request was carried out
    world.act(pod.uid)
    assert world.todo[pod.uid].kind is ActionKind.READ
    world.act(pod.uid)
    assert world.stage(pod) is Stage.BOUND
    world.settle_all()
    world.check_at_rest()


def test_409_bound_elsewhere_is_foreign(world: World, pod: ApiPod) -> None:
    world.api.put(pod, "n2", foreign=True)
    world.act(pod.uid)
    world.act(pod.uid)
    assert end_of(world)[0] is OutcomeKind.GONE
    world.settle_all()
    assert world.used("n1") == {}
    assert world.machine.book.rooms.account("n2-uid").foreign == {"cpu": 1000, "pods": 1}
    world.check_at_rest()


def test_409_newer_version_is_rebased_in_the_ledger_and_sent_again(
    world: World, pod: ApiPod
) -> None:
    world.api.touch(pod)
    world.act(pod.uid)
    world.act(pod.uid)
    assert world.stage(pod) is Stage.REBASING
    assert pod.uid not in world.todo, "sent before the ledger accepted the version"
    world.round()
    assert [entry.resource_version for entry in world.twin.entries()] == [pod.version]
    world.act(pod.uid)
    world.deliver()
    assert world.stage(pod) is Stage.BOUND
    assert world.api.binds == {pod.uid: ["n1"]}


def test_409_other_shape_is_fenced_and_decided_anew(world: World, pod: ApiPod) -> None:
    world.api.touch(pod, shape_of(2000))
    world.act(pod.uid)
    world.act(pod.uid)
    assert world.stage(pod) is Stage.FENCING
    assert not freed(world)
    before = pod.version
    world.act(pod.uid)
    outcome = world.outcomes()[-1]
    assert outcome.kind is OutcomeKind.FAILED
    assert outcome.resource_version == pod.version > before
    assert freed(world)


def test_a_pod_that_changes_all_the_time_is_decided_anew(world: World, pod: ApiPod) -> None:
    for _ in range(40):
        if pod.uid not in world.todo:
            world.round()
        if pod.uid not in world.todo:
            break
        if world.todo[pod.uid].kind is ActionKind.POST:
            world.api.touch(pod)
        world.act(pod.uid)
    assert end_of(world)[0] is OutcomeKind.FAILED
    assert freed(world)


def test_lost_reply_is_found_bound(world: World, pod: ApiPod) -> None:
    world.act(pod.uid, Fate.LOST_REPLY)
    assert world.todo[pod.uid].kind is ActionKind.READ
    world.act(pod.uid)
    assert world.stage(pod) is Stage.BOUND
    assert end_of(world)[0] is OutcomeKind.BOUND
    world.settle_all()
    world.check_at_rest()


def test_lost_request_is_fenced_before_it_is_freed(world: World, pod: ApiPod) -> None:
    world.act(pod.uid, Fate.LATE)
    world.act(pod.uid)
    assert world.stage(pod) is Stage.FENCING
    assert not freed(world)
    world.act(pod.uid)
    assert end_of(world) == (OutcomeKind.FAILED, Cause.BIND_FAILED)
    assert freed(world)
    assert world.api.late
    assert world.deliver_late() == 409, "a late bind landed"
    world.check()


def test_a_late_bind_that_lands_before_the_fence_is_found(world: World, pod: ApiPod) -> None:
    world.act(pod.uid, Fate.LATE)
    world.act(pod.uid)
    assert world.deliver_late() == 201
    world.act(pod.uid)  # the fence: 409
    assert world.todo[pod.uid].kind is ActionKind.READ
    world.act(pod.uid)
    assert world.stage(pod) is Stage.BOUND
    world.settle_all()
    world.check_at_rest()


def test_a_fence_whose_reply_is_lost_is_looked_at_again(world: World, pod: ApiPod) -> None:
    world.act(pod.uid, Fate.LATE)
    world.act(pod.uid)
    world.act(pod.uid, Fate.LOST_REPLY)
    assert not freed(world)
    world.settle_all()
    world.check_at_rest()
    assert end_of(world)[0] is OutcomeKind.FAILED


def test_a_failed_read_proves_nothing(world: World, pod: ApiPod) -> None:
    world.act(pod.uid, Fate.LOST_REQUEST)
    delays = []
    for _ in range(10):
        delays.append(world.todo[pod.uid].delay_s)
        world.act(pod.uid, Fate.LOST_REQUEST)
    assert delays == sorted(delays)
    assert delays[-1] == 10.0
    assert not freed(world)


# ------------------------------------------------------------------------------- the subtle cases
def test_deleted_between_reservation_and_bind_tells_the_ledger(world: World, pod: ApiPod) -> None:
    world.api.delete(pod)
    binding = world.machine.withdraw(pod.uid)
    assert binding is not None
    world.follow(binding, binding.withdraw())
    world.settle_all()
    assert end_of(world)[0] is OutcomeKind.GONE
    world.check_at_rest()


def test_a_withdrawn_pod_that_lives_is_not_lost(world: World, pod: ApiPod) -> None:
    binding = world.machine.withdraw(pod.uid)
    assert binding is not None
    world.follow(binding, binding.withdraw())
    world.settle_all()
    assert end_of(world)[0] is OutcomeKind.FAILED
    world.check_at_rest()


def test_a_node_deleted_before_the_bind_gets_none(world: World, pod: ApiPod) -> None:
    world.drop_node("n1-uid")
    world.settle_all()
    assert world.api.binds == {}
    assert end_of(world)[0] is OutcomeKind.FAILED
    world.check_at_rest()
    (verdict,) = world.propose(world.incoming(pod, nodes=("n2",)))
    assert verdict.kind is VerdictKind.COMMITTED


def test_a_node_deleted_while_a_bind_is_unknown(world: World, pod: ApiPod) -> None:
    world.act(pod.uid, Fate.LATE)
    world.drop_node("n1-uid")
    world.settle_all()
    world.check()
    # The late bind had been delivered first: bound to a ghost, which is the pod collector's.
    assert world.api.binds == {pod.uid: ["n1"]}
    world.api.delete(pod)
    world.settle_all()
    world.check_at_rest()
    assert world.twin.entries() == []


def test_a_node_deleted_before_a_rebased_bind_gets_none(world: World, pod: ApiPod) -> None:
    world.api.touch(pod)
    world.act(pod.uid)
    world.act(pod.uid)
    world.drop_node("n1-uid")
    world.settle_all()
    assert world.api.binds == {}
    world.check_at_rest()


def test_pods_of_a_node_that_comes_back_under_its_name_count_again(
    world: World, pod: ApiPod
) -> None:
    world.act(pod.uid)
    world.deliver()
    other = world.api.create("other", ONE)
    world.api.put(other, "n1", foreign=True)
    world.deliver()
    world.round()
    world.drop_node("n1-uid")
    world.round()
    world.check()
    world.node("n1", uid="again")
    world.round()
    world.check()
    row = world.machine.cluster.snapshot.row_of_name("n1")
    assert row is not None
    assert world.machine.cluster.snapshot.resources.column("cpu").used[row] == 2000
    assert world.used("n1") == {"cpu": 1000, "pods": 1}
    assert world.machine.book.rooms.account("again").foreign == {"cpu": 1000, "pods": 1}
    world.check_at_rest()
    world.api.delete(pod)
    world.api.delete(other)
    world.settle_all()
    assert world.used("n1") == {}
    world.check_at_rest()


def test_a_node_recreated_in_one_step_is_another_node(world: World, pod: ApiPod) -> None:
    before = world.id_of("n1")
    world.node("n1", uid="again")
    assert world.id_of("n1") != before
    world.settle_all()
    assert world.api.binds == {}
    world.check_at_rest()


def test_a_bound_pod_that_goes_frees_its_room(world: World, pod: ApiPod) -> None:
    world.act(pod.uid)
    world.deliver()
    world.api.delete(pod)
    world.deliver()
    assert freed(world)
    assert [o.kind for o in world.outcomes()] == [OutcomeKind.BOUND]


def test_a_pod_resized_in_place_takes_what_it_takes_now(world: World, pod: ApiPod) -> None:
    world.act(pod.uid)
    world.deliver()
    world.api.touch(pod, shape_of(2500))
    world.deliver()
    world.round()
    assert world.used("n1") == {"cpu": 2500, "pods": 1}
    world.check_at_rest()


def test_status_changes_of_a_bound_pod_write_nothing(world: World, pod: ApiPod) -> None:
    foreign = world.api.create("f", ONE)
    world.api.put(foreign, "n2", foreign=True)
    world.act(pod.uid)
    world.deliver(9)
    world.round()
    sequence = world.machine.cluster.sequence
    world.api.touch(pod)
    world.api.touch(foreign)
    world.deliver(9)
    assert world.machine.book.accounts() == ([], [])
    assert world.machine.book.take_ops() == []
    world.publish()
    assert world.machine.cluster.sequence == sequence


def test_a_confirmed_bind_that_the_watch_never_shows_is_read(world: World, pod: ApiPod) -> None:
    world.act(pod.uid)
    world.api.watch.clear()  # bound and deleted in a gap of the watch
    del world.api.pods["p"]
    binding = world.machine.bindings[pod.uid]
    world.follow(binding, binding.doubt())
    world.act(pod.uid)
    assert freed(world)
    world.check_at_rest()


def test_foreign_pods_are_counted_even_beyond_the_room(world: World) -> None:
    for number in range(6):
        pod = world.api.create(f"f{number}", ONE)
        world.api.put(pod, "n1", foreign=True)
    world.deliver(9)
    world.round()
    assert world.machine.book.rooms.account("n1-uid").foreign == {"cpu": 6000, "pods": 6}
    (verdict,) = world.propose(world.incoming(world.api.create("p", ONE), nodes=("n1",)))
    assert verdict.cause is Cause.CAPACITY
    for number in range(6):
        world.api.delete(world.api.pods[f"f{number}"])
    world.deliver(9)
    world.round()
    assert world.machine.book.rooms.account("n1-uid").foreign == {}
    world.check()


def test_a_pod_seen_before_its_node_waits_for_it(world: World) -> None:
    pod = world.api.create("f", ONE)
    world.api.put(pod, "n3", foreign=True)
    world.deliver()
    world.round()
    assert pod.uid not in world.machine.cluster.pods
    world.node("n3")
    world.round()
    assert world.machine.book.rooms.account("n3-uid").foreign == {"cpu": 1000, "pods": 1}
    world.check_at_rest()
