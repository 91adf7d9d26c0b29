"""A proxy in front of the Binder that spoils one message of each of its conversations.

It stands for a peer of another release: a kind that the receiver's enum does not have.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Self

import grpc
import grpc.aio

from proto import stretto_pb2 as pb
from tests.e2e.garbage import FOLLOW, OUTCOMES, PROPOSE

UNKNOWN = 99


def spoilt(path: str, data: bytes) -> bytes | None:
    """The answer with a kind that nobody knows; None if it has none to spoil."""
    if path == FOLLOW:
        step = pb.FollowBatch.FromString(data)
        if not step.pods.uid:
            return None
        step.kind = UNKNOWN  # type: ignore[assignment]
        return step.SerializeToString()
    batch = pb.VerdictBatch() if path == PROPOSE else pb.OutcomeBatch()
    batch.ParseFromString(data)
    if not batch.unit_id:
        return None
    del batch.kind[:]
    batch.kind.extend([UNKNOWN] * len(batch.unit_id))
    return batch.SerializeToString()


class Spoiler:
    """``async with Spoiler(target) as proxy``; roles dial ``proxy.address``."""

    def __init__(self, target: str) -> None:
        self._target = target
        self.left = {FOLLOW, PROPOSE, OUTCOMES}
        """Conversations of which no message has been spoilt yet."""
        self.address = ""

    async def __aenter__(self) -> Self:
        self._channel = grpc.aio.insecure_channel(self._target)
        self._server = grpc.aio.server()
        for path in tuple(self.left):
            package, method = path.strip("/").split("/")
            entry = grpc.stream_stream_rpc_method_handler(self._relay(path))
            handler = grpc.method_handlers_generic_handler(package, {method: entry})
            self._server.add_generic_rpc_handlers((handler,))
        port = self._server.add_insecure_port("127.0.0.1:0")
        self.address = f"127.0.0.1:{port}"
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(0.1)
        await self._channel.close()

    def _relay(self, path: str) -> Any:
        async def relay(requests: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
            call: Any = self._channel.stream_stream(path)()
            pump = asyncio.create_task(pumped(requests, call))
            try:
                while (data := await call.read()) is not grpc.aio.EOF:
                    yield self._passed(path, data)
            except grpc.aio.AioRpcError:
                return
            finally:
                pump.cancel()
                call.cancel()
                await asyncio.gather(pump, return_exceptions=True)

        return relay

    def _passed(self, path: str, data: bytes) -> bytes:
        if path in self.left and (changed := spoilt(path, data)) is not None:
            self.left.remove(path)
            return changed
        return data


async def pumped(requests: AsyncIterator[bytes], call: Any) -> None:
    """What the client says, passed on."""
    async for request in requests:
        await call.write(request)
    await call.done_writing()
