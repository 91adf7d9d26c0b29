"""Follow: the Binder's log ↔ bytes. The Binder encodes a step once and sends the same bytes to
every follower."""

from __future__ import annotations

from typing import Any

import msgspec

from proto import stretto_pb2 as pb
from stretto.rpc.errors import WireError
from stretto.rpc.messages import FollowKind, FollowMessage, FollowRequest
from stretto.rpc.wire import (
    exact,
    full,
    get_not_leader,
    get_shapes,
    parse,
    put_not_leader,
    put_shapes,
    short,
)
from stretto.snapshot.delta import Delta, NodeChange, ObjectRow, decode_node_row


def encode_follow_request(message: FollowRequest) -> bytes:
    """FollowRequest → bytes."""
    return pb.FollowRequest(
        follower=message.follower,
        epoch=message.epoch,
        sequence=message.sequence,
        protocol=message.protocol,
    ).SerializeToString()


def decode_follow_request(data: bytes) -> FollowRequest:
    """Bytes → FollowRequest.

    Raises:
        WireError: the message breaks the contract.
    """
    wire = parse(pb.FollowRequest, data)
    return FollowRequest(wire.follower, wire.epoch, wire.sequence, wire.protocol)


def encode_follow(delta: Delta, kind: FollowKind = FollowKind.DELTA, *, stamp_ms: int = 0) -> bytes:
    """One step of the log, ready for every follower's stream."""
    return bytes(_fill(delta, kind, stamp_ms).SerializeToString())


def encode_follow_message(message: FollowMessage) -> bytes:
    """FollowMessage → bytes; for messages that one follower gets, such as "not leader"."""
    wire = _fill(message.delta, message.kind, message.stamp_ms)
    put_not_leader(wire, message.not_leader)
    return bytes(wire.SerializeToString())


def _fill(delta: Delta, kind: FollowKind, stamp_ms: int) -> Any:
    wire: Any = pb.FollowBatch(
        epoch=delta.epoch, sequence=delta.sequence, kind=pb.FollowKind.Name(kind), stamp_ms=stamp_ms
    )
    put_shapes(wire.shapes, delta.shapes)
    for change in delta.nodes:
        wire.nodes.add(id=change.node_id, definition=change.row.encoded, frozen=change.frozen)
    if delta.pod_sign:
        _put_pods(wire.pods, delta)
    wire.removed_nodes.extend(delta.removed_nodes)
    wire.dropped_shapes.extend(delta.dropped_shapes)
    for row in delta.objects:
        wire.objects.add(
            kind=row.kind,
            key=row.key,
            version=row.version,
            payload=row.payload,
            removed=row.removed,
        )
    return wire


def _put_pods(pods: Any, delta: Delta) -> None:
    pods.sign.extend(delta.pod_sign)
    pods.shape.extend(delta.pod_shape)
    pods.node.extend(delta.pod_node)
    if any(delta.pod_uid):
        pods.uid.extend(delta.pod_uid)
    if any(count != 1 for count in delta.pod_count):
        pods.count.extend(delta.pod_count)
    pods.start.extend(short(delta.pod_start, 0))
    pods.flags.extend(short(delta.pod_flags, 0))


def decode_follow(data: bytes) -> FollowMessage:
    """Bytes → FollowMessage.

    Raises:
        WireError: the message breaks the contract.
    """
    wire = parse(pb.FollowBatch, data)
    not_leader = get_not_leader(wire)
    if not_leader is not None:
        return FollowMessage(FollowKind.HEARTBEAT, Delta(), not_leader)
    try:
        kind = FollowKind(wire.kind)
    except ValueError:
        raise WireError(
            f"FollowBatch.kind holds {wire.kind}, which is no FollowKind that this release knows; "
            "upgrade the older of the two processes"
        ) from None
    delta = Delta(epoch=wire.epoch, sequence=wire.sequence)
    delta.shapes = get_shapes(wire.shapes, "FollowBatch.shapes")
    delta.nodes = [_get_node(item) for item in wire.nodes]
    _get_pods(wire.pods, delta)
    delta.removed_nodes = list(wire.removed_nodes)
    delta.dropped_shapes = list(wire.dropped_shapes)
    delta.objects = [
        ObjectRow(item.kind, item.key, item.version, item.payload, item.removed)
        for item in wire.objects
    ]
    return FollowMessage(kind, delta, None, wire.stamp_ms)


def _get_node(wire: Any) -> NodeChange:
    try:
        row = decode_node_row(wire.definition)
    except msgspec.MsgspecError as error:
        raise WireError(f"NodeChange.definition of node {wire.id}: {error}") from None
    return NodeChange(wire.id, row, wire.frozen)


def _get_pods(wire: Any, delta: Delta) -> None:
    sign = list(wire.sign)
    count = len(sign)
    if sign.count(1) + sign.count(-1) + sign.count(0) != count:
        wrong = next(value for value in sign if value not in (1, 0, -1))
        raise WireError(f"PodChanges.sign holds {wrong}; expected +1, 0 or -1")
    delta.pod_sign = sign
    delta.pod_shape = exact(wire.shape, count, "PodChanges.shape")
    delta.pod_node = exact(wire.node, count, "PodChanges.node")
    delta.pod_uid = exact(wire.uid, count, "PodChanges.uid") if wire.uid else [""] * count
    if wire.count:
        delta.pod_count = full(wire.count, count, 1, "PodChanges.count")
    if wire.start:
        delta.pod_start = full(wire.start, count, 0, "PodChanges.start")
    if wire.flags:
        delta.pod_flags = full(wire.flags, count, 0, "PodChanges.flags")
