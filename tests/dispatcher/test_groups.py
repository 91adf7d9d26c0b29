"""Gangs in the queue: one decision for all, whatever comes of it, and members that come and go."""

from __future__ import annotations

import msgspec
import pytest

from dispatcher.patching import PatchResult
from dispatcher.pods import Place
from dispatcher.states import State
from stretto.model.groups import (
    GANG_UNSCHEDULABLE,
    GroupRow,
)
from stretto.model.unit import Cause, Diagnosis, OutcomeKind
from stretto.placement.events import NODE, Action, ClusterEvent
from stretto.snapshot.delta import NodeRow
from tests.dispatcher.brain import Brain, shape
from tests.dispatcher.gangs import GANG_OF_3, GROUP, gang, known, members_of, message


def test_a_gang_is_one_unit_of_members_of_different_shapes() -> None:
    brain = gang()
    assert brain.units() == ["m0"]
    assert members_of(brain, "m0") == ["m0", "m1", "m2"]
    attempts = {record.attempt for record in brain.machine.pods.records.values()}
    assert len(attempts) == 1
    assert brain.units() == []


def test_a_status_that_changes_costs_a_gang_no_decision_and_no_turn() -> None:
    brain = gang()
    assert brain.units() == ["m0"]
    brain.pod("m0", shape(1), group=GROUP)
    brain.unplaceable("m0", at=5)
    assert brain.units() == [], "the answer is about what is still so"
    assert brain.state("m0") is State.UNSCHEDULABLE
    brain.event(at=6)
    brain.wait(1)
    known(brain, GroupRow(min_count=1), key="default/later")
    brain.pod("later", shape(9), group="default/later")
    brain.pod("m0", shape(1), group=GROUP)
    assert brain.units() == ["m0", "later"], "it keeps its place in line"


def test_a_parked_gang_hears_of_what_helps_any_member() -> None:
    """Its lead asks for a cpu, another for a card, which a node has just begun to offer."""
    brain = Brain()
    brain.shard()
    known(brain, GroupRow(min_count=2))
    card = msgspec.structs.replace(shape(1), requests=(("cpu", 1), ("example.com/card", 1)))
    brain.pod("lead", shape(1), group=GROUP)
    brain.pod("worker", card, group=GROUP)
    assert brain.units() == ["lead"]
    brain.unplaceable("lead", at=5, plugins=("NodeResourcesFit",))
    room = (("cpu", 9), ("pods", 9))
    before = NodeRow(uid="n", name="n", allocatable=room)
    after = NodeRow(uid="n", name="n", allocatable=(*room, ("example.com/card", 1)))
    grown = ClusterEvent(NODE, Action.NODE_ALLOCATABLE, old_node=before, new_node=after)
    brain.event(grown, at=6)
    brain.wait(1)
    assert brain.units() == ["lead"]


def test_only_as_many_as_the_group_asks_for_go_together_and_the_others_follow() -> None:
    brain = gang(members=5)
    assert brain.units() == ["m0"]
    assert members_of(brain, "m0") == ["m0", "m1", "m2"]
    brain.settle("m0")
    assert brain.units() == []
    known(brain, GANG_OF_3, placed=3)
    assert sorted(brain.units()) == ["m3", "m4"]
    for uid in ("m0", "m1", "m2"):
        brain.outcome("m0", OutcomeKind.BOUND, members=(uid,), node="n")
    assert brain.units() == []


def test_a_gang_that_loses_a_race_goes_out_again_whole() -> None:
    brain = gang()
    brain.dispatch()
    brain.settle("m0")
    assert brain.state("m2") is State.OWNED
    brain.outcome("m0", OutcomeKind.CONFLICT, cause=Cause.CAPACITY, sequence=9)
    assert brain.units() == ["m0"]
    assert members_of(brain, "m0") == ["m0", "m1", "m2"]
    assert brain.sent["m0"][1].min_sequence == 9


