"""A shard without a way to the Binder: what it keeps, what it gives back, what it asks for."""

from __future__ import annotations

from stretto.rpc.messages import FollowKind, FollowMessage
from stretto.snapshot.delta import Delta
from tests.shard.test_worker import answers, give, proposals, shard_with
from tests.shard.worlds import node, unit


def test_a_shard_that_does_not_reach_the_binder_gives_its_units_to_others() -> None:
    """Not at once: the next Binder may be near. And it asks for no more meanwhile."""
    shard = shard_with(node(1), window=8)
    assert answers(shard).credits == 8
    give(shard, unit("a"), unit("b"))
    shard.propose_lost()
    for now in (1.0, 10.9):
        shard.tick(now)
    assert shard.take_answers() is None, "too early"
    shard.tick(11.0)
    message = answers(shard)
    assert [item.unit_id for item in message.handed_back] == ["a", "b"]
    assert message.credits == 0
    give(shard, unit("c"))
    message = answers(shard)
    assert [item.unit_id for item in message.handed_back] == ["c"]
    assert message.credits == 0
    shard.followed(FollowMessage(FollowKind.HEARTBEAT, Delta(epoch=1, sequence=1)), now=12.0)
    shard.propose_opened(1)
    shard.tick(12.0)
    assert answers(shard).credits == 3, "what was withheld"
    give(shard, unit("d"))
    assert [p.unit.unit_id for p in proposals(shard, now=12.0)] == ["d"]


def test_a_short_time_without_the_binder_costs_no_unit() -> None:
    shard = shard_with(node(1))
    answers(shard)
    give(shard, unit("a"))
    shard.propose_lost()
    shard.tick(1.0)
    shard.followed(FollowMessage(FollowKind.HEARTBEAT, Delta(epoch=1, sequence=1)), now=9.0)
    shard.propose_opened(1)
    shard.tick(9.0)
    shard.propose_lost()
    shard.tick(15.0)
    assert shard.take_answers() is None
