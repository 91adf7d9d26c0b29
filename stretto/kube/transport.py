"""The one way out: a request is counted, and answered whole or not at all.

Nothing is retried here, with one exception: a 401 when the token lives in a file, which proves that
nothing was carried out, makes the token be read afresh and the request be sent once more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlencode, urlsplit

from stretto.kube.answers import Response, one_line
from stretto.kube.config import KubeConfig
from stretto.kube.direct import Direct
from stretto.kube.errors import KubeRefused, KubeUnreachable, WatchGone
from stretto.kube.usage import Usage
from stretto.kube.ways import Headers, NotOpenedError, Way

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
        self._root = urlsplit(config.url).path.rstrip("/")
        self._kinds: dict[tuple[str, str], Headers] = {}
        """By authorization and content type; a new token empties it."""
        self._way: Way | None = None

    def open(self) -> None:
        """Get ready. Raises :class:`~stretto.kube.errors.ConfigError` if TLS cannot be set up."""
        assert self._way is None, "opened twice"
        if self.config.proxy or self._trust_env:
            # Loading it takes longer than anything else here; who has no proxy never needs it.
            from stretto.kube.session import Session

            self._way = Session(
                self.config, connections=self._connections, trust_env=self._trust_env
            )
        else:
            self._way = Direct(self.config, connections=self._connections)

    async def close(self) -> None:
        """Close all connections; a request in flight ends as unknown."""
        way, self._way = self._way, None
        if way is not None:
            await way.close()

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
        assert self._way is not None, "the client is not open"
        answer = None
        for fresh in (False, True):
            headers, answer = self._headers(data, content_type, fresh), None
            try:
                answer = await self._way.send(method, target, headers, data, timeout_s=timeout_s)
            except OSError as error:  # TimeoutError is one
                raise self._unreachable(error, timeout_s) from error
            finally:
                self.usage.add(*counted, answer.status if answer is not None else 0)
            if answer.status != 401 or fresh or not self.config.renewable:
                break
        assert answer is not None, "neither an answer nor an error"
        return answer

    async def send_row(
        self, paths: Sequence[str], bodies: Sequence[bytes], *, counted: tuple[str, str]
    ) -> list[Response]:
        """POSTs in order, for what may be sent twice: the answers, fewer than asked for if the
        connection broke. Raises :class:`KubeUnreachable` when none could be sent."""
        assert self._way is not None, "the client is not open"
        headers = self._headers(b"", JSON, False)
        targets = [self._root + path for path in paths]
        try:
            answers = await self._way.send_row(targets, headers, bodies, timeout_s=self._timeout_s)
        except OSError as error:
            self.usage.add(*counted, 0)
            raise self._unreachable(error, self._timeout_s) from error
        for answer in answers:
            self.usage.add(*counted, answer.status)
        if self.config.renewable and any(answer.status == 401 for answer in answers):
            self.config.authorization(fresh=True)
        return answers

    @asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], *, counted: tuple[str, str], silence_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The pieces of an answer without an end, as they arrive, cut at arbitrary places.

        Iterating raises :class:`KubeUnreachable` when nothing arrives for ``silence_s`` or the
        connection breaks, and just ends when the server ends the answer. Entering raises
        :class:`WatchGone` for 410 and :class:`KubeRefused` for any other refusal.
        """
        assert self._way is not None, "the client is not open"
        headers = self._headers(None, JSON, False)
        target = f"{self._root}{path}?{urlencode(params)}"
        code = 0
        try:
            async with self._way.stream(
                target, headers, connect_s=self._timeout_s, silence_s=silence_s
            ) as answer:
                code = answer.status
                if code != 200:
                    body = b"".join([piece async for piece in answer.pieces()])
                    self._refuse_stream(Response(code, body, answer.retry_after), path)
                yield answer.pieces()
        except OSError as error:  # TimeoutError is one
            raise self._unreachable(error, silence_s) from error
        finally:
            self.usage.add(*counted, code)

    def _headers(self, data: bytes | None, content_type: str, fresh: bool) -> Headers:
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
            found = self._kinds[key] = Headers(fields, lines)
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
        if isinstance(error, NotOpenedError):
            reason = one_line(str(error))
            return KubeUnreachable(
                f"the API server at {self.config.url} cannot be reached: {reason}; "
                "check that it runs and that the address is right",
                sent=False,
            )
        if isinstance(error, TimeoutError):
            reason = f"nothing came for {waited_s:g} s"
        else:
            reason = one_line(str(error)) or type(error).__name__
        return KubeUnreachable(f"the API server at {self.config.url} broke off: {reason}")
