"""Lines, lanes and batches: order, what shares a batch, backoff of a pod's own."""

from __future__ import annotations

from tests.dispatcher.brain import Brain, shape


def test_higher_priority_first_then_age() -> None:
    brain = Brain()
    brain.pod("old-low", shape(1))
    brain.pod("high", shape(2, priority=10))
    brain.pod("young-low", shape(3))
    brain.shard(credits_=3)
    assert brain.units() == ["high", "old-low", "young-low"]


def test_a_batch_is_of_one_shape_if_that_has_enough() -> None:
    brain = Brain()
    for number in range(40):
        brain.pod(f"a{number}", shape(1))
        brain.pod(f"b{number}", shape(2))
    brain.shard(credits_=80)
    sends = brain.dispatch()
    assert [len(send.units) for send in sends] == [40, 40]
    assert [len({u.members[0].shape for u in send.units}) for send in sends] == [1, 1]


def test_small_shapes_share_a_batch() -> None:
    brain = Brain()
    for number in range(10):
        brain.pod(f"a{number}", shape(number + 1))
    brain.shard()
    sends = brain.dispatch()
    assert [len(send.units) for send in sends] == [10]
    assert len(sends[0].shapes) == 10


def test_errors_back_off_apart_from_what_fits_nowhere() -> None:
    """Errors are counted for the pod (1 s, 2 s … 10 s), what fits nowhere for its shape."""
    brain = Brain()
    brain.pod("a")
    brain.shard(credits_=100)
    brain.dispatch()
    for number in range(4):
        brain.unplaceable("a", at=2 * number + 2)
        brain.event(at=2 * number + 3)
        brain.wait(10)
        assert brain.units() == ["a"]
    for delay in (1, 2, 4, 8, 10, 10):
        brain.unplaceable("a", at=50, error=True)
        brain.wait(delay - 0.01)
        assert brain.units() == [], "its own errors count, not the four failures of its shape"
        brain.wait(0.02)
        assert brain.units() == ["a"]


def test_errors_are_not_popped_from_backoff_when_idle() -> None:
    brain = Brain(pop_from_backoff=True)
    brain.pod("a")
    brain.shard()
    brain.dispatch()
    brain.unplaceable("a", at=5, error=True)
    assert brain.units() == []
    assert ("active", "PopFromBackoffQ") not in brain.machine.statistics.incoming


def test_a_shape_is_found_by_the_head_that_an_abandoned_one_leaves() -> None:
    """One comes back to the line with an order of the front; the front's own head vanishes."""
    brain = Brain()
    brain.pods(3)
    brain.shard(credits_=3)
    brain.dispatch()
    brain.hand_back("p0")
    brain.machine.shards.credits(1, 1)
    assert brain.units() == ["p0"]
    brain.hand_back("p1")
    brain.unplaceable("p0", at=5)
    brain.event(at=6)
    brain.wait(1)
    brain.delete("p1", leaving=True)
    brain.machine.validate()
