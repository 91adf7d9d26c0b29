"""A consistent list, then the watch, for ever.

The naive form, list once and read lines until the connection breaks, loses deletions during every
gap, takes a half-open connection for a quiet cluster, and starts from a cache that may be older
than what was seen before. So:

1. The list is read in pages at no given version (a quorum read; ``resourceVersion=0`` would allow a
   stale cache). A page token that has expired (410) starts the list again.
2. The watch continues from the list's version, with bookmarks, so that a later continuation is
   rarely too old. When the server ends it, or it breaks, it is taken up again from the last version
   that a line or bookmark told.
3. Nothing for ``silence_s`` counts as broken. A server says something of its own accord about once
   a minute, and with a bookmark 2 s before the end that was asked for: so the end is asked for
   early, and a quiet watch that works is told from a dead one within half a minute. (A list of one
   object would be no proof: its version moves on with every write to anything, and the object that
   was changed may be another. A watch from where the last one stopped tells all that was missed.)
4. 410, as a status or as a line, and any other ERROR line lead to 1; what was deleted meanwhile is
   found out by comparison (:mod:`stretto.kube.sightings`).
5. A watch that has lost a line does not know it. Whoever runs :meth:`Reflector.recheck` beside has
   it held against a read of its own every five minutes (:mod:`stretto.kube.recheck`).

Trouble is waited out with back-off, for ever, and shown in :attr:`Reflector.problem`; a consumer
that must not act on an old picture looks at :attr:`Reflector.heard_at`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Generic, NoReturn

from stretto.kube.backoff import Backoff
from stretto.kube.client import PAGE, KubeClient
from stretto.kube.errors import (
    KubeError,
    KubeRefused,
    KubeUnreachable,
    WatchGone,
    WatchStaleError,
)
from stretto.kube.readers import (
    BareObject,
    Bookmark,
    K,
    Line,
    LineBuffer,
    Page,
    Reader,
    Unreadable,
    version_of,
)
from stretto.kube.recheck import Recheck
from stretto.kube.reflections import Event
from stretto.kube.sightings import Name, Seen, Sightings
from stretto.kube.usage import DENIED, right_to

log = logging.getLogger(__name__)

CONFIRM_S = 10.0
CONFIRM_LOOK_S = 0.02
RECHECK_S = 300.0
"""Between two reads that look for what a watch has lost. Each is a list of all objects; of 50,000
pods it costs us 0.2 s of CPU in pieces of 3 ms, and 14 ms at its end."""
RECHECK_PAGE_S = 0.05
"""Between two of its pages, so that it takes a small share of the API server and of our loop."""
RECHECK_LOOK_S = 1.0
WATCH_S = (20, 25)
"""Asked length of one watch request: random in between, so that watches do not end all at once.
Informers ask for 300 to 600 s; theirs are heard once a minute."""
SILENCE_S = 27.0
"""The longest watch's, and two more for a slow server."""


