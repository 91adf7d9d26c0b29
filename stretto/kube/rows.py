"""Requests in a row: many on one connection, none waiting for the answer to the one before.

A server of HTTP/1.1 carries such requests out one after the other and answers in their order. What
is gained is that many share a write, a TLS record and a waking, here and there: an event costs a
third of the CPU. What is lost is that they wait for each other, and that a connection that breaks
leaves all open that have no answer yet. So it is for what nobody waits for and what may be sent
twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from stretto.kube.http_answers import AnswerReader, NotUnderstoodError, Reply, closes


class Row(asyncio.Protocol):
    """One connection; one row of requests at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._reader = AnswerReader()
        self._replies: list[Reply] = []
        self._wanted = 0
        self._waiter: asyncio.Future[None] | None = None
        self.usable = False
        self.idle_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready."""
        self._transport = transport  # type: ignore[assignment]
        self.usable = True

    async def exchange(self, requests: Sequence[bytes], *, timeout_s: float) -> list[Reply]:
        """The answers, in order; fewer than requests if the connection broke or time ran out.
        Then it cannot be used again, and it is unknown what became of the others."""
        assert self._waiter is None, "two rows on one connection"
        assert self._transport is not None, "not connected"
        self._replies, self._wanted = [], len(requests)
        self._waiter = self._loop.create_future()
        timer = self._loop.call_later(timeout_s, self.close)
        try:
            self._transport.write(b"".join(requests))
            await self._waiter
        except BaseException:
            self.close()
            raise
        finally:
            timer.cancel()
            self._waiter = None
        self.idle_since = self._loop.time()
        return self._replies[: self._wanted]

    def data_received(self, data: bytes) -> None:
        """Some answers, or a part of one."""
        try:
            self._replies += self._reader.feed_all(data)
        except NotUnderstoodError:
            self.close()
            return
        count = len(self._replies)
        if self._waiter is None or count > self._wanted or any(r.last for r in self._replies):
            self.close()
        elif count == self._wanted:
            if not self._reader.empty or any(map(closes, self._replies)):
                self.close()
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        """What has no answer gets none."""
        self.usable = False
        self._end()

    def close(self) -> None:
        """Drop the connection and what is on it."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()
        self._end()

    def _end(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
