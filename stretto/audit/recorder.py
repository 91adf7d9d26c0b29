"""Records the API server's history: everything that happens to pods, nodes and Leases, and to pod
groups where they are served when the recorder begins.

It lists, then watches from the list's version, and takes a broken watch up again at the last
version it saw, so that nothing is missed. A server that was started again does not have that
version in its watch cache (410), while its store still has it: a list shows whether anything has
changed since, and if so every version up to the first that a watch can begin at (the refusal names
it) is listed by itself: the differences are the changes that the watch would have told. Only where
the store has forgotten them too, or they are too many, the log says that there is a gap, and from
where to where.
"""

from __future__ import annotations

import asyncio
import pathlib
import re
import time
from collections import Counter
from types import TracebackType
from typing import Any, Self

import msgspec

from stretto.audit.api_log import LISTED
from stretto.audit.rules_gangs import PLUGINS, UPSTREAM
from stretto.kube.client import KubeClient
from stretto.kube.errors import KubeError, KubeRefused, WatchGone
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
RETRY_S = 0.2
MOST_VERSIONS = 2_000
"""Versions that are listed one by one to fill a gap: some seconds' work at most."""
_BEGINS = re.compile(r"too old resource version: \d+ \((\d+)\)")
Objects = dict[str, dict[str, Any]]
"""By uid."""


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
        self.lines: Counter[str] = Counter()
        """Objects and changes recorded so far by kind."""
        self.gaps: list[str] = []
        """Why a part is missing, for each part."""
        self.away: dict[str, str] = {}
        """Kinds that are not watched at the moment, with the error; they are tried again."""
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

    @property
    def paths(self) -> tuple[str, ...]:
        """What is recorded: the API's paths of the kinds."""
        return tuple(self._paths.values())

    def check_tasks(self) -> None:
        """A watch that has ended for a reason nobody thought of is told, not waited for."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

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
            listed, objects = await self._objects(kind)
            wanted = max((version_of(item) for item in objects.values()), default=0)
            async with asyncio.timeout(CAUGHT_UP_S):
                while self._versions[kind] < wanted or self._outlived(kind, objects, listed):
                    self.check_tasks()
                    await asyncio.sleep(0.02)

    def _outlived(self, kind: str, objects: Objects, listed: int) -> bool:
        """Something that a list no longer shows is recorded as existing."""
        seen = self._seen[kind]
        return any(int(seen[uid]) <= listed for uid in seen.keys() - objects.keys())

    def end_unknown(self, why: str) -> None:
        """From what was recorded last on, nothing is known of any kind any more."""
        self.gaps.append(why)
        for kind, after in self._versions.items():
            self._write_line({"kind": kind, "type": LISTED, "after": after, "gap": why})

    # ------------------------------------------------------------------------------------- reading
    async def _objects(self, kind: str, version: int = 0) -> tuple[int, Objects]:
        """What exists of a kind, now or at an earlier version, and the version that shows it.

        Raises:
            KubeError: nothing can be read, or not at that version any more.
        """
        exact = {"resourceVersion": str(version), "resourceVersionMatch": "Exact"}
        answer = await self._client.get(self._paths[kind], exact if version else None)
        if not answer.ok:
            raise KubeRefused(f"list of {kind}: {answer.text}", status=answer.status)
        body = msgspec.json.decode(answer.body)
        listed = int(body["metadata"]["resourceVersion"])
        if version and listed != version:
            raise KubeRefused(f"list of {kind}: no lists of earlier versions", status=410)
        return listed, {item["metadata"]["uid"]: item for item in body.get("items") or ()}

    async def _list(self, kind: str) -> None:
        """The first list: what was before it is not known."""
        listed, objects = await self._objects(kind)
        self._write_list(kind, objects, after=0, until=listed)

    async def _follow(self, kind: str) -> None:
        while True:
            try:
                await self._watch_on(kind)
            except KubeError as error:
                self.away[kind] = str(error)
                await asyncio.sleep(RETRY_S)

    async def _watch_on(self, kind: str) -> None:
        try:
            await self._watch(kind)
        except WatchGone as error:
            until, objects = await self._objects(kind)
            changed = self._ours(kind, objects) != self._seen[kind]
            if changed and await self._filled(kind, self._begins(kind, error, until)):
                return
            # Renewals of a Lease say nothing; a change of its epoch is judged with care.
            why = f"watch of {kind}: {error}" if changed and kind != "leases" else ""
            self._write_list(kind, objects, after=self._versions[kind], until=until, why=why)

    def _begins(self, kind: str, error: WatchGone, until: int) -> int:
        """The first version that a watch can begin at, as its refusal says; else the list's."""
        named = _BEGINS.search(str(error))
        first = int(named[1]) if named else 0
        return first if self._versions[kind] < first < until else until

    async def _filled(self, kind: str, until: int) -> bool:
        """Tell what happened up to a version by listing each; False: it cannot be known.

        What has been told by then is true all the same.

        Raises:
            KubeError: the server is away; the next try goes on where this one ended.
        """
        after = self._versions[kind]
        if until - after > MOST_VERSIONS:
            return False
        try:
            _, before = await self._objects(kind, after)
            for version in range(after + 1, until + 1):
                _, objects = await self._objects(kind, version)
                self._write_changes(kind, before, objects, version)
                self._versions[kind], before = version, objects
        except KubeRefused as error:
            if error.status != 410:
                raise
            return False
        return True

    def _write_changes(self, kind: str, before: Objects, now: Objects, version: int) -> None:
        for uid in before.keys() - now.keys():
            item = before[uid]
            item["metadata"]["resourceVersion"] = str(version)
            self._write(kind, "DELETED", item)
        for uid, item in now.items():
            if version_of(item) == version:
                self._write(kind, "MODIFIED" if uid in before else "ADDED", item)

    def _write_list(
        self, kind: str, objects: Objects, *, after: int, until: int, why: str = ""
    ) -> None:
        seen = self._seen[kind]
        gone = sorted(seen.keys() - objects.keys())
        line = {"kind": kind, "type": LISTED, "after": after, "until": until, "gone": gone}
        self._write_line(line | ({"gap": why} if why else {}))
        self.gaps += [why] if why else []
        for uid in gone:
            del seen[uid]
        for item in objects.values():
            self._write(kind, "ADDED", item)
        self._versions[kind] = until

    def _ours(self, kind: str, objects: Objects) -> dict[str, str]:
        """Uid → version of what is recorded of it."""
        return {
            uid: item["metadata"]["resourceVersion"]
            for uid, item in objects.items()
            if self._matters(kind, item)
        }

    def _matters(self, kind: str, item: dict[str, Any]) -> bool:
        return kind != "leases" or bool(item["metadata"]["name"].startswith(self._leases))

    async def _watch(self, kind: str) -> None:
        params = {"resourceVersion": str(self._versions[kind]), "allowWatchBookmarks": "true"}
        buffer = LineBuffer()
        async with self._client.watch(self._paths[kind], params, silence_s=SILENCE_S) as pieces:
            self.away.pop(kind, None)
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
        if not self._matters(kind, item):
            return
        meta = item["metadata"]
        meta.pop("managedFields", None)
        if type_ == "DELETED":
            self._seen[kind].pop(meta["uid"], None)
        else:
            self._seen[kind][meta["uid"]] = meta["resourceVersion"]
        self.lines[kind] += 1
        self._write_line({"kind": kind, "type": type_, "object": item})

    def _write_line(self, line: dict[str, Any]) -> None:
        self._file.write(self._encode({"t": time.monotonic_ns(), **line}) + b"\n")
        self._file.flush()


def version_of(item: dict[str, Any]) -> int:
    """Of an object."""
    return int(item["metadata"]["resourceVersion"])
