"""The official client's HTTP session: the way out where a proxy is in the way.

Two things differ from how the session ships. ``trust_env`` is off, since with it aiohttp reads
``.netrc`` and the proxy variables for every request, which costs five times the request itself; a
machine behind a proxy turns it on. And nothing is retried below us: a retried write that was
carried out the first time would be counted as one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast
from urllib.parse import urlsplit

import aiohttp
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from yarl import URL

from stretto.kube.answers import Response
from stretto.kube.config import KubeConfig
from stretto.kube.ways import HEADERS, Answer, Headers, NotOpenedError

READ_BUFFER = 128 * 1024
"""Bytes. A watch passes on at most twice this at once, so that decoding one piece stalls the loop
by under 1 ms."""
WATCHES = 64
"""Connections kept beside the pool for watches; a process has a handful."""


class _Client(RESTClientObject):  # type: ignore[misc]
    """Builds the session that the official client would build."""

    def open_session(self) -> aiohttp.ClientSession:
        """A session with a pool of its own."""
        return cast("aiohttp.ClientSession", self._create_pool_manager())


class _Streamed:
    """An answer on a session."""

    def __init__(self, reply: aiohttp.ClientResponse) -> None:
        self.status = reply.status
        self.retry_after = _retry_after(reply.headers.get("Retry-After"))
        self._reply = reply

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes."""
        async for piece in self._reply.content.iter_any():
            yield piece


class Session:
    """A :class:`~stretto.kube.ways.Way`."""

    def __init__(self, config: KubeConfig, *, connections: int, trust_env: bool) -> None:
        """Raises :class:`ConfigError` if the certificates of ``config`` cannot be loaded."""
        parts = urlsplit(config.url)
        self._base = f"{parts.scheme}://{parts.netloc}"
        self._proxy = config.proxy
        self._server_name = config.tls.server_name
        configuration = Configuration(host=config.url)
        configuration.retries = None
        configuration.connection_pool_maxsize = connections + WATCHES
        configuration.client_session_kwargs = {
            "trust_env": trust_env,
            "read_bufsize": READ_BUFFER,
            "raise_for_status": False,
            "cookie_jar": aiohttp.DummyCookieJar(),
            "headers": HEADERS,
        }
        client = _Client(configuration)
        client.ssl_context = config.tls.renewable(origin=config.origin).value
        self._session = client.open_session()

    async def send(
        self, method: str, target: str, headers: Headers, data: bytes | None, *, timeout_s: float
    ) -> Response:
        """One request on a pooled connection."""
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        async with self._request(method, target, headers, data, timeout) as reply:
            return Response(
                status=reply.status,
                body=await reply.read(),
                retry_after=_retry_after(reply.headers.get("Retry-After")),
            )

    async def send_row(
        self, targets: Sequence[str], headers: Headers, bodies: Sequence[bytes], *, timeout_s: float
    ) -> list[Response]:
        """One after the other: a proxy may not like rows."""
        answers = []
        for target, body in zip(targets, bodies, strict=True):
            try:
                answers.append(await self.send("POST", target, headers, body, timeout_s=timeout_s))
            except OSError:
                if not answers:
                    raise
                break
        return answers

    @asynccontextmanager
    async def stream(
        self, target: str, headers: Headers, *, connect_s: float, silence_s: float
    ) -> AsyncIterator[Answer]:
        """A watch."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_s, sock_read=silence_s)
        async with self._request("GET", target, headers, None, timeout) as reply:
            try:
                yield _Streamed(reply)
            finally:
                # Left in the midst of it: without this, TLS would wait for a farewell.
                if reply.connection is not None and reply.connection.transport is not None:
                    reply.connection.transport.abort()

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()
        await asyncio.sleep(0)  # aborted connections close in the loop's next round

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        target: str,
        headers: Headers,
        data: bytes | None,
        timeout: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with self._session.request(
                method,
                URL(self._base + target, encoded=True),
                data=data,
                headers=headers.fields,
                timeout=timeout,
                allow_redirects=False,
                server_hostname=self._server_name,
                proxy=self._proxy,
            ) as reply:
                yield reply
        except TimeoutError:
            raise  # aiohttp's own are of both kinds
        except aiohttp.ClientConnectorError as error:
            raise NotOpenedError(str(error)) from error
        except aiohttp.ClientError as error:
            raise OSError(str(error) or type(error).__name__) from error


def _retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header; a date, which Kubernetes does not use, is read as absent."""
    if value is None or not value.strip().isdecimal():
        return None
    return min(float(value), 1e6)
