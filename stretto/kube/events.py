"""The slower lane: Event objects, written when binds leave room, never in their way.

``offer`` puts a record into a bounded queue and returns at once. Workers send from it, a row of
requests at a time (:mod:`stretto.kube.rows`). While any binding POST is in flight all but one of
them hold back, so that a bind never queues behind an event, yet a steady stream of binds does not
keep events waiting for ever. That one rests then for some times as long as its row took, which
leaves the API server to the binds and lets the next row grow; it looks after each row whether the
others may join: nobody wakes just to look. What does not fit into the queue is dropped and counted:
an Event informs people, the truth is in the pod.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
import socket
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import zip_longest

import msgspec

from stretto.kube.answers import Response
from stretto.kube.backoff import Backoff
from stretto.kube.client import KubeClient
from stretto.kube.errors import KubeUnreachable

log = logging.getLogger(__name__)

NOTE_LIMIT = 1024
"""Bytes; the API server refuses a longer note."""
TRIES = 5
"""Sends of one event before it is dropped."""
ROW_MAX = 16
"""Events on their way on one connection, one behind the other."""
ROW_S = 0.5
"""A row that takes longer is too long: the events in it wait for each other, and other workers
could write them. Twice as long a row is tried after one that took half of it."""
RESTS = 3
"""While binds are in flight: how much longer is rested than a row took."""
REST_MAX_S = 0.2
ALONE_S = 60.0
"""How long events go one by one after a row was not answered whole: what is in between may pass on
the first request of a row and swallow the others, which costs a whole time-out each time."""
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


_quoted = msgspec.json.Encoder().encode
_BODY = (
    b'{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":%b,"namespace":%b},'
    b'"regarding":{"apiVersion":"v1","kind":"Pod","name":%b,"namespace":%b,"uid":%b},'
    b'"eventTime":"%b","reason":%b,"action":%b,"note":%b,"type":"%b",'
    b'"reportingController":%b,"reportingInstance":%b}'
)
"""Filled in, which takes half of what encoding an object does."""


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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._reporter = reporter
        self._host = socket.gethostname()
        self._capacity = capacity
        self._workers = workers
        self._rng = rng or random.Random()
        self._wall = wall
        self._clock = clock
        self._queue: deque[tuple[PodEvent, float]] = deque()
        self._filled = asyncio.Event()
        self._free_road = asyncio.Event()
        """No bind is in flight, or the queue is about to drop: all workers may send."""
        self._in_flight = 0
        self._row = 1
        """Events in a row now."""
        self._alone_until = 0.0
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
        """The worker that never holds back for long."""
        while True:
            while not self._queue:
                self._filled.clear()
                await self._filled.wait()
            self._look()
            took_s = await self._send_next()
            if not self._free_road.is_set():
                await asyncio.sleep(min(REST_MAX_S, RESTS * took_s))

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

    async def _send_next(self) -> float:
        """Write a row of those that wait longest; how long that took."""
        count = min(self._row, len(self._queue))
        row = [self._queue.popleft() for _ in range(count)]
        self._in_flight += count
        began = self._clock()
        try:
            written = await self._write(row)
        finally:
            self._in_flight -= count
        self.written += written
        self.dropped += count - written
        took_s = self._clock() - began
        if took_s > ROW_S:
            self._row = max(1, min(self._row, count // 2))
        elif took_s < ROW_S / 2 and count == self._row and self._clock() >= self._alone_until:
            self._row = min(ROW_MAX, count * 2)
        return took_s

    async def _write(self, row: list[tuple[PodEvent, float]]) -> int:
        """How many were written. What was not answered well is tried again, one by one: whoever is
        in between may not like rows."""
        backoff = Backoff(self._rng)
        left = [(event.namespace, self._body(event, happened_at)) for event, happened_at in row]
        written, wait_s = 0, 0.0
        for turn in range(TRIES):
            if turn:
                await asyncio.sleep(backoff.next_s(at_least_s=wait_s))
            again, wait_s = [], 0.0
            for sent in [left] if not turn else [[one] for one in left]:
                answers = await self._answers(sent)
                if len(answers) < len(sent) > 1:
                    self._row, self._alone_until = 1, self._clock() + ALONE_S
                for one, answer in zip_longest(sent, answers):
                    if answer is None or answer.status in (401, 429) or answer.status >= 500:
                        again.append(one)
                        wait_s = max(wait_s, (answer and answer.retry_after) or 0.0)
                    elif answer.ok or answer.status == 409:  # 409: an earlier try was carried out
                        written += 1
                    else:
                        log.warning("an event in namespace %s: %s", one[0], answer.text)
            left = again
            if not left:
                break
        return written

    async def _answers(self, events: list[tuple[str, bytes]]) -> list[Response]:
        try:
            return await self._client.create_events(events)
        except KubeUnreachable:
            return []

    def _body(self, event: PodEvent, happened_at: float) -> bytes:
        suffix = f"{int(happened_at * 1e9) & 0xFFFFFFFFFFFF:012x}{self._rng.getrandbits(32):08x}"
        note, reporter = event.note, event.reporter or self._reporter
        if len(note) * 4 > NOTE_LIMIT and len(note.encode()) > NOTE_LIMIT:
            note = note.encode()[: NOTE_LIMIT - 4].decode("utf-8", "ignore") + " …"
        name, namespace = _quoted(event.name), _quoted(event.namespace)
        return _BODY % (
            _quoted(f"{event.name[:230].rstrip('.-')}.{suffix}"), namespace,
            name, namespace, _quoted(event.uid),
            _micro_time(happened_at), _quoted(event.reason), _quoted(event.action), _quoted(note),
            b"Warning" if event.warning else b"Normal",
            _quoted(reporter), _quoted(f"{reporter}-{self._host}"[:128]),
        )  # fmt: skip


def _micro_time(wall_s: float) -> bytes:
    """As the API writes a MicroTime."""
    second = int(wall_s)
    return b"%b.%06dZ" % (_second(second), int((wall_s - second) * 1e6))


@functools.lru_cache(maxsize=64)
def _second(wall_s: int) -> bytes:
    return datetime.fromtimestamp(wall_s, UTC).isoformat()[:19].encode("ascii")
