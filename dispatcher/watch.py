"""The watch of pods that are ours and have no node yet, decoded and told to the machine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from functools import partial

from dispatcher.core import Core
from dispatcher.pods import Condition, PodSeen
from dispatcher.slow_lane import Unread
from stretto.aside import aside
from stretto.kube.client import KubeClient
from stretto.kube.reflections import Event, EventKind
from stretto.kube.reflector import Reflector
from stretto.model.bulk import bulky_to_read
from stretto.model.document import document_of
from stretto.model.errors import OperatorError
from stretto.model.groups import group_key_of
from stretto.model.jobs import job_of
from stretto.model.objects import Pod
from stretto.model.shape import Shape
from stretto.model.shaping import ShapeMaker
from stretto.model.unit import PodUid
from stretto.placement.extenders import Extender, interested, preempting

LABEL_SETS = 16_384
"""Different label sets remembered so that equal ones share memory."""


class Sight:
    """From a decoded pod to what the machine keeps of it."""

    def __init__(self, extenders: Sequence[Extender] = ()) -> None:
        self._maker = ShapeMaker()
        self._extenders = tuple(extenders)
        self._labels: dict[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]] = {}

    def of(self, pod: Pod, *, version: int, label_keys: tuple[str, ...]) -> PodSeen:
        """What the machine is told. A pod that cannot be read gets a refusal instead of a shape."""
        meta, spec, status = pod.metadata, pod.spec, pod.status
        shape: Shape | None = None
        refusal = ""
        try:
            shape = self._maker.shape_of(pod, label_keys=label_keys)
        except OperatorError as error:
            refusal = str(error)
        condition = None
        for item in status.conditions or ():
            if item.type == "PodScheduled" and item.status == "False":
                condition = Condition(item.reason or "", item.message or "")
        return PodSeen(
            PodUid(meta.uid),
            sys.intern(meta.namespace),
            meta.name,
            version,
            shape,
            refusal,
            sys.intern(spec.scheduler_name or ""),
            self._shared(meta.labels) if meta.labels else (),
            meta.generation,
            bool(spec.scheduling_gates),
            pod.leaving,
            condition,
            group_key_of(pod),
            job_of(pod) if meta.owner_references else "",
            document_of(pod) if shape is not None and self._asked(shape) else b"",
        )

    def _asked(self, shape: Shape) -> bool:
        """Whether an extender will be asked about pods of a shape."""
        asked = self._extenders
        return bool(asked) and bool(interested(asked, shape) or preempting(asked, shape))

    def _shared(self, labels: dict[str, str]) -> tuple[tuple[str, str], ...]:
        """The labels as a sorted tuple that equal sets share."""
        key = tuple(sorted(labels.items()))
        found = self._labels.get(key)
        if found is None:
            if len(self._labels) >= LABEL_SETS:
                self._labels.clear()
            self._labels[key] = found = key
        return found


class PodWatch:
    """One scheduler name's pending pods."""

    def __init__(
        self,
        client: KubeClient,
        *,
        core: Core,
        scheduler_name: str,
        extenders: Sequence[Extender] = (),
    ) -> None:
        self._core = core
        self._sight = Sight(extenders)
        self._slow_sight = Sight(extenders)
        """Of bulky pods: used by another thread."""
        self._synced = False
        self.unread: Unread[tuple[Pod, int]] = Unread(core.machine.limits.slow)
        """Bulky pods, with their version, that the machine has not heard of."""
        self._bulky_there = asyncio.Event()
        selector = f"spec.nodeName=,spec.schedulerName={scheduler_name}"
        self.reflector: Reflector[Pod] = Reflector(
            client, "/api/v1/pods", kind=Pod, params={"fieldSelector": selector}
        )

    async def run(self) -> None:
        """Tell the machine what happens until cancelled."""
        async for batch in self.reflector.run():
            self.take(batch)
            self._core.changed(patient=all(event.kind is EventKind.DELETED for event in batch))

    def take(self, batch: list[Event[Pod]]) -> None:
        """Tell the machine a batch of events."""
        machine, now = self._core.machine, self._core.now()
        keys = machine.shapes.label_keys
        for event in batch:
            kind, pod = event.kind, event.new
            if kind is EventKind.DELETED:
                self.unread.drop(event.uid)
                leaving = None
                if pod is not None:
                    leaving = pod.leaving
                machine.intake.deleted(event.uid, leaving=leaving, now=now)
            elif kind is EventKind.SYNCED:
                if not self._synced:
                    self._synced = True
                    machine.synced()
            elif pod is not None:
                version = event.resource_version
                if bulky_to_read(pod) and not pod.leaving:
                    self.unread.put(event.uid, (pod, version))
                    self._bulky_there.set()
                else:
                    self.unread.drop(event.uid)
                    machine.intake.seen(self._sight.of(pod, version=version, label_keys=keys), now)
            elif kind is EventKind.UNREADABLE:
                self.unread.drop(event.uid)
                machine.intake.seen(_unreadable(event), now)

    async def read_slowly(self) -> None:
        """Read bulky pods one at a time, beside the loop and in their share of the time, until
        cancelled."""
        core = self._core
        while True:
            await self._bulky_there.wait()
            if not self.unread:
                self._bulky_there.clear()
            elif (rest := self.unread.wait_s(core.now())) > 0:
                await asyncio.sleep(rest)
            else:
                began = core.now()
                uid, (pod, version) = self.unread.pop()
                keys = core.machine.shapes.label_keys
                sight = self._slow_sight
                seen = await aside(partial(_whole, sight, pod, version=version, label_keys=keys))
                now = core.now()
                self.unread.took(now - began, now=now)
                if self.unread.done(uid):
                    core.machine.intake.seen(seen, now)
                    core.changed()


def _whole(sight: Sight, pod: Pod, *, version: int, label_keys: tuple[str, ...]) -> PodSeen:
    """Read a pod, and make what its shape will be asked for first; in any thread."""
    seen = sight.of(pod, version=version, label_keys=label_keys)
    if seen.shape is not None:
        seen.shape.digest, seen.shape.reads  # noqa: B018
    return seen


def _unreadable(event: Event[Pod]) -> PodSeen:
    """A pod that exists and cannot be decoded."""
    return PodSeen(
        uid=PodUid(event.uid),
        namespace=event.namespace,
        name=event.name,
        resource_version=event.resource_version,
        shape=None,
        refusal=f"the pod cannot be read: {event.problem}",
    )
