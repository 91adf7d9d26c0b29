"""What a group's own condition says, and how often it is written."""

from __future__ import annotations

from dispatcher.patching import PatchResult
from dispatcher.states import State
from stretto.model.groups import GANG_UNSCHEDULABLE, PLACED, GroupCondition, GroupRow
from tests.dispatcher.brain import Brain
from tests.dispatcher.gangs import GANG_OF_3, GROUP, gang, known, message

OURS = GroupRow(min_count=3, uid="u")
SHORT = "minCount (3) cannot be satisfied: 1 scheduled, 1 remaining"


def orders(brain: Brain, result: PatchResult = PatchResult.WRITTEN) -> list[GroupCondition]:
    """What groups are told now; every patch is answered."""
    brain.dispatch()
    found = brain.machine.group_patches(brain.now)
    for order in found:
        assert (order.key, order.uid) == (GROUP, "u")
        brain.machine.groups.lane.reply(order.uid, result, now=brain.now, pause_s=1.0)
    return [order.condition for order in found]


def test_a_group_is_told_once_that_it_does_not_fit_and_that_it_does() -> None:
    brain = gang(row=OURS)
    assert orders(brain) == []
    brain.unplaceable("m0", at=5, group=SHORT, found=1)
    no = GroupCondition("False", "Unschedulable", SHORT)
    assert orders(brain) == [no]
    assert message(brain, "m1") == f"{GANG_UNSCHEDULABLE}, {SHORT}"
    assert message(brain, "m2") == SHORT
    known(brain, GroupRow(min_count=3, uid="u", told=no))
    brain.event(at=6)
    brain.wait(2)
    assert brain.units() == ["m0"]
    brain.unplaceable("m0", at=7, group=SHORT)
    assert orders(brain) == []
    known(brain, GroupRow(min_count=3, uid="u", told=no), placed=3)
    assert orders(brain) == [PLACED]
    known(brain, GroupRow(min_count=3, uid="u", told=PLACED), placed=2)
    for uid in ("m0", "m1", "m2"):
        brain.delete(uid, leaving=None)
    assert orders(brain) == [], "once True it stays"


def test_what_a_group_was_told_before_a_start_is_not_written_again() -> None:
    brain = gang(row=GroupRow(min_count=3, uid="u", told=PLACED))
    known(brain, GroupRow(min_count=3, uid="u", told=PLACED), placed=3)
    assert orders(brain) == []


def test_what_a_group_was_told_is_no_change_of_the_group() -> None:
    brain = gang(row=OURS)
    brain.dispatch()
    brain.unplaceable("m0", at=5, group=SHORT)
    known(brain, GroupRow(min_count=3, uid="u", told=GroupCondition("False", "x", "y")))
    assert brain.units() == []
    assert brain.state("m0") is State.UNSCHEDULABLE
    known(brain, GroupRow(min_count=2, uid="u"))
    assert brain.units() == ["m0"]


def test_members_that_disagree_fail_the_group() -> None:
    brain = gang(row=GroupRow(min_count=2, uid="u", priority=5), members=2)
    (condition,) = orders(brain)
    assert condition.reason == "SchedulerError"
    assert condition.message.endswith("the pod group's priority, got 0 and 5")


def test_a_group_without_its_members_is_told_nothing() -> None:
    assert orders(gang(row=OURS, members=2)) == []


def test_a_group_with_a_controller_of_its_own_is_told_nothing() -> None:
    brain = gang(row=GANG_OF_3)
    known(brain, GANG_OF_3, placed=3)
    assert orders(brain) == []


def test_a_groups_patch_that_fails_is_tried_three_times_with_pauses() -> None:
    brain = gang(row=OURS)
    known(brain, OURS, placed=3)
    for _ in range(3):
        assert orders(brain, PatchResult.FAILED) == [PLACED]
        assert orders(brain) == []
        brain.wait(1.5)
    assert orders(brain) == []


def test_a_group_that_is_made_anew_is_told_anew() -> None:
    brain = gang(row=OURS)
    known(brain, OURS, placed=3)
    assert orders(brain) == [PLACED]
    known(brain, None)
    known(brain, OURS, placed=3)
    assert orders(brain) == [PLACED]
