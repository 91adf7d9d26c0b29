"""Pods whose victims were asked to go: they wait for that, and nobody of their shape with them."""

from __future__ import annotations

import msgspec

from dispatcher.condition_writer import condition_patch
from dispatcher.patching import PatchResult
from dispatcher.pods import Condition
from dispatcher.states import State
from stretto.model.unit import Cause, Diagnosis, OutcomeKind
from tests.dispatcher.brain import Brain, shape
from tests.dispatcher.test_conditions import patches, reply

WHY = Diagnosis("0/1 nodes are available: preempting", ("NodeResourcesFit",), 1)
BIG = shape(4000)


def nominated(brain: Brain, uid: str, *, at: int) -> None:
    brain.settle(uid)
    brain.outcome(
        uid, OutcomeKind.NOMINATED, sequence=at, node="n1", resource_version=900, diagnosis=WHY
    )


def test_a_nominee_waits_for_the_room_and_is_then_sent_as_one_that_is_nominated() -> None:
    brain = Brain()
    brain.shard()
    brain.pod("a", BIG)
    brain.dispatch()
    nominated(brain, "a", at=5)
    assert brain.state("a") is State.UNSCHEDULABLE
    (order,) = patches(brain)
    assert order.condition == Condition("Unschedulable", WHY.message)
    assert order.resource_version == 900, "the nomination has changed it"
    reply(brain, order, PatchResult.WRITTEN, 901)
    brain.event(at=6)
    brain.wait(2)
    (send,) = brain.dispatch()
    (_, sent) = send.shapes[0]
    assert sent == msgspec.structs.replace(BIG, nominated_node="n1")
    assert send.units[0].min_sequence >= 5, "where its victims are known to be on their way"


def test_a_victim_that_left_before_the_outcome_came_wakes_it_all_the_same() -> None:
    brain = Brain()
    brain.shard()
    brain.pod("a", BIG)
    brain.dispatch()
    brain.event(at=6)
    nominated(brain, "a", at=5)
    assert brain.state("a") is State.BACKOFF


def test_others_of_its_shape_go_on() -> None:
    brain = Brain()
    brain.shard()
    brain.pods(2, BIG)
    brain.dispatch()
    nominated(brain, "p0", at=5)
    brain.settle("p1")
    brain.outcome("p1", OutcomeKind.CONFLICT, cause=Cause.CAPACITY, sequence=6)
    assert brain.units() == ["p1"]


def test_a_nomination_that_cannot_help_is_cleared_with_the_condition() -> None:
    brain = Brain()
    brain.shard()
    brain.pod("a", msgspec.structs.replace(BIG, nominated_node="n1"))
    brain.pod("b", BIG)
    brain.dispatch()
    for uid in ("a", "b"):
        brain.unplaceable(uid, at=5, clears=True)
    orders = {order.uid: condition_patch(order, wall_s=0) for order in patches(brain)}
    assert orders["a"]["status"]["nominatedNodeName"] is None
    assert "nominatedNodeName" not in orders["b"]["status"]
