"""Asks the API server who shows a token, and whether that user may read a path.

The two questions that kube-scheduler's secure port asks, with its caching: a verdict counts for ten
seconds, so that a scrape costs two requests at most, and a token that was taken back is refused
soon. One question at a time and a bounded memory: tokens that somebody makes up cost the API server
no more than one after another does. Only the hash of a token is kept.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from typing import Any

import msgspec

from stretto.kube.client import KubeClient
from stretto.kube.errors import KubeUnreachable
from stretto.telemetry.guard import Verdict

logger = logging.getLogger(__name__)
KEPT_S = 10.0
MAX_KEPT = 256
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class User(msgspec.Struct):
    """Who has a token, in the API server's words."""

    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class TokenStatus(msgspec.Struct):
    """The answer to a TokenReview."""

    authenticated: bool = False
    user: User | None = None


class TokenReview(msgspec.Struct):
    """As much of one as is read."""

    status: TokenStatus


class AccessStatus(msgspec.Struct):
    """The answer to a SubjectAccessReview."""

    allowed: bool = False


class AccessReview(msgspec.Struct):
    """As much of one as is read."""

    status: AccessStatus


class Reviews:
    """:meth:`verdict` is a :data:`~stretto.telemetry.guard.Review`."""

    def __init__(self, client: KubeClient, *, now: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._now = now
        self._kept: dict[tuple[bytes, str], tuple[float, Verdict]] = {}
        self._asking = asyncio.Lock()

    async def verdict(self, token: str, path: str) -> Verdict:
        """May the token's user read ``path``? UNKNOWN, which is not kept, if nobody says."""
        key = (hashlib.sha256(token.encode()).digest(), path)
        async with self._asking:
            until_s, verdict = self._kept.get(key, (0.0, Verdict.UNKNOWN))
            if self._now() < until_s:
                return verdict
            try:
                verdict = await self._ask(token, path)
            except (KubeUnreachable, msgspec.DecodeError) as error:
                logger.warning("a reader of %s is refused unasked: %s", path, error)
                return Verdict.UNKNOWN
            self._kept.pop(key, None)
            while len(self._kept) >= MAX_KEPT:
                del self._kept[next(iter(self._kept))]
            if verdict is not Verdict.UNKNOWN:
                self._kept[key] = (self._now() + KEPT_S, verdict)
            return verdict

    async def _ask(self, token: str, path: str) -> Verdict:
        body = await self._review(TOKEN_REVIEWS, "TokenReview", {"token": token})
        if body is None:
            return Verdict.UNKNOWN
        status = msgspec.json.decode(body, type=TokenReview).status
        user = status.user
        if not status.authenticated or user is None:
            return Verdict.UNAUTHENTICATED
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        body = await self._review(ACCESS_REVIEWS, "SubjectAccessReview", spec)
        if body is None:
            return Verdict.UNKNOWN
        allowed = msgspec.json.decode(body, type=AccessReview).status.allowed
        return Verdict.ALLOWED if allowed else Verdict.FORBIDDEN

    async def _review(self, path: str, kind: str, spec: dict[str, Any]) -> bytes | None:
        group = path.split("/")[2]
        review = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
        answer = await self._client.post(path, review)
        if answer.ok:
            return answer.body
        logger.warning(
            "the API server answered %d to a %s; our account needs create on it",
            answer.status,
            kind,
        )
        return None
