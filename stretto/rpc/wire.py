"""What all wire modules share: columns with their short forms, enums, shape definitions, checks.

A column of n units has n entries, or one entry that stands for all, or none where all hold the
default. Filling and reading whole lists keeps a unit at about a microsecond a side; a message
object per unit would cost three.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, TypeVar

import msgspec
from google.protobuf.message import DecodeError, Message

from proto import stretto_pb2 as pb
from stretto.model.shape import Shape, decode_shape
from stretto.placement.strict import DEFAULT_DIGEST
from stretto.rpc.errors import WireError
from stretto.rpc.messages import ShardHello

MAX_EPOCH = 2**53 - 1

T = TypeVar("T")
M = TypeVar("M", bound=Message)
E = TypeVar("E", bound=enum.IntEnum)


def parse(kind: type[M], data: bytes) -> M:
    """Parse one message.

    Raises:
        WireError: the bytes are not such a message.
    """
    message = kind()
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise WireError(f"{kind.__name__}: {len(data)} bytes that are no such message") from None
    return message


def checked_epoch(epoch: int, field: str) -> int:
    """An epoch or an attempt's number: versions of a Lease and counts, below what a ledger adds up.

    One that nobody ever had would supersede all that come after it.

    Raises:
        WireError: it is larger.
    """
    if epoch > MAX_EPOCH:
        raise WireError(f"{field} is {epoch}; expected at most {MAX_EPOCH}")
    return epoch


def short(values: list[T], default: T) -> list[T]:
    """The short form of a column, for sending."""
    if not values:
        return values
    first = values[0]
    if values.count(first) != len(values):
        return values
    return [] if first == default else [first]


def full(column: Sequence[T], count: int, default: T, field: str) -> list[T]:
    """A received column in full length.

    Raises:
        WireError: its length is none of 0, 1 and ``count``.
    """
    length = len(column)
    if length == count:
        return list(column)
    if length == 0:
        return [default] * count
    if length == 1:
        return [column[0]] * count
    raise WireError(f"{field} has {length} entries; expected {count}, or 1 for all, or none")


def exact(column: Sequence[T], count: int, field: str) -> list[T]:
    """A received column that knows no short form.

    Raises:
        WireError: its length is not ``count``.
    """
    if len(column) != count:
        raise WireError(f"{field} has {len(column)} entries; expected {count}")
    return list(column)


def members(kind: type[E], column: Sequence[int], count: int, default: E, field: str) -> list[E]:
    """A received column of enum values.

    Raises:
        WireError: a value that the enum does not have, or a wrong length.
    """
    try:
        return full([kind(value) for value in column], count, default, field)
    except ValueError as error:
        if isinstance(error, WireError):
            raise
        known = {int(member) for member in kind}
        unknown = next(value for value in column if value not in known)
        raise WireError(
            f"{field} holds {unknown}, which is no {kind.__name__} that this release knows; "
            "upgrade the older of the two processes"
        ) from None


def slices(values: list[T], counts: list[int], field: str) -> list[tuple[T, ...]]:
    """Cut a column into runs of the given lengths.

    Raises:
        WireError: the lengths do not add up to the column.
    """
    total = sum(counts)
    if total != len(values):
        raise WireError(f"{field} has {len(values)} entries, but its counts add up to {total}")
    if total == 0:
        return [()] * len(counts)
    return [
        tuple(values[end - count : end])
        for end, count in zip(accumulate(counts), counts, strict=True)
    ]


def chained(runs: Iterable[Sequence[T]]) -> list[T]:
    """Runs laid end to end."""
    return [value for run in runs for value in run]


def put_shapes(column: Any, shapes: list[tuple[int, Shape]]) -> None:
    """Append shape definitions."""
    for number, shape in shapes:
        column.add(id=number, definition=shape.encoded)


def get_shapes(column: Any, field: str) -> list[tuple[int, Shape]]:
    """Read shape definitions.

    Raises:
        WireError: a definition that does not decode, or the number 0.
    """
    found = []
    for item in column:
        if item.id == 0:
            raise WireError(f"{field}.id is 0; numbers start from 1")
        try:
            found.append((item.id, decode_shape(item.definition)))
        except msgspec.MsgspecError as error:
            raise WireError(f"{field}.definition of shape {item.id}: {error}") from None
    return found


def put_hello(wire: Any, hello: ShardHello | None) -> None:
    """Set the hello of a first message."""
    if hello is not None:
        wire.hello.CopyFrom(
            pb.ShardHello(
                shard=hello.shard,
                incarnation=hello.incarnation,
                protocol=hello.protocol,
                profiles=hello.profiles,
            )
        )


def get_hello(wire: Any) -> ShardHello | None:
    """The hello of a message, if it has one.

    Raises:
        WireError: it names no shard or no incarnation.
    """
    if not wire.HasField("hello"):
        return None
    hello = wire.hello
    if not hello.shard or not hello.incarnation:
        raise WireError("ShardHello.shard and .incarnation must not be empty")
    profiles = hello.profiles or DEFAULT_DIGEST
    return ShardHello(hello.shard, hello.incarnation, hello.protocol, profiles)


def put_not_leader(wire: Any, leader: str | None) -> None:
    """Say "not leader"."""
    if leader is not None:
        wire.not_leader.CopyFrom(pb.NotLeader(leader=leader))


def get_not_leader(wire: Any) -> str | None:
    """The leader that a standby names; None: the sender leads."""
    return wire.not_leader.leader if wire.HasField("not_leader") else None
