"""Objects of the log that cannot be decoded are taken for absent; the shard lives and decides."""

from __future__ import annotations

import pytest

from scheduler_shard.picture import Picture, Step
from scheduler_shard.readable import DECODERS
from stretto.rpc.messages import FollowKind, FollowMessage
from stretto.snapshot.delta import Delta, NodeChange, NodeRow, ObjectRow

BAD = (b"", b"\xc1", b"\x93\x01\x02\x03", b"\xa3abc", b"\x80", b"\x91" * 5_000 + b"\x01")
"""Nothing, no msgpack, and msgpack of something else: arrays, text, an empty map, a deep nest."""


def following() -> Picture:
    picture = Picture()
    node = NodeChange(1, NodeRow("n1", "u1", allocatable=(("cpu", 1000),)))
    for kind, delta in (
        (FollowKind.FULL_BEGIN, Delta(epoch=1, sequence=1)),
        (FollowKind.FULL_CHUNK, Delta(epoch=1, sequence=1, nodes=[node])),
        (FollowKind.FULL_END, Delta(epoch=1, sequence=1)),
    ):
        picture.take(FollowMessage(kind, delta))
    return picture


def step(picture: Picture, sequence: int, *rows: ObjectRow) -> Step:
    delta = Delta(epoch=1, sequence=sequence, objects=list(rows))
    return picture.take(FollowMessage(FollowKind.DELTA, delta))


@pytest.mark.parametrize("kind", sorted(DECODERS))
def test_a_bad_object_is_absent_and_said_once_until_it_is_mended_or_gone(kind: str) -> None:
    picture = following()
    for sequence, payload in enumerate(BAD, start=2):
        assert step(picture, sequence, ObjectRow(kind, "ns/x", sequence, payload)) is Step.ADVANCED
        bad = (kind, "ns/x") in picture.unreadable.known
        assert len(picture.unreadable.take()) == bad
        assert ("ns/x" in picture.snapshot.objects(kind)) is not bad
    after = len(BAD) + 2
    assert step(picture, after, ObjectRow(kind, "ns/x", after, BAD[1])) is Step.ADVANCED
    assert picture.unreadable.known == {(kind, "ns/x")}
    gone = ObjectRow(kind, "ns/x", after + 1, removed=True)
    assert step(picture, after + 1, gone) is Step.ADVANCED
    assert not picture.unreadable.known
    picture.snapshot.validate()


def test_kinds_that_nobody_knows_pass_as_they_are() -> None:
    picture = following()
    assert step(picture, 2, ObjectRow("Tomorrow", "x", 2, b"\xc1")) is Step.ADVANCED
    assert picture.snapshot.objects("Tomorrow") == {"x": b"\xc1"}
    assert not picture.unreadable.known
