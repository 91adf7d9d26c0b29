"""Work: FromShard and ToShard ↔ bytes."""

from __future__ import annotations

from typing import Any

from proto import stretto_pb2 as pb
from stretto.model.unit import Attempt, HandBack, UnitId, Unplaceable, Version
from stretto.rpc.messages import FromShard, ToShard
from stretto.rpc.wire import (
    exact,
    full,
    get_hello,
    get_not_leader,
    get_shapes,
    parse,
    put_hello,
    put_not_leader,
    put_shapes,
    short,
)
from stretto.rpc.wire_diagnoses import get_diagnoses, put_diagnoses
from stretto.rpc.wire_units import (
    attempts_of,
    get_attempts,
    get_units,
    put_attempts,
    put_units,
    unit_ids,
)


def encode_from_shard(message: FromShard) -> bytes:
    """FromShard → bytes."""
    wire = pb.FromShard(credits=message.credits, draining=message.draining)
    put_hello(wire, message.hello)
    if message.unplaceable:
        _put_unplaceable(wire.unplaceable, message.unplaceable)
    if message.handed_back:
        _put_handed_back(wire.handed_back, message.handed_back)
    if message.settled:
        wire.settled.extend([unit_id for unit_id, _ in message.settled])
        wire.settled_attempt.extend([attempt.number for _, attempt in message.settled])
        wire.settled_epoch.extend(short([attempt.epoch for _, attempt in message.settled], 0))
    return wire.SerializeToString()


def decode_from_shard(data: bytes) -> FromShard:
    """Bytes → FromShard.

    Raises:
        WireError: the message breaks the contract.
    """
    wire = parse(pb.FromShard, data)
    return FromShard(
        hello=get_hello(wire),
        credits=wire.credits,
        unplaceable=_get_unplaceable(wire.unplaceable),
        handed_back=_get_handed_back(wire.handed_back),
        settled=_get_settled(wire),
        draining=wire.draining,
    )


def encode_to_shard(message: ToShard) -> bytes:
    """ToShard → bytes."""
    wire = pb.ToShard(dispatcher_epoch=message.dispatcher_epoch)
    put_shapes(wire.shapes, message.shapes)
    wire.forgotten.extend(message.forgotten)
    if message.units:
        put_units(wire.units, message.units)
    put_not_leader(wire, message.not_leader)
    return wire.SerializeToString()


def decode_to_shard(data: bytes) -> ToShard:
    """Bytes → ToShard.

    Raises:
        WireError: the message breaks the contract.
    """
    wire = parse(pb.ToShard, data)
    return ToShard(
        dispatcher_epoch=wire.dispatcher_epoch,
        shapes=get_shapes(wire.shapes, "ToShard.shapes"),
        units=get_units(wire.units, "ToShard.units"),
        not_leader=get_not_leader(wire),
        forgotten=list(wire.forgotten),
    )


def _get_settled(wire: Any) -> list[tuple[UnitId, Attempt]]:
    ids = unit_ids(wire.settled)
    numbers = exact(wire.settled_attempt, len(ids), "FromShard.settled_attempt")
    epochs = full(wire.settled_epoch, len(ids), 0, "FromShard.settled_epoch")
    return list(zip(ids, attempts_of(epochs, numbers), strict=True))


def _put_handed_back(wire: Any, handed_back: list[HandBack]) -> None:
    wire.unit_id.extend([item.unit_id for item in handed_back])
    put_attempts(wire, [item.attempt for item in handed_back])
    wire.reason.extend(short([item.reason for item in handed_back], ""))


def _get_handed_back(wire: Any) -> list[HandBack]:
    ids = unit_ids(wire.unit_id)
    attempts = get_attempts(wire, len(ids), "HandBackBatch")
    reasons = full(wire.reason, len(ids), "", "HandBackBatch.reason")
    return list(map(HandBack, ids, attempts, reasons))


def _put_unplaceable(wire: Any, unplaceable: list[Unplaceable]) -> None:
    wire.unit_id.extend([item.unit_id for item in unplaceable])
    put_attempts(wire, [item.attempt for item in unplaceable])
    wire.shape.extend(short([item.shape for item in unplaceable], 0))
    wire.binder_epoch.extend(short([item.version.epoch for item in unplaceable], 0))
    wire.sequence.extend(short([item.version.sequence for item in unplaceable], 0))
    put_diagnoses(wire, [item.diagnosis for item in unplaceable])


def _get_unplaceable(wire: Any) -> list[Unplaceable]:
    ids = unit_ids(wire.unit_id)
    count = len(ids)
    epochs = full(wire.binder_epoch, count, 0, "UnplaceableBatch.binder_epoch")
    sequences = full(wire.sequence, count, 0, "UnplaceableBatch.sequence")
    return list(
        map(
            Unplaceable,
            ids,
            get_attempts(wire, count, "UnplaceableBatch"),
            full(wire.shape, count, 0, "UnplaceableBatch.shape"),
            map(Version, epochs, sequences),
            get_diagnoses(wire, count, "UnplaceableBatch"),
        )
    )
