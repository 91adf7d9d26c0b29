"""Who leads a gang, and when: quorum, what keeps a group from being decided, groups that change."""

from __future__ import annotations

import pytest

from dispatcher.group_hindrance import QUORUM
from dispatcher.states import State
from stretto.model.groups import (
    LEGACY_GROUPS,
    GroupRow,
)
from tests.dispatcher.brain import Brain, shape
from tests.dispatcher.gangs import GANG_OF_3, GROUP, gang, known, members_of, message


def test_members_wait_until_there_are_enough() -> None:
    brain = gang(members=2)
    assert brain.units() == []
    assert brain.state("m0") is State.INCOMPLETE
    assert message(brain, "m0") == QUORUM
    brain.pod("m2", group=GROUP)
    assert brain.units() == ["m0"]
    assert len(members_of(brain, "m0")) == 3


def test_members_wait_for_the_group_itself() -> None:
    brain = gang(row=None)
    brain.machine.groups.legacy_served(False)
    assert brain.units() == []
    expected = 'waiting for pods\'s pod group "g" to appear in scheduling queue'
    assert message(brain, "m1") == expected
    known(brain, GANG_OF_3)
    assert len(brain.units()) == 1


def test_a_member_behind_gates_is_not_counted_until_they_are_gone() -> None:
    """Whether it was made with them early or late: the API server takes no gates afterwards."""
    brain = gang(members=2)
    brain.pod("late", shape(9), group=GROUP, gated=True)
    assert brain.units() == []
    assert message(brain, "m0") == QUORUM
    assert brain.told("late") is None
    brain.pod("late", shape(9), group=GROUP)
    assert brain.units() == ["m0"]
    assert members_of(brain, "m0") == ["m0", "m1", "late"]


def test_members_of_a_group_that_is_no_gang_go_one_by_one() -> None:
    brain = gang(row=GroupRow(min_count=0))
    assert sorted(brain.units()) == ["m0", "m1", "m2"]


def test_a_label_names_a_group_only_where_that_api_is_served() -> None:
    brain = gang(row=None, key=f"default/g{LEGACY_GROUPS}")
    assert brain.units() == [], "the log has not said yet"
    assert message(brain, "m0") == ""
    brain.machine.groups.legacy_served(False)
    assert sorted(brain.units()) == ["m0", "m1", "m2"]
    brain = Brain()
    brain.shard()
    brain.machine.groups.legacy_served(True)
    brain.pod("m0", group=f"default/g{LEGACY_GROUPS}")
    assert brain.units() == []
    brain.machine.groups.legacy_served(False)
    assert brain.units() == ["m0"]


def test_a_parked_gang_is_decided_anew_when_a_member_comes_or_the_group_changes() -> None:
    brain = gang()
    brain.dispatch()
    brain.unplaceable("m0", at=5)
    assert brain.units() == []
    brain.pod("m3", shape(9), group=GROUP)
    assert len(brain.units()) == 1
    brain.unplaceable("m0", at=6)
    known(brain, GroupRow(min_count=2))
    assert brain.units() == ["m0"]
    assert len(members_of(brain, "m0")) == 2


def test_a_member_that_vanishes_is_not_waited_for() -> None:
    brain = gang()
    brain.dispatch()
    brain.delete("m1", leaving=True)
    brain.hand_back("m0")
    assert brain.units() == []
    assert brain.state("m0") is State.INCOMPLETE
    brain.pod("m4", group=GROUP)
    assert brain.units() == ["m0"]
    assert members_of(brain, "m0") == ["m0", "m2", "m4"]


def test_a_lead_that_vanishes_is_replaced() -> None:
    brain = gang(members=4, credits_=0)
    brain.delete("m0", leaving=True)
    brain.machine.shards.credits(1, 8)
    assert brain.units() == ["m1"]
    assert members_of(brain, "m1") == ["m1", "m2", "m3"]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"priority": 7}, "should have the same priority as the pod group's priority"),
        ({"profile": "other"}, "should have the same .spec.schedulerName set"),
        ({"preemption_policy": "Never"}, "should have the same preemption policy, got"),
    ],
)
def test_members_that_disagree_are_told_so(fields: dict[str, object], text: str) -> None:
    brain = gang(members=2)
    profile = str(fields.pop("profile", "stretto"))
    brain.pod("odd", shape(5, **fields), group=GROUP, profile=profile)  # type: ignore[arg-type]
    assert brain.units() == []
    assert text in message(brain, "m0")


def test_a_group_with_a_problem_places_nobody() -> None:
    brain = gang(row=GroupRow(min_count=2000, problem="the group's minimum is above 1024"))
    assert brain.units() == []
    assert message(brain, "m0") == "the group's minimum is above 1024"


def test_a_log_that_is_read_anew_forgets_groups_it_does_not_show() -> None:
    brain = gang()
    brain.machine.group_states([], anew=True)
    assert brain.units() == []


def test_members_of_different_queues_are_told_so() -> None:
    brain = gang(members=0)
    for number, queue in enumerate(("a", "a", "b")):
        brain.pod(f"m{number}", shape(number + 1, queue=queue), group=GROUP)
    assert brain.units() == []
    assert message(brain, "m0") == (
        "members of a pod group must be in one queue; pod-m2 is in another"
    )


def test_a_gang_with_a_member_that_is_refused_as_it_is_places_nobody_and_says_why() -> None:
    brain = gang(members=2)
    brain.pod("m2", shape(9, unbuilt_hard=("Exotic: a wish",)), group=GROUP)
    assert brain.units() == []
    told = message(brain, "m0")
    assert told.startswith("member pod-m2 of the pod group cannot be placed: ")
    assert "Exotic: a wish" in told
    brain.pod("m2", shape(9), group=GROUP)
    assert len(brain.units()) == 1, "the wish is gone"
