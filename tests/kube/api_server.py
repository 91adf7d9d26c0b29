"""A scripted API server: each test says what the next requests are answered with."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ScriptedServer:
    """Answers requests by the handlers in :attr:`script`, first in, first out; the last one
    stays."""

    def __init__(self) -> None:
        self.script: list[Handler] = []
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.bodies.append(await request.read())
        handler = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return await handler(request)

    def queries(self, *, watch: bool) -> list[dict[str, str]]:
        return [dict(r.query) for r in self.requests if ("watch" in r.query) is watch]


@asynccontextmanager
async def serving(*script: Handler) -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer()
    server.script = list(script)
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


@asynccontextmanager
async def client_of(server: ScriptedServer, **settings: Any) -> AsyncIterator[KubeClient]:
    async with KubeClient(KubeConfig.from_url(server.url), **settings) as client:
        yield client


def answer(status: int, body: Any = None, headers: dict[str, str] | None = None) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return web.Response(
            status=status, body=data, headers=headers, content_type="application/json"
        )

    return handler


def status_body(code: int, message: str = "", reason: str = "") -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success" if code < 300 else "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }


def refusal(code: int, message: str = "", reason: str = "", **headers: str) -> Handler:
    return answer(code, status_body(code, message, reason), headers)


async def hang_up(request: web.Request) -> web.StreamResponse:
    """Close the connection with nothing said."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def say_nothing(_: web.Request) -> web.StreamResponse:
    await asyncio.sleep(3600)
    raise AssertionError("unreachable")


def pod(name: str, version: int, *, uid: str = "", **extra: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
        },
        **extra,
    }


def page(version: int, *items: dict[str, Any], more: str = "") -> Handler:
    metadata = {"resourceVersion": str(version), "continue": more}
    return answer(200, {"kind": "PodList", "metadata": metadata, "items": list(items)})


def line(kind: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def bookmark(version: int) -> bytes:
    return line(
        "BOOKMARK",
        {
            "kind": "Pod",
            "metadata": {"resourceVersion": str(version), "creationTimestamp": None},
            "spec": {"containers": None},
        },
    )


def stream(*pieces: bytes, then: str = "stay") -> Handler:
    """A watch answer of these pieces; then stay silent, end, or break off."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(0.005)
        if then == "stay":
            await asyncio.sleep(3600)
        if then == "break":
            assert request.transport is not None
            request.transport.abort()
        return response

    return handler
