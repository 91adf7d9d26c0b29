"""Shapes are parked and woken: one decision for all, wake-ups and their replay, backoff, probes."""

from __future__ import annotations

from dispatcher.states import State, pending
from stretto.model.unit import Cause, OutcomeKind
from stretto.placement.events import ANYTHING, NODE, Action, ClusterEvent
from stretto.snapshot.delta import NodeRow, Taint
from tests.dispatcher.brain import BINDER, Brain, shape


def test_hopeless_pods_of_one_shape_cost_one_decision() -> None:
    brain = Brain()
    brain.pods(200)
    brain.shard(credits_=1)
    assert brain.units() == ["p0"]
    brain.unplaceable("p0", at=5)
    brain.machine.shards.credits(1, 1000)
    assert brain.units() == []
    assert pending(brain.machine.pods, brain.machine.shapes)[State.UNSCHEDULABLE] == 200
    brain.pod("newcomer")
    assert brain.units() == [], "the answer holds for the newcomer too"


def test_an_event_wakes_the_shape_after_its_backoff_with_one_probe_first() -> None:
    brain = Brain()
    brain.pods(200)
    brain.shard(credits_=1)
    brain.dispatch()
    brain.unplaceable("p0", at=5)
    brain.machine.shards.credits(1, 1000)
    brain.event(at=6)
    assert brain.units() == [], "its backoff of one second is not over"
    brain.wait(1.0)
    assert brain.units() == ["p0"]
    assert brain.sent["p0"][1].min_sequence == 6
    assert brain.units() == []
    brain.bind("p0")
    eight = brain.units()
    assert eight == [f"p{number}" for number in range(1, 9)]
    brain.bind(*eight[:2])
    assert len(brain.units()) == 191, "two have been bound: the shape is open"


def test_an_event_not_later_than_the_answer_does_not_wake() -> None:
    brain = Brain()
    brain.pod("a")
    brain.shard()
    brain.dispatch()
    brain.unplaceable("a", at=5)
    brain.event(at=5)
    brain.wait(100)
    assert brain.units() == []
    brain.event(at=6)
    brain.wait(0)
    assert brain.units() == ["a"]


def test_an_event_during_the_decision_is_replayed() -> None:
    brain = Brain()
    brain.pod("a")
    brain.shard()
    brain.dispatch()
    brain.event(at=9)
    brain.unplaceable("a", at=5)
    assert brain.state("a") is State.BACKOFF
    brain.wait(1.0)
    assert brain.units() == ["a"]
    assert brain.sent["a"][1].min_sequence == 9


def test_a_trimmed_log_or_another_epoch_is_a_wildcard() -> None:
    brain = Brain()
    brain.pod("a")
    brain.shard()
    brain.dispatch()
    brain.unplaceable("a", at=5)
    brain.event(ANYTHING, at=1, epoch=BINDER + 1)
    brain.wait(1.0)
    assert brain.units() == ["a"]
    brain.unplaceable("a", at=5)
    assert brain.state("a") is State.BACKOFF, "the answer is of the old epoch"


def test_an_answer_ahead_of_the_log_waits_for_what_comes_after_it() -> None:
    brain = Brain()
    brain.pods(2, shape(1), prefix="a")
    brain.pods(1, shape(2), prefix="b")
    brain.shard()
    brain.dispatch()
    brain.unplaceable("a0", "a1", at=50)
    brain.unplaceable("b0", at=20)
    brain.event(at=30)
    brain.wait(10)
    assert brain.units() == ["b0"]
    brain.event(at=51)
    brain.wait(0)
    assert brain.units() == ["a0"]


def test_the_backoff_of_a_shape_doubles_up_to_ten_seconds() -> None:
    brain = Brain()
    brain.pod("a")
    brain.shard(credits_=100)
    brain.dispatch()
    for number, delay in enumerate([1, 2, 4, 8, 10, 10]):
        brain.unplaceable("a", at=2 * number + 2)
        brain.event(at=2 * number + 3)
        brain.wait(delay - 0.01)
        assert brain.units() == [], f"after {number + 1} failures"
        brain.wait(0.02)
        assert brain.units() == ["a"]


