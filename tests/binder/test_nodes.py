"""Nodes that come, change, freeze and leave while pods are on their way to them."""

from __future__ import annotations

import pytest

from binder.bindings import Stage
from stretto.ledger.types import Account, EntryState, LedgerEntry
from stretto.model.unit import Attempt, OutcomeKind
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


def test_a_node_that_is_shown_again_as_it_was_is_no_step_of_the_log(world: World) -> None:
    sequence = world.machine.cluster.sequence
    world.node("n1")
    world.publish()
    assert world.machine.cluster.sequence == sequence
    assert world.machine.book.accounts() == ([], [])
    world.node("n1", cpu=5000)
    world.publish()
    assert world.machine.cluster.sequence == sequence + 1


def test_a_node_that_was_never_there_may_go(world: World) -> None:
    sequence = world.machine.cluster.sequence
    world.drop_node("nobody")
    world.publish()
    assert world.machine.cluster.sequence == sequence
    world.check_at_rest()


def test_a_node_freezes_once(world: World) -> None:
    cluster, sequence = world.machine.cluster, world.machine.cluster.sequence
    cluster.freeze("n1-uid")
    cluster.freeze("n1-uid")
    cluster.freeze("nobody")
    world.publish()
    assert cluster.sequence == sequence + 1
    cluster.freeze("n1-uid", frozen=False)
    cluster.freeze("n1-uid", frozen=False)
    world.publish()
    assert cluster.sequence == sequence + 2
    row = world.follower.row_of_name("n1")
    assert row is not None
    assert not world.follower.frozen[row]


def test_a_bind_that_lands_on_another_node_of_its_name_takes_room_there(
    world: World, pod: ApiPod
) -> None:
    """The API server binds to names; the node that was meant has been replaced meanwhile."""
    world.act(pod.uid, Fate.LATE)
    world.node("n1", uid="again")
    world.round()
    assert world.deliver_late() == 201
    world.deliver(9)
    assert world.stage(pod) is Stage.BOUND
    world.settle_all()
    assert [o.kind for o in world.outcomes()] == [OutcomeKind.BOUND]
    (entry,) = world.twin.entries()
    assert (entry.node_uid, entry.state) == ("again", EntryState.BOUND)
    assert world.twin.sums()["again"] == {"cpu": 1000, "pods": 1}
    world.check_at_rest()


def test_a_nominated_pod_that_is_bound_to_a_node_nobody_knows_is_nominated_no_longer(
    world: World,
) -> None:
    made = world.api.create("high", shape_of(1000, priority=10))
    world.machine.preemptions.nominee_seen(
        made.uid, name=("default", "high"), version=made.version, node="n1", shape=made.shape
    )
    world.round()
    assert world.follower.nominations.on("n1").keys() == {made.uid}
    world.api.put(made, "n9", foreign=True)
    world.deliver(9)
    world.round()
    assert not world.follower.nominations
    world.node("n9")
    world.settle_all()
    world.check_at_rest()


def test_two_pods_that_wait_for_a_node_wait_apart(world: World) -> None:
    first, second = (world.api.create(name, ONE) for name in ("a", "b"))
    for made in (first, second):
        world.api.put(made, "n9", foreign=True)
    world.deliver(9)
    world.api.delete(first)
    world.deliver(9)
    world.node("n9")
    world.settle_all()
    assert world.machine.book.rooms.account("n9-uid").foreign == {"cpu": 1000, "pods": 1}
    world.check_at_rest()


def test_what_the_ledger_has_to_say_of_a_node_that_has_gone_is_nothing(
    world: World, pod: ApiPod
) -> None:
    expected = world.machine.book.expected(["n1-uid", "n2-uid", "nobody"])
    assert {uid: set(entries) for uid, entries in expected.entries.items()} == {
        "n1-uid": {pod.uid}, "n2-uid": set(),
    }  # fmt: skip
    assert expected.used == {}
    assert expected.changing == set()


@pytest.mark.parametrize("state", list(EntryState))
@pytest.mark.parametrize("cpu", [1000, 900])
def test_an_entry_of_a_former_binder_is_taken_over_as_its_pod_is(
    world: World, state: EntryState, cpu: int
) -> None:
    made = world.api.create("p", ONE)
    world.api.put(made, "n1")
    world.deliver(9)
    world.round()
    lines = (("cpu", cpu), ("pods", 1))
    entry = LedgerEntry(made.uid, "n1-uid", "u", Attempt(1, 1), 3, made.version, state, lines)
    assert world.machine.book.adopt_entry(
        LedgerEntry("nobody", "n1-uid", "u", Attempt(1, 1), 3, 1, state, lines),
        namespace="default", name="nobody",
    ) is None  # fmt: skip
    binding = world.machine.book.adopt_entry(entry, namespace="default", name="p")
    assert binding is not None
    assert binding.stage is Stage.BOUND
    codes = [op.code.name for op in world.machine.book.ops]
    if cpu != 1000:
        assert codes == ["ADOPT"], "it takes something else"
    else:
        assert codes == ([] if state is EntryState.BOUND else ["BOUND"])
    assert world.machine.book.rooms.account("n1-uid") == Account(
        "n1-uid", {"cpu": 4000, "pods": 10}
    )
