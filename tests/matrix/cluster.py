"""The matrix's own access to the API server, and the pods as it sees them by a watch."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from typing import Any, Self

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from tests.e2e.api import AT_ONCE, PODS, Api, node_of
from tests.e2e.stack import until

NODES = 30
NODE_PODS = 16
"""Room for 480 pods: a row's load fills most of it, so that a slot given twice shows."""


class Cluster(Api):
    """The tests' access with an address instead of a control plane of its own."""

    def __init__(self, url: str, *, token: str, tls: ssl.SSLContext | None) -> None:
        self.url = url
        self._token = token
        self._tls = tls
        self.nodes: dict[str, str] = {}
        """Pod → node, of the pods that are bound now, by name."""
        self.binds = 0
        """Pods seen to become bound."""

    async def __aenter__(self) -> Self:
        connector = TCPConnector(ssl=self._tls, limit=0) if self._tls else TCPConnector(limit=0)
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        timeout = ClientTimeout(total=30)
        self._session = ClientSession(connector=connector, timeout=timeout, headers=headers)
        return self

    async def answer(
        self, method: str, path: str, body: Any = None, *, kind: str = "application/json"
    ) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": kind}
        async with self._session.request(
            method, self.url + path, data=data, headers=headers
        ) as reply:
            return reply.status, await reply.json(content_type=None)

    async def insist(self, method: str, path: str, body: Any = None, *, kind: str = "") -> Any:
        """A call that is made again while the API server is away; 409 counts as done before."""
        while True:
            try:
                status, reply = await self.answer(
                    method, path, body, kind=kind or "application/json"
                )
            except (ClientError, TimeoutError, OSError):
                await asyncio.sleep(0.2)
                continue
            if status in (429, 500, 503, 504):
                await asyncio.sleep(0.2)
                continue
            assert status < 300 or status in (404, 409), (method, path, status, reply)
            return reply

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Keep :attr:`nodes` and :attr:`binds` up to date."""
        task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            with contextlib.suppress(ClientError, TimeoutError, OSError, KeyError, ValueError):
                listed = await self.call("GET", PODS)
                before, self.nodes = self.nodes, {}
                for pod in listed["items"]:
                    if node := node_of(pod):
                        self.nodes[pod["metadata"]["name"]] = node
                self.binds += len(self.nodes.keys() - before.keys())
                await self._watch(listed["metadata"]["resourceVersion"])
            await asyncio.sleep(0.1)

    async def _watch(self, version: str) -> None:
        query = f"?watch=1&resourceVersion={version}"
        endless = ClientTimeout(total=None)
        async with self._session.get(self.url + PODS + query, timeout=endless) as reply:
            rest = b""
            async for chunk in reply.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._take(json.loads(line))

    def _take(self, event: dict[str, Any]) -> None:
        pod = event["object"]
        name, node = pod["metadata"]["name"], node_of(pod)
        if event["type"] == "DELETED":
            self.nodes.pop(name, None)
        elif node:
            self.binds += name not in self.nodes
            self.nodes[name] = node

    async def clear_pods(self) -> None:
        """Delete all pods of namespace default and wait until they are gone."""
        await self.insist("DELETE", PODS, AT_ONCE)

        async def none() -> bool:
            return not (await self.insist("GET", PODS)).get("items")

        await until(none, timeout_s=30, what="no pods")
        self.nodes.clear()
