"""The HTTP side of a process: /metrics, /livez, /readyz, /debug/story, on its own thread.

A scrape of a few hundred series takes milliseconds of CPU; on a thread it does not hold up the
event loop for longer than the interpreter's switch interval. That also lets /livez tell a wedged
loop from a busy one: it asks the loop to do something and waits. It listens on loopback unless
told otherwise, and then with a :class:`~stretto.telemetry.guard.Guard`: TLS, and metrics for whom
the guard lets read. The health paths say nothing but ok or not, and stories, which name pods, are
told to this host only (``kubectl port-forward`` counts as this host).
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from stretto.config.addresses import split_address
from stretto.telemetry.guard import Guard, TelemetryError, Verdict, names_in
from stretto.telemetry.loop_lag import LoopLag
from stretto.telemetry.story import StoryLog

logger = logging.getLogger(__name__)

WEDGED_S = 5.0
"""A loop that takes longer to do anything at all is not alive."""
REQUEST_TIMEOUT_S = 10.0
SHED_S = 5.0
"""A connection that was told to go is gone long before."""
MAX_CONNECTIONS = 16
"""Answered at once; for one more, the one that has asked nothing for the longest time is closed."""
TEXT = "text/plain; charset=utf-8"


class Answer(NamedTuple):
    """Of a GET."""

    status: int
    kind: str
    body: bytes


def _no_story(unit: str, stories: StoryLog) -> str:
    return (
        f"nothing is remembered of unit {unit[:80]!r}: the last {stories.capacity} lines of all "
        "units are kept (--stories); ask for the uid of a pod that was sent to a shard, of a gang "
        "that of its first pod, in the dispatcher, the binder, or the shard that had it\n"
    )


NOT_FOUND = Answer(404, TEXT, b"not found\n")
OK = Answer(200, TEXT, b"ok\n")
WHICH = Answer(400, TEXT, b"say which: ?unit=UID, the uid of a pod or of a gang's first pod\n")
NOT_OK = Answer(503, TEXT, b"not ok\n")
FORBIDDEN = Answer(403, TEXT, b"ask from the host of this process\n")
REFUSALS = {
    Verdict.UNAUTHENTICATED: Answer(
        401, TEXT, b"show a token of the cluster, or a certificate for stretto-metrics\n"
    ),
    Verdict.FORBIDDEN: Answer(403, TEXT, b"this user may not get this path\n"),
    Verdict.UNKNOWN: Answer(503, TEXT, b"the API server does not say who you are\n"),
}


class _Server(socketserver.ThreadingMixIn, HTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[BaseHTTPRequestHandler],
        *,
        family: int,
        guard: Guard | None,
    ) -> None:
        self.address_family = family
        self._guard = guard
        self._room = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._silent: dict[int, socket.socket] = {}
        """Connections that have not asked anything yet, the oldest first; by the identity of the
        accepted socket, also when TLS has put another in its place."""
        self._of_thread = threading.local()
        super().__init__(address, handler)

    def server_bind(self) -> None:
        # HTTPServer's would look the host's full name up, which takes seconds without a DNS.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        room = self._room.acquire(blocking=False)
        if not room:
            self._shed()
            room = self._room.acquire(timeout=SHED_S)
        if room:
            self._silent[id(request)] = request
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def _shed(self) -> None:
        """Make room: the connection that has been silent for the longest time goes, so that a few
        of those cannot keep a health check out."""
        for key in list(self._silent):
            silent = self._silent.pop(key, None)
            if silent is not None:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(silent, socket.SHUT_RDWR)
                return

    def asked(self) -> None:
        """The connection of this thread has sent its request."""
        self._silent.pop(self._of_thread.key, None)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        key = self._of_thread.key = id(request)
        accepted = request  # kept, so that its identity is nobody else's
        try:
            if self._guard is not None:
                request.settimeout(REQUEST_TIMEOUT_S)
                try:
                    request = self._guard.context().wrap_socket(
                        request, server_side=True, do_handshake_on_connect=False
                    )
                    if key in self._silent:
                        self._silent[key] = request
                    request.do_handshake()
                except OSError:
                    self.handle_error(request, client_address)
                    self.shutdown_request(request)
                    return
            super().process_request_thread(request, client_address)
        finally:
            self.asked()
            del accepted
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that went away, or spoke no HTTP.
        logger.debug("telemetry client %s", client_address, exc_info=True)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The loop that we are called in, if any."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class TelemetryServer:
    """Serve until :meth:`close`; made ready to answer by the constructor.

    ``role`` says in the log whose port it is. ``live`` and ``ready`` are called on the server's
    threads: they may read, not change. If the constructor is called in an event loop, /livez and
    /readyz fail while that loop is wedged, and ``registry`` tells how late it is.

    Raises:
        TelemetryError: the address is malformed or in use.
    """

    def __init__(
        self,
        listen: str,
        *,
        registry: CollectorRegistry,
        role: str = "this process",
        live: Callable[[], bool] = lambda: True,
        ready: Callable[[], bool] = lambda: True,
        stories: StoryLog | None = None,
        diagnosis: Callable[[str], dict[str, Any] | None] | None = None,
        guard: Guard | None = None,
        wedged_s: float = WEDGED_S,
    ) -> None:
        self._registry = registry
        self._live = live
        self._ready = ready
        self._stories = stories
        self._diagnosis = diagnosis
        self._guard = guard
        self._wedged_s = wedged_s
        self._loop = running_loop()
        host, port = split_address(listen, flag="--telemetry-listen")
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            self._server = _Server((host, port), self._handler(), family=family, guard=guard)
        except OSError as error:
            raise TelemetryError(
                f"--telemetry-listen {listen}: {error.strerror or error}; choose another address"
            ) from None
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="telemetry", daemon=True
        )
        self._thread.start()
        self._lag = LoopLag()
        if self._loop is not None:
            registry.register(self._lag)
            self._lag.start(self._loop)
        logger.info("metrics and health of %s are served on port %d", role, self.port)

    def asked(self) -> None:
        """The connection of this thread is to be answered."""
        self._server.asked()

    def close(self) -> None:
        """Stop listening."""
        self._lag.stop()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _loop_answers(self) -> bool:
        if self._loop is None:
            return True
        ticked = threading.Event()
        try:
            self._loop.call_soon_threadsafe(ticked.set)
        except RuntimeError:  # closed: the process is ending
            return False
        return ticked.wait(self._wedged_s)

    def _health(self, check: Callable[[], bool]) -> Answer:
        try:
            return OK if self._loop_answers() and check() else NOT_OK
        except Exception:
            logger.exception("health check failed")
            return NOT_OK

    def answer(
        self,
        path: str,
        *,
        peer: str = "127.0.0.1",
        authorization: str = "",
        names: frozenset[str] = frozenset(),
    ) -> Answer:
        """The answer to a GET of ``path`` from the address ``peer``, whose certificate has these
        names."""
        parts = urlsplit(path)
        if parts.path == "/metrics":
            if self._guard is not None:
                verdict = self._guard.verdict(parts.path, authorization=authorization, names=names)
                if verdict is not Verdict.ALLOWED:
                    return REFUSALS[verdict]
            return Answer(200, CONTENT_TYPE_LATEST, generate_latest(self._registry))
        if parts.path in ("/livez", "/healthz"):
            return self._health(self._live)
        if parts.path == "/readyz":
            return self._health(self._ready)
        if parts.path.startswith("/debug/"):
            if not ipaddress.ip_address(peer.partition("%")[0]).is_loopback:
                return FORBIDDEN
            asked = parse_qs(parts.query)
            unit = (asked.get("unit") or asked.get("pod") or [""])[0]
            return self._debug(parts.path, unit) if unit else WHICH
        return NOT_FOUND

    def _debug(self, path: str, unit: str) -> Answer:
        """Questions about one unit, for somebody on this machine."""
        found: object = None
        if path == "/debug/story" and self._stories is not None:
            found = [line._asdict() for line in self._stories.story(unit)]
            if not found:
                return Answer(404, TEXT, _no_story(unit, self._stories).encode())
        elif path == "/debug/diagnosis" and self._diagnosis is not None:
            found = self._diagnosis(unit)
        if found is None:
            return NOT_FOUND
        return Answer(200, "application/json", json.dumps(found).encode() + b"\n")

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        telemetry = self

        class Handler(BaseHTTPRequestHandler):
            timeout = REQUEST_TIMEOUT_S
            server_version = "stretto"
            sys_version = ""

            def do_GET(self) -> None:
                telemetry.asked()
                names: frozenset[str] = frozenset()
                if isinstance(self.connection, ssl.SSLSocket):
                    names = names_in(self.connection.getpeercert())
                status, kind, body = telemetry.answer(
                    self.path,
                    peer=self.client_address[0],
                    authorization=self.headers.get("Authorization", ""),
                    names=names,
                )
                self.send_response(status)
                if status == REFUSALS[Verdict.UNAUTHENTICATED].status:
                    self.send_header("WWW-Authenticate", "Bearer")
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                logger.debug("%s %s", self.address_string(), format % args)

        return Handler
