"""Every message survives the wire, and what breaks the contract is refused with one sentence."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto import stretto_pb2 as pb
from stretto.model.diagnosis import Rejected
from stretto.model.shape import Shape, Toleration
from stretto.model.unit import (
    Attempt,
    Cause,
    Diagnosis,
    HandBack,
    Member,
    Outcome,
    OutcomeKind,
    PodUid,
    Proposal,
    Release,
    Unit,
    UnitId,
    Unplaceable,
    Verdict,
    VerdictKind,
    Version,
)
from stretto.rpc.errors import WireError
from stretto.rpc.messages import (
    PROTOCOL,
    FollowKind,
    FollowMessage,
    FollowRequest,
    FromShard,
    OutcomeBatch,
    OutcomeRequest,
    OwnedSet,
    ProposalBatch,
    ShardHello,
    ToShard,
    VerdictBatch,
)
from stretto.rpc.services import FOLLOW, OUTCOMES, PROPOSE, WORK
from stretto.rpc.wire import MAX_EPOCH
from stretto.rpc.wire_follow import decode_follow, encode_follow
from stretto.rpc.wire_propose import decode_proposals, decode_verdicts
from stretto.rpc.wire_work import decode_from_shard, decode_to_shard
from stretto.snapshot.delta import Delta, NodeChange, NodeRow, ObjectRow, Taint

PROTO = pathlib.Path(__file__).parents[2] / "proto" / "stretto.proto"

u32 = st.sampled_from([0, 1, 2, 7, 2**32 - 1])
u64 = st.sampled_from([0, 1, 2, 9, 2**64 - 1])
words = st.sampled_from(["", "a", "b", "x" * 253, "ünï"])
names = st.sampled_from(["a", "b", "web-0", "x" * 253])
ids = names.map(UnitId)
epochs = st.sampled_from([0, 1, 2, 9, MAX_EPOCH])
attempts = st.builds(Attempt, epochs, epochs)
shapes = st.builds(
    Shape,
    profile=names,
    namespace=names,
    priority=st.integers(-5, 5),
    tolerations=st.lists(st.builds(Toleration, words), max_size=2).map(tuple),
)
defined = st.lists(st.tuples(st.integers(1, 9), shapes), max_size=2)
members = st.builds(Member, names.map(PodUid), words, words, u64, u32)
single = st.builds(
    lambda uid, *rest: Unit(
        UnitId(uid), rest[0], (Member(PodUid(uid), rest[1], rest[2], rest[3], rest[4]),)
    ),
    names,
    attempts,
    words,
    words,
    u64,
    u32,
)
gangs = st.builds(
    Unit,
    ids,
    attempts,
    st.lists(members, min_size=1, max_size=3).map(tuple),
    u64,
    st.lists(u32, max_size=2).map(tuple),
)
units = st.one_of(single, gangs)
nodes = st.lists(u32, max_size=3).map(tuple)
hellos = st.none() | st.builds(ShardHello, names, names, st.just(PROTOCOL), names)
leaders = st.none() | words
diagnoses = st.builds(
    Diagnosis,
    words,
    st.lists(words, max_size=2).map(tuple),
    u32,
    st.lists(st.builds(Rejected, words, words, u32, u32), max_size=2).map(tuple),
    st.lists(st.tuples(words, u32), max_size=2).map(tuple),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    words,
    u32,
    words,
    st.booleans(),
)


proposals = units.flatmap(
    lambda unit: st.builds(
        Proposal,
        st.just(unit),
        st.lists(u32, min_size=len(unit.members), max_size=len(unit.members)).map(tuple),
        nodes,
        u64,
    )
)
preemptions = units.flatmap(
    lambda unit: st.builds(
        Proposal,
        st.just(unit),
        st.lists(u32, min_size=len(unit.members), max_size=len(unit.members)).map(tuple),
        st.just(()),
        u64,
        st.lists(names, min_size=1, max_size=3).map(tuple),
        st.none() | diagnoses,
    )
)


def lists(items: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(items, max_size=4)


MESSAGES = {
    "FromShard": (
        WORK.encode_request,
        WORK.decode_request,
        st.builds(
            FromShard,
            hellos,
            u32,
            lists(
                st.builds(Unplaceable, ids, attempts, u32, st.builds(Version, u64, u64), diagnoses)
            ),
            lists(st.builds(HandBack, ids, attempts, words)),
            lists(st.tuples(ids, attempts)),
            st.booleans(),
        ),
    ),
    "ToShard": (
        WORK.encode_response,
        WORK.decode_response,
        st.builds(ToShard, u64, defined, lists(units), leaders, lists(u32)),
    ),
    "ProposalBatch": (
        PROPOSE.encode_request,
        PROPOSE.decode_request,
        st.builds(
            ProposalBatch,
            hellos,
            u64,
            defined,
            lists(st.one_of(proposals, preemptions)),
            st.booleans(),
            lists(u32),
            lists(st.builds(Release, names, names, names)),
        ),
    ),
    "VerdictBatch": (
        PROPOSE.encode_response,
        PROPOSE.decode_response,
        st.builds(
            VerdictBatch,
            u64,
            lists(
                st.builds(
                    Verdict,
                    ids,
                    attempts,
                    st.sampled_from(VerdictKind),
                    st.sampled_from(Cause),
                    u64,
                    nodes,
                )
            ),
            leaders,
        ),
    ),
    "OutcomeRequest": (
        OUTCOMES.encode_request,
        OUTCOMES.decode_request,
        st.builds(OutcomeRequest, epochs, words, u64, lists(words), lists(words), names),
    ),
    "OutcomeBatch": (
        OUTCOMES.encode_response,
        OUTCOMES.decode_response,
        st.builds(
            OutcomeBatch,
            u64,
            u64,
            lists(
                st.builds(
                    Outcome,
                    ids,
                    attempts,
                    st.sampled_from(OutcomeKind),
                    st.sampled_from(Cause),
                    u64,
                    words,
                    words,
                    words,
                    st.lists(words, max_size=2).map(tuple),
                    u64,
                    st.none() | diagnoses,
                )
            ),
            st.none()
            | st.builds(OwnedSet, lists(words), lists(words), lists(words), st.booleans()),
            leaders,
        ),
    ),
    "FollowRequest": (
        FOLLOW.encode_request,
        FOLLOW.decode_request,
        st.builds(FollowRequest, words, u64, u64, u32),
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
@given(data=st.data())
def test_a_message_comes_out_as_it_went_in(name: str, data: st.DataObject) -> None:
    """Short forms, empty batches, gangs, mixed epochs, extreme numbers."""
    encode, decode, strategy = MESSAGES[name]
    message = data.draw(strategy)
    assert decode(encode(message)) == message  # type: ignore[operator]


node_rows = st.builds(
    NodeRow,
    names,
    names,
    st.lists(st.tuples(words, words), max_size=2).map(tuple),
    st.lists(st.builds(Taint, words, words, words), max_size=2).map(tuple),
    st.booleans(),
    st.lists(st.tuples(words, st.integers(0, 2**53)), max_size=2).map(tuple),
)


def unless_all(values: list[int], default: int) -> list[int]:
    """A column as it is decoded: empty where every entry is the default."""
    return [] if all(value == default for value in values) else values


@st.composite
def deltas(draw: st.DrawFn) -> Delta:
    pods = draw(st.integers(0, 4))

    def column(items: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(items, min_size=pods, max_size=pods))

    aggregated = pods > 0 and draw(st.booleans())
    return Delta(
        epoch=draw(u64),
        sequence=draw(u64),
        shapes=draw(defined),
        nodes=draw(lists(st.builds(NodeChange, u32, node_rows, st.booleans()))),
        pod_sign=column(st.sampled_from([1, 0, -1])),
        pod_shape=column(u32),
        pod_node=column(u32),
        pod_uid=[""] * pods if aggregated else column(names),
        pod_count=unless_all(column(u32), 1) if aggregated else [],
        pod_start=unless_all(column(u32), 0),
        pod_flags=unless_all(column(u32), 0),
        removed_nodes=draw(lists(u32)),
        objects=draw(lists(st.builds(ObjectRow, words, words, u64, st.binary(), st.booleans()))),
    )


@given(delta=deltas(), kind=st.sampled_from(FollowKind), stamp=u64)
def test_a_step_of_the_log_is_encoded_once_and_read_back(
    delta: Delta, kind: FollowKind, stamp: int
) -> None:
    """The bytes for all followers and the message for one are the same thing."""
    data = encode_follow(delta, kind, stamp_ms=stamp)
    message = FollowMessage(kind, delta, None, stamp)
    assert data == FOLLOW.encode_response(message)
    assert decode_follow(data) == message


def test_a_standby_names_its_leader_on_follow() -> None:
    """Epoch and sequence mean nothing then."""
    data = FOLLOW.encode_response(FollowMessage(FollowKind.HEARTBEAT, Delta(), "binder-1"))
    assert decode_follow(data).not_leader == "binder-1"


def units_wire(**columns: Any) -> bytes:
    full: dict[str, Any] = {"unit_id": ["a", "b"], "attempt": [1, 2], "pod_name": ["a", "b"]}
    return pb.ToShard(units=pb.Units(**(full | columns))).SerializeToString()


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"attempt": [1]}, r"ToShard.units.attempt has 1 entries; expected 2"),
        ({"pod_name": ["a"]}, r"member_count adds up to 2; pod_name has 1 entries"),
        ({"member_count": [4_000_000_000]}, r"member_count adds up to 8000000000"),
        ({"member_count": [0, 2]}, r"pod_uid|member_count is 0 for unit 'a'"),
        ({"shape": [1, 2, 3]}, r"shape has 3 entries; expected 2, or 1 for all, or none"),
        ({"avoid": [1, 2], "avoid_count": [1, 2]}, r"avoid has 2 entries, but its counts add up"),
        ({"min_sequence": [1, 2, 3]}, r"min_sequence has 3 entries"),
    ],
)
def test_columns_that_do_not_fit_together_are_named(columns: dict[str, Any], text: str) -> None:
    """The field, what it has, what was expected."""
    with pytest.raises(WireError, match=text):
        decode_to_shard(units_wire(**columns))


def test_an_unknown_enum_value_names_field_and_value() -> None:
    """It may come from a newer release: the text says what to do."""
    wire = pb.VerdictBatch(unit_id=["a"], attempt=[1], kind=[99])
    with pytest.raises(WireError, match=r"VerdictBatch.kind holds 99, .*VerdictKind.*upgrade"):
        decode_verdicts(wire.SerializeToString())
    with pytest.raises(WireError, match=r"FollowBatch.kind holds 77"):
        decode_follow(pb.FollowBatch(kind=77).SerializeToString())  # type: ignore[arg-type]


def test_bytes_that_are_no_message_are_refused() -> None:
    """Not a stack trace from the parser."""
    with pytest.raises(WireError, match="FromShard: 3 bytes that are no such message"):
        decode_from_shard(b"\xff\xff\xff")


def test_a_shape_or_node_row_that_does_not_decode_is_refused() -> None:
    """Definitions are msgpack inside protobuf: both layers are checked."""
    shape = pb.ShapeDefinition(id=3, definition=b"\xc1")
    with pytest.raises(WireError, match=r"ProposalBatch.shapes.definition of shape 3"):
        decode_proposals(pb.ProposalBatch(shapes=[shape]).SerializeToString())
    node = pb.NodeChange(id=5, definition=b"\x01")
    with pytest.raises(WireError, match=r"NodeChange.definition of node 5"):
        decode_follow(pb.FollowBatch(kind="DELTA", nodes=[node]).SerializeToString())


def test_a_pod_change_is_plus_or_minus_one() -> None:
    """A sign of 7 would add seven pods."""
    pods = pb.PodChanges(sign=[1, 7], shape=[1, 1], node=[1, 1], uid=["a", "b"])
    with pytest.raises(WireError, match=r"PodChanges.sign holds 7"):
        decode_follow(pb.FollowBatch(kind="DELTA", pods=pods).SerializeToString())


def test_a_homogeneous_batch_is_small() -> None:
    """What all units share travels once: 64 units of one shape below 80 bytes a unit."""
    batch = [
        Unit(
            UnitId(uid := f"0b1c2d3e-0000-4000-8000-{i:012d}"),
            Attempt(7, 1000 + i),
            (Member(PodUid(uid), "default", f"web-7d4b9c-{i:05d}", 123456, 3),),
        )
        for i in range(64)
    ]
    data = WORK.encode_response(ToShard(7, [], batch))
    assert len(data) < 64 * 80


def test_every_field_of_the_proto_file_is_commented() -> None:
    """The file is the description of the wire."""
    lines = PROTO.read_text().splitlines()
    bare = [line for line in lines if re.search(r"= \d+;", line) and "//" not in line]
    assert bare == []


@pytest.mark.parametrize("field", ["number", "epoch"])
def test_attempts_beyond_what_anybody_counts_to_are_refused(field: str) -> None:
    """One of them would supersede every attempt of that unit to come."""
    attempt = Attempt(**{"epoch": 1, "number": 1, field: MAX_EPOCH + 1})
    data = WORK.encode_request(FromShard(handed_back=[HandBack(UnitId("u"), attempt, "why")]))
    with pytest.raises(WireError, match=f"is {MAX_EPOCH + 1}; expected at most {MAX_EPOCH}"):
        decode_from_shard(data)
    with pytest.raises(WireError, match=r"OutcomeRequest\.dispatcher_epoch is"):
        OUTCOMES.decode_request(OUTCOMES.encode_request(OutcomeRequest(MAX_EPOCH + 1, "d")))
