"""Answers that come late or out of order: what the watch has told first stands."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from binder.bindings import NOTHING, Action, Binding, Read, Stage
from stretto.ledger.types import LedgerOp
from stretto.model.unit import Cause, OutcomeKind
from tests.binder.test_binds import end_of, freed, pod, world
from tests.binder.world import ApiPod, Fate, World

__all__ = ["pod", "world"]
LATE_ANSWERS: dict[str, Callable[[Binding], Action]] = {
    "its turn": Binding.send,
    "201": Binding.posted,
    "404": Binding.not_found,
    "409": Binding.conflict,
    "429": lambda binding: binding.throttled(1.0),
    "403": lambda binding: binding.refused("forbidden"),
    "no connection": Binding.not_sent,
    "no answer": Binding.unknown,
    "no watch": Binding.doubt,
    "withdrawn": Binding.withdraw,
    "a read that failed": lambda binding: binding.read(None),
    "a read": lambda binding: binding.read(Read(True, binding.uid, "n2", 9)),
    "rebased": lambda binding: binding.rebased(9, accepted=True),
    "not rebased": lambda binding: binding.rebased(9, accepted=False),
    "fenced": lambda binding: binding.fenced(9),
    "not fenced": lambda binding: binding.fence_failed(gone=False),
}


@pytest.mark.parametrize("answer", LATE_ANSWERS)
@pytest.mark.parametrize("gone", [True, False])
def test_an_answer_after_the_watch_has_told_the_end_changes_nothing(
    world: World, pod: ApiPod, answer: str, gone: bool
) -> None:
    binding = world.machine.bindings[pod.uid]
    binding.send()
    if gone:
        binding.seen_gone()
    else:
        binding.seen_bound("n1")
    stage, end, version = binding.stage, binding.end, binding.resource_version
    assert LATE_ANSWERS[answer](binding) == NOTHING
    if answer == "404" and not gone:  # A uid that is not there never comes back.
        stage = Stage.OVER
    assert (binding.stage, binding.end, binding.resource_version) == (stage, end, version)
    assert not binding.unsure


def test_a_refusal_after_the_pod_was_seen_on_its_node_keeps_its_room(
    world: World, pod: ApiPod
) -> None:
    binding = world.machine.bindings[pod.uid]
    binding.send()
    world.api.put(pod, "n1", foreign=True)  # somebody else sends it to the same node
    world.deliver()
    world.follow(binding, binding.refused("403 forbidden"))
    world.settle_all()
    assert world.used("n1") == {"cpu": 1000, "pods": 1}
    assert end_of(world) == (OutcomeKind.BOUND, Cause.NONE)
    world.check_at_rest()


@pytest.mark.parametrize("gone", [True, False])
def test_what_ends_while_its_claims_are_bound_hears_no_more_of_them(
    world: World, pod: ApiPod, gone: bool
) -> None:
    binding = world.machine.bindings[pod.uid]
    binding.prebind()
    assert binding.send() == NOTHING
    assert binding.withdraw() == NOTHING
    if gone:
        binding.seen_gone()
    else:
        binding.seen_bound("n2")
    stage, end, version = binding.stage, binding.end, binding.resource_version
    binding.moved(version + 1)
    binding.prebound()
    binding.prebind_failed("too late", version + 1)
    binding.seen_bound("n1")
    binding.seen_gone()
    assert (binding.stage, binding.end, binding.resource_version) == (stage, end, version)
    assert end is not None
    assert end.kind is OutcomeKind.GONE


def test_a_pod_that_is_being_deleted_is_gone(world: World, pod: ApiPod) -> None:
    binding = world.machine.bindings[pod.uid]
    binding.send()
    binding.conflict()
    assert binding.read(Read(True, pod.uid, "", 0, leaving=True)) == NOTHING
    world.machine.endings.stepped(binding)
    assert end_of(world) == (OutcomeKind.GONE, Cause.POD_GONE)
    assert freed(world)


def test_a_newer_version_that_the_ledger_refuses_ends_it(world: World, pod: ApiPod) -> None:
    world.api.touch(pod)
    world.act(pod.uid)
    world.act(pod.uid)
    world.twin.transition([LedgerOp.free(pod.uid)])
    world.round()
    assert pod.uid not in world.todo, "sent without a reservation"
    assert end_of(world) == (OutcomeKind.FAILED, Cause.LEDGER)
    assert freed(world)
    assert world.api.binds == {}


def test_a_pod_that_is_gone_when_it_is_to_be_fenced_is_gone(world: World, pod: ApiPod) -> None:
    world.act(pod.uid, Fate.LATE)
    world.act(pod.uid)
    assert world.stage(pod) is Stage.FENCING
    world.api.delete(pod)
    world.act(pod.uid)
    assert end_of(world) == (OutcomeKind.GONE, Cause.POD_GONE)
    assert freed(world)
    assert world.deliver_late() == 404