def test_a_gang_that_fits_nowhere_is_parked_and_all_its_members_are_told() -> None:
    brain = gang()
    brain.dispatch()
    brain.unplaceable("m0", at=5, message="0/3 nodes are available: 3 Insufficient cpu.")
    told = {order.uid: order.condition.message for order in brain.machine.patches(brain.now)}
    assert told == {
        "m0": "0/3 nodes are available: 3 Insufficient cpu.",
        "m1": GANG_UNSCHEDULABLE,
        "m2": GANG_UNSCHEDULABLE,
    }
    assert brain.units() == []
    for uid in told:
        brain.machine.patch_replied(uid, PatchResult.WRITTEN, now=brain.now)
    brain.event(at=6)
    brain.wait(1)
    assert brain.units() == ["m0"]


def test_a_unit_with_a_member_that_is_gone_is_decided_again_without_it() -> None:
    brain = gang(members=4)
    brain.dispatch()
    brain.settle("m0")
    brain.outcome("m0", OutcomeKind.GONE, cause=Cause.POD_GONE)
    assert brain.state("m0") is not State.SETTLED
    brain.delete("m1", leaving=True)
    brain.wait(1)
    assert len(brain.units()) == 1
    assert members_of(brain, "m0") == ["m0", "m2", "m3"]


def test_a_failed_bind_of_one_member_is_repaired_alone() -> None:
    brain = gang()
    brain.dispatch()
    brain.settle("m0")
    known(brain, GANG_OF_3, placed=3)
    for uid in ("m0", "m2"):
        brain.outcome("m0", OutcomeKind.BOUND, members=(uid,), node="n")
    brain.outcome("m0", OutcomeKind.FAILED, members=("m1",), cause=Cause.BIND_FAILED)
    known(brain, GANG_OF_3, placed=2)
    brain.wait(1)
    assert brain.units() == ["m1"]
    assert members_of(brain, "m1") == ["m1"]


def test_a_gang_whose_shard_dies_goes_to_another() -> None:
    brain = gang()
    brain.dispatch()
    brain.shard(2)
    brain.close(1)
    assert brain.units() == ["m0"]
    assert brain.sent["m0"][0] == 2
    assert members_of(brain, "m0") == ["m0", "m1", "m2"]


def test_a_binder_that_forgot_the_members_leads_to_a_new_decision() -> None:
    brain = gang()
    brain.dispatch()
    brain.settle("m0")
    brain.machine.binder.owned_set(owned=(), complete=True, now=brain.now)
    assert len(brain.units()) == 1


@pytest.mark.parametrize("settled_first", [True, False])
def test_a_gang_whose_victims_were_asked_waits_and_goes_out_again_nominated(
    settled_first: bool,
) -> None:
    """The lead's outcome comes last, and then the gang is parked."""
    brain = gang()
    assert brain.units() == ["m0"]
    if settled_first:
        brain.settle("m0")
    why = Diagnosis("no room", ("NodeResourcesFit",), 1, group="why", found=1, preemption="so")
    for uid, node in (("m1", "n1"), ("m2", "n2"), ("m0", "n0")):
        assert brain.units() == [], "not before all have been heard of"
        brain.outcome(
            "m0", OutcomeKind.NOMINATED, members=(uid,), sequence=5, node=node,
            resource_version=900, diagnosis=why,
        )  # fmt: skip
    assert message(brain, "m0") == "no room"
    assert message(brain, "m1") == f"{GANG_UNSCHEDULABLE}, why, so"
    assert message(brain, "m2") == "why"
    assert brain.state("m0") is State.UNSCHEDULABLE
    assert brain.units() == []
    brain.event(at=6)
    brain.wait(2)
    (send,) = brain.dispatch()
    (unit,) = send.units
    assert {member.uid for member in unit.members} == {"m0", "m1", "m2"}
    assert unit.min_sequence >= 5
    shapes = dict(send.shapes)
    nodes = {member.uid: shapes[member.shape].nominated_node for member in unit.members}
    assert nodes == {"m0": "n0", "m1": "n1", "m2": "n2"}
    brain.unplaceable(unit.unit_id, at=6, message="they have yet to leave", waits=True)
    assert brain.machine.patches(brain.now) == [], "what was told before still holds"


