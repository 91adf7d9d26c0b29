"""Credits, batches, hand-backs, the death of shards and answers that come late."""

from __future__ import annotations

from dispatcher.patching import PatchResult
from dispatcher.pods import Condition
from dispatcher.states import State
from stretto.model.unit import Attempt, Cause, OutcomeKind, PodUid
from stretto.placement.events import Action, ClusterEvent
from tests.dispatcher.brain import BINDER, EPOCH, Brain, shape


def test_a_shard_gets_no_more_than_its_credits() -> None:
    brain = Brain()
    brain.pods(10)
    brain.shard(credits_=3)
    assert len(brain.units()) == 3
    assert brain.units() == []
    brain.machine.shards.credits(1, 2)
    assert len(brain.units()) == 2


def test_batches_go_to_the_shard_that_holds_least() -> None:
    brain = Brain()
    brain.pods(256)
    brain.shard(1, credits_=256)
    brain.shard(2, credits_=256)
    assert [send.stream for send in brain.dispatch()] == [1, 2, 1, 2]


def test_a_shape_is_defined_once_a_stream() -> None:
    brain = Brain()
    brain.pods(3)
    brain.shard(1, credits_=1)
    brain.shard(2, credits_=2)
    sends = brain.dispatch()
    assert [len(send.shapes) for send in sends] == [1, 1]
    brain.machine.shards.credits(1, 1)
    brain.pod("late")
    assert [len(send.shapes) for send in brain.dispatch()] == [0]


def test_a_draining_shard_gets_nothing_and_its_end_is_no_death() -> None:
    brain = Brain()
    brain.pods(3)
    brain.shard(1, credits_=1)
    brain.dispatch()
    brain.machine.shards.credits(1, 5)
    brain.machine.shards.draining(1)
    assert brain.units() == []
    brain.close(1)
    assert brain.machine.statistics.shard_deaths == 0
    brain.shard(2)
    assert brain.units() == ["p0", "p1", "p2"]


def test_the_units_of_a_dead_shard_go_first_to_others_under_a_new_attempt() -> None:
    brain = Brain()
    brain.pods(6)
    brain.shard(1, credits_=3)
    brain.dispatch()
    brain.settle("p0")
    first = brain.attempt("p1")
    brain.close(1)
    brain.shard(2, credits_=2)
    assert brain.units() == ["p1", "p2"]
    assert brain.attempt("p1") > first
    assert brain.state("p0") is State.OWNED, "its verdict was known"


def test_bound_under_the_attempt_of_a_dead_shard_settles_the_pod() -> None:
    brain = Brain()
    brain.pod("a")
    brain.shard(1)
    brain.dispatch()
    first = brain.attempt("a")
    brain.close(1)
    brain.shard(2)
    brain.dispatch()
    brain.outcome("a", OutcomeKind.BOUND, attempt=first)
    assert brain.state("a") is State.SETTLED
    brain.settle("a")
    assert brain.state("a") is State.SETTLED


def test_bound_late_settles_a_pod_that_waits_again() -> None:
    brain = Brain()
    brain.pod("a")
    brain.shard(1)
    brain.dispatch()
    brain.close(1)
    assert brain.state("a") is State.ACTIVE
    brain.bind("a")
    brain.shard(2)
    assert brain.state("a") is State.SETTLED
    assert brain.units() == []


def test_a_failure_of_an_older_attempt_does_not_disturb_the_current_one() -> None:
    brain = Brain()
    brain.pod("a")
    brain.shard(1)
    brain.dispatch()
    first = brain.attempt("a")
    brain.close(1)
    brain.shard(2)
    brain.dispatch()
    brain.outcome("a", OutcomeKind.CONFLICT, attempt=first)
    assert brain.state("a") is State.DISPATCHED
    assert brain.machine.statistics.late_outcomes == 1


def test_a_failure_of_an_older_attempt_frees_a_pod_whose_later_one_was_answered_held() -> None:
    brain = Brain()
    brain.pod("a")
    brain.shard(1)
    brain.dispatch()
    first = brain.attempt("a")
    brain.close(1)
    brain.shard(2)
    brain.dispatch()
    brain.settle("a")
    brain.outcome("a", OutcomeKind.FAILED, attempt=first)
    assert brain.state("a") is State.BACKOFF


def test_answers_of_another_epoch_or_attempt_do_not_count() -> None:
    brain = Brain()
    brain.pod("a")
    brain.shard(1)
    brain.dispatch()
    number = brain.attempt("a").number
    brain.outcome("a", OutcomeKind.CONFLICT, attempt=Attempt(EPOCH - 1, number))
    assert brain.state("a") is State.DISPATCHED
    brain.machine.shards.settled(1, [(brain.sent["a"][1].unit_id, Attempt(EPOCH, 77))], brain.now)
    assert brain.state("a") is State.DISPATCHED


