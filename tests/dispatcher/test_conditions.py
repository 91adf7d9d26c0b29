"""The slower lane: who is told what, when, and what a patch in flight holds up."""

from __future__ import annotations

import pytest

from dispatcher.conditions import PatchOrder
from dispatcher.group_hindrance import QUORUM
from dispatcher.patching import PatchResult
from dispatcher.pods import Condition
from dispatcher.states import State
from stretto.model.groups import GroupRow
from stretto.model.unit import Cause, OutcomeKind
from tests.dispatcher.brain import Brain, shape

NO_ROOM = Condition("Unschedulable", "0/3 nodes are available")


def parked(count: int) -> Brain:
    brain = Brain()
    brain.pods(count)
    brain.shard(credits_=1)
    brain.dispatch()
    brain.unplaceable("p0", at=5)
    brain.machine.shards.credits(1, 1000)
    return brain


def patches(brain: Brain) -> list[PatchOrder]:
    orders = brain.machine.patches(brain.now)
    brain.machine.validate()
    return orders


def reply(brain: Brain, order: PatchOrder, result: PatchResult, version: int = 0) -> None:
    brain.machine.patch_replied(order.uid, result, resource_version=version, now=brain.now)
    brain.machine.validate()


def tell_all(brain: Brain) -> list[str]:
    told = []
    for _ in range(1000):
        for order in patches(brain):
            told.append(order.uid)
            reply(brain, order, PatchResult.WRITTEN, order.resource_version + 1000)
        brain.now += 0.1
        if brain.machine.lane.idle():
            break
    return told


def test_every_pod_of_a_parked_shape_is_told_once_in_its_order() -> None:
    brain = parked(100)
    assert tell_all(brain) == [f"p{number}" for number in range(100)]
    assert brain.told("p99") == NO_ROOM
    assert tell_all(brain) == []


def test_the_lane_is_bounded_in_flight_and_in_rate() -> None:
    brain = parked(100)
    orders = patches(brain)
    assert len(orders) == 8
    assert patches(brain) == []
    sent = len(orders)
    for _ in range(10):
        for order in orders:
            reply(brain, order, PatchResult.WRITTEN)
        orders = patches(brain)
        sent += len(orders)
    assert sent == 20, "the burst"
    brain.now += 0.1
    assert len(patches(brain)) == 5, "fifty a second"


def test_a_newcomer_of_a_parked_shape_is_told_too() -> None:
    brain = parked(1)
    tell_all(brain)
    brain.pod("new")
    assert tell_all(brain) == ["new"]


@pytest.mark.parametrize("way", ["conflict", "handed back", "shard lost"])
def test_a_pod_that_comes_back_to_a_shape_parked_meanwhile_is_told_too(way: str) -> None:
    """One shard says that the shape fits nowhere while another still decides on pods of it."""
    brain = Brain()
    brain.shard(1, credits_=1)
    brain.shard(2, credits_=1)
    brain.pods(2)
    brain.dispatch()
    (first, second) = sorted(brain.sent, key=lambda uid: brain.sent[uid][0])
    brain.unplaceable(first, at=5)
    assert tell_all(brain) == [first]
    if way == "conflict":
        brain.settle(second)
        brain.outcome(second, OutcomeKind.CONFLICT, cause=Cause.CAPACITY, sequence=4)
    elif way == "handed back":
        brain.hand_back(second)
    else:
        brain.close(2)
    assert brain.state(second) is State.UNSCHEDULABLE
    assert tell_all(brain) == [second]


def test_only_a_change_is_written() -> None:
    brain = parked(1)
    tell_all(brain)
    for message, told in (("0/3 nodes are available", []), ("0/4 nodes are available", ["p0"])):
        brain.wait(300)
        assert brain.units() == ["p0"]
        brain.unplaceable("p0", at=5, message=message)
        assert tell_all(brain) == told


def test_what_the_object_says_already_is_not_written_again_after_a_restart() -> None:
    brain = Brain()
    brain.pod("p0", condition=NO_ROOM)
    brain.shard()
    brain.dispatch()
    brain.unplaceable("p0", at=5)
    assert tell_all(brain) == []


def test_the_time_of_transition_is_kept_if_the_status_was_false_before() -> None:
    brain = parked(1)
    brain.pod("old", condition=Condition("Unschedulable", "other"))
    assert [(order.uid, order.transition) for order in patches(brain)] == [
        ("p0", True),
        ("old", False),
    ]