class Reflector(Generic[K]):
    """Tells all changes of one kind of object, starting with those that exist. One run at a
    time."""

    def __init__(
        self,
        client: KubeClient,
        path: str,
        *,
        kind: type[K],
        params: Mapping[str, str] | None = None,
        page: int = PAGE,
        silence_s: float = SILENCE_S,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._path = path
        self._params = dict(params or {})
        self._page = page
        self._silence_s = silence_s
        self._rng = rng or random.Random()
        self._clock = clock
        self._reader: Reader[K] = Reader(kind)
        self._sightings: Sightings[K] = Sightings()
        self._backoff = Backoff(self._rng)
        self._version = 0
        self.synced = False
        """Whether a list has ever been completed."""
        self.problem = ""
        """What keeps it from hearing the server, or ''."""
        self.heard_at = -float("inf")
        """When the server was last heard, by ``clock``."""
        self.relists = 0
        """Lists begun, the first included."""
        self.losses = 0
        """Times that a read showed what the watch should have told and had not: a defect of the
        server, or of ours."""
        self._doubted = False
        """The next watch is to begin with a list."""

    @property
    def known(self) -> int:
        """How many objects exist, as far as was told."""
        return len(self._sightings)

    @property
    def dropped(self) -> int:
        """Watch lines that told nothing new."""
        return self._sightings.dropped

    async def confirm(self, *, timeout_s: float = CONFIRM_S) -> None:
        """Wait until everything that a consistent read shows by now was passed on by :meth:`run`.

        Raises:
            WatchStaleError: it was not within ``timeout_s`` after the read.
        """
        version, listed = await self._read_names()
        deadline = self._clock() + timeout_s
        while not self._sightings.caught_up(listed, list_version=version, position=self._version):
            if self._clock() > deadline:
                raise WatchStaleError(
                    f"the watch of {self._path} is more than {timeout_s:g} s behind the API server"
                )
            await asyncio.sleep(CONFIRM_LOOK_S)

    async def _read_names(self) -> tuple[int, dict[Name, Seen]]:
        """(version, what exists then), identities only; tries until the API server answers."""
        reader: Reader[BareObject] = Reader(BareObject)
        found: dict[Name, Seen] = {}
        token = ""
        while True:
            try:
                answer = await self._client.list_page(
                    self._path, self._params, limit=self._page, continue_token=token
                )
            except KubeError as error:
                await self._wait(str(error), 0.0)
                continue
            if not answer.ok:
                token = "" if answer.status == 410 else token
                text = f"list {self._path}: {answer.status} {answer.text}"
                await self._wait(self._problem_of(KubeRefused(text, status=answer.status)), 0.0)
                continue
            page = reader.page(answer.body)
            for item in page.items:
                meta = item.metadata
                seen = Seen(meta.uid, version_of(meta.resource_version))
                found[meta.namespace, meta.name] = seen
            token = page.continue_token
            if not token:
                return page.version, found

    async def recheck(self, *, every_s: float = RECHECK_S) -> NoReturn:
        """Look for what the watch has lost, for ever; :meth:`run` lists anew if it has."""
        while True:
            await asyncio.sleep(every_s * self._rng.uniform(0.9, 1.1))
            if not self.synced or self.problem or self._doubted:
                continue
            try:
                lost = await self._lost()
            except KubeError as error:
                log.info("recheck of %s: %s", self._path, error)
                continue
            finally:
                self._sightings.note_no_more()
            if lost:
                self.losses += 1
                self._doubted = True
                names = ", ".join("/".join(name) for name in lost[:3])
                log.error(
                    "the watch of %s has lost %d objects (%s); listing anew",
                    self._path, len(lost), names,
                )  # fmt: skip

    async def _lost(self) -> list[Name]:
        """What a read shows and the watch, when it is as far, has not told."""
        check, lists = Recheck(self._sightings), self.relists
        version = await self._read_into(check)
        while version:
            arrived = self._version >= version
            left = check.left()
            if self.relists != lists or not left:
                break
            if arrived:
                return left
            await asyncio.sleep(RECHECK_LOOK_S)
        return []

    async def _read_into(self, check: Recheck[K]) -> int:
        """The version of a whole read; 0 if the API server does not give it: another will do."""
        reader: Reader[BareObject] = Reader(BareObject)
        token = ""
        while True:
            answer = await self._client.list_page(
                self._path, self._params, limit=self._page, continue_token=token
            )
            if not answer.ok:
                return 0
            page = reader.page(answer.body)
            for item in page.items:
                meta = item.metadata
                check.listed((meta.namespace, meta.name), version_of(meta.resource_version))
            token = page.continue_token
            if not token:
                check.end(page.version)
                return page.version
            await asyncio.sleep(RECHECK_PAGE_S)

    async def run(self) -> AsyncIterator[list[Event[K]]]:
        """Batches of events, never empty. Never ends; raises nothing but cancellation."""
        while True:
            try:
                async for batch in self._list():
                    yield batch
            except WatchGone:
                await self._wait("the list expired while it was read", 0.0)
                continue
            except KubeError as error:
                await self._wait(self._problem_of(error), _asked_wait(error))
                continue
            async for batch in self._watch_until_gone():
                yield batch

    async def _list(self) -> AsyncIterator[list[Event[K]]]:
        self.relists += 1
        self._doubted = False
        self._sightings.begin_list()
        token = ""
        while True:
            page = await self._read_page(token)
            batch: list[Event[K]] = []
            for item in page.items:
                self._take_item(batch, item)
            if batch:
                yield batch
            token = page.continue_token
            if not token:
                break
        self._version = page.version
        self._healthy()
        self.synced = True
        yield self._sightings.end_list(page.version)

    async def _read_page(self, token: str) -> Page[K]:
        answer = await self._client.list_page(
            self._path, self._params, limit=self._page, continue_token=token
        )
        self._heard()
        if answer.status == 410:
            raise WatchGone(answer.text)
        if not answer.ok:
            raise KubeRefused(
                f"list {self._path}: {answer.status} {answer.text}",
                status=answer.status,
                retry_after_s=answer.retry_after,
            )
        return self._reader.page(answer.body)

    async def _watch_until_gone(self) -> AsyncIterator[list[Event[K]]]:
        """Watch requests in a row, each from where the last one stopped; ends when the list is
        needed."""
        while not self._doubted:
            began = self._clock()
            try:
                async for batch in self._watch_once():
                    yield batch
            except WatchGone as error:
                log.info("watch %s: the version is too old (%s); listing anew", self._path, error)
                return
            except KubeUnreachable as error:
                await self._wait(str(error), 0.0)
            except KubeRefused as error:
                await self._wait(self._problem_of(error), _asked_wait(error))
                if error.status != 429:
                    return
            else:
                if self._clock() - began < 1.0:
                    # A server that hangs up at once must not be asked again in a tight loop.
                    await asyncio.sleep(self._backoff.next_s())

    async def _watch_once(self) -> AsyncIterator[list[Event[K]]]:
        params = {
            **self._params,
            "resourceVersion": str(self._version),
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._rng.randint(*WATCH_S)),
        }
        buffer = LineBuffer()
        async with self._client.watch(self._path, params, silence_s=self._silence_s) as pieces:
            self._heard()
            self._speaks()  # a quiet watch says nothing for a minute
            async for piece in pieces:
                self._heard()
                whole = buffer.feed(piece)
                if not whole:
                    continue
                batch: list[Event[K]] = []
                try:
                    self._take_lines(batch, whole)
                except KubeError:
                    # What was seen is not told again, not even by a list: so it is passed on first.
                    if batch:
                        yield batch
                    raise
                self._healthy()
                if batch:
                    yield batch

    def _take_lines(self, batch: list[Event[K]], whole: bytes) -> None:
        for line in self._reader.lines(whole):
            if isinstance(line, Bookmark):
                self._version = max(self._version, line.version)
                continue
            item: K | Unreadable
            if isinstance(line, Line):
                what, item = str(line.type), line.object
            else:
                what, item = line
            self._warn_of(item)
            meta = item.metadata
            version = version_of(meta.resource_version)
            take = self._sightings.deleted if what == "DELETED" else self._sightings.changed
            take(batch, (meta.namespace, meta.name), meta.uid, version, item)
            self._version = max(self._version, version)

    def _take_item(self, batch: list[Event[K]], item: K | Unreadable) -> None:
        self._warn_of(item)
        meta = item.metadata
        self._sightings.listed(
            batch,
            (meta.namespace, meta.name),
            meta.uid,
            version_of(meta.resource_version),
            item,
        )

    def _warn_of(self, item: K | Unreadable) -> None:
        if isinstance(item, Unreadable):
            meta = item.metadata
            log.error("%s %s/%s: %s", self._path, meta.namespace, meta.name, item.problem)

    def _heard(self) -> None:
        self.heard_at = self._clock()

    def _healthy(self) -> None:
        self._backoff.reset()
        self._speaks()

    def _speaks(self) -> None:
        if self.problem:
            log.info("%s: heard again", self._path)
            self.problem = ""

    def _problem_of(self, error: KubeError) -> str:
        denied = isinstance(error, KubeRefused) and error.status == DENIED
        return f"{error}; {right_to(self._path)}" if denied else str(error)

    async def _wait(self, problem: str, at_least_s: float) -> None:
        if problem != self.problem:
            log.warning("%s", problem)
            self.problem = problem
        await asyncio.sleep(self._backoff.next_s(at_least_s=at_least_s))


def _asked_wait(error: KubeError) -> float:
    return (error.retry_after_s or 0.0) if isinstance(error, KubeRefused) else 0.0
