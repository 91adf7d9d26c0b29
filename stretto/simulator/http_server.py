"""The HTTP side of the simulator: connections, watches as endless answers, injected faults.

A connection carries one request at a time; what a client sends ahead waits. A watch takes its
connection over until it ends. The lines of a watch are gathered while the loop is busy with
requests and written in one piece when it comes round.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from stretto.simulator.answers import Answer, Refusal
from stretto.simulator.api import ApiServer
from stretto.simulator.faults import Effect, FaultRule, Faults
from stretto.simulator.http_requests import RequestReader, UnreadableRequest
from stretto.simulator.records import encode
from stretto.simulator.request import Request, number
from stretto.simulator.store import Store, Watch

logger = logging.getLogger(__name__)

WATCH_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
)
WATCH_S = 1800
"""How long a watch lasts that does not say so itself."""
WATCH_BACKLOG = 256 * 1024 * 1024
"""Bytes that a watcher may leave unread before it is cut off, as a real server does."""
_PHRASES = {200: "OK", 201: "Created", 400: "Bad Request", 404: "Not Found", 409: "Conflict",
            410: "Gone", 422: "Unprocessable Entity", 429: "Too Many Requests"}  # fmt: skip
_HEADS = {
    code: f"HTTP/1.1 {code} {phrase}\r\nContent-Type: application/json\r\nContent-Length: ".encode()
    for code, phrase in _PHRASES.items()
}

OwnPages = Callable[[Request], Answer | None]


class HttpServer:
    """Connections to one simulated API server."""

    def __init__(
        self, api: ApiServer, faults: Faults, *, own_pages: OwnPages, bookmark_s: float
    ) -> None:
        self.api = api
        self.faults = faults
        self.own_pages = own_pages
        self.bookmark_s = bookmark_s
        self.loop = asyncio.get_running_loop()
        self.connections: set[_Connection] = set()
        self.requests: dict[tuple[str, str, int], int] = {}
        """Answered so far by method, what it was asked of, and status; watches as WATCH."""

    def connection(self) -> asyncio.Protocol:
        """Makes the protocol of a new connection."""
        return _Connection(self)

    def count(self, method: str, path: str, status: int) -> None:
        """Add a request to the statistics."""
        key = (method, resource_of(path), status)
        self.requests[key] = self.requests.get(key, 0) + 1

    def cut_watches(self, resource: str = "") -> int:
        """Break the connections of all watches (of a resource); how many those were."""
        streams = [c.stream for c in self.connections if c.stream is not None]
        cut = [stream for stream in streams if resource in ("", stream.resource)]
        for stream in cut:
            stream.connection.abort()
        return len(cut)

    def flush_watches(self) -> None:
        """Write what held watches have gathered, where they are held no longer."""
        for connection in self.connections:
            if connection.stream is not None:
                connection.stream.flush()

    def close(self) -> None:
        """Drop all connections."""
        for connection in list(self.connections):
            connection.abort()


class _Connection(asyncio.Protocol):
    """One client connection."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._reader = RequestReader()
        self._transport: asyncio.Transport | None = None
        self._busy = False
        self.stream: _Stream | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._transport = None
        if self.stream is not None:
            self.stream.end()
            self.stream = None

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        self._go_on()

    def abort(self) -> None:
        """Break the connection."""
        if self._transport is not None:
            self._transport.abort()

    def write(self, data: bytes) -> None:
        """Send, unless the client has gone."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    @property
    def unread(self) -> int:
        """Bytes the client has not taken yet."""
        return self._transport.get_write_buffer_size() if self._transport else 0

    def resume(self) -> None:
        """A watch has ended in good order: the connection takes requests again."""
        self.stream = None
        self._busy = False
        self._go_on()

    # --- requests ------------------------------------------------------------------------------

    def _go_on(self) -> None:
        while not self._busy and self._transport is not None:
            try:
                request = self._reader.next()
            except UnreadableRequest as error:
                refusal = Refusal(error.code, "BadRequest", str(error))
                self._reply(refusal.answer, last=True)
                return
            if request is None:
                if self._reader.expects_continue:
                    self._reader.expects_continue = False
                    self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                return
            self._serve(request)

    def _serve(self, request: Request) -> None:
        faults = self._server.faults
        if faults.active:
            rule = faults.choose(request)
            if rule is not None:
                self._suffer(rule, request)
                return
        self._carry_out(request)

    def _suffer(self, rule: FaultRule, request: Request) -> None:
        """Apply a fault; ``rule`` has counted it already."""
        if rule.effect is Effect.REFUSE or rule.effect is Effect.THROTTLE:
            answer = rule.answer()
            self._server.count(request.method, request.path, answer.status)
            self._reply(answer)
        elif rule.effect is Effect.DROP_REPLY:
            self._execute(request)
            self.abort()
        elif rule.effect is Effect.LATE:
            self._server.loop.call_later(rule.delay_s, self._execute, request)
            self.abort()
        else:
            assert rule.effect is Effect.DELAY, rule.effect
            self._busy = True
            self._server.loop.call_later(rule.delay_s, self._carry_out_late, request)

    def _carry_out_late(self, request: Request) -> None:
        self._busy = False
        self._carry_out(request)
        self._go_on()

    def _execute(self, request: Request) -> Answer:
        server = self._server
        try:
            answer = server.own_pages(request) or server.api.handle(request)
        except Exception:  # a defect of ours; the connection and its neighbours go on
            logger.exception("%s %s", request.method, request.path[:200])
            answer = Refusal(500, "InternalError", "an error on the server, see its log").answer
        server.count(request.method, request.path, answer.status)
        return answer

    def _carry_out(self, request: Request) -> None:
        if request.is_watch:
            self._begin_watch(request)
        else:
            self._reply(self._execute(request))

    def _reply(self, answer: Answer, *, last: bool = False) -> None:
        status, body, retry_after_s = answer
        head = _HEADS.get(status)
        if head is None:
            head = b"HTTP/1.1 %d -\r\nContent-Type: application/json\r\nContent-Length: " % status
        more = b"" if retry_after_s is None else b"\r\nRetry-After: %d" % retry_after_s
        last = last or self._reader.last
        if last:
            more += b"\r\nConnection: close"
        self.write(b"%b%d%b\r\n\r\n%b" % (head, len(body), more, body))
        if last and self._transport is not None:
            self._transport.close()

    def _begin_watch(self, request: Request) -> None:
        stream = _Stream(self._server, self, resource=resource_of(request.path))
        self._busy, self.stream = True, stream
        try:
            stream.begin(request)
        except Refusal as refusal:
            if refusal.code == 410:  # told inside the watch, as watch caches do
                self._server.count("WATCH", request.path, 410)
                stream.fail(refusal)
                return
            self._busy, self.stream = False, None
            self._server.count("WATCH", request.path, refusal.code)
            self._reply(refusal.answer)
        else:
            self._server.count("WATCH", request.path, 200)


class _Stream:
    """A watch on a connection."""

    def __init__(self, server: HttpServer, connection: _Connection, *, resource: str) -> None:
        self.resource = resource
        self.connection = connection
        self._server = server
        self._store: Store | None = None
        self._watch: Watch | None = None
        self._timers: list[asyncio.TimerHandle] = []

    def begin(self, request: Request) -> None:
        """Answer with the head, then with whatever comes. Raises Refusal."""
        seconds = number(request.params, "timeoutSeconds") or WATCH_S
        self._store, self._watch = self._server.api.watch(request, wake=self._wake)
        self.connection.write(WATCH_HEAD)
        loop = self._server.loop
        bookmarks = request.params.get("allowWatchBookmarks") == "true"
        self._timers.append(loop.call_later(seconds, self._time_out, bookmarks))
        if bookmarks:
            self._timers.append(loop.call_later(self._server.bookmark_s, self._bookmark))
        self.flush()

    def fail(self, refusal: Refusal) -> None:
        """Answer with an ERROR line and the end."""
        line = b'{"type":"ERROR","object":%b}\n' % encode(refusal.status)
        self.connection.write(WATCH_HEAD + _chunk(line) + b"0\r\n\r\n")
        self.connection.resume()

    def end(self) -> None:
        """The connection is gone, or the time is up: stop listening."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if self._store is not None and self._watch is not None:
            self._store.unwatch(self._watch)

    def flush(self) -> None:
        """Write the lines gathered, unless a fault holds them back."""
        watch = self._watch
        if watch is None or not watch.lines or self._server.faults.holds(self.resource):
            return
        lines = b"".join(watch.lines)
        watch.lines.clear()
        self.connection.write(_chunk(lines))
        if self.connection.unread > WATCH_BACKLOG:
            self.connection.abort()

    def _wake(self) -> None:
        self._server.loop.call_soon(self.flush)

    def _bookmark(self) -> None:
        assert self._watch is not None, "a bookmark without a watch"
        assert self._store is not None, "a watch without a store"
        self._watch.bookmark(self._store.version)
        self._timers[1] = self._server.loop.call_later(self._server.bookmark_s, self._bookmark)

    def _time_out(self, bookmarks: bool) -> None:
        assert self._watch is not None, "the end of no watch"
        assert self._store is not None, "a watch without a store"
        if bookmarks:
            self._watch.bookmark(self._store.version)
        self.flush()
        self.end()
        self.connection.write(b"0\r\n\r\n")
        self.connection.resume()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def resource_of(path: str) -> str:
    """What a path is about, for statistics and faults: "pods", "pods/binding", "leases"."""
    parts = path.split("/")
    start = 3 if parts[1] == "api" else 4 if parts[1] == "apis" else 0
    if not start or len(parts) <= start:
        return path
    if parts[start] == "namespaces" and len(parts) > start + 2:
        start += 2
    if len(parts) > start + 2:
        return f"{parts[start]}/{parts[start + 2]}"
    return parts[start]
