"""Requests and watches on connections of our own."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from stretto.kube.answers import Response
from stretto.kube.config import KubeConfig
from stretto.kube.connections import ConnectionPool
from stretto.kube.streams import Stream
from stretto.kube.ways import HEADERS, Answer, Headers

_TARGET = re.compile(r"/[!-~]*\Z")


class _Streamed:
    """An answer on a stream."""

    def __init__(self, stream: Stream, *, status: int, retry_after: float | None) -> None:
        self.status = status
        self.retry_after = retry_after
        self.pieces = stream.pieces


class Direct:
    """A :class:`~stretto.kube.ways.Way`."""

    def __init__(self, config: KubeConfig, *, connections: int) -> None:
        """Raises :class:`ConfigError` if the certificates cannot be loaded."""
        parts = urlsplit(config.url)
        assert parts.hostname, "an address without a host"
        secure = parts.scheme == "https"
        self._fixed = "".join(
            f"{name}: {value}\r\n" for name, value in {"Host": parts.netloc, **HEADERS}.items()
        )
        files = config.tls.renewable(origin=config.origin) if secure else None
        self._pool = ConnectionPool(
            parts.hostname,
            parts.port or (443 if secure else 80),
            limit=connections,
            tls=(lambda: files.current) if files is not None else None,
            server_name=config.tls.server_name,
        )

    async def send(
        self, method: str, target: str, headers: Headers, data: bytes | None, *, timeout_s: float
    ) -> Response:
        """One request on a pooled connection."""
        lines = headers.lines
        if data is not None or method == "POST":
            lines += f"Content-Length: {len(data or b'')}\r\n"
        head = self._head(method, target, lines)
        reply = await self._pool.request(head + data if data else head, timeout_s=timeout_s)
        return Response(status=reply.status, body=reply.body, retry_after=reply.retry_after)

    async def send_row(
        self, targets: Sequence[str], headers: Headers, bodies: Sequence[bytes], *, timeout_s: float
    ) -> list[Response]:
        """One behind the other on one connection."""
        requests = [
            self._head("POST", target, f"{headers.lines}Content-Length: {len(body)}\r\n") + body
            for target, body in zip(targets, bodies, strict=True)
        ]
        replies = await self._pool.request_row(requests, timeout_s=timeout_s)
        return [Response(r.status, r.body, r.retry_after) for r in replies]

    @asynccontextmanager
    async def stream(
        self, target: str, headers: Headers, *, connect_s: float, silence_s: float
    ) -> AsyncIterator[Answer]:
        """A watch on a connection of its own."""
        head = self._head("GET", target, headers.lines)
        async with self._pool.stream(head, connect_s=connect_s, silence_s=silence_s) as stream:
            answer = await stream.head()
            yield _Streamed(stream, status=answer.status, retry_after=answer.retry_after)

    async def close(self) -> None:
        """Close all connections."""
        self._pool.close()

    def _head(self, method: str, target: str, lines: str) -> bytes:
        # What is written to the connection as it is must not contain a line's end or a space.
        assert _TARGET.match(target), f"not a request target: {target[:100]!r}"
        return f"{method} {target} HTTP/1.1\r\n{self._fixed}{lines}\r\n".encode("ascii")
