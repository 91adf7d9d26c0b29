"""Creates pods when they are due, through a bounded number of requests at a time.

The schedule is an iterator and is drawn from only as far as requests can be sent, so a million
pods cost no memory. When the API server cannot keep up, pods come late; how late is measured, not
hidden, and no pod is skipped.

A creation whose answer got lost is sent again: the name is fixed, so if the first one did arrive
the second is answered 409 AlreadyExists, which counts as created.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

import msgspec

from stretto.kube.client import KubeClient
from stretto.kube.errors import KubeError
from stretto.workload.observations import Observations
from stretto.workload.records import ScheduledPod

TRIES = 6
RETRY_S = 0.2
_encode = msgspec.json.Encoder().encode


class Generator:
    """Creates a schedule's pods."""

    def __init__(
        self,
        client: KubeClient,
        observations: Observations,
        *,
        namespace: str,
        concurrency: int,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._observations = observations
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._concurrency = concurrency
        self._clock = clock
        self.lag_s = 0.0
        """The longest that a pod was created after it was due."""
        self.sent = 0

    async def run(self, schedule: Iterable[ScheduledPod], stop: asyncio.Event) -> None:
        """Create all pods; returns when the last is answered, or soon after ``stop`` is set."""
        source = iter(schedule)
        async with asyncio.TaskGroup() as group:
            for _ in range(self._concurrency):
                group.create_task(self._worker(source, stop))

    async def _worker(self, source: Iterator[ScheduledPod], stop: asyncio.Event) -> None:
        for pod in source:
            wait = pod.at_s - self._clock()
            if wait > 0:
                await self._pause(wait, stop)
            if stop.is_set():
                return
            self.lag_s = max(self.lag_s, self._clock() - pod.at_s)
            await self._create(pod)

    @staticmethod
    async def _pause(seconds: float, stop: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(seconds):
                await stop.wait()
        except TimeoutError:
            return

    async def _create(self, pod: ScheduledPod) -> None:
        name = pod.manifest["metadata"]["name"]
        self.sent += 1
        why = await self._post(_encode(pod.manifest))
        if why:
            self._observations.create_failed(why)
        else:
            self._observations.created(name, lifetime_s=pod.lifetime_s, now=self._clock())

    async def _post(self, body: bytes) -> str:
        """Why the pod could not be created; empty if it was."""
        why = ""
        for attempt in range(TRIES):
            wait = RETRY_S * 2**attempt
            try:
                answer = await self._client.post(self._path, body)
            except KubeError as error:
                why = str(error)
            else:
                if answer.ok or (answer.status == 409 and attempt):
                    return ""
                why = f"{answer.status}: {answer.text}"
                if answer.status != 429 and answer.status < 500:
                    return why
                wait = answer.retry_after or wait
            await asyncio.sleep(wait)
        return why


class Deleter:
    """Deletes pods when their time is over, counted from when they were seen bound."""

    def __init__(
        self,
        client: KubeClient,
        observations: Observations,
        *,
        namespace: str,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._observations = observations
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._clock = clock
        self._due: asyncio.PriorityQueue[tuple[float, str]] = asyncio.PriorityQueue()
        self.deleted = 0
        self.failed = 0

    def bound(self, name: str) -> None:
        """A pod runs from now on."""
        lifetime = self._observations.pods[name].lifetime
        if lifetime is not None:
            self._due.put_nowait((self._clock() + lifetime, name))

    async def run(self, workers: int = 8) -> None:
        """Delete until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._worker())

    async def _worker(self) -> None:
        while True:
            due, name = await self._due.get()
            wait = due - self._clock()
            if wait > 0:
                # Short naps: a pod that is due earlier may come in the meantime.
                self._due.put_nowait((due, name))
                await asyncio.sleep(min(wait, 0.05))
                continue
            await self.delete(name)

    async def delete(self, name: str) -> None:
        """Delete one pod now; one that is gone already is fine."""
        try:
            answer = await self._client.delete(f"{self._path}/{name}", {"gracePeriodSeconds": 0})
        except KubeError:
            self.failed += 1
            return
        if answer.ok or answer.status == 404:
            self.deleted += 1
        else:
            self.failed += 1
