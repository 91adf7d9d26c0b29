"""What a way out has to do: one request, or one answer without an end.

There are two: connections of our own (:mod:`stretto.kube.direct`), and, where a proxy is in the
way, the official client's session (:mod:`stretto.kube.session`), which is loaded only then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from stretto.kube.answers import Response

HEADERS = {
    "Accept": "application/json",
    # Compressing costs the API server more than loopback or a rack's network gains.
    "Accept-Encoding": "identity",
    "User-Agent": "stretto",
}


class NotOpenedError(OSError):
    """No connection could be opened: nothing was sent."""


class Headers(NamedTuple):
    """The headers of a request that depend on it; in both forms, made once per kind of request."""

    fields: dict[str, str]
    lines: str


class Answer(Protocol):
    """An answer of which the head has come."""

    @property
    def status(self) -> int:
        """HTTP's."""

    @property
    def retry_after(self) -> float | None:
        """Seconds, if the answer names them."""

    def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes, cut anywhere. Raises OSError when it breaks off."""


class Way(Protocol):
    """All raise OSError, TimeoutError included, when no whole answer came, and
    :class:`NotOpenedError` if nothing was sent."""

    async def send(
        self, method: str, target: str, headers: Headers, data: bytes | None, *, timeout_s: float
    ) -> Response:
        """One request."""

    async def send_row(
        self, targets: Sequence[str], headers: Headers, bodies: Sequence[bytes], *, timeout_s: float
    ) -> list[Response]:
        """POSTs in order, for what may be sent twice: the answers, fewer than asked for if the
        connection broke."""

    def stream(
        self, target: str, headers: Headers, *, connect_s: float, silence_s: float
    ) -> AbstractAsyncContextManager[Answer]:
        """A GET whose answer comes in pieces, with no pause above ``silence_s``."""

    async def close(self) -> None:
        """Close all connections; a request in flight ends as unknown."""
