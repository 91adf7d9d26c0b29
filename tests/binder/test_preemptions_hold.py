"""What a claim of a preemptor is held against: nodes, watches that are late, budgets that go."""

from __future__ import annotations

import msgspec
import pytest

from stretto.model.selector import RawSelector
from stretto.model.unit import Cause, OutcomeKind, VerdictKind
from stretto.snapshot.budgets import BUDGET, BudgetSpec, budgets
from tests.binder.test_preemptions import Preempting, allowed, pdb, pod, world

__all__ = ["world"]


def test_a_proposal_with_victims_is_held_against_the_nodes_as_they_are(world: Preempting) -> None:
    victim = world.runs("victim", pod(2000), "n1")
    high = world.api.create("high", pod(2000, priority=10))
    incoming = world.decided(high)
    assert incoming is not None

    def judged(**changes: object) -> tuple[VerdictKind, Cause]:
        proposal = msgspec.structs.replace(incoming.proposal, **changes)
        return world.machine.preemptions.judge(incoming._replace(proposal=proposal))

    node = incoming.proposal.nodes[0]
    assert judged(nodes=(node, node)) == (VerdictKind.REFUSED, Cause.INVALID)
    assert judged(nodes=(node + 1,)) == (VerdictKind.CONFLICT, Cause.NODE_GONE)
    world.machine.cluster.freeze("n1-uid")
    assert judged() == (VerdictKind.CONFLICT, Cause.FROZEN)
    world.machine.cluster.freeze("n1-uid", frozen=False)
    assert not world.machine.preemptions.claims
    assert world.machine.cluster.facts[victim.uid].flags == 0
    assert judged() == (VerdictKind.NOMINATED, Cause.NONE)


@pytest.mark.parametrize("frozen", [True, False])
def test_nobody_goes_when_the_node_is_gone_or_frozen(world: Preempting, frozen: bool) -> None:
    world.runs("victim", pod(2000), "n1")
    high = world.api.create("high", pod(2000, priority=10))
    world.preempt(high)
    claim = world.claim(high)
    world.write_nomination(claim)
    if frozen:
        world.machine.cluster.freeze("n1-uid")
    else:
        world.drop_node("n1-uid")
    assert world.evict(claim) == []
    assert world.evicted == []
    assert [(o.kind, o.cause) for o in world.outcomes()] == [(OutcomeKind.CONFLICT, Cause.VICTIMS)]
    world.check()


def test_a_nomination_that_the_watch_shows_first_is_none_that_a_list_could_lack(
    world: Preempting,
) -> None:
    world.runs("low", pod(2000), "n1")
    high = world.api.create("high", pod(2000, priority=10))
    world.preempt(high)
    claim, preemptions = world.claim(high), world.machine.preemptions
    world.api.touch(high)  # our patch; its answer is still on its way
    seen = {"name": ("default", "high"), "version": high.version, "shape": high.shape}
    preemptions.nominee_seen(high.uid, node="n1", **seen)
    preemptions.nominated(claim, claim.seats[0], high.version)
    preemptions.nominees_listed(high.version + 10)
    assert high.uid in world.machine.cluster.nominated
    assert not claim.withdrawn
    world.check()


def test_what_the_watch_shows_from_before_the_nomination_does_not_undo_it(
    world: Preempting,
) -> None:
    world.node("n2", cpu=2000)
    world.runs("low", pod(2000), "n1")
    world.runs("lower", pod(2000, priority=5), "n2")
    high = world.api.create("high", pod(2000, priority=10))
    world.preempt(high)
    claim, preemptions = world.claim(high), world.machine.preemptions
    nominated = dict(world.machine.cluster.nominated)
    old = high.version
    stale = {"name": ("default", "high"), "version": old, "shape": high.shape}
    preemptions.nominee_seen(high.uid, node="n2", **stale)
    preemptions.nominee_gone(high.uid, version=old)
    assert world.machine.cluster.nominated == nominated, "it is not written yet"
    world.write_nomination(claim)
    preemptions.nominee_seen(high.uid, node="n2", **stale)
    preemptions.nominee_gone(high.uid, version=old)
    assert world.machine.cluster.nominated == nominated
    assert not claim.withdrawn
    preemptions.nominee_gone(high.uid, version=high.version)
    assert high.uid not in world.machine.cluster.nominated
    assert claim.withdrawn


def test_a_victim_that_left_before_the_answer_does_not_count_as_going(world: Preempting) -> None:
    victim = world.runs("victim", pod(2000), "n1")
    high = world.api.create("high", pod(2000, priority=10))
    world.preempt(high)
    claim = world.claim(high)
    world.write_nomination(claim)
    (leaving,) = world.machine.preemptions.next_victims(claim) or []
    world.end(victim)
    world.machine.preemptions.asked(leaving)
    assert world.machine.preemptions.asked_to_go == set()
    world.check()


def test_a_claim_ends_once(world: Preempting) -> None:
    world.runs("victim", pod(2000), "n1")
    high = world.api.create("high", pod(2000, priority=10))
    world.preempt(high)
    claim = world.claim(high)
    world.carry_out(claim)
    outcomes = world.outcomes()
    world.machine.preemptions.done(claim)
    world.machine.preemptions.failed(claim, Cause.POD_CHANGED, "late")
    assert world.outcomes() == outcomes
    assert high.uid in world.machine.cluster.nominated


def test_a_budget_that_is_gone_or_protects_nobody_any_more_is_no_object(world: Preempting) -> None:
    def known() -> list[str]:
        world.round()
        return [f"{row.namespace}/{row.allowed}" for row in budgets(world.follower.objects(BUDGET))]

    budget = world.machine.budgets
    assert known() == ["default/0"]
    budget.seen(pdb("web", 3))
    assert known() == ["default/0", "default/3"]
    empty = pdb("web", 3)
    empty.spec = BudgetSpec(RawSelector({}))
    budget.seen(empty)
    assert known() == ["default/0"]
    budget.seen(empty)
    budget.gone("default/web")
    assert known() == ["default/0"]
    budget.gone("default/db")
    assert known() == []


def test_an_eviction_of_somebody_else_spends_nothing_of_ours(world: Preempting) -> None:
    victim = world.runs("victim", pod(2000), "n1")
    world.machine.budgets.seen(pdb("web", 1))
    world.machine.budgets.accepted(victim.uid)
    world.machine.budgets.discharge(victim.uid)
    world.round()
    assert allowed(world, "web") == 1