def test_nominations_that_cannot_help_are_cleared_for_every_member() -> None:
    brain = gang(members=0)
    for number in range(3):
        waiting = msgspec.structs.replace(shape(number + 1), nominated_node=f"n{number}")
        brain.pod(f"m{number}", waiting, group=GROUP)
    assert brain.units() == ["m0"]
    brain.unplaceable("m0", at=5, clears=True)
    orders_of = {order.uid: order.condition for order in brain.machine.patches(brain.now)}
    assert {uid: condition.clear for uid, condition in orders_of.items()} == {
        "m0": True, "m1": True, "m2": True,
    }  # fmt: skip


def test_a_group_that_is_deleted_in_flight_waits_for_its_object() -> None:
    brain = gang()
    brain.dispatch()
    known(brain, None)
    brain.hand_back("m0")
    assert brain.units() == []
    assert brain.state("m0") is State.INCOMPLETE


def test_an_answer_about_a_group_that_is_gone_parks_nobody() -> None:
    """Its lead would be woken, and go out alone."""
    brain = gang()
    brain.machine.groups.legacy_served(False)
    assert brain.units() == ["m0"]
    known(brain, None)
    assert brain.units() == [], "the answer is awaited"
    brain.unplaceable("m0", at=5)
    assert brain.units() == []
    assert {brain.state(f"m{number}") for number in range(3)} == {State.INCOMPLETE}
    for number in range(3):
        assert 'pod group "g" to appear' in message(brain, f"m{number}")
    brain.event(at=6)
    brain.wait(2)
    assert brain.units() == []


def test_an_answer_about_a_group_that_has_changed_is_not_the_last() -> None:
    brain = gang()
    assert brain.units() == ["m0"]
    known(brain, GroupRow(min_count=2))
    assert brain.units() == [], "the answer is awaited"
    brain.unplaceable("m0", at=5)
    assert brain.units() == ["m0"]
    assert len(members_of(brain, "m0")) == 2


def test_a_condition_in_flight_holds_the_whole_gang_back() -> None:
    brain = gang(members=2)
    brain.dispatch()
    orders = brain.machine.patches(brain.now)
    brain.pod("m2", group=GROUP)
    assert brain.units() == []
    for order in orders:
        brain.machine.patch_replied(
            order.uid, PatchResult.WRITTEN, resource_version=77, now=brain.now
        )
    assert len(brain.units()) == 1
    unit = next(iter(brain.sent.values()))[1]
    assert [m.resource_version for m in unit.members].count(77) == 2


def test_a_late_member_whose_condition_is_in_flight_goes_out_after_the_reply() -> None:
    brain = gang(members=4)
    brain.dispatch()
    brain.settle("m0")
    known(brain, GANG_OF_3, placed=3)
    assert brain.units() == ["m3"]
    brain.unplaceable("m3", at=5)
    (order,) = brain.machine.patches(brain.now)
    brain.event(at=6)
    brain.wait(1)
    assert brain.units() == []
    assert brain.state("m3") is State.PATCHING
    brain.machine.patch_replied(order.uid, PatchResult.WRITTEN, now=brain.now)
    assert brain.units() == ["m3"]


def test_a_member_that_failed_before_the_log_told_of_the_others_is_not_forgotten() -> None:
    brain = gang()
    brain.dispatch()
    brain.settle("m0")
    brain.outcome("m0", OutcomeKind.FAILED, members=("m1",), cause=Cause.BIND_FAILED)
    known(brain, GANG_OF_3, placed=2)
    assert brain.units() == [], "the lead is still with the binder"
    brain.outcome("m0", OutcomeKind.BOUND, members=("m0",), node="n")
    brain.wait(1)
    assert brain.units() == ["m1"]


