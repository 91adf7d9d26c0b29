"""The watches behind admission: Jobs that ask for it by their label, and PriorityClasses.

Either may be out of reach: the API not served, or its rights not granted. Then there is nothing to
admit (or priorities of classes count as 0), a line in the log says so, and it is tried again.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any

import msgspec

from dispatcher.core import Core
from stretto.kube.client import KubeClient
from stretto.kube.errors import KubeError
from stretto.kube.readers import KubeObject
from stretto.kube.reflections import Event, EventKind
from stretto.kube.reflector import Reflector
from stretto.kube.usage import DENIED, right_to
from stretto.model.jobs import (
    ADMISSION,
    ADMISSION_LABEL,
    JOBS_PATH,
    Job,
    JobSeen,
    Template,
    job_seen,
    template_of,
)
from stretto.model.objects import ObjectMeta

log = logging.getLogger(__name__)

CLASSES_PATH = "/apis/scheduling.k8s.io/v1/priorityclasses"
ASK_AGAIN_S = 1.0
LOOK_AGAIN_S = 30.0
ABSENT = (DENIED, 404)


class PriorityClass(msgspec.Struct, frozen=True, rename="camel"):
    """What a priority class says."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool | None = None


class JobWatch:
    """See the module docstring."""

    def __init__(self, client: KubeClient, *, core: Core, schedulers: Collection[str]) -> None:
        self._client = client
        self._core = core
        self._schedulers = schedulers
        self._classes: dict[str, PriorityClass] = {}
        self._classes_known = asyncio.Event()
        self._synced = False
        self._warned: dict[str, str] = {}
        """Path → why it cannot be listed, as the log has been told."""
        self._selector = {"labelSelector": f"{ADMISSION_LABEL}={ADMISSION}"}

    async def run(self) -> None:
        """Tell the machine what happens until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_classes())
            group.create_task(self._watch_jobs())

    async def _watch_classes(self) -> None:
        await self._until_reached(CLASSES_PATH, {}, without=self._without_classes)
        async for batch in self._batches(CLASSES_PATH, PriorityClass, {}):
            for event in batch:
                if event.kind is EventKind.DELETED:
                    self._classes.pop(event.name, None)
                elif event.kind is EventKind.SYNCED:
                    self._classes_known.set()
                elif event.new is not None:
                    self._classes[event.name] = event.new
            if self._classes_known.is_set():
                values = {name: each.value for name, each in self._classes.items()}
                defaults = [each.value for each in self._classes.values() if each.global_default]
                admission = self._core.machine.admission
                # Of several defaults the API server takes the lowest.
                admission.classes(values, default=min(defaults, default=0))
                self._core.changed()

    async def _watch_jobs(self) -> None:
        await self._classes_known.wait()
        await self._until_reached(JOBS_PATH, self._selector, without=self._without_jobs)
        async for batch in self._batches(JOBS_PATH, Job, self._selector):
            for event in batch:
                self.take(event)
            self._core.changed()

    def _batches(
        self, path: str, kind: type[KubeObject], params: dict[str, str]
    ) -> AsyncIterator[list[Event[Any]]]:
        return Reflector(self._client, path, kind=kind, params=params).run()

    def take(self, event: Event[Job]) -> None:
        """Tell the machine one event."""
        admission, job = self._core.machine.admission, event.new
        if event.kind is EventKind.SYNCED:
            admission.synced()
            self._first_done()
        elif event.kind is EventKind.DELETED:
            admission.gone(event.uid)
        elif event.kind is EventKind.UNREADABLE:
            seen = JobSeen(
                event.uid, event.namespace, event.name, event.resource_version, suspended=True
            )
            admission.seen(seen, Template(problem=f"the Job cannot be read: {event.problem}"))
        elif job is not None:
            seen = job_seen(job, version=event.resource_version)
            known = admission.knows(seen)
            template = None if known else template_of(job, schedulers=self._schedulers)
            admission.seen(seen, template)

    def _first_done(self) -> None:
        """What there is to admit is known; nothing is dispatched before."""
        if not self._synced:
            self._synced = True
            self._core.machine.synced()
            self._core.changed()

    def _without_classes(self) -> None:
        log.warning("priorities of Jobs that wait for admission count as 0")
        self._classes_known.set()

    def _without_jobs(self) -> None:
        log.warning("Jobs are not admitted: they cannot be listed")
        self._first_done()

    async def _until_reached(
        self, path: str, params: dict[str, str], *, without: Callable[[], None]
    ) -> None:
        """Wait until objects can be listed; ``without`` is called once if that takes longer."""
        for tries in itertools.count():
            if await self._reached(path, params):
                return
            if not tries:
                without()
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _reached(self, path: str, params: dict[str, str]) -> bool:
        """Whether objects can be listed; waits until the server has said."""
        while True:
            try:
                answer = await self._client.list_page(path, params, limit=1)
                if answer.ok:
                    self._warned.pop(path, None)
                    return True
                denied = f"; {right_to(path)}" if answer.status == DENIED else ""
                self._warn(path, f"{answer.status} {answer.text}{denied}")
                if answer.status in ABSENT:
                    return False
            except KubeError as error:
                self._warn(path, str(error))
            await asyncio.sleep(ASK_AGAIN_S)

    def _warn(self, path: str, why: str) -> None:
        """Say what keeps a list away, once until it is something else."""
        if self._warned.get(path) != why:
            self._warned[path] = why
            log.warning("list %s: %s", path, why)
