"""The shell around PREBIND: it writes, reads and tells the time; :mod:`binder.prebind` decides.

A write is a read and a patch with the version that was read as its precondition: what somebody else
has changed meanwhile is looked at again, never written over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from binder.bindings import Binding, Stage
from binder.device_writer import DeviceWriter
from binder.executor import version_of
from binder.machine import Machine
from binder.prebind import Answer, ClaimWrite, Nomination, Phase, Prebind, Step, Write
from binder.proposals import Reservation
from stretto.kube.client import MERGE, KubeClient, path_part, pod_path
from stretto.kube.errors import KubeError
from stretto.model.unit import Release
from stretto.model.volumes import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
)
from stretto.placement.devices.plan import NO_DEVICES
from stretto.placement.kernel import Kernel
from stretto.placement.volume_plan import NO_VOLUMES

logger = logging.getLogger(__name__)

WRITES_IN_FLIGHT = 16
TICK_S = 1.0
RELEASE_TRIES = 30


def limit_s(reservation: Reservation, kernel: Kernel) -> float:
    """How long the claims of a pod may take to be bound, by its profile."""
    return kernel.bind_timeout_s(
        reservation.shape.profile,
        volumes=reservation.volumes != NO_VOLUMES,
        devices=reservation.devices != NO_DEVICES,
    )


class PreBinder:
    """``run`` is its task. ``bind`` takes a pod whose turn to be bound has come, ``resolve`` one
    that was given up."""

    def __init__(
        self,
        machine: Machine,
        client: KubeClient,
        *,
        may_act: Callable[[], bool],
        changed: Callable[[], None],
        bind: Callable[[Binding], None],
        resolve: Callable[[Binding], None],
        rebase: Callable[[str, int], Awaitable[bool]],
        timeout_s: Callable[[Reservation], float],
    ) -> None:
        self._machine = machine
        self._client = client
        self._may_act = may_act
        self._changed = changed
        self._bind = bind
        self._resolve = resolve
        self._rebase = rebase
        self._timeout_s = timeout_s
        self._devices = DeviceWriter(machine, client, may_act=may_act)
        self._slots = asyncio.Semaphore(WRITES_IN_FLIGHT)
        self._wake = asyncio.Event()
        self._releases: dict[Release, None] = {}
        """Asked for and not begun."""

    def release(self, orders: Iterable[Release]) -> None:
        """Claims whose devices keep pods from where they could go."""
        self._releases.update(dict.fromkeys(orders))
        self._wake.set()

    def put(self, binding: Binding) -> None:
        """A pod in PREBIND was reserved."""
        limit = self._timeout_s(binding.reservation)
        deadline_s = time.monotonic() + limit
        self._machine.prebinds.begin(binding, deadline_s=deadline_s)
        self._wake.set()

    def seen(self) -> None:
        """The watches have shown something."""
        if self._machine.prebinds.by_uid:
            self._wake.set()

    async def run(self) -> None:
        """Work until cancelled."""
        ticked = time.monotonic()
        async with asyncio.TaskGroup() as group:
            while True:
                timeout_s = TICK_S if self._machine.prebinds.by_uid else None
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(timeout_s):
                        await self._wake.wait()
                self._wake.clear()
                releases, self._releases = self._releases, {}
                for order in releases:
                    group.create_task(self._give_up_devices(order))
                now_s = time.monotonic()
                everybody = now_s - ticked >= TICK_S
                ticked = now_s if everybody else ticked
                for prebind in self._due(everybody=everybody):
                    self._advance(prebind, group, now_s=now_s)

    def _due(self, *, everybody: bool) -> list[Prebind]:
        prebinds = self._machine.prebinds
        cluster = self._machine.cluster
        touched = cluster.storage.take_touched() + cluster.devices.take_touched()
        due, prebinds.due = prebinds.due, []
        if everybody:
            return list(prebinds.by_uid.values())
        return due + [prebinds.by_uid[uid] for uid in touched if uid in prebinds.by_uid]

    def _advance(self, prebind: Prebind, group: asyncio.TaskGroup, *, now_s: float) -> None:
        prebinds = self._machine.prebinds
        if prebind.phase is Phase.OVER:
            return
        prebinds.look(prebind, now_s=now_s)
        if prebind.phase is Phase.READY:
            for each in prebinds.passed(prebind):
                self._devices.forget(each.binding.uid)
                each.binding.prebound()
                self._bind(each.binding)
            return
        if prebinds.undone(prebind):
            self._give_up(prebind)
            return
        step = prebinds.step(prebind)
        if step.write is not None and not prebind.stepping:
            prebind.stepping = True
            group.create_task(self._carry_out(prebind, step))

    def _give_up(self, prebind: Prebind) -> None:
        binding = prebind.binding
        self._machine.prebinds.end(prebind)
        if binding.over:
            return
        if prebind.withdrawn:
            binding.prebound()
            self._resolve(binding)
            return
        logger.info("pod %s: %s", binding.uid, prebind.failure)
        self._machine.cluster.denominate(binding.uid)
        binding.prebind_failed(prebind.failure, prebind.resource_version)
        self._machine.endings.stepped(binding)
        self._changed()

    async def _give_up_devices(self, order: Release) -> None:
        """What becomes of it is seen in the log; a shard that finds the same again asks again."""
        for _ in range(RELEASE_TRIES):
            async with self._slots:
                try:
                    answer = await self._devices.release(order) if self._may_act() else Answer.AGAIN
                except KubeError as error:
                    logger.warning("claim %s: %s", order.claim, error)
                    answer = Answer.AGAIN
            if answer is not Answer.AGAIN:
                return
            await asyncio.sleep(TICK_S)
        logger.warning("claim %s could not be given up for pod %s", order.claim, order.pod)

    async def _carry_out(self, prebind: Prebind, step: Step) -> None:
        assert step.write is not None
        try:
            await asyncio.sleep(step.delay_s)
            async with self._slots:
                if not self._may_act():
                    return  # the next tick asks again
                answer = await self._answer(prebind, step)
        finally:
            prebind.stepping = False
        self._machine.prebinds.answered(prebind, step, answer)
        self._machine.prebinds.due.append(prebind)
        self._wake.set()

    async def _answer(self, prebind: Prebind, step: Step) -> Answer:
        write, binding = step.write, prebind.binding
        assert write is not None
        if isinstance(write, ClaimWrite):
            return await self._device_answer(binding, write, undo=step.undo)
        if isinstance(write, Nomination):
            return await self._nomination_answer(prebind, write, undo=step.undo)
        if step.undo and self._machine.cluster.storage.held_by_others(binding.uid, write.claim):
            return Answer.DONE
        try:
            if write.volume:
                return await (self._unclaim if step.undo else self._claim)(write)
            return await self._select(write, undo=step.undo)
        except KubeError as error:
            logger.warning("binding claim %s: %s", write.claim, error)
            return Answer.AGAIN

    async def _device_answer(self, binding: Binding, write: ClaimWrite, *, undo: bool) -> Answer:
        try:
            if undo:
                return await self._devices.undo(binding, write)
            return await self._devices.write(binding, write)
        except KubeError as error:
            logger.warning("claim %s: %s", write.claim, error)
            return Answer.AGAIN

    # ------------------------------------------------------------------------------------ the pod
    async def _nomination_answer(
        self, prebind: Prebind, write: Nomination, *, undo: bool
    ) -> Answer:
        binding = prebind.binding
        try:
            return await (self._denominate(prebind) if undo else self._nominate(binding, write))
        except KubeError as error:
            logger.warning("nomination of pod %s: %s", binding.uid, error)
            return Answer.AGAIN

    async def _nominate(self, binding: Binding, write: Nomination) -> Answer:
        """The pod says where it is going. Its bind then needs the version that this makes."""
        uid, member = binding.uid, binding.reservation.member
        metadata = {"uid": uid, "resourceVersion": str(binding.resource_version)}
        patch = {"metadata": metadata, "status": {"nominatedNodeName": write.node}}
        answer = await self._client.patch_pod_status(member.namespace, member.name, patch)
        if not answer.ok:
            return Answer.AGAIN
        made = version_of(answer.body)
        if made and await self._rebase(uid, made):
            binding.moved(made)
        return Answer.DONE

    async def _denominate(self, prebind: Prebind) -> Answer:
        """It says so no longer. Without a version: what else changed the pod does not matter."""
        member = prebind.binding.reservation.member
        patch = {"metadata": {"uid": member.uid}, "status": {"nominatedNodeName": None}}
        path = pod_path(member.namespace, member.name) + "/status"
        answer = await self._client.patch(path, patch)
        if answer.ok:
            prebind.resource_version = version_of(answer.body)
        return Answer.DONE if answer.ok or answer.status in (404, 422) else Answer.AGAIN

    # ------------------------------------------------------------------------------------- claims
    async def _select(self, write: Write, *, undo: bool) -> Answer:
        """The selected-node annotation of a claim, or its end."""
        namespace, _, name = write.claim.partition("/")
        path = claim_path(namespace, name)
        claim = await self._read(path, PersistentVolumeClaim)
        if isinstance(claim, Answer):
            return claim
        if claim.metadata.uid != write.claim_uid:
            return Answer.LOST
        there = claim.metadata.annotation(SELECTED_NODE)
        if claim.spec.volume_name or there == (None if undo else write.node):
            return Answer.DONE
        if there is not None and there != write.node:
            return Answer.LOST
        value = None if undo else write.node
        metadata = precondition(claim) | {"annotations": {SELECTED_NODE: value}}
        return await self._patch(path, {"metadata": metadata})

    # ------------------------------------------------------------------------------------ volumes
    async def _claim(self, write: Write) -> Answer:
        """The claimRef of a volume."""
        volume = await self._read(volume_path(write.volume), PersistentVolume)
        if isinstance(volume, Answer):
            return volume
        ref = volume.spec.claim_ref
        namespace, _, name = write.claim.partition("/")
        if ref is not None and ref.uid == write.claim_uid:
            return Answer.DONE
        if ref is not None and ref != ObjectReference(namespace, name):
            return Answer.LOST
        claim_ref = {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace,
            "name": name, "uid": write.claim_uid,
        }  # fmt: skip
        metadata = precondition(volume)
        if ref is None:
            metadata["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
        body = {"metadata": metadata, "spec": {"claimRef": claim_ref}}
        return await self._patch(volume_path(write.volume), body)

    async def _unclaim(self, write: Write) -> Answer:
        """Take the claimRef back, unless the volume controller has acted on it."""
        volume = await self._read(volume_path(write.volume), PersistentVolume)
        if isinstance(volume, Answer):
            return volume
        ref = volume.spec.claim_ref
        ours = ref is not None and ref.uid == write.claim_uid
        by_us = volume.metadata.annotation(BOUND_BY_CONTROLLER) is not None
        if not ours or not by_us or volume.status.phase == "Bound":
            return Answer.DONE
        namespace, _, name = write.claim.partition("/")
        claim = await self._read(claim_path(namespace, name), PersistentVolumeClaim)
        if isinstance(claim, PersistentVolumeClaim) and claim.spec.volume_name:
            return Answer.DONE
        metadata = precondition(volume) | {"annotations": {BOUND_BY_CONTROLLER: None}}
        body = {"metadata": metadata, "spec": {"claimRef": None}}
        return await self._patch(volume_path(write.volume), body)

    # ----------------------------------------------------------------------------------- requests
    async def _read(self, path: str, kind: type[Any]) -> Any:
        """The object, or what its absence answers."""
        answer = await self._client.get(path)
        if answer.status == 404:
            return Answer.LOST
        if not answer.ok:
            logger.warning("reading %s: %d %s", path, answer.status, answer.text)
            return Answer.AGAIN
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except msgspec.DecodeError as error:
            logger.warning("reading %s: %s", path, error)
            return Answer.LOST

    async def _patch(self, path: str, body: dict[str, Any]) -> Answer:
        answer = await self._client.patch(path, body, content_type=MERGE)
        if answer.ok:
            return Answer.DONE
        if answer.status == 404:
            return Answer.LOST
        if answer.status != 409:
            logger.warning("changing %s: %d %s", path, answer.status, answer.text)
        return Answer.AGAIN


def precondition(found: PersistentVolume | PersistentVolumeClaim) -> dict[str, Any]:
    """Metadata of a patch that takes effect on this very version only."""
    meta = found.metadata
    return {"uid": meta.uid, "resourceVersion": meta.resource_version}


def claim_path(namespace: str, name: str) -> str:
    """Path of a claim."""
    return f"/api/v1/namespaces/{path_part(namespace)}/persistentvolumeclaims/{path_part(name)}"


def volume_path(name: str) -> str:
    """Path of a volume."""
    return f"/api/v1/persistentvolumes/{path_part(name)}"


def in_prebind(binding: Binding) -> bool:
    """Whether a reserved pod goes to PREBIND first."""
    return binding.stage is Stage.PREBIND
