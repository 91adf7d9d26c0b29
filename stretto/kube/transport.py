"""The one way out: a request on a pooled connection, counted, and answered whole or not at all.

Nothing is retried here, with one exception: a 401 when the token lives in a file, which proves that
nothing was carried out, makes the token be read afresh and the request be sent once more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp
from yarl import URL

from stretto.kube.answers import Response, one_line
from stretto.kube.config import KubeConfig
from stretto.kube.errors import KubeRefused, KubeUnreachable, WatchGone
from stretto.kube.session import open_session
from stretto.kube.usage import Usage

JSON = "application/json"


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
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._base = config.url
        self._server_name = config.configuration.tls_server_name
        self._proxy = config.configuration.proxy
        self._session: aiohttp.ClientSession | None = None

    def open(self) -> None:
        """Make the session. Raises :class:`~stretto.kube.errors.ConfigError` if TLS cannot be set
        up."""
        assert self._session is None, "opened twice"
        self._session = open_session(
            self.config, connections=self._connections, trust_env=self._trust_env
        )

    async def close(self) -> None:
        """Close all connections; a request in flight ends as unknown."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

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
        """One request. ``path`` is percent-encoded already; ``counted`` is (verb, resource) for
        :attr:`usage`.

        Raises :class:`KubeUnreachable` when no whole answer came.
        """
        timeout = self._timeout if timeout_s is None else aiohttp.ClientTimeout(total=timeout_s)
        for fresh in (False, True):
            code = 0
            try:
                async with self._request(
                    method, path, params, data, self._headers(data, content_type, fresh), timeout
                ) as reply:
                    body = await reply.read()
                    code = reply.status
                    wait = _retry_after(reply.headers.get("Retry-After"))
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise self._unreachable(
                    error, self._timeout_s if timeout_s is None else timeout_s
                ) from error
            finally:
                self.usage.add(*counted, code)
            if code != 401 or fresh or not self.config.renewable:
                break
        return Response(status=code, body=body, retry_after=wait)

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
        code = 0
        try:
            async with self._request(
                "GET", path, params, None, self._headers(None, JSON, False), timeout
            ) as reply:
                code = reply.status
                if code != 200:
                    self._refuse_stream(
                        Response(
                            status=code,
                            body=await reply.read(),
                            retry_after=_retry_after(reply.headers.get("Retry-After")),
                        ),
                        path,
                    )
                yield reply.content.iter_any()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(error, silence_s) from error
        finally:
            self.usage.add(*counted, code)

    def _request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        data: bytes | None,
        headers: dict[str, str],
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.client._RequestContextManager:
        assert self._session is not None, "the client is not open"
        return self._session.request(
            method,
            URL(self._base + path, encoded=True),
            params=params,
            data=data,
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
            server_hostname=self._server_name,
            proxy=self._proxy,
        )

    def _headers(self, data: bytes | None, content_type: str, fresh: bool) -> dict[str, str]:
        headers = {}
        authorization = self.config.authorization(fresh=fresh)
        if authorization:
            headers["Authorization"] = authorization
        if data is not None:
            headers["Content-Type"] = content_type
        return headers

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
        if isinstance(error, aiohttp.ClientConnectorError):
            reason = one_line(str(error.os_error) or str(error))
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
    """Seconds of a Retry-After header; its form as a date is not used by Kubernetes and read as
    absent."""
    if value is None or not value.strip().isdigit():
        return None
    return min(float(value), 3600.0)
