"""Records the API server's history: everything that happens to pods, nodes and Leases, and to pod
groups where they are served when the recorder begins.

It lists, then watches from the list's version, and takes a broken watch up again at the last
version it saw, so that nothing is missed. Where the server no longer has that version (it was
started again, and the kind is a quiet one), a list shows whether anything has changed since; if so
the log says that there is a gap.
"""

from __future__ import annotations

import asyncio
import pathlib
import time
from types import TracebackType
from typing import Any, Self

import msgspec

from stretto.audit.rules_gangs import PLUGINS, UPSTREAM
from stretto.kube.client import KubeClient
from stretto.kube.errors import KubeError, WatchGone
from stretto.kube.readers import LineBuffer

PATHS = {
    "pods": "/api/v1/pods",
    "nodes": "/api/v1/nodes",
    "leases": "/apis/coordination.k8s.io/v1/leases",
}
GROUPS = {
    UPSTREAM: "/apis/scheduling.k8s.io/v1beta1/podgroups",
    PLUGINS: "/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
}
SILENCE_S = 90.0
CAUGHT_UP_S = 30.0


class _Event(msgspec.Struct):
    type: str
    object: dict[str, Any]


class Recorder:
    """``async with Recorder(client, file) as recorder``: all changes from then on."""

    def __init__(self, client: KubeClient, path: pathlib.Path, *, leases: str = "stretto-") -> None:
        self._client = client
        self._path = path
        self._leases = leases
        """Beginning of the names of the Leases that matter; others are renewed all the time."""
        self._versions: dict[str, int] = {}
        self._paths = dict(PATHS)
        self._seen: dict[str, dict[str, str]] = {kind: {} for kind in (*PATHS, *GROUPS)}
        """Kind → uid → version of what exists, as recorded."""
        self._tasks: list[asyncio.Task[None]] = []
        self._encode = msgspec.json.Encoder().encode
        self._events = msgspec.json.Decoder(_Event)

    async def __aenter__(self) -> Self:
        self._file = self._path.open("ab")
        for kind, path in GROUPS.items():
            if (await self._client.get(path)).status == 200:
                self._paths[kind] = path
        for kind in self._paths:
            await self._list(kind)
        self._tasks = [asyncio.create_task(self._follow(kind)) for kind in self._paths]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._file.close()

    async def caught_up(self) -> None:
        """Wait until everything that was written before this call is recorded.

        Raises:
            TimeoutError: it is not.
        """
        for kind in ("pods", "nodes"):
            page = await self._page(kind)
            versions = [int(item["metadata"]["resourceVersion"]) for item in page]
            wanted = max(versions, default=0)
            async with asyncio.timeout(CAUGHT_UP_S):
                while self._versions[kind] < wanted:  # noqa: ASYNC110 (a file, not a state of ours)
                    await asyncio.sleep(0.02)

    # ------------------------------------------------------------------------------------- reading
    async def _page(self, kind: str) -> list[dict[str, Any]]:
        answer = await self._client.get(self._paths[kind])
        body = msgspec.json.decode(answer.body)
        self._listed = int(body["metadata"]["resourceVersion"])
        return list(body.get("items") or ())

    async def _list(self, kind: str) -> None:
        items = await self._page(kind)
        self._versions[kind] = self._listed
        self._seen[kind].clear()
        for item in items:
            self._write(kind, "ADDED", item)

    async def _follow(self, kind: str) -> None:
        while True:
            try:
                await self._watch(kind)
            except WatchGone as error:
                before = dict(self._seen[kind])
                await self._list(kind)
                # Renewals of a Lease say nothing; what counts, its epochs, only ever grows.
                if kind != "leases" and self._seen[kind] != before:
                    self._file.write(self._encode({"gap": f"watch of {kind}: {error}"}) + b"\n")
            except KubeError:
                await asyncio.sleep(0.2)

    async def _watch(self, kind: str) -> None:
        params = {"resourceVersion": str(self._versions[kind]), "allowWatchBookmarks": "true"}
        buffer = LineBuffer()
        async with self._client.watch(self._paths[kind], params, silence_s=SILENCE_S) as pieces:
            async for piece in pieces:
                for line in (buffer.feed(piece) or b"").splitlines():
                    self._take(kind, line)

    def _take(self, kind: str, line: bytes) -> None:
        event = self._events.decode(line)
        if event.type == "ERROR":
            raise WatchGone(str(event.object.get("message", "")))
        self._versions[kind] = int(event.object["metadata"]["resourceVersion"])
        if event.type != "BOOKMARK":
            self._write(kind, event.type, event.object)

    def _write(self, kind: str, type_: str, item: dict[str, Any]) -> None:
        if kind == "leases" and not item["metadata"]["name"].startswith(self._leases):
            return
        meta = item["metadata"]
        meta.pop("managedFields", None)
        if type_ == "DELETED":
            self._seen[kind].pop(meta["uid"], None)
        else:
            self._seen[kind][meta["uid"]] = meta["resourceVersion"]
        line = {"t": time.monotonic_ns(), "kind": kind, "type": type_, "object": item}
        self._file.write(self._encode(line) + b"\n")
        self._file.flush()
