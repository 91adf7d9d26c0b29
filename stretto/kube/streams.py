"""A connection for one answer without an end: a watch.

What arrives is passed on in pieces as it comes. When the reader does not keep up, the connection is
not read further, so that the API server waits and not our memory fills.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from stretto.kube.http_answers import BodyReader, Head, NotUnderstoodError

HELD_MAX = 256 * 1024
"""Bytes that wait for the reader before no more are read from the connection."""
PIECE_MAX = 256 * 1024
"""Bytes passed on at once, so that decoding one piece stalls the loop by under 1 ms."""


class Stream(asyncio.Protocol):
    """One request and its answer; never used again."""

    def __init__(self, request: bytes, *, silence_s: float) -> None:
        self._request = request
        self._silence_s = silence_s
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._body = BodyReader()
        self._held: list[bytes] = []
        self._held_size = 0
        self._paused = False
        self._error: OSError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._heard_at = self._loop.time()
        self._alarm = self._loop.call_later(silence_s, self._listen)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        self._transport = transport  # type: ignore[assignment]
        transport.write(self._request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        """Hold what is of the body until it is asked for."""
        self._heard_at = self._loop.time()
        try:
            piece = self._body.feed(data)
        except NotUnderstoodError as error:
            self._end(error)
            return
        if piece:
            self._held.append(piece)
            self._held_size += len(piece)
            if self._held_size > HELD_MAX and not self._paused and self._transport is not None:
                self._paused = True
                self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """An end before the answer's is an error; after it, nobody cares."""
        self._transport = None
        if not self._body.ended:
            self._end(ConnectionResetError(str(exc or "the server closed the connection")))

    def close(self) -> None:
        """Drop the connection at once: with TLS, an orderly end would wait for a farewell."""
        self._alarm.cancel()
        if self._transport is not None:
            self._transport.abort()

    async def head(self) -> Head:
        """The head of the answer. Raises OSError when none comes."""
        while self._body.head is None:
            await self._news()
        return self._body.head

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body until its end. Raises OSError (TimeoutError for silence) when it breaks."""
        while True:
            while self._held:
                yield self._take()
            if self._body.ended:
                return
            await self._news()

    def _take(self) -> bytes:
        """What is held, or as much as is passed on at once."""
        data = self._held[0] if len(self._held) == 1 else b"".join(self._held)
        piece, rest = data[:PIECE_MAX], data[PIECE_MAX:]
        self._held, self._held_size = [rest] if rest else [], len(rest)
        if self._paused and self._held_size <= HELD_MAX:
            self._paused = False
            if self._transport is not None:
                self._transport.resume_reading()
        return piece

    async def _news(self) -> None:
        """Wait until something has come; what came before a break is passed on first."""
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        await self._waiter

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _end(self, error: OSError) -> None:
        if self._error is None:
            self._error = error
        self.close()
        self._wake()

    def _listen(self) -> None:
        """One timer that looks, instead of one for each piece."""
        now = self._loop.time()
        if self._paused:
            self._heard_at = now  # it is we who do not listen
        left_s = self._heard_at + self._silence_s - now
        if left_s <= 0:
            self._end(TimeoutError())
        else:
            self._alarm = self._loop.call_later(left_s, self._listen)
