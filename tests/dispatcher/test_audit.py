"""The online audit: a pod that nothing would find any more is found, counted and begins anew."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dispatcher.machine import MachineLimits
from dispatcher.pods import Place, PodRecord
from dispatcher.queue_limits import QueueLimits
from dispatcher.states import State
from stretto.model.groups import GroupRow
from stretto.model.unit import Cause, OutcomeKind
from tests.dispatcher.brain import Brain, shape


def record_of(brain: Brain, uid: str = "p0") -> PodRecord:
    found = brain.machine.pods.get(uid)
    assert found is not None
    return found


def out_of_line(brain: Brain) -> None:
    brain.pod("p0")
    record_of(brain).shape.line.clear()


def line_forgotten(brain: Brain) -> None:
    brain.pod("p0")
    record_of(brain).shape.heap_key = None
    brain.machine.lanes._replace([])


def parked_nowhere(brain: Brain) -> None:
    brain.pod("p0")
    brain.shard()
    brain.dispatch()
    brain.unplaceable("p0", at=5)
    brain.machine.cycle._wakeups.unpark(record_of(brain).shape)


def held_by_nobody(brain: Brain) -> None:
    brain.pod("p0")
    brain.shard()
    brain.dispatch()
    shard = record_of(brain).shard
    assert shard is not None
    shard.held.clear()


def never_asked_about(brain: Brain) -> None:
    brain.pod("p0")
    brain.shard()
    brain.dispatch()
    brain.settle("p0")
    brain.machine.pods.awaiting.clear()


def patch_not_in_flight(brain: Brain) -> None:
    brain.pod("p0")
    record = record_of(brain)
    record.shape.line.clear()
    brain.machine.pods.move(record, Place.PATCHING, brain.now)


def backs_off_for_ever(brain: Brain) -> None:
    brain.pod("p0")
    brain.machine.queue.discard(record_of(brain))
    brain.machine.queue.back_off(record_of(brain), now=brain.now, delay=0.5)
    brain.machine.queue._backoff.clear()
    record_of(brain).since -= 3600.0


def refused_for_ever(brain: Brain) -> None:
    brain.pod("p0")
    brain.shard()
    brain.dispatch()
    brain.outcome("p0", OutcomeKind.REFUSED, cause=Cause.INVALID)
    assert record_of(brain).place is Place.REFUSED
    brain.machine.outcomes.refused.clear()


def with_a_shard_that_is_gone(brain: Brain) -> None:
    brain.pod("p0")
    brain.shard()
    brain.dispatch()
    shard = record_of(brain).shard
    assert shard is not None
    del brain.machine.shards.assignment.shards[shard.stream]


def with_no_group(brain: Brain) -> None:
    brain.pod("p0", group="default/g")
    assert record_of(brain).place is Place.GROUPED
    brain.machine.groups.leave(record_of(brain))


BREACHES = [
    out_of_line, line_forgotten, parked_nowhere, held_by_nobody, never_asked_about,
    patch_not_in_flight, backs_off_for_ever, refused_for_ever, with_a_shard_that_is_gone,
    with_no_group,
]  # fmt: skip


@pytest.mark.parametrize("breach", BREACHES, ids=[b.__name__ for b in BREACHES])
def test_a_lost_pod_is_found_within_a_period(breach: Callable[[Brain], None]) -> None:
    brain = Brain()
    breach(brain)
    for _ in range(31):
        brain.now += 1.0
        brain.machine.tick(brain.now)
    brain.machine.validate()
    assert brain.machine.statistics.drift == 1
    assert brain.state("p0") is State.ACTIVE
    assert any(event == "audit" for _, event, _ in brain.stories)
    brain.shard(9)
    assert brain.units() == ["p0"]


def test_what_is_in_order_is_left_alone_and_all_have_their_turn() -> None:
    brain = Brain()
    brain.pods(100)
    brain.shard(credits_=10)
    brain.dispatch()
    brain.settle("p0", "p1")
    brain.bind("p0")
    for _ in range(65):
        brain.now += 1.0
        brain.machine.tick(brain.now)
    assert brain.machine.statistics.drift == 0
    assert brain.machine.audit.rounds >= 2


def test_a_lead_that_waits_for_the_patch_of_another_member_is_in_order() -> None:
    brain = Brain()
    brain.machine.group_states([("default/g", GroupRow(min_count=2), 0)], anew=False)
    brain.pod("m0", shape(1), group="default/g")
    brain.machine.dispatch(brain.now)
    (order,) = brain.machine.patches(brain.now)
    assert order.uid == "m0"
    brain.pod("m1", shape(2, priority=0), group="default/g")
    record_of(brain, "m0").patching = False
    record_of(brain, "m1").patching = True
    brain.shard()
    assert brain.units() == []
    assert brain.state("m0") is State.PATCHING
    watched(brain, seconds=31)
    assert brain.machine.statistics.drift == 0


def test_a_long_backoff_is_in_order() -> None:
    brain = Brain(limits=MachineLimits(queue=QueueLimits(max_backoff_s=3600.0)))
    brain.pod("p0")
    brain.machine.queue.discard(record_of(brain))
    brain.machine.queue.back_off(record_of(brain), now=brain.now, delay=3600.0)
    watched(brain, seconds=2000)
    assert brain.machine.statistics.drift == 0
    assert brain.state("p0") is State.BACKOFF


def watched(brain: Brain, *, seconds: int) -> None:
    for _ in range(seconds):
        brain.now += 1.0
        brain.machine.tick(brain.now)
