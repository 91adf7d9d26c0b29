"""A peer in the middle of gRPC conversations with the Binder, which may change what it passes on.

It speaks gRPC, because a proxy of bytes can neither double a message nor change one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Self

import grpc
import grpc.aio

KEPT = 6
"""Messages of a conversation."""


class Relay:
    """``async with Relay(target, paths) as relay``: who dials ``relay.address`` speaks to
    ``target``. A relay that does something overrides what requests and answers become."""

    def __init__(self, target: str, paths: Iterable[str]) -> None:
        self._target = target
        self._paths = tuple(paths)
        self.address = ""

    def requests(self, path: str, said: Sequence[bytes]) -> Iterable[bytes]:
        """What is sent for the client's last message; ``said``: its last few of this conversation,
        that one at the end."""
        del path
        return said[-1:]

    def answer(self, path: str, data: bytes) -> bytes:
        """What is answered for a message of the server's."""
        del path
        return data

    async def __aenter__(self) -> Self:
        self._channel = grpc.aio.insecure_channel(self._target)
        self._server = grpc.aio.server()
        for path in self._paths:
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
                    yield self.answer(path, data)
            except grpc.aio.AioRpcError:
                return
            finally:
                pump.cancel()
                call.cancel()
                await asyncio.gather(pump, return_exceptions=True)

        return relay

    async def _pump(self, path: str, requests: AsyncIterator[bytes], call: Any) -> None:
        said: list[bytes] = []
        async for request in requests:
            said = [*said[1 - KEPT :], request]
            for data in self.requests(path, said):
                await call.write(data)
        await call.done_writing()