def test_a_pod_is_not_dispatched_while_its_patch_is_in_flight() -> None:
    brain = parked(1)
    order = patches(brain)[0]
    brain.event(at=6)
    brain.wait(1)
    assert brain.units() == []
    assert brain.state("p0") is State.PATCHING
    reply(brain, order, PatchResult.WRITTEN, 777)
    assert brain.units() == ["p0"]
    assert brain.sent["p0"][1].members[0].resource_version == 777


def test_a_pod_that_was_woken_before_its_patch_was_sent_is_not_told() -> None:
    brain = parked(1)
    brain.event(at=6)
    brain.wait(1)
    assert brain.units() == ["p0"]
    assert patches(brain) == []


def test_a_stale_patch_is_dropped_until_the_watch_shows_the_change() -> None:
    brain = parked(1)
    order = patches(brain)[0]
    reply(brain, order, PatchResult.STALE)
    brain.now += 10
    assert patches(brain) == []
    brain.pod("p0")
    again = patches(brain)
    assert [o.uid for o in again] == ["p0"]
    assert again[0].resource_version > order.resource_version


def test_a_stale_patch_whose_change_was_seen_meanwhile_is_written_anew() -> None:
    brain = parked(1)
    order = patches(brain)[0]
    brain.pod("p0")
    reply(brain, order, PatchResult.STALE)
    assert [o.uid for o in patches(brain)] == ["p0"]


def test_a_failed_patch_is_tried_three_times_after_the_pause_that_was_asked_for() -> None:
    brain = parked(1)
    for tries in range(3):
        orders = patches(brain)
        assert len(orders) == 1, tries
        brain.machine.patch_replied("p0", PatchResult.FAILED, now=brain.now, pause_s=2.0)
        assert patches(brain) == []
        brain.now += 2.0
    assert patches(brain) == []


def test_a_pod_deleted_while_its_patch_is_in_flight_is_forgotten() -> None:
    brain = parked(1)
    order = patches(brain)[0]
    brain.delete("p0", leaving=True)
    reply(brain, order, PatchResult.GONE)
    assert brain.state("p0") is None
    assert brain.machine.lane.idle()


def test_shapes_take_turns() -> None:
    brain = Brain()
    for number in range(4):
        brain.pod(f"a{number}", shape(1))
    brain.pod("b0", shape(2))
    brain.shard()
    brain.dispatch()
    brain.unplaceable("a0", "a1", "a2", "a3", "b0", at=5)
    assert "b0" in tell_all(brain)[:2]


def test_a_failed_bind_is_told_as_a_scheduler_error() -> None:
    brain = Brain()
    brain.pod("a")
    brain.shard()
    brain.dispatch()
    brain.outcome("a", OutcomeKind.FAILED, detail="binding failed: 500")
    orders = patches(brain)
    assert [o.condition for o in orders] == [Condition("SchedulerError", "binding failed: 500")]
    reply(brain, orders[0], PatchResult.WRITTEN, 99)
    brain.wait(1)
    assert brain.units() == ["a"]


def grouped(brain: Brain) -> None:
    brain.machine.group_states([("default/g", GroupRow(min_count=2), 0)], anew=False)
    brain.pod("m", group="default/g")
    brain.dispatch()


def test_what_is_to_be_told_while_a_patch_is_in_flight_is_told_after_its_reply() -> None:
    brain = Brain()
    grouped(brain)
    (first,) = brain.machine.patches(brain.now)
    worse = GroupRow(min_count=2, problem="it is malformed")
    brain.machine.group_states([("default/g", worse, 0)], anew=False)
    brain.dispatch()
    assert brain.machine.patches(brain.now) == [], "one patch of a pod at a time"
    brain.machine.patch_replied("m", PatchResult.WRITTEN, resource_version=50, now=brain.now)
    (second,) = brain.machine.patches(brain.now)
    assert first.condition.message == QUORUM
    assert second.condition.message == "it is malformed"


def test_a_stale_condition_of_a_pods_own_is_told_when_the_watch_shows_the_pod() -> None:
    brain = Brain()
    grouped(brain)
    (first,) = brain.machine.patches(brain.now)
    brain.machine.patch_replied("m", PatchResult.STALE, now=brain.now)
    assert brain.machine.patches(brain.now) == []
    brain.pod("m", group="default/g", version=60)
    (again,) = brain.machine.patches(brain.now)
    assert again.condition == first.condition
    assert again.resource_version == 60
