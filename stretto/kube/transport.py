"""The one way out: a request on a pooled connection, counted, and answered whole or not at all.

Requests travel on connections of our own (:mod:`stretto.kube.connections`), or, where a proxy is in
the way, through aiohttp; watches always through aiohttp. Nothing is retried here, with one
exception: a 401 when the token lives in a file, which proves that nothing was carried out, makes
the token be read afresh and the request be sent once more.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

import aiohttp
from yarl import URL

from stretto.kube.answers import Response, one_line
from stretto.kube.config import KubeConfig
from stretto.kube.connections import ConnectionPool, NotOpenedError
from stretto.kube.errors import KubeRefused, KubeUnreachable, WatchGone
from stretto.kube.session import HEADERS, sessions_of
from stretto.kube.usage import Usage

JSON = "application/json"
WATCHES = 64
"""Connections kept beside the pool for watches; a process has a handful."""
_TARGET = re.compile(r"/[!-~]*\Z")


class _Headers(NamedTuple):
    """The headers of a request that depend on it; in both forms, made once per kind of request."""

    fields: dict[str, str]
    lines: str


class Transport:
    """Connections to one API server. Open before use, close after it."""

    def __init__(
        self, config: KubeConfig, *, connections: int, timeout_s: float, trust_env: bool
    ) -> None:
        self.config = config
        self.usage = Usage()
        self._connections = connections
        self._trust_env = trust_env
        self._timeout_s = timeout_s
        parts = urlsplit(config.url)
        self._root = parts.path.rstrip("/")
        self._base = config.url
        self._fixed = "".join(
            f"{name}: {value}\r\n" for name, value in {"Host": parts.netloc, **HEADERS}.items()
        )
        self._server_name = config.configuration.tls_server_name
        self._proxy = config.configuration.proxy
        self._kinds: dict[tuple[str, str], _Headers] = {}
        """By authorization and content type; a new token empties it."""
        self._session: aiohttp.ClientSession | None = None
        self._pool: ConnectionPool | None = None

    def open(self) -> None:
        """Get ready. Raises :class:`~stretto.kube.errors.ConfigError` if TLS cannot be set up."""
        assert self._session is None, "opened twice"
        sessions = sessions_of(
            self.config, connections=self._connections + WATCHES, trust_env=self._trust_env
        )
        self._session = sessions.open_session()
        if self._proxy or self._trust_env:
            return
        parts = urlsplit(self.config.url)
        secure = parts.scheme == "https"
        assert parts.hostname, "an address without a host"
        self._pool = ConnectionPool(
            parts.hostname,
            parts.port or (443 if secure else 80),
            limit=self._connections,
            tls=sessions.tls if secure else None,
            server_name=self._server_name,
        )

    async def close(self) -> None:
        """Close all connections; a request in flight ends as unknown."""
        session, self._session = self._session, None
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        if session is not None:
            await session.close()
            await asyncio.sleep(0)  # aborted connections close in the loop's next round

    async def send(
        self,
        method: str,
        path: str,
        data: bytes | None,
        *,
        counted: tuple[str, str],
        params: Mapping[str, str] | None = None,
        content_type: str = JSON,
        timeout_s: float | None = None,
    ) -> Response:
        """One request. ``path`` is percent-encoded already; ``counted`` is (verb, resource).

        Raises :class:`KubeUnreachable` when no whole answer came.
        """
        target = f"{self._root}{path}?{urlencode(params)}" if params else self._root + path
        timeout_s = timeout_s or self._timeout_s
        one = self._one_direct if self._pool is not None else self._one_by_session
        answer = None
        for fresh in (False, True):
            headers = self._headers(data, content_type, fresh)
            try:
                answer = await one(method, target, headers, data, timeout_s)
            except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
                raise self._unreachable(error, timeout_s) from error
            finally:
                self.usage.add(*counted, answer.status if answer is not None else 0)
            if answer.status != 401 or fresh or not self.config.renewable:
                break
        assert answer is not None, "neither an answer nor an error"
        return answer

    async def _one_direct(
        self,
        method: str,
        target: str,
        headers: _Headers,
        data: bytes | None,
        timeout_s: float,
    ) -> Response:
        assert self._pool is not None, "the client is not open"
        # What is written to the connection as it is must not contain a line's end or a space.
        assert _TARGET.match(target), f"not a request target: {target[:100]!r}"
        lines = headers.lines
        if data is not None or method == "POST":
            lines += f"Content-Length: {len(data or b'')}\r\n"
        head = f"{method} {target} HTTP/1.1\r\n{self._fixed}{lines}\r\n".encode("ascii")
        reply = await self._pool.request(head + data if data else head, timeout_s=timeout_s)
        return Response(status=reply.status, body=reply.body, retry_after=reply.retry_after)

    async def _one_by_session(
        self,
        method: str,
        target: str,
        headers: _Headers,
        data: bytes | None,
        timeout_s: float,
    ) -> Response:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        async with self._request(method, target, headers, data, timeout) as reply:
            return Response(
                status=reply.status,
                body=await reply.read(),
                retry_after=_retry_after(reply.headers.get("Retry-After")),
            )

    @asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], *, counted: tuple[str, str], silence_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The pieces of an answer without an end, as they arrive, cut at arbitrary places.

        Iterating raises :class:`KubeUnreachable` when nothing arrives for ``silence_s`` or the
        connection breaks, and just ends when the server ends the answer. Entering raises
        :class:`WatchGone` for 410 and :class:`KubeRefused` for any other refusal.
        """
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self._timeout_s, sock_read=silence_s
        )
        headers = self._headers(None, JSON, False)
        target = f"{self._root}{path}?{urlencode(params)}"
        code = 0
        try:
            async with self._request("GET", target, headers, None, timeout) as reply:
                code = reply.status
                if code != 200:
                    wait = _retry_after(reply.headers.get("Retry-After"))
                    self._refuse_stream(Response(code, await reply.read(), wait), path)
                try:
                    yield reply.content.iter_any()
                finally:
                    # Left in the midst of it: without this, TLS would wait for a farewell.
                    if reply.connection is not None and reply.connection.transport is not None:
                        reply.connection.transport.abort()
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise self._unreachable(error, silence_s) from error
        finally:
            self.usage.add(*counted, code)

    def _request(
        self,
        method: str,
        target: str,
        headers: _Headers,
        data: bytes | None,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.client._RequestContextManager:
        assert self._session is not None, "the client is not open"
        return self._session.request(
            method,
            URL(self._base[: len(self._base) - len(self._root)] + target, encoded=True),
            data=data,
            headers=headers.fields,
            timeout=timeout,
            allow_redirects=False,
            server_hostname=self._server_name,
            proxy=self._proxy,
        )

    def _headers(self, data: bytes | None, content_type: str, fresh: bool) -> _Headers:
        key = (self.config.authorization(fresh=fresh), content_type if data is not None else "")
        found = self._kinds.get(key)
        if found is None:
            if any(key[0] != authorization for authorization, _ in self._kinds):
                self._kinds.clear()
            fields = {
                name: value
                for name, value in zip(("Authorization", "Content-Type"), key, strict=True)
                if value
            }
            lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
            found = self._kinds[key] = _Headers(fields, lines)
        return found

    def _refuse_stream(self, answer: Response, path: str) -> None:
        if answer.status == 410:
            raise WatchGone(answer.text)
        if answer.status == 401 and self.config.renewable:
            self.config.authorization(fresh=True)
        raise KubeRefused(
            f"watch {path}: {answer.status} {answer.text}",
            status=answer.status,
            retry_after_s=answer.retry_after,
        )

    def _unreachable(self, error: BaseException, waited_s: float) -> KubeUnreachable:
        if isinstance(error, aiohttp.ClientConnectorError | NotOpenedError):
            reason = one_line(str(error))
            return KubeUnreachable(
                f"the API server at {self._base} cannot be reached: {reason}; "
                "check that it runs and that the address is right",
                sent=False,
            )
        if isinstance(error, TimeoutError):
            reason = f"nothing came for {waited_s:g} s"
        else:
            reason = one_line(str(error)) or type(error).__name__
        return KubeUnreachable(f"the API server at {self._base} broke off: {reason}")


def _retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header; a date, which Kubernetes does not use, is read as absent."""
    if value is None or not value.strip().isdecimal():
        return None
    return min(float(value), 1e6)
