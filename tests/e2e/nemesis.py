"""A proxy between one role and the API server that can hold binds back or swallow their answers.

It makes the two moments that matter reachable from outside, without a hook in the product: a bind
that has been sent and not executed, and one that was executed and whose answer is lost. It counts
what it did, so that a test can prove that its fault fired.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
from typing import Self

from aiohttp import ClientSession, ClientTimeout, TCPConnector, web

HOP_HEADERS = {"connection", "host", "transfer-encoding", "content-length", "keep-alive"}


class Mode(enum.Enum):
    """What happens to POST …/binding (or another subresource)."""

    PASS = "pass"
    HOLD = "hold"
    """Not forwarded until :meth:`Nemesis.release`."""
    SWALLOW = "swallow"
    """Forwarded and executed; the answer never arrives."""


class Nemesis:
    """``async with Nemesis(url, token) as proxy``; give ``proxy.url`` to the role."""

    def __init__(self, *, target: str, token: str, subresource: str = "binding") -> None:
        self._aims_at = f"/{subresource}"
        self.target = target
        self.token = token
        self.mode = Mode.PASS
        self.held = 0
        self.swallowed = 0
        self.late: list[int] = []
        """Statuses that the API server answered to held binds."""
        self.url = ""
        self._released = asyncio.Event()
        self._tasks: set[asyncio.Future[web.StreamResponse]] = set()

    async def __aenter__(self) -> Self:
        timeout = ClientTimeout(total=None)
        self._session = ClientSession(connector=TCPConnector(ssl=False, limit=0), timeout=timeout)
        app = web.Application(client_max_size=8 << 20)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._runner.cleanup()
        await self._session.close()

    def release(self) -> None:
        """Let the held binds go on to the API server: they arrive late."""
        self.mode = Mode.PASS
        self._released.set()

    def hold_no_more(self) -> None:
        """Binds that come from now on pass; those held stay held."""
        self.mode = Mode.PASS

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        is_bind = request.method == "POST" and request.path.endswith(self._aims_at)
        body = await request.read()
        mode = self.mode
        if is_bind and mode is Mode.HOLD:
            self.held += 1
            # The bind goes on even if the sender is dead by then: that is a late bind.
            task = asyncio.ensure_future(self._late(request, body))
            self._tasks.add(task)
            return await asyncio.shield(task)
        reply = await self._forward(request, body)
        if is_bind and mode is Mode.SWALLOW:
            self.swallowed += 1
            await asyncio.sleep(3600)
        return reply

    async def _late(self, request: web.Request, body: bytes) -> web.StreamResponse:
        await self._released.wait()
        reply = await self._forward(request, body)
        self.late.append(reply.status)
        return reply

    async def _forward(self, request: web.Request, body: bytes) -> web.StreamResponse:
        headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP_HEADERS}
        headers["Authorization"] = f"Bearer {self.token}"
        async with self._session.request(
            request.method, self.target + request.raw_path, data=body or None, headers=headers
        ) as upstream:
            if "watch=" not in request.query_string:
                data = await upstream.read()
                kind = upstream.headers.get("Content-Type", "application/json")
                return web.Response(
                    status=upstream.status, body=data, headers={"Content-Type": kind}
                )
            reply = web.StreamResponse(status=upstream.status)
            await reply.prepare(request)
            with contextlib.suppress(ConnectionError):
                async for chunk in upstream.content.iter_any():
                    await reply.write(chunk)
            return reply
