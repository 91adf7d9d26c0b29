"""What upstream registers for the waiting pod itself (§2.2, TargetPod): such a change gives it
another shape, which nobody has rejected yet, and it is decided at once. Labels that selectors read
are in ``test_lifecycle.py``."""

from __future__ import annotations

import pytest

from dispatcher.states import State
from stretto.model.groups import GroupRow
from stretto.model.shape import ClaimRef, Shape, SpreadConstraint, Toleration
from stretto.model.unit import OutcomeKind
from tests.dispatcher.brain import Brain, shape

TOLERATION = Toleration("key", "Exists", "", "NoSchedule")
SPREAD = (SpreadConstraint(1, "zone", hard=True, selector=()),)
ROWS = [
    ("NodeResourcesFit", shape(200), shape(100)),
    ("TaintToleration", shape(), shape(tolerations=(TOLERATION,))),
    ("NodeUnschedulable", shape(), shape(tolerations=(TOLERATION,))),
    ("PodTopologySpread", shape(spread=SPREAD), shape(spread=SPREAD, tolerations=(TOLERATION,))),
    ("DynamicResources", shape(), shape(device_claims=(ClaimRef("made"),))),
    ("NodeDeclaredFeatures", shape(200), shape(100)),
]


@pytest.mark.parametrize(("plugin", "before", "after"), ROWS)
def test_a_parked_pod_that_changes_itself_is_decided_again(
    plugin: str, before: Shape, after: Shape
) -> None:
    brain = Brain()
    brain.shard()
    brain.pod("a", before)
    brain.dispatch()
    brain.unplaceable("a", at=5, plugins=(plugin,))
    brain.pod("a", before)
    brain.wait(20)
    assert (brain.state("a"), brain.units()) == (State.UNSCHEDULABLE, []), "nothing has changed"
    brain.pod("a", after)
    assert brain.units() == ["a"]


def test_a_change_during_the_decision_is_decided_after_it() -> None:
    brain = Brain()
    brain.shard()
    brain.pod("a", shape(200))
    brain.dispatch()
    brain.pod("a", shape(100))
    brain.unplaceable("a", at=5)
    brain.wait(20)
    assert brain.units() == ["a"]


@pytest.mark.parametrize("parked", [False, True])
def test_gates_that_are_added_late_hold_the_pod_back(parked: bool) -> None:
    """The API server forbids it; who does it all the same waits without an attempt."""
    brain = Brain()
    if parked:
        brain.shard()
    brain.pod("a")
    if parked:
        brain.dispatch()
        brain.unplaceable("a", at=5)
    brain.pod("a", gated=True)
    if not parked:
        brain.shard()
    brain.event(at=9)
    brain.wait(400)
    assert (brain.state("a"), brain.units()) == (State.GATED, [])
    brain.pod("a")
    assert brain.units() == ["a"]


def test_gates_that_are_added_while_it_is_decided_end_with_the_decision() -> None:
    brain = Brain()
    brain.shard()
    brain.pod("a")
    brain.dispatch()
    brain.pod("a", gated=True)
    brain.unplaceable("a", at=5)
    brain.wait(400)
    assert (brain.state("a"), brain.units()) == (State.GATED, [])


def test_gates_that_are_added_after_the_commit_are_told_to_the_binder() -> None:
    brain = Brain()
    brain.shard()
    brain.pod("a")
    brain.dispatch()
    brain.settle("a")
    brain.pod("a", gated=True)
    assert brain.machine.binder.requests().withdraw == ["a"]
    brain.outcome("a", OutcomeKind.GONE)
    assert brain.state("a") is State.GATED
    brain.pod("a")
    assert brain.units() == ["a"]


def test_a_member_of_a_gang_with_late_gates_is_waited_for() -> None:
    brain = Brain()
    brain.shard()
    brain.machine.groups.define("default/g", GroupRow(min_count=2))
    brain.pod("a", group="default/g")
    brain.pod("b", group="default/g")
    brain.pod("b", group="default/g", gated=True)
    assert brain.units() == []
    brain.pod("b", group="default/g")
    assert len(brain.units()) == 1
