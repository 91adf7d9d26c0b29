"""A peer in the middle of the shards' conversation with the Binder that repeats what they propose.

It speaks gRPC, because a proxy of bytes cannot double a message. Each batch of proposals is passed
on; then, some of the time, the one before it arrives once more: doubled, and out of order.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, Self

import grpc
import grpc.aio

from tests.e2e.garbage import FOLLOW, PROPOSE

CHANCE = 0.7


class ProposalRelay:
    """``async with ProposalRelay(target) as relay``; shards are led to ``relay.address``."""

    def __init__(self, target: str, *, rng: random.Random) -> None:
        self._target = target
        self._rng = rng
        self.address = ""
        self.counts: Counter[str] = Counter()

    async def __aenter__(self) -> Self:
        self._channel = grpc.aio.insecure_channel(self._target)
        self._server = grpc.aio.server()
        for path in (FOLLOW, PROPOSE):
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
            pump = asyncio.create_task(self._pump(path, requests, call))
            try:
                while (data := await call.read()) is not grpc.aio.EOF:
                    yield data
            except grpc.aio.AioRpcError:
                return
            finally:
                pump.cancel()
                call.cancel()
                await asyncio.gather(pump, return_exceptions=True)

        return relay

    async def _pump(self, path: str, requests: AsyncIterator[bytes], call: Any) -> None:
        before: list[bytes] = []
        first = True
        async for request in requests:
            await call.write(request)
            if path == PROPOSE and not first and self._rng.random() < CHANCE:
                before = [*before[-5:], request]
                await call.write(self._rng.choice(before))
                self.counts["proposals repeated"] += 1
            first = False
        await call.done_writing()
