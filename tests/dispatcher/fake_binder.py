"""A Binder's Follow and Outcomes streams, as far as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from stretto.rpc.messages import (
    FollowKind,
    FollowMessage,
    FollowRequest,
    OutcomeBatch,
    OutcomeRequest,
    OwnedSet,
)
from stretto.rpc.security import Security
from stretto.rpc.servers import RpcServer, add_follow, add_outcomes
from stretto.snapshot.delta import Delta

SECURITY = Security()
BINDER = 40


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


class FakeBinder:
    """Follow and Outcomes, as far as a test says."""

    def __init__(self) -> None:
        self.server = RpcServer("127.0.0.1:0", security=SECURITY)
        add_follow(self.server, self.follow)
        add_outcomes(self.server, self.outcomes)
        self.log: asyncio.Queue[FollowMessage | None] = asyncio.Queue()
        self.batches: asyncio.Queue[OutcomeBatch | None] = asyncio.Queue()
        self.requests: list[OutcomeRequest] = []
        self.followed: list[FollowRequest] = []

    async def follow(
        self,
        requests: AsyncIterator[FollowRequest],
        send: Callable[[FollowMessage | bytes], Awaitable[None]],
        _peer: str,
    ) -> None:
        request = await anext(requests)
        self.followed.append(request)
        empty = Delta(epoch=BINDER, sequence=1)
        if request.epoch == BINDER:
            at = Delta(epoch=BINDER, sequence=request.sequence)
            await send(FollowMessage(FollowKind.HEARTBEAT, at))
        else:
            await send(FollowMessage(FollowKind.FULL_BEGIN, empty))
            await send(FollowMessage(FollowKind.FULL_END, empty))
        while (message := await self.log.get()) is not None:
            await send(message)

    async def outcomes(
        self,
        requests: AsyncIterator[OutcomeRequest],
        send: Callable[[OutcomeBatch], Awaitable[None]],
        _peer: str,
    ) -> None:
        self.requests.append(await anext(requests))
        await send(OutcomeBatch(binder_epoch=BINDER, owned=OwnedSet(complete=True)))

        async def read() -> None:
            async for request in requests:
                self.requests.append(request)

        reading = asyncio.create_task(read())
        while (batch := await self.batches.get()) is not None:
            await send(batch)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