def test_a_shard_that_comes_back_makes_its_older_stream_dead() -> None:
    brain = Brain()
    brain.pod("a")
    brain.shard(1, name="shard")
    brain.dispatch()
    older = brain.machine.shards.opened(stream=2, name="shard", incarnation="2", now=brain.now)
    assert older == [1]
    brain.machine.shards.credits(2, 1)
    assert brain.units() == ["a"]


def test_a_conflict_goes_to_the_head_with_a_fresh_attempt_and_a_version_to_reach() -> None:
    brain = Brain()
    brain.pods(3)
    brain.shard(credits_=1)
    brain.dispatch()
    first = brain.attempt("p0")
    brain.outcome("p0", OutcomeKind.CONFLICT, cause=Cause.CAPACITY, sequence=33)
    brain.machine.shards.credits(1, 1)
    assert brain.units() == ["p0"]
    assert brain.attempt("p0") > first
    assert brain.sent["p0"][1].min_sequence == 33
    assert brain.machine.statistics.conflicts == {"capacity": 1}


def test_the_head_is_that_of_the_pods_own_priority() -> None:
    brain = Brain()
    brain.pod("low", shape(1))
    brain.shard(credits_=1)
    brain.dispatch()
    brain.pod("high", shape(2, priority=5))
    brain.pod("low2", shape(1))
    brain.outcome("low", OutcomeKind.CONFLICT, cause=Cause.CAPACITY)
    brain.machine.shards.credits(1, 3)
    assert brain.units() == ["high", "low", "low2"]


def test_after_a_few_conflicts_in_a_row_a_pod_backs_off() -> None:
    brain = Brain()
    brain.pod("a")
    brain.shard(credits_=100)
    for _ in range(5):
        assert brain.units() == ["a"]
        brain.outcome("a", OutcomeKind.CONFLICT, cause=Cause.CAPACITY)
    assert brain.units() == ["a"]
    brain.outcome("a", OutcomeKind.CONFLICT, cause=Cause.CAPACITY)
    assert brain.state("a") is State.BACKOFF
    assert brain.units() == []
    brain.wait(1)
    assert brain.units() == ["a"]


def test_a_binder_that_is_not_open_is_not_pressed() -> None:
    brain = Brain()
    brain.pod("a")
    brain.shard()
    brain.dispatch()
    brain.outcome("a", OutcomeKind.CONFLICT, cause=Cause.STALE)
    assert brain.state("a") is State.BACKOFF


def test_outcomes_that_are_resent_are_applied_once() -> None:
    brain = Brain()
    brain.pod("a")
    brain.shard(credits_=5)
    brain.dispatch()
    brain.outcome("a", OutcomeKind.CONFLICT, cause=Cause.CAPACITY)
    first = brain.attempt("a")
    brain.dispatch()
    brain.settle("a")
    brain.index = 1
    brain.outcome("a", OutcomeKind.CONFLICT, attempt=first, cause=Cause.CAPACITY)
    assert brain.state("a") is State.OWNED


def test_gone_waits_for_the_watch_to_say_so() -> None:
    brain = Brain()
    brain.pod("a")
    brain.shard()
    brain.dispatch()
    brain.outcome("a", OutcomeKind.GONE)
    assert brain.state("a") is State.SETTLED
    brain.delete("a", leaving=True)
    assert brain.state("a") is None


def test_a_pod_refused_by_the_binder_waits_for_a_change_of_itself_or_of_an_object() -> None:
    brain = Brain()
    brain.pods(2)
    brain.shard()
    brain.dispatch()
    for uid in ("p0", "p1"):
        brain.outcome(uid, OutcomeKind.REFUSED, detail="matched by an anti-affinity term")
        assert brain.state(uid) is State.REFUSED
    told = {order.uid: order.condition.message for order in brain.machine.patches(brain.now)}
    assert told["p0"] == "matched by an anti-affinity term"
    for uid in ("p0", "p1"):
        brain.machine.patch_replied(uid, PatchResult.WRITTEN, resource_version=0, now=brain.now)
    brain.wait(200)
    assert brain.units() == []
    brain.pod("p0", generation=2)
    assert brain.units() == ["p0"]
    brain.event(ClusterEvent("StorageClass", Action.ADD), at=9)
    assert brain.units() == ["p1"]


def test_many_events_do_not_make_many_attempts_of_a_pod_that_the_binder_refuses() -> None:
    brain = Brain()
    brain.pod("a")
    brain.shard(credits_=1000)
    attempts = 0
    for step in range(100):  # ten seconds, an event each tenth
        if brain.units():
            attempts += 1
            brain.outcome("a", OutcomeKind.REFUSED, detail="a plugin has raised")
            for order in brain.machine.patches(brain.now):
                brain.machine.patch_replied(order.uid, PatchResult.WRITTEN, now=brain.now)
        brain.event(ClusterEvent("PersistentVolumeClaim", Action.ADD), at=10 + step)
        brain.wait(0.1)
    assert attempts == 4, "at 0, 1, 3 and 7 s"


