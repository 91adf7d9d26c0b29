"""An HTTP extender that says what a test wants it to say, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web


class FakeExtender:
    """``answers``: verb → what is answered: an object, bytes, "hang", a status, or a function of
    the question."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.url = ""
        self._over = asyncio.Event()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        verb = request.path.rpartition("/")[2]
        question = await request.json()
        self.asked.append((verb, question))
        answer = self.answers[verb]
        if callable(answer):
            answer = answer(question)
            if asyncio.iscoroutine(answer):
                answer = await answer
        if answer == "hang":
            await self._over.wait()
        if isinstance(answer, int):
            return web.Response(status=answer)
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        return web.Response(body=body, content_type="application/json")

    @contextlib.asynccontextmanager
    async def serving(self, *, ssl: Any = None) -> AsyncIterator[FakeExtender]:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/{verb:.*}", self._serve)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=ssl)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        self.url = f"{'https' if ssl else 'http'}://127.0.0.1:{port}/api"
        try:
            yield self
        finally:
            self._over.set()
            await runner.cleanup()
