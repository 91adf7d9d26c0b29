"""The order in which waiting proposals are taken: priority first, within bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from binder.order import WINDOW_S, Waiting
from binder.proposals import Incoming
from stretto.model.shape import Shape
from stretto.model.unit import Attempt, Proposal, Unit, UnitId


def proposal(name: str, *, stream: int, priority: int = 0) -> Incoming:
    shape = Shape(profile="stretto", namespace="default", priority=priority)
    unit = Unit(UnitId(name), Attempt(1, 1), ())
    return Incoming("shard", stream, 1, Proposal(unit, (), (), 0), (shape,))


def names(taken: list[Incoming]) -> list[str]:
    return [one.proposal.unit.unit_id for one in taken]


def waiting(*proposals: Incoming, now: float = 10.0) -> Waiting:
    found = Waiting()
    found.add(proposals, now=now)
    return found


def test_the_highest_priority_of_all_shards_is_next_then_arrival() -> None:
    queue = waiting(
        proposal("low", stream=1),
        proposal("high", stream=2, priority=9),
        proposal("late", stream=3),
        proposal("higher", stream=4, priority=10),
    )
    assert names(queue.take(3, now=10.0)) == ["higher", "high", "low"]
    assert names(queue.take(3, now=10.0)) == ["late"]
    assert len(queue) == 0


def test_a_shards_own_proposals_keep_their_order() -> None:
    queue = waiting(
        proposal("first", stream=1), proposal("then", stream=1, priority=9), proposal("x", stream=2)
    )
    assert names(queue.take(9, now=10.0)) == ["first", "then", "x"]


def test_nobody_is_overtaken_for_longer_than_the_window() -> None:
    queue = waiting(proposal("low", stream=1))
    for step in range(1, 100):
        now = 10.0 + step * WINDOW_S / 10
        queue.add([proposal(f"high{step}", stream=2, priority=9)], now=now)
        if names(queue.take(1, now=now)) == ["low"]:
            assert step == 10
            return
    raise AssertionError("the low one starves")


def test_inversion_is_measured_from_the_moment_of_being_passed() -> None:
    queue = waiting(proposal("low", stream=1), proposal("behind", stream=1, priority=9))
    queue.take(1, now=11.0)
    assert queue.inversion_s == 0
    queue.take(1, now=11.5)
    assert queue.inversion_s == 0.5
    queue.add([proposal("a", stream=1, priority=3)], now=12.0)
    queue.take(1, now=13.0)
    assert queue.inversion_s == 0.5


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), max_size=40),
    st.lists(st.integers(1, 5), min_size=40, max_size=40),
)
def test_all_are_taken_once_and_each_shards_in_order(
    arriving: list[tuple[int, int]], limits: list[int]
) -> None:
    queue = waiting(*(proposal(str(n), stream=s, priority=p) for n, (s, p) in enumerate(arriving)))
    taken = [int(name) for limit in limits for name in names(queue.take(limit, now=10.0))]
    assert sorted(taken) == list(range(len(arriving)))
    for stream in range(1, 5):
        own = [number for number in taken if arriving[number][0] == stream]
        assert own == sorted(own)
    assert not queue._priorities
