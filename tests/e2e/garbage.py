"""What a hostile or broken peer may send to the gRPC ports of the roles."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from proto import stretto_pb2 as pb

WORK = "/stretto.v1.Work/Serve"
FOLLOW = "/stretto.v1.Follow/Follow"
PROPOSE = "/stretto.v1.Propose/Propose"
OUTCOMES = "/stretto.v1.Outcomes/Outcomes"
REQUESTS: dict[str, type[Message]] = {
    WORK: pb.FromShard,
    FOLLOW: pb.FollowRequest,
    PROPOSE: pb.ProposalBatch,
    OUTCOMES: pb.OutcomeRequest,
}
ANSWER_S = 1.0
NOT_HTTP2 = (
    b"\x00" * 64,
    b"\xff" * 4096,
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 512,
)


async def send_bytes(port: int, data: bytes) -> None:
    """Raw bytes on a connection of their own, and whatever comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(ConnectionError, TimeoutError):
        writer.write(data)
        await writer.drain()
        async with asyncio.timeout(ANSWER_S):
            await reader.read()
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def converse(port: int, path: str, *messages: bytes) -> tuple[grpc.StatusCode, str]:
    """Open a stream, send, and see how it ends; one that is left open is CANCELLED by us."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        if path == FOLLOW:
            call: Any = channel.unary_stream(path)(messages[0])
        else:
            call = channel.stream_stream(path)()
        try:
            async with asyncio.timeout(ANSWER_S):
                if path != FOLLOW:
                    for message in messages:
                        await call.write(message)
                while await call.read() is not grpc.aio.EOF:
                    pass
        except TimeoutError:
            call.cancel()
            return grpc.StatusCode.CANCELLED, ""
        except grpc.aio.AioRpcError as error:
            return error.code(), str(error.details())
        return await call.code(), str(await call.details())


def random_messages(path: str, *, rng: random.Random, count: int) -> Iterator[bytes]:
    """Messages of the right type that mean nothing, some of them cut or spoilt."""
    for _ in range(count):
        data = bytearray(filled(REQUESTS[path](), rng).SerializeToString())
        if data and rng.random() < 0.3:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        yield bytes(data[: rng.randrange(len(data))] if data and rng.random() < 0.2 else data)


def filled(message: Message, rng: random.Random) -> Message:
    """A message whose fields hold anything that their types allow."""
    for field in message.DESCRIPTOR.fields:
        if rng.random() < 0.3:
            continue
        if field.is_repeated:
            repeated = getattr(message, field.name)
            for _ in range(rng.randrange(4)):
                if field.type == FieldDescriptor.TYPE_MESSAGE:
                    filled(repeated.add(), rng)
                else:
                    repeated.append(anything(field, rng))
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            child = getattr(message, field.name)
            child.SetInParent()
            filled(child, rng)
        else:
            setattr(message, field.name, anything(field, rng))
    return message


def anything(field: FieldDescriptor, rng: random.Random) -> Any:
    """A value of a scalar field's type."""
    kinds = FieldDescriptor
    if field.type == kinds.TYPE_BOOL:
        return rng.random() < 0.5
    if field.type == kinds.TYPE_STRING:
        return rng.choice(["", "x", "shard-1", "default/p-1", "\n", "ü" * 300])
    if field.type == kinds.TYPE_BYTES:
        return rng.choice([b"", b"\xff\x00", rng.randbytes(40)])
    if field.type in (kinds.TYPE_DOUBLE, kinds.TYPE_FLOAT):
        return rng.choice([0.0, -1.0, 1e300, float("nan"), float("inf")])
    if field.type == kinds.TYPE_ENUM:
        return rng.choice([0, 1, 2, 99, 2**31 - 1])
    wide = field.type in (kinds.TYPE_UINT64, kinds.TYPE_INT64, kinds.TYPE_SINT64)
    signed = field.type not in (kinds.TYPE_UINT32, kinds.TYPE_UINT64)
    top = 2 ** (63 if wide else 31) - 1
    return rng.choice([0, 1, 2, 7, top, *((-1, -top) if signed else (top * 2,))])
