"""Sees when pods are bound, the same way for every contender: by a watch of identities."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator

import aiohttp
import msgspec

from tests.kube_env.control_plane import ControlPlane

METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class _Metadata(msgspec.Struct, gc=False):
    uid: str


class _Object(msgspec.Struct, gc=False):
    metadata: _Metadata


class _Line(msgspec.Struct, gc=False):
    type: str
    object: _Object


class BindWatch:
    """Counts binds."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._decode = msgspec.json.Decoder(_Line).decode
        self.seen: set[str] = set()
        """Uids of bound pods."""
        self.first_s = 0.0
        self.last_s = 0.0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch while the context lasts; leaving it raises what broke the watch."""
        trusted = ssl.create_default_context(cafile=str(self._plane.authority))
        connector = aiohttp.TCPConnector(ssl=trusted)
        headers = {"Authorization": f"Bearer {self._plane.admin_token}", "Accept": METADATA_ONLY}
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
            task = asyncio.create_task(self._watch(session))
            yield
            if task.done():
                task.result()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _watch(self, session: aiohttp.ClientSession) -> None:
        """An API server ends the watch of a client that does not keep up, and so it may end ours:
        the next one begins with all that exist."""
        while True:
            await self._one_watch(session)

    async def _one_watch(self, session: aiohttp.ClientSession) -> None:
        params = {"watch": "1", "fieldSelector": "spec.nodeName!=", "timeoutSeconds": "3600"}
        timeout = aiohttp.ClientTimeout(total=None)
        rest = b""
        url = f"{self._plane.url}/api/v1/pods"
        async with session.get(url, params=params, timeout=timeout) as reply:
            reply.raise_for_status()
            async for piece in reply.content.iter_any():
                now = time.monotonic()
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    self._note(line, now)

    def _note(self, line: bytes, now: float) -> None:
        change = self._decode(line)
        uid = change.object.metadata.uid
        if change.type == "ADDED" and uid not in self.seen:
            self.seen.add(uid)
            self.first_s = self.first_s or now
            self.last_s = now
