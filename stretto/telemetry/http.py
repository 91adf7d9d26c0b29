"""The HTTP side of a process: /metrics, /livez, /readyz, /debug/story, on its own thread.

A scrape of a few hundred series takes milliseconds of CPU; on a thread it does not hold up the
event loop for longer than the interpreter's switch interval. It listens on loopback unless told
otherwise, and the health paths say nothing but ok or not.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from stretto.model.errors import OperatorError
from stretto.telemetry.story import StoryLog

logger = logging.getLogger(__name__)


class TelemetryError(OperatorError):
    """The HTTP side cannot listen."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True


class TelemetryServer:
    """Serve until :meth:`close`; made ready to answer by the constructor."""

    def __init__(
        self,
        listen: str,
        *,
        registry: CollectorRegistry,
        live: Callable[[], bool] = lambda: True,
        ready: Callable[[], bool] = lambda: True,
        stories: StoryLog | None = None,
    ) -> None:
        self._registry = registry
        self._live = live
        self._ready = ready
        self._stories = stories
        host, _, port = listen.rpartition(":")
        try:
            self._server = _Server((host.strip("[]"), int(port)), self._handler())
        except ValueError:
            raise TelemetryError(
                f"--telemetry-listen {listen!r}: take host:port, for example 127.0.0.1:0"
            ) from None
        except OSError as error:
            raise TelemetryError(
                f"--telemetry-listen {listen}: {error.strerror or error}; choose another port"
            ) from None
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="telemetry", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """(status, content type, body) for a GET."""
        parts = urlsplit(path)
        text = "text/plain; charset=utf-8"
        if parts.path == "/metrics":
            return 200, CONTENT_TYPE_LATEST, generate_latest(self._registry)
        if parts.path in ("/livez", "/readyz", "/healthz"):
            good = self._ready() if parts.path == "/readyz" else self._live()
            return (200, text, b"ok\n") if good else (503, text, b"not ready\n")
        if parts.path == "/debug/story" and self._stories is not None:
            unit = parse_qs(parts.query).get("unit", [""])[0]
            lines = [line._asdict() for line in self._stories.story(unit)]
            return 200, "application/json", json.dumps(lines).encode() + b"\n"
        return 404, text, b"not found\n"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        telemetry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, kind, body = telemetry.answer(self.path)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                logger.debug("%s %s", self.address_string(), format % args)

        return Handler
