"""The four conversations: path, codecs and how their messages say "not leader"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from stretto.rpc.messages import (
    FollowMessage,
    FollowRequest,
    FromShard,
    OutcomeBatch,
    OutcomeRequest,
    ProposalBatch,
    ToShard,
    VerdictBatch,
)
from stretto.rpc.security import DISPATCHER, SHARD
from stretto.rpc.wire_follow import (
    decode_follow,
    decode_follow_request,
    encode_follow_message,
    encode_follow_request,
)
from stretto.rpc.wire_outcomes import (
    decode_outcome_request,
    decode_outcomes,
    encode_outcome_request,
    encode_outcomes,
)
from stretto.rpc.wire_propose import (
    decode_proposals,
    decode_verdicts,
    encode_proposals,
    encode_verdicts,
)
from stretto.rpc.wire_work import (
    decode_from_shard,
    decode_to_shard,
    encode_from_shard,
    encode_to_shard,
)

Req = TypeVar("Req")
Resp = TypeVar("Resp")


class Service(msgspec.Struct, Generic[Req, Resp], frozen=True):
    """A stream from a client (Req) to a server (Resp) and back."""

    name: str
    path: str
    encode_request: Callable[[Req], bytes]
    decode_request: Callable[[bytes], Req]
    encode_response: Callable[[Resp], bytes]
    decode_response: Callable[[bytes], Resp]
    not_leader: Callable[[Resp], str | None]
    callers: tuple[str, ...]
    """Names of which a caller's certificate must carry one; see :mod:`stretto.rpc.security`."""
    one_request: bool = False
    """The client sends one message only."""


WORK: Service[FromShard, ToShard] = Service(
    "Work",
    "/stretto.v1.Work/Serve",
    encode_from_shard,
    decode_from_shard,
    encode_to_shard,
    decode_to_shard,
    lambda message: message.not_leader,
    callers=(SHARD,),
)
FOLLOW: Service[FollowRequest, FollowMessage] = Service(
    "Follow",
    "/stretto.v1.Follow/Follow",
    encode_follow_request,
    decode_follow_request,
    encode_follow_message,
    decode_follow,
    lambda message: message.not_leader,
    callers=(SHARD, DISPATCHER),
    one_request=True,
)
PROPOSE: Service[ProposalBatch, VerdictBatch] = Service(
    "Propose",
    "/stretto.v1.Propose/Propose",
    encode_proposals,
    decode_proposals,
    encode_verdicts,
    decode_verdicts,
    lambda message: message.not_leader,
    callers=(SHARD,),
)
OUTCOMES: Service[OutcomeRequest, OutcomeBatch] = Service(
    "Outcomes",
    "/stretto.v1.Outcomes/Outcomes",
    encode_outcome_request,
    decode_outcome_request,
    encode_outcomes,
    decode_outcomes,
    lambda message: message.not_leader,
    callers=(DISPATCHER,),
)