def test_a_bind_forgives_the_failures_of_a_shape() -> None:
    brain = Brain()
    brain.pods(2)
    brain.shard(credits_=1)
    brain.dispatch()
    for _ in range(4):
        brain.unplaceable("p0", at=5)
        brain.event(at=6)
        brain.wait(10)
        brain.machine.shards.credits(1, 1)
        brain.dispatch()
    brain.bind("p0")
    record = brain.machine.pods.get("p1")
    assert record
    assert record.shape.failures == 0


def test_a_newcomer_ends_the_backoff_of_a_shape_that_an_event_woke() -> None:
    brain = Brain()
    brain.pod("a")
    brain.shard()
    brain.dispatch()
    brain.unplaceable("a", at=5)
    brain.event(at=6)
    brain.pod("b")
    assert len(brain.units()) == 1


def test_a_probe_that_vanishes_makes_room_for_another() -> None:
    brain = Brain()
    brain.pods(3)
    brain.shard()
    brain.dispatch()
    brain.unplaceable("p0", "p1", "p2", at=5)
    brain.event(at=6)
    brain.wait(1)
    probe = brain.units()
    assert len(probe) == 1
    brain.delete(probe[0], leaving=True)
    assert len(brain.units()) == 1


def test_a_probe_that_loses_a_conflict_probes_again() -> None:
    brain = Brain()
    brain.pods(3)
    brain.shard()
    brain.dispatch()
    brain.unplaceable("p0", "p1", "p2", at=5)
    brain.event(at=6)
    brain.wait(1)
    probe = brain.units()
    brain.outcome(probe[0], OutcomeKind.CONFLICT, cause=Cause.CAPACITY, sequence=8)
    assert brain.units() == probe


def test_what_stays_parked_for_five_minutes_is_woken_and_a_success_counts_as_a_defect() -> None:
    brain = Brain()
    brain.pod("a")
    brain.shard()
    brain.dispatch()
    brain.unplaceable("a", at=5)
    brain.wait(299)
    assert brain.units() == []
    brain.wait(1)
    assert brain.units() == ["a"]
    assert brain.machine.statistics.leftover_flushes == 1
    assert brain.machine.statistics.scheduled_after_flush == 0
    brain.bind("a")
    assert brain.machine.statistics.scheduled_after_flush == 1


def test_a_thousand_shapes_wake_each_after_its_own_decision() -> None:
    brain = Brain()
    for number in range(300):
        brain.machine.statistics.came_in(State.ACTIVE, "x", 0)
        brain.pod(f"p{number}", shape(number + 1))
    brain.shard(credits_=300)
    brain.dispatch()
    for number in range(300):
        brain.unplaceable(f"p{number}", at=number + 10)
    brain.event(at=110)
    brain.wait(1)
    brain.machine.shards.credits(1, 1000)
    assert len(brain.units()) == 100


UNTAINTED = ClusterEvent(
    NODE,
    Action.NODE_TAINT,
    old_node=NodeRow(uid="n", name="n", taints=(Taint("k", "v", "NoSchedule"),)),
    new_node=NodeRow(uid="n", name="n"),
)


def _parked_at_5_and_7(brain: Brain, *, before_the_second: ClusterEvent | None = None) -> None:
    """Two pods of one shape; between their decisions a tainted node came, of which nobody has
    heard yet but the second shard."""
    brain.pods(2)
    brain.shard(1, credits_=1)
    brain.shard(2, credits_=1)
    brain.dispatch()
    brain.unplaceable("p0", at=5, plugins=("NodeResourcesFit",))
    if before_the_second is not None:
        brain.event(before_the_second, at=8)
    brain.unplaceable("p1", at=7, plugins=("NodeResourcesFit", "TaintToleration"))
    brain.machine.shards.credits(1, 10)


def test_a_parked_shape_hears_what_helps_its_latest_decision() -> None:
    brain = Brain()
    _parked_at_5_and_7(brain)
    brain.event(
        ClusterEvent(NODE, Action.ADD, new_node=NodeRow(uid="n", name="n")), at=6
    )  # seen by the decision at 7
    brain.wait(1)
    assert brain.units() == []
    brain.event(UNTAINTED, at=8)
    assert brain.units() == ["p1"]


def test_what_came_before_the_latest_decision_was_known_is_replayed_for_it() -> None:
    brain = Brain()
    _parked_at_5_and_7(brain, before_the_second=UNTAINTED)
    brain.wait(1)
    assert brain.units() == ["p1"]
