"""Outcomes: OutcomeRequest and OutcomeBatch ↔ bytes."""

from __future__ import annotations

from typing import Any

from proto import stretto_pb2 as pb
from stretto.model.unit import Cause, Outcome, OutcomeKind
from stretto.placement.strict import DEFAULT_DIGEST
from stretto.rpc.errors import WireError
from stretto.rpc.messages import OutcomeBatch, OutcomeRequest, OwnedSet
from stretto.rpc.wire import (
    chained,
    checked_epoch,
    full,
    get_not_leader,
    members,
    parse,
    put_not_leader,
    short,
    slices,
)
from stretto.rpc.wire_diagnoses import get_some_diagnoses, put_some_diagnoses
from stretto.rpc.wire_units import get_attempts, put_attempts, unit_ids


def encode_outcome_request(message: OutcomeRequest) -> bytes:
    """OutcomeRequest → bytes."""
    return pb.OutcomeRequest(
        dispatcher_epoch=message.dispatcher_epoch,
        dispatcher=message.dispatcher,
        acknowledged=message.acknowledged,
        withdraw=message.withdraw,
        ask=message.ask,
        profiles=message.profiles,
        label_keys=message.label_keys,
    ).SerializeToString()


def decode_outcome_request(data: bytes) -> OutcomeRequest:
    """Bytes → OutcomeRequest.

    Raises:
        WireError: the message breaks the contract.
    """
    wire = parse(pb.OutcomeRequest, data)
    return OutcomeRequest(
        dispatcher_epoch=checked_epoch(wire.dispatcher_epoch, "OutcomeRequest.dispatcher_epoch"),
        dispatcher=wire.dispatcher,
        acknowledged=wire.acknowledged,
        withdraw=list(wire.withdraw),
        ask=list(wire.ask),
        profiles=wire.profiles or DEFAULT_DIGEST,
        label_keys=list(wire.label_keys),
    )


def encode_outcomes(message: OutcomeBatch) -> bytes:
    """OutcomeBatch → bytes."""
    wire = pb.OutcomeBatch(binder_epoch=message.binder_epoch, first_index=message.first_index)
    put_not_leader(wire, message.not_leader)
    owned = message.owned
    if owned is not None:
        wire.owned.CopyFrom(
            pb.OwnedSet(
                pod_uid=owned.pod_uid,
                bound_uid=owned.bound_uid,
                unknown_uid=owned.unknown_uid,
                complete=owned.complete,
            )
        )
    if message.outcomes:
        _put_outcomes(wire, message.outcomes)
    return wire.SerializeToString()


def _put_outcomes(wire: Any, outcomes: list[Outcome]) -> None:
    wire.unit_id.extend([item.unit_id for item in outcomes])
    put_attempts(wire, [item.attempt for item in outcomes])
    wire.kind.extend(short([int(item.kind) for item in outcomes], 0))
    wire.cause.extend(short([int(item.cause) for item in outcomes], 0))
    wire.sequence.extend(short([item.sequence for item in outcomes], 0))
    wire.node.extend(short([item.node for item in outcomes], ""))
    wire.shard.extend(short([item.shard for item in outcomes], ""))
    wire.detail.extend(short([item.detail for item in outcomes], ""))
    wire.resource_version.extend(short([item.resource_version for item in outcomes], 0))
    if any(item.diagnosis for item in outcomes):
        put_some_diagnoses(wire, [item.diagnosis for item in outcomes])
    named = [item.members for item in outcomes]
    if any(named):
        wire.member_count.extend([len(run) for run in named])
        wire.member_uid.extend(chained(named))


def decode_outcomes(data: bytes) -> OutcomeBatch:
    """Bytes → OutcomeBatch.

    Raises:
        WireError: the message breaks the contract.
    """
    wire = parse(pb.OutcomeBatch, data)
    ids = unit_ids(wire.unit_id)
    count = len(ids)
    if count and not wire.kind:
        raise WireError(f"OutcomeBatch.kind is empty for {count} outcomes")
    member_counts = full(wire.member_count, count, 0, "OutcomeBatch.member_count")
    outcomes = map(
        Outcome,
        ids,
        get_attempts(wire, count, "OutcomeBatch"),
        members(OutcomeKind, wire.kind, count, OutcomeKind.FAILED, "OutcomeBatch.kind"),
        members(Cause, wire.cause, count, Cause.NONE, "OutcomeBatch.cause"),
        full(wire.sequence, count, 0, "OutcomeBatch.sequence"),
        full(wire.node, count, "", "OutcomeBatch.node"),
        full(wire.shard, count, "", "OutcomeBatch.shard"),
        full(wire.detail, count, "", "OutcomeBatch.detail"),
        slices(list(wire.member_uid), member_counts, "OutcomeBatch.member_uid"),
        full(wire.resource_version, count, 0, "OutcomeBatch.resource_version"),
        get_some_diagnoses(wire, count, "OutcomeBatch"),
    )
    return OutcomeBatch(
        binder_epoch=wire.binder_epoch,
        first_index=wire.first_index,
        outcomes=list(outcomes),
        owned=_get_owned(wire),
        not_leader=get_not_leader(wire),
    )


def _get_owned(wire: Any) -> OwnedSet | None:
    if not wire.HasField("owned"):
        return None
    owned = wire.owned
    return OwnedSet(
        list(owned.pod_uid), list(owned.bound_uid), list(owned.unknown_uid), owned.complete
    )