def test_a_pod_refused_by_the_binder_is_tried_again_after_five_minutes_whatever_happens() -> None:
    brain = Brain()
    brain.pods(1)
    brain.shard()
    brain.dispatch()
    brain.outcome("p0", OutcomeKind.REFUSED, detail="a plugin has raised")
    for order in brain.machine.patches(brain.now):
        brain.machine.patch_replied(
            order.uid, PatchResult.WRITTEN, resource_version=0, now=brain.now
        )
    brain.wait(299)
    assert brain.units() == []
    brain.wait(2)
    assert brain.units() == ["p0"]


def test_units_are_handed_back_and_decided_again_but_not_in_a_tight_loop() -> None:
    brain = Brain()
    brain.pod("a")
    brain.shard(credits_=100)
    for _ in range(6):
        assert brain.units() == ["a"]
        brain.hand_back("a")
    assert brain.state("a") is State.BACKOFF


def test_a_unit_that_a_living_shard_holds_too_long_goes_to_another() -> None:
    brain = Brain()
    brain.pod("a")
    brain.shard(1, credits_=1)
    brain.dispatch()
    brain.wait(59)
    assert brain.state("a") is State.DISPATCHED
    brain.wait(1)
    assert brain.state("a") is State.ACTIVE
    assert brain.machine.statistics.overdue == 1


def test_while_the_binder_is_away_nobody_is_overdue() -> None:
    brain = Brain()
    brain.pod("a")
    brain.shard()
    brain.dispatch()
    brain.machine.binder.connected(up=False, now=brain.now)
    brain.wait(600)
    assert brain.state("a") is State.DISPATCHED
    assert brain.machine.binder.requests().ask == []


def test_the_binder_is_asked_about_a_pod_it_is_silent_on_and_it_is_decided_again() -> None:
    brain = Brain()
    brain.pods(3)
    brain.shard(credits_=3)
    brain.dispatch()
    brain.settle("p0", "p1", "p2")
    brain.wait(10)
    assert brain.machine.binder.requests().ask == ["p0", "p1", "p2"]
    brain.machine.binder.owned_set(
        owned=["p0"], bound=["p1"], unknown=["p2"], complete=False, now=brain.now
    )
    brain.machine.validate()
    assert brain.state("p0") is State.OWNED
    assert brain.state("p1") is State.SETTLED
    assert brain.state("p2") is State.ACTIVE
    assert brain.machine.statistics.orphans == 1


def test_a_new_binder_that_does_not_own_a_pod_sets_it_free() -> None:
    brain = Brain()
    brain.pods(2)
    brain.shard()
    brain.dispatch()
    brain.settle("p0", "p1")
    brain.machine.binder.owned_set(owned=["p1"], complete=True, now=brain.now)
    brain.machine.validate()
    assert brain.state("p0") is State.ACTIVE
    assert brain.state("p1") is State.OWNED


def test_units_sent_with_a_version_of_the_old_binder_are_sent_anew() -> None:
    brain = Brain()
    brain.pods(2)
    brain.shard(credits_=10)
    brain.dispatch()
    brain.outcome("p0", OutcomeKind.CONFLICT, cause=Cause.CAPACITY, sequence=500)
    brain.dispatch()
    brain.event(at=1, epoch=BINDER + 1)
    assert brain.state("p0") is State.ACTIVE
    assert brain.state("p1") is State.DISPATCHED
    assert brain.units() == ["p0"]
    assert brain.sent["p0"][1].min_sequence == 0


def test_a_unit_that_shards_die_of_goes_alone_and_then_waits() -> None:
    brain = Brain()
    brain.pods(10)
    for stream in (1, 2):
        brain.shard(stream)
        brain.dispatch()
        brain.close(stream)
    brain.shard(3, credits_=1)
    assert brain.units() == ["p0"], "alone, to find the culprit"
    brain.close(3)
    assert brain.state("p0") is State.BACKOFF
    assert brain.machine.statistics.quarantined == 1
    brain.shard(4)
    assert [len(send.units) for send in brain.dispatch()] == [1] * 9
    brain.settle(*(f"p{number}" for number in range(1, 10)))
    brain.wait(300)
    assert brain.units() == ["p0"]


def test_a_failed_attempt_is_an_error_and_is_tried_again_after_backoff() -> None:
    """No event may mend a plugin that raises or an extender that hangs."""
    brain = Brain()
    brain.pods(2)
    brain.shard(credits_=10)
    brain.dispatch()
    brain.unplaceable("p0", at=5, message="it broke", plugins=("Mine",), error=True)
    record = brain.machine.pods.get(PodUid("p0"))
    assert record is not None
    assert record.wanted == Condition("SchedulerError", "it broke")
    assert brain.machine.statistics.attempts["error", "stretto"] == 1
    assert brain.dispatch() == []
    brain.wait(1.1)
    assert [unit.unit_id for send in brain.dispatch() for unit in send.units] == ["p0"]