def test_gangs_go_out_by_priority_and_age_like_pods() -> None:
    brain = Brain()
    for key in ("default/a", "default/b"):
        known(brain, GroupRow(min_count=2), key=key)
    for number in range(2):
        brain.pod(f"a{number}", shape(1), group="default/a")
    for number in range(2):
        brain.pod(f"b{number}", shape(2, priority=5), group="default/b")
    brain.pod("single", shape(3, priority=2))
    brain.shard()
    assert brain.units() == ["b0", "single", "a0"]


def test_a_gang_that_the_binder_refuses_is_told_why_and_decided_again_when_it_changes() -> None:
    brain = gang()
    assert brain.units() == ["m0"]
    brain.settle("m0")
    brain.outcome("m0", OutcomeKind.REFUSED, cause=Cause.INVALID, detail="no such thing")
    for number in range(3):
        assert message(brain, f"m{number}") == "no such thing"
    assert all(record.place is not Place.OWNED for record in brain.machine.pods.records.values())
    brain.wait(30)
    assert len(brain.units()) == 1
    assert brain.machine.statistics.drift == 0


@pytest.mark.parametrize("uid", ["m0", "m1", "m2"])
@pytest.mark.parametrize("complete", [True, False])
def test_a_waiting_member_that_names_its_group_no_longer_goes_alone(
    uid: str, complete: bool
) -> None:
    brain = gang(members=3 if complete else 2, credits_=0)
    if uid == "m2" and not complete:
        brain.pod("m2", shape(3), group="default/other")
    assert brain.units() == []
    brain.pod(uid, shape(9))
    brain.machine.shards.credits(1, 8)
    assert brain.units() == [uid]
    assert members_of(brain, uid) == [uid]
    assert {record.place for record in brain.machine.pods.records.values()} == {
        Place.GROUPED, Place.DISPATCHED,
    }  # fmt: skip


@pytest.mark.parametrize("uid", ["m0", "m1", "m2"])
def test_a_waiting_member_that_names_another_group_waits_with_that(uid: str) -> None:
    brain = gang(credits_=0)
    assert brain.units() == []
    brain.pod(uid, shape(9), group="default/other")
    brain.machine.shards.credits(1, 8)
    assert brain.units() == []
    assert {brain.state(f"m{number}") for number in range(3)} == {State.INCOMPLETE}
    known(brain, GroupRow(min_count=1), key="default/other")
    assert brain.units() == [uid]
    assert members_of(brain, uid) == [uid]


def test_a_waiting_pod_that_comes_to_name_a_group_goes_with_it() -> None:
    brain = gang(members=2, credits_=0)
    brain.pod("late", shape(7))
    assert brain.state("late") is State.ACTIVE
    brain.pod("late", shape(7), group=GROUP)
    brain.machine.shards.credits(1, 8)
    assert brain.units() == ["m0"]
    assert members_of(brain, "m0") == ["m0", "m1", "late"]


@pytest.mark.parametrize("bound", [True, False])
def test_a_member_that_leaves_its_group_while_the_gang_is_out_is_decided_alone(
    bound: bool,
) -> None:
    """The Binder gives a pod to one of two units; whichever comes first, both answers count."""
    brain = gang(members=4)
    assert brain.units() == ["m0"]
    assert members_of(brain, "m0") == ["m0", "m1", "m2"]
    brain.pod("m1", shape(2))
    assert brain.units() == ["m1"]
    assert members_of(brain, "m1") == ["m1"]
    brain.settle("m0")
    if bound:
        for uid in ("m0", "m1", "m2"):
            brain.outcome("m0", OutcomeKind.BOUND, members=(uid,), node="n")
        assert brain.state("m1") is State.SETTLED
    else:
        brain.outcome("m0", OutcomeKind.CONFLICT, cause=Cause.POD_CHANGED)
        brain.wait(1)
        assert brain.units() == ["m0"]
        assert members_of(brain, "m0") == ["m0", "m2", "m3"]
