"""Plain HTTP/1.1 connections, pooled for requests: what a bind and an event cost, not the rest.

A general HTTP client spends above 100 µs of CPU on a request of 200 bytes each way, as much as all
else that a pod costs the Binder. Towards us, an API server uses little of HTTP: one request at a
time on a kept connection, an answer with a length or in chunks. Exactly that is done here, for a
fraction of the CPU.

A connection that was idle for long is not used again, because the server may be closing it at that
moment, and the request would be lost with an unknown outcome. A request that is cancelled or times
out closes its connection. So does one that is answered 401: a connection keeps the certificate with
which it was opened, also when that has expired and its file holds another.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from stretto.kube.http_answers import AnswerReader, NotUnderstoodError, Reply, closes
from stretto.kube.rows import Row
from stretto.kube.streams import Stream
from stretto.kube.ways import NotOpenedError

IDLE_S = 15.0
"""An idle connection older than this is closed; an API server keeps one for more than a minute."""


_NEVER = float("inf")
_Protocol = TypeVar("_Protocol", bound=asyncio.Protocol)
_Kept = TypeVar("_Kept", "_Connection", Row)


class _Connection(asyncio.Protocol):
    """One connection with at most one request on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.WriteTransport | None = None
        self._waiter: asyncio.Future[Reply] | None = None
        self._reader = AnswerReader()
        self.usable = False
        self.idle_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self.usable = True

    def send(self, data: bytes) -> asyncio.Future[Reply]:
        """Write a request; the future is its answer."""
        assert self._waiter is None, "two requests on one connection"
        assert self._transport is not None, "not connected"
        self._waiter = waiter = self._loop.create_future()
        self._transport.write(data)
        return waiter

    def data_received(self, data: bytes) -> None:
        if self._waiter is None:
            self.close()  # an answer that nobody asked for
            return
        try:
            reply = self._reader.feed(data)
        except NotUnderstoodError as error:
            self._fail(error)
            self.close()
            return
        if reply is None:
            return
        waiter, self._waiter = self._waiter, None
        if closes(reply) or not self._reader.empty:
            self.close()
        if not waiter.done():
            waiter.set_result(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        self._fail(ConnectionResetError(str(exc or "the server closed the connection")))

    def close(self) -> None:
        """Drop the connection and what is on it."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, error: OSError) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)


class ConnectionPool:
    """At most ``limit`` connections to one server; requests beyond that wait in order."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        limit: int,
        tls: Callable[[], ssl.SSLContext] | None,
        server_name: str | None = None,
    ) -> None:
        """``tls`` is asked before each connection; None: plain text."""
        self._host = host
        self._port = port
        self._tls = tls
        self._server_name = server_name or (host if tls else None)
        self._free = limit
        self._idle: list[_Connection] = []
        self._rows: list[Row] = []
        """Connections for rows, idle."""
        self._busy_rows: set[Row] = set()
        self._queue: deque[asyncio.Future[None]] = deque()
        self._busy: dict[_Connection, tuple[float, asyncio.Future[Reply]]] = {}
        """Connections with a request on them: (deadline, answer)."""
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = _NEVER
        """When deadlines are looked at next. One timer for all: nearly every request is answered in
        milliseconds, and a timer of its own would cost as much as its headers."""

    async def request(self, data: bytes, *, timeout_s: float) -> Reply:
        """Send the bytes of a request and read its answer, all within ``timeout_s``.

        Raises :class:`NotOpenedError` if nothing was sent; any other OSError, TimeoutError
        included, leaves it unknown whether the request was carried out.
        """
        deadline = self._loop.time() + timeout_s
        connection = self._idle_one() if self._free else None
        if connection is None:
            connection = await self._take(deadline)
        else:
            self._free -= 1
        answer = connection.send(data)
        self._busy[connection] = (deadline, answer)
        if deadline < self._alarm_at:
            self._set_alarm(deadline)
        try:
            return await answer
        except BaseException:
            connection.close()
            if answer.done() and not answer.cancelled():
                answer.exception()  # seen, even if a cancellation came first
            raise
        finally:
            self._give_back(connection)

    async def request_row(self, requests: Sequence[bytes], *, timeout_s: float) -> list[Reply]:
        """Send requests one behind the other; see :meth:`Row.exchange`. How many rows there are
        at a time is the caller's business.

        Raises :class:`NotOpenedError` if nothing was sent.
        """
        deadline = self._loop.time() + timeout_s
        row = _usable(self._rows, since=self._loop.time() - IDLE_S)
        if row is None:
            row = await self._connected(lambda: Row(self._loop), deadline)
        self._busy_rows.add(row)
        try:
            replies = await row.exchange(requests, timeout_s=deadline - self._loop.time())
        finally:
            self._busy_rows.discard(row)
        if row.usable:
            self._rows.append(row)
        return replies

    @asynccontextmanager
    async def stream(
        self, data: bytes, *, connect_s: float, silence_s: float
    ) -> AsyncIterator[Stream]:
        """Send the bytes of a request whose answer has no end, on a connection of its own.

        Raises :class:`NotOpenedError` if nothing was sent.
        """
        stream = await self._connected(
            lambda: Stream(data, silence_s=silence_s), self._loop.time() + connect_s
        )
        try:
            yield stream
        finally:
            stream.close()

    def close(self) -> None:
        """Close all connections but those of streams; requests on them fail."""
        for connection in (*self._idle, *self._busy):
            connection.close()
        for row in (*self._rows, *self._busy_rows):
            row.close()
        self._idle.clear()
        self._rows.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm, self._alarm_at = None, _NEVER

    def _set_alarm(self, at: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._alarm_at = self._loop.call_at(at, self._check_deadlines), at

    def _check_deadlines(self) -> None:
        """End what is late; then sleep until the next deadline of what is on the way now."""
        self._alarm, self._alarm_at = None, _NEVER
        now = self._loop.time()
        for deadline, answer in self._busy.values():
            if deadline <= now:
                _expire(answer)
        later = [deadline for deadline, _ in self._busy.values() if deadline > now]
        if later:
            self._set_alarm(min(later))

    async def _take(self, deadline: float) -> _Connection:
        if not self._free:
            turn: asyncio.Future[None] = self._loop.create_future()
            self._queue.append(turn)
            timer = self._loop.call_at(deadline, _expire, turn)
            try:
                await turn
            except TimeoutError as error:
                raise NotOpenedError("no connection became free in time") from error
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled() and turn.exception() is None:
                    self._pass_turn()  # the turn had come; the next in line gets it
                raise
            finally:
                timer.cancel()
        else:
            self._free -= 1
        try:
            return self._idle_one() or await self._open(deadline)
        except BaseException:
            self._pass_turn()
            raise

    def _idle_one(self) -> _Connection | None:
        """A connection that waits for a request, not for too long."""
        return _usable(self._idle, since=self._loop.time() - IDLE_S)

    async def _open(self, deadline: float) -> _Connection:
        return await self._connected(lambda: _Connection(self._loop), deadline)

    async def _connected(self, protocol: Callable[[], _Protocol], deadline: float) -> _Protocol:
        try:
            async with asyncio.timeout_at(deadline):
                _, connection = await self._loop.create_connection(
                    protocol,
                    self._host,
                    self._port,
                    ssl=self._tls() if self._tls is not None else None,
                    server_hostname=self._server_name,
                )
        except TimeoutError as error:
            raise NotOpenedError("connecting took too long") from error
        except OSError as error:  # ssl.SSLError is one
            raise NotOpenedError(error.strerror or str(error)) from error
        return connection

    def _give_back(self, connection: _Connection) -> None:
        del self._busy[connection]
        if connection.usable:
            connection.idle_since = self._loop.time()
            self._idle.append(connection)
        self._pass_turn()

    def _pass_turn(self) -> None:
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


def _usable(idle: list[_Kept], *, since: float) -> _Kept | None:
    """Take the connection that was used last; those that may be closing are dropped."""
    while idle:
        connection = idle.pop()
        if connection.usable and connection.idle_since >= since:
            return connection
        connection.close()
    return None


def _expire(future: asyncio.Future[Reply] | asyncio.Future[None]) -> None:
    if not future.done():
        future.set_exception(TimeoutError())
