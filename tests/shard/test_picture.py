"""The snapshot that follows the log: what does not continue it is told apart from what does."""

from __future__ import annotations

import pytest

from scheduler_shard.picture import Picture, Step
from stretto.rpc.messages import FollowKind, FollowMessage
from stretto.snapshot.delta import Delta, NodeChange, NodeRow


def message(kind: FollowKind, sequence: int, *, epoch: int = 1, node: str = "") -> FollowMessage:
    nodes = [NodeChange(sequence, NodeRow(node, f"{node}-uid"))] if node else []
    return FollowMessage(kind, Delta(epoch=epoch, sequence=sequence, nodes=nodes))


def read_whole() -> Picture:
    """Nodes a and b, at step 5."""
    picture = Picture()
    assert picture.take(message(FollowKind.FULL_BEGIN, 5)) is Step.NOTHING
    assert picture.take(message(FollowKind.FULL_CHUNK, 5, node="a")) is Step.NOTHING
    assert not picture.synced, "half a state"
    assert picture.snapshot.node_count == 0
    assert picture.take(message(FollowKind.FULL_END, 5)) is Step.REPLACED
    assert picture.synced
    assert picture.snapshot.node_count == 1
    return picture


def test_steps_continue_a_full_state() -> None:
    picture = read_whole()
    assert picture.take(message(FollowKind.HEARTBEAT, 5)) is Step.NOTHING
    assert picture.take(message(FollowKind.DELTA, 6, node="b")) is Step.ADVANCED
    assert (picture.snapshot.node_count, picture.snapshot.version.sequence) == (2, 6)


def test_a_part_of_a_state_that_never_began_is_lost() -> None:
    for kind in (FollowKind.FULL_CHUNK, FollowKind.FULL_END):
        picture = read_whole()
        assert picture.take(message(kind, 5)) is Step.LOST
        assert picture.problem == "part of a full state without its beginning"
        assert not picture.synced


def test_a_step_without_a_state_is_lost() -> None:
    for kind in (FollowKind.DELTA, FollowKind.HEARTBEAT):
        picture = Picture()
        assert picture.take(message(kind, 6)) is Step.LOST
        assert "without a state" in picture.problem


def test_an_older_step_is_lost_and_nothing_counts_until_a_full_state() -> None:
    picture = read_whole()
    assert picture.take(message(FollowKind.DELTA, 4, node="b")) is Step.LOST
    assert picture.take(message(FollowKind.DELTA, 6, node="b")) is Step.LOST
    picture.take(message(FollowKind.FULL_BEGIN, 9))
    picture.take(message(FollowKind.FULL_CHUNK, 9, node="c"))
    assert picture.take(message(FollowKind.FULL_END, 9)) is Step.REPLACED
    assert picture.synced


def test_a_heartbeat_of_another_epoch_at_the_same_step_is_lost() -> None:
    picture = read_whole()
    assert picture.take(message(FollowKind.HEARTBEAT, 5, epoch=2)) is Step.LOST
    assert picture.problem == "the log is of epoch 2, what was read of it of 1"


@pytest.mark.parametrize(
    ("kind", "sequence", "problem"),
    [
        (FollowKind.DELTA, 7, "step 7 of the log came where 6 was due"),
        (FollowKind.DELTA, 5, "step 5 of the log came where 6 was due"),
        (FollowKind.HEARTBEAT, 6, "a heartbeat at step 6 of the log came where 5 was due"),
    ],
)
def test_who_missed_a_step_or_gets_one_twice_is_lost(
    kind: FollowKind, sequence: int, problem: str
) -> None:
    picture = read_whole()
    node = "b" if kind is FollowKind.DELTA else ""
    assert picture.take(message(kind, sequence, node=node)) is Step.LOST
    assert picture.problem == problem
    assert not picture.synced, "nothing is decided on it"
    assert picture.snapshot.version.sequence == 5


def test_a_state_that_breaks_off_leaves_the_former_one_until_the_next_is_whole() -> None:
    picture = read_whole()
    picture.take(message(FollowKind.FULL_BEGIN, 9))
    picture.take(message(FollowKind.FULL_CHUNK, 9, node="c"))
    picture.take(message(FollowKind.FULL_BEGIN, 10))
    picture.take(message(FollowKind.FULL_CHUNK, 10, node="d"))
    picture.take(message(FollowKind.FULL_END, 10))
    assert picture.snapshot.row_of_name("d") is not None
    assert picture.snapshot.row_of_name("c") is None
