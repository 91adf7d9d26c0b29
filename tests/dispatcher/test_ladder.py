"""The starvation ladder: fewer rivals after conflicts, stakes after waiting; modes of shapes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatcher.contention import Contention, ContentionLimits, PartitionMode
from dispatcher.ladder import LadderLimits
from dispatcher.machine import MachineLimits
from dispatcher.queue_limits import QueueLimits
from stretto.model.unit import Cause, OutcomeKind
from stretto.snapshot.stakes import Seat, StakeRow
from tests.dispatcher.brain import Brain, shape

LADDER = LadderLimits()


def brain(*, shards: int = 4, ladder: LadderLimits = LADDER) -> Brain:
    limits = MachineLimits(queue=QueueLimits(pop_from_backoff=False), ladder=ladder)
    made = Brain(limits=limits)
    for stream in range(1, shards + 1):
        made.shard(stream)
    return made


def lose(this: Brain, uid: str, cause: Cause = Cause.CAPACITY) -> str:
    """One attempt that is lost; the shard it was made at."""
    assert this.units() == [uid]
    stream = this.sent[uid][0]
    this.settle(uid)
    this.outcome(uid, OutcomeKind.CONFLICT, cause=cause)
    return f"shard-{stream}"


def starve(this: Brain, *uids: str, unresolvable: int = 0) -> None:
    """These are found to fit nowhere."""
    assert set(uids) <= set(this.units())
    this.unplaceable(*uids, at=1, unresolvable=unresolvable)


def test_a_unit_that_loses_climbs_to_other_shards_and_then_to_the_one_of_all_such_units():
    this = brain()
    this.pod("a")
    where = []
    flags = []
    for number in range(6):
        this.dispatch()
        flags.append((this.sent["a"][1].own, this.sent["a"][1].stake))
        where.append(this.sent["a"][0])
        this.settle("a")
        if number < 5:
            this.outcome("a", OutcomeKind.CONFLICT, cause=Cause.CAPACITY)
    this.bind("a")
    assert [own for own, _ in flags] == [False, False, True, True, True, True]
    assert [stake for _, stake in flags] == [False] * 5 + [True]
    assert where[2] != where[1]
    assert where[3] != where[2]
    assert where[4] == where[5]
    this.pod("b", shape(7))
    for _ in range(4):
        lose(this, "b")
    assert this.units() == ["b"]
    assert this.sent["b"][0] == where[4], "climbers race each other"


def test_climbers_go_on_when_their_shard_is_gone_or_the_only_one():
    this = brain(shards=2)
    this.pod("a")
    for _ in range(4):
        lose(this, "a")
    this.dispatch()
    first = this.sent["a"][0]
    this.close(first)
    assert this.units() == ["a"]
    assert this.sent["a"][0] != first


def test_a_unit_whose_shard_has_no_credits_waits_while_others_go():
    this = brain(shards=2)
    this.pod("a")
    for _ in range(4):
        lose(this, "a")
    this.dispatch()
    taken = this.sent["a"][0]
    this.settle("a")
    this.outcome("a", OutcomeKind.CONFLICT, cause=Cause.CAPACITY)
    shard = this.machine.shards.assignment.shards[taken]
    shard.credits, kept = 0, shard.credits
    shard.held["other"] = (0, 0, this.now)  # it is busy, not cut off
    this.pod("b", shape(5))
    sends = this.machine.dispatch(this.now)
    assert [unit.unit_id for send in sends for unit in send.units] == ["b"]
    shard.credits = kept
    del shard.held["other"]
    sends = this.machine.dispatch(this.now)
    assert [unit.unit_id for send in sends for unit in send.units] == ["a"]


def test_who_waits_too_long_asks_for_a_stake_once_and_is_decided_next_after_it():
    this = brain()
    this.pod("big", shape(1000))
    starve(this, "big")
    this.wait(LADDER.stake_after_s - 1)
    assert this.units() == []
    this.wait(2)
    assert this.units() == ["big"]
    assert this.sent["big"][1].stake
    this.settle("big")
    this.outcome("big", OutcomeKind.CONFLICT, cause=Cause.STAKED, sequence=5)
    assert this.units() == ["big"], "its next decision says where it stands"
    assert this.sent["big"][1].min_sequence == 5
    assert not this.sent["big"][1].stake
    this.unplaceable("big", at=5, unresolvable=0)
    this.machine.ladder.stakes = {"big": StakeRow("big", "", 0, (Seat("n1", 1),))}
    this.wait(LADDER.again_s + LADDER.stake_after_s)
    assert this.units() == [], "it has its stake"
    this.event(at=6)
    this.wait(10)
    assert this.units() == ["big"]


def test_what_no_empty_node_would_take_asks_for_nothing():
    this = brain()
    this.pod("huge", shape(1 << 30))
    starve(this, "huge", unresolvable=3)
    this.wait(LADDER.stake_after_s * 2)
    assert this.units() == []


def test_zero_seconds_turn_stakes_off():
    this = brain(ladder=LadderLimits(stake_after_s=0))
    this.pod("big", shape(1000))
    starve(this, "big")
    this.wait(250)
    assert this.units() == []


def test_of_a_pool_the_highest_priority_asks_then_the_longest_waiting():
    this = brain()
    this.pod("young-high", shape(1, priority=5))
    starve(this, "young-high")
    this.now += 1
    for uid, cpu in (("old", 10), ("new", 11)):
        this.pod(uid, shape(cpu))
        starve(this, uid)
        this.now += 1
    this.pod("elsewhere", shape(12, node_selector=(("gpu", "a"),)))
    starve(this, "elsewhere")
    this.wait(LADDER.stake_after_s)
    assert set(this.units()) == {"young-high", "elsewhere"}, "one a pool"
    this.unplaceable("young-high", "elsewhere", at=2, unresolvable=0)
    this.wait(1)
    assert this.units() == ["old"], "whom a stake does not help lets others go first"
    held = StakeRow("old", "", 0, (Seat("n1", 1),))
    this.machine.ladder.stakes = {"old": held}
    this.unplaceable("old", at=3, unresolvable=0)
    this.wait(LADDER.again_s)
    assert "new" not in this.units(), "somebody of its priority has the stake of its pool"
    this.unplaceable("young-high", "elsewhere", at=4, unresolvable=0)
    this.machine.ladder.stakes = {}
    this.wait(1)
    assert "old" in this.units() or "new" in this.units()


def test_a_waiting_pod_that_goes_is_withdrawn_if_room_may_be_kept_for_it():
    this = brain()
    this.pod("big", shape(1000))
    starve(this, "big")
    this.wait(LADDER.stake_after_s + 1)
    this.dispatch()
    this.unplaceable("big", at=2, unresolvable=0)
    this.delete("big", leaving=True)
    assert this.machine.binder.requests().withdraw == ["big"]


@pytest.mark.parametrize("part", [0.0, 0.04, 0.05])
def test_a_mode_stays_up_to_five_conflicts_in_a_hundred(part: float):
    contention = Contention(ContentionLimits(window=100), 0.0)
    for number in range(1000):
        contention.decided(lost=number % 100 < part * 100, now=1.0)
    assert contention.mode is PartitionMode.TIES


def test_modes_go_up_under_conflicts_and_down_after_quiet():
    limits = ContentionLimits(window=10, quiet_s=5.0)
    contention = Contention(limits, 0.0)
    for expected in (PartitionMode.OWN, PartitionMode.SINGLE, PartitionMode.SINGLE):
        for number in range(10):
            contention.decided(lost=number == 0, now=1.0)
        assert contention.mode is expected
    for now, expected in (
        (2.0, PartitionMode.SINGLE), (6.0, PartitionMode.OWN), (7.0, PartitionMode.OWN),
        (11.0, PartitionMode.TIES), (30.0, PartitionMode.TIES),
    ):  # fmt: skip
        for _ in range(10):
            contention.decided(lost=False, now=now)
        assert contention.mode is expected


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.floats(0, 3)), max_size=300))
def test_a_mode_moves_one_step_at_a_time_and_never_out_of_range(steps):
    contention, now, before = Contention(ContentionLimits(window=4, quiet_s=2.0), 0.0), 0.0, 0
    for lost, wait_s in steps:
        now += wait_s
        contention.decided(lost=lost, now=now)
        assert abs(contention.mode - before) <= 1
        before = int(contention.mode)


def test_a_contended_shape_keeps_to_own_partitions_and_then_to_one_shard():
    this = brain()
    this.pod("first")
    lose(this, "first")
    record = this.machine.pods.get("first")
    assert record is not None
    contention = record.shape.contention
    assert contention is not None
    contention.mode = PartitionMode.OWN
    record.conflicts = 0
    assert this.units() == ["first"]
    assert this.sent["first"][1].own
    this.bind("first")
    contention.mode = PartitionMode.SINGLE
    this.pods(200)
    streams = set()
    while sends := this.dispatch():
        streams.update(send.stream for send in sends)
        assert not any(unit.own for send in sends for unit in send.units)
        for stream in list(this.machine.shards.assignment.shards):
            this.machine.shards.credits(stream, 64)
        if len(this.sent) > 200:
            break
    assert len(streams) == 1


def test_a_pod_for_which_room_is_being_made_asks_for_none():
    this = brain()
    this.pod("big", shape(1000, nominated_node="n1"))
    starve(this, "big")
    this.wait(LADDER.stake_after_s + 1)
    assert this.units() == []
