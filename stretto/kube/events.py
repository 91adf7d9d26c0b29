"""The slower lane: Event objects, written when binds leave room, never in their way.

``offer`` puts a record into a bounded queue and returns at once. Workers send from it; while any
binding POST is in flight all but one of them hold back, so that a bind never queues behind an
event, yet a steady stream of binds does not keep events waiting for ever. That one looks after each
of its events whether the others may join: nobody wakes just to look. What does not fit into the
queue is dropped and counted: an Event informs people, the truth is in the pod.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from stretto.kube.backoff import Backoff
from stretto.kube.client import KubeClient
from stretto.kube.errors import KubeUnreachable

log = logging.getLogger(__name__)

NOTE_LIMIT = 1024
"""Bytes; the API server refuses a longer note."""
TRIES = 5
"""Sends of one event before it is dropped."""
LOOK_S = 0.005
"""How often somebody who drains looks."""


class PodEvent(msgspec.Struct, frozen=True, gc=False):
    """Something that happened to a pod, for people."""

    namespace: str
    name: str
    uid: str
    reason: str
    """A word in upper camel case: Scheduled, FailedScheduling."""
    action: str
    """What was being done: Binding, Scheduling, Preempting."""
    note: str
    warning: bool = False
    reporter: str = ""
    """schedulerName that reports it; empty: the writer's."""


class _Metadata(msgspec.Struct, gc=False):
    name: str
    namespace: str


class _Regarding(msgspec.Struct, gc=False, rename="camel"):
    name: str
    namespace: str
    uid: str
    kind: str = "Pod"
    api_version: str = "v1"


class _Event(msgspec.Struct, gc=False, rename="camel"):
    metadata: _Metadata
    regarding: _Regarding
    event_time: str
    reason: str
    action: str
    note: str
    type: str
    reporting_controller: str
    reporting_instance: str
    api_version: str = "events.k8s.io/v1"
    kind: str = "Event"


_encode = msgspec.json.Encoder().encode


class EventWriter:
    """Writes events in the background. ``run`` is its task; ``drain`` waits for what is queued."""

    def __init__(
        self,
        client: KubeClient,
        *,
        reporter: str = "stretto",
        capacity: int = 65_536,
        workers: int = 16,
        rng: random.Random | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._reporter = reporter
        self._host = socket.gethostname()
        self._capacity = capacity
        self._workers = workers
        self._rng = rng or random.Random()
        self._wall = wall
        self._queue: deque[tuple[PodEvent, float]] = deque()
        self._filled = asyncio.Event()
        self._free_road = asyncio.Event()
        """No bind is in flight, or the queue is about to drop: all workers may send."""
        self._in_flight = 0
        self.written = 0
        self.dropped = 0
        """Did not fit into the queue, or could not be written."""

    @property
    def pending(self) -> int:
        """Queued or being sent."""
        return len(self._queue) + self._in_flight

    @property
    def _crowded(self) -> bool:
        """A queue half full is about to drop: then events take their share."""
        return len(self._queue) * 2 > self._capacity

    def offer(self, event: PodEvent) -> bool:
        """Queue an event; False if the queue is full and it was dropped."""
        if len(self._queue) >= self._capacity:
            self.dropped += 1
            return False
        self._queue.append((event, self._wall()))
        self._filled.set()
        self._look()
        return True

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lead())
            for _ in range(self._workers - 1):
                group.create_task(self._join())

    async def drain(self, timeout_s: float) -> bool:
        """Wait until nothing is pending; False if that took too long."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while self.pending:
            if asyncio.get_running_loop().time() >= deadline:
                return False
            await asyncio.sleep(LOOK_S)
        return True

    async def finish(self, timeout_s: float) -> int:
        """The process ends: write what is queued while there is time, then give up the rest.

        How many were given up; they count as dropped, and the log says so.
        """
        if await self.drain(timeout_s):
            return 0
        left = self.pending
        self._queue.clear()
        self.dropped += left
        log.warning("%d events of %s were not written before the end", left, self._reporter)
        return left

    async def _lead(self) -> None:
        """The worker that never holds back."""
        while True:
            while not self._queue:
                self._filled.clear()
                await self._filled.wait()
            self._look()
            await self._send_next()

    def _look(self) -> None:
        """Let the others join if the road is free."""
        if self._crowded or not self._client.binds_in_flight:
            self._free_road.set()

    async def _join(self) -> None:
        """A worker that sends while the road is free."""
        while True:
            await self._free_road.wait()
            if not self._queue or (self._client.binds_in_flight and not self._crowded):
                self._free_road.clear()
            else:
                await self._send_next()

    async def _send_next(self) -> None:
        event, happened_at = self._queue.popleft()
        self._in_flight += 1
        try:
            written = await self._write(event, happened_at)
        finally:
            self._in_flight -= 1
        self.written += written
        self.dropped += not written

    async def _write(self, event: PodEvent, happened_at: float) -> bool:
        body = self._body(event, happened_at)
        backoff = Backoff(self._rng)
        for _ in range(TRIES):
            try:
                answer = await self._client.create_event(body, namespace=event.namespace)
            except KubeUnreachable:
                await asyncio.sleep(backoff.next_s())
                continue
            if answer.ok or answer.status == 409:  # 409: an earlier try was carried out
                return True
            if answer.status != 429 and answer.status < 500:
                log.warning("event for %s/%s: %s", event.namespace, event.name, answer.text)
                return False
            await asyncio.sleep(backoff.next_s(at_least_s=answer.retry_after or 0.0))
        return False

    def _body(self, event: PodEvent, happened_at: float) -> bytes:
        suffix = f"{int(happened_at * 1e9) & 0xFFFFFFFFFFFF:012x}{self._rng.getrandbits(32):08x}"
        moment = datetime.fromtimestamp(happened_at, UTC)
        note, reporter = event.note, event.reporter or self._reporter
        if len(note.encode()) > NOTE_LIMIT:
            note = note.encode()[: NOTE_LIMIT - 4].decode("utf-8", "ignore") + " …"
        return _encode(
            _Event(
                metadata=_Metadata(f"{event.name[:230].rstrip('.-')}.{suffix}", event.namespace),
                regarding=_Regarding(event.name, event.namespace, event.uid),
                event_time=f"{moment.isoformat(timespec='microseconds')[:26]}Z",
                reason=event.reason,
                action=event.action,
                note=note,
                type="Warning" if event.warning else "Normal",
                reporting_controller=reporter,
                reporting_instance=f"{reporter}-{self._host}"[:128],
            )
        )
