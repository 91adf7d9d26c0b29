"""The Work service: shards dial, grant credits and answer; unit batches go out.

Each stream has a queue of messages and one task that writes it; the queue is bounded by the
credits that the shard granted.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from dispatcher.core import Core
from dispatcher.shard_side import Send
from stretto.placement.strict import DEFAULT_DIGEST
from stretto.rpc.handshake import checked_hello
from stretto.rpc.messages import FromShard, ToShard

log = logging.getLogger(__name__)

Reply = Callable[[ToShard], Awaitable[None]]


class WorkServer:
    """Serves shards."""

    def __init__(
        self, core: Core, *, leader: Callable[[], str], profiles: str = DEFAULT_DIGEST
    ) -> None:
        self._core = core
        self._profiles = profiles
        """Digest of the configuration that shards have to decide by."""
        self._leader = leader
        """Identity or address of the active dispatcher, for "not leader"."""
        self._streams = itertools.count(1)
        self._outgoing: dict[int, asyncio.Queue[ToShard | None]] = {}
        self._closed = False

    def close(self) -> None:
        """Lead no more: streams end, and shards that dial are told so."""
        self._closed = True
        for outgoing in self._outgoing.values():
            outgoing.put_nowait(None)

    def to_shard(self, send: Send) -> None:
        """Queue units for a stream."""
        outgoing = self._outgoing.get(send.stream)
        assert outgoing is not None, f"units for stream {send.stream}, which is closed"
        epoch = self._core.machine.epoch
        outgoing.put_nowait(
            ToShard(
                dispatcher_epoch=epoch,
                shapes=send.shapes,
                units=send.units,
                forgotten=send.forgotten,
            )
        )

    async def handle(self, requests: AsyncIterator[FromShard], send: Reply, peer: str) -> None:
        """One stream, from hello to its end."""
        machine = self._core.machine
        # Read before the refusal too: a stream that ends while its client writes looks broken.
        first = await anext(requests, None)
        if first is None:
            return
        if machine.epoch == 0 or self._closed:
            await send(ToShard(not_leader=self._leader()))
            return
        hello = checked_hello(first.hello, message="FromShard", profiles=self._profiles)
        stream = next(self._streams)
        outgoing: asyncio.Queue[ToShard | None] = asyncio.Queue()
        self._outgoing[stream] = outgoing
        await send(ToShard(dispatcher_epoch=machine.epoch))
        older = machine.shards.opened(
            stream=stream, name=hello.shard, incarnation=hello.incarnation, now=self._core.now()
        )
        log.info("shard %s is connected from %s", hello.shard, peer)
        for number in older:
            if (queue := self._outgoing.get(number)) is not None:
                queue.put_nowait(None)
        try:
            self._take(stream, first)
            await self._converse(stream, requests, send)
        finally:
            del self._outgoing[stream]
            machine.shards.closed(stream, self._core.now())
            self._core.changed()
            log.info("shard %s has left", hello.shard)

    async def _converse(self, stream: int, requests: AsyncIterator[FromShard], send: Reply) -> None:
        """Read and write until either ends."""
        outgoing = self._outgoing[stream]
        reading = asyncio.create_task(self._read(stream, requests))
        writing = asyncio.create_task(_write(outgoing, send))
        both = (reading, writing)
        try:
            done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
        for task in done:
            task.result()

    async def _read(self, stream: int, requests: AsyncIterator[FromShard]) -> None:
        async for message in requests:
            self._take(stream, message)

    def _take(self, stream: int, message: FromShard) -> None:
        shards, now = self._core.machine.shards, self._core.now()
        if message.settled:
            shards.settled(stream, message.settled, now)
        if message.unplaceable:
            shards.unplaceable(stream, message.unplaceable, now)
        if message.handed_back:
            shards.handed_back(stream, message.handed_back, now)
        if message.draining:
            shards.draining(stream)
        if message.credits:
            shards.credits(stream, message.credits)
        self._core.changed()


async def _write(outgoing: asyncio.Queue[ToShard | None], send: Reply) -> None:
    while (message := await outgoing.get()) is not None:
        await send(message)
