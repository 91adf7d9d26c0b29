"""Tokens and rights asked of an API server: what is kept, for how long, and what an error is."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.kube.reviews import KEPT_S, MAX_KEPT, Reviews
from stretto.telemetry.guard import Verdict


class Authorities:
    """The two endpoints of an API server: who has a token, and who may read."""

    def __init__(self) -> None:
        self.users = {"a": "alice", "b": "bob"}
        self.readers = {"alice"}
        self.asked: Counter[str] = Counter()
        self.status = 201
        self.delay_s = 0.0
        self.at_once = self.most_at_once = 0

    async def _answer(self, status: dict[str, Any]) -> web.Response:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(self.delay_s)
        self.at_once -= 1
        return web.json_response({"status": status}, status=self.status)

    async def tokens(self, request: web.Request) -> web.Response:
        self.asked["tokens"] += 1
        user = self.users.get((await request.json())["spec"]["token"])
        if user is None:
            return await self._answer({"error": "no such token"})
        return await self._answer(
            {"authenticated": True, "user": {"username": user, "groups": ["g"], "extra": {"k": []}}}
        )

    async def access(self, request: web.Request) -> web.Response:
        self.asked["access"] += 1
        spec = (await request.json())["spec"]
        assert spec["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}
        assert spec["groups"] == ["g"]
        return await self._answer({"allowed": spec["user"] in self.readers})


@pytest.fixture
async def authorities() -> AsyncIterator[tuple[Authorities, KubeClient]]:
    found = Authorities()
    app = web.Application()
    app.router.add_post("/apis/authentication.k8s.io/v1/tokenreviews", found.tokens)
    app.router.add_post("/apis/authorization.k8s.io/v1/subjectaccessreviews", found.access)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with KubeClient(KubeConfig.from_url(url)) as client:
        yield found, client
    await runner.cleanup()


async def test_verdicts_are_kept_for_a_while(
    authorities: tuple[Authorities, KubeClient],
) -> None:
    """A right that was given or taken counts within ten seconds."""
    server, client = authorities
    now = 0.0
    reviews = Reviews(client, now=lambda: now)
    expected = {"a": Verdict.ALLOWED, "b": Verdict.FORBIDDEN, "?": Verdict.UNAUTHENTICATED}
    for _ in range(3):
        found = {token: await reviews.verdict(token, "/metrics") for token in expected}
        assert found == expected
    assert server.asked == {"tokens": 3, "access": 2}
    server.readers, now = {"bob"}, KEPT_S
    assert await reviews.verdict("a", "/metrics") is Verdict.FORBIDDEN
    assert await reviews.verdict("b", "/metrics") is Verdict.ALLOWED


@pytest.mark.parametrize("status", [401, 403, 500])
async def test_an_error_is_a_refusal_that_is_not_kept(
    authorities: tuple[Authorities, KubeClient], status: int
) -> None:
    server, client = authorities
    reviews = Reviews(client)
    server.status = status
    assert await reviews.verdict("a", "/metrics") is Verdict.UNKNOWN
    server.status = 201
    assert await reviews.verdict("a", "/metrics") is Verdict.ALLOWED


async def test_an_api_server_that_is_gone_lets_nobody_in() -> None:
    async with KubeClient(KubeConfig.from_url("http://127.0.0.1:1")) as client:
        assert await Reviews(client).verdict("a", "/metrics") is Verdict.UNKNOWN


async def test_made_up_tokens_cost_one_question_at_a_time_and_bounded_memory(
    authorities: tuple[Authorities, KubeClient],
) -> None:
    server, client = authorities
    reviews = Reviews(client)
    server.delay_s = 0.001
    count = MAX_KEPT + 40
    found = await asyncio.gather(*(reviews.verdict(f"t{i}", "/metrics") for i in range(count)))
    assert set(found) == {Verdict.UNAUTHENTICATED}
    assert server.most_at_once == 1
    assert len(reviews._kept) == MAX_KEPT
    assert "t1" not in repr(reviews._kept)
