"""Writes to ResourceClaims for a pod in PREBIND, and taking them back.

For a claim that was just allocated: the finalizer, then in one patch of its status the allocation
and the pod as a user; for one that was allocated before, the pod as a user only. For extended
resources the claim is made first, and the pod's status then says which container got what. Each
step may be repeated: what is there already stays as it is.

An allocation whose answer is lost may still arrive, when the devices have long been promised to
another claim. So it is sent for the version that the finalizer's patch has returned, and whoever
gives the devices to somebody else makes a new version first: here before an allocation is taken
back, in :mod:`binder.claim_fences` before a Binder opens.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from binder.bindings import Binding
from binder.claim_bodies import (
    allocation_body,
    fence_patch,
    finalizer_patch,
    release_patch,
    reserve_patch,
    special_claim,
)
from binder.machine import Machine
from binder.prebind import Answer, ClaimWrite
from stretto.kube.answers import Response
from stretto.kube.client import KubeClient, path_part
from stretto.model.device_objects import ResourceClaim
from stretto.model.devices import ClaimRow
from stretto.model.objects import ObjectMeta
from stretto.model.shape import Shape
from stretto.model.unit import Release
from stretto.placement.devices.claimed import container_mappings

logger = logging.getLogger(__name__)
_LOST = (404, 422)
"""The claim is gone, or the API refuses for good: it is allocated, being deleted, another uid."""


class _Named(msgspec.Struct, frozen=True):
    name: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    containers: list[_Named] = []
    init_containers: list[_Named] = []


class _Pod(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()


class DeviceWriter:
    """See the module docstring; errors of the connection are the caller's."""

    def __init__(
        self, machine: Machine, client: KubeClient, *, may_act: Callable[[], bool]
    ) -> None:
        self._machine = machine
        self._client = client
        self._may_act = may_act
        self._fences = itertools.count(1)
        self._made: dict[str, tuple[str, str]] = {}
        """Pod uid → (key, uid) of the claim that was made for its extended resources."""

    async def write(self, binding: Binding, write: ClaimWrite) -> Answer:
        """Make the claim the pod's."""
        key, uid = write.claim, write.claim_uid
        if write.special:
            made = self._made.get(binding.uid) or await self._make(binding, write)
            if isinstance(made, Answer):
                return made
            self._made[binding.uid] = key, uid = made
        if write.allocation is None:
            return await self._reserve(binding, write, key=key, uid=uid)
        protected = await self._client.patch(claim_path(key), finalizer_patch(uid))
        if not protected.ok:
            return _answer_of(protected, claim_path(key))
        claim = msgspec.json.decode(protected.body, type=ResourceClaim)
        answer = Answer.DONE
        if claim.status.allocation is None:
            if not self._may_act():
                return Answer.AGAIN
            version = claim.metadata.resource_version
            self._machine.cluster.devices.written(key)
            answer = await self._reserve(binding, write, key=key, uid=uid, version=version)
        elif all(user.uid != binding.uid for user in claim.status.reserved_for or ()):
            answer = Answer.LOST
        if answer is Answer.LOST:
            self._machine.cluster.devices.unwritten(key)
        if answer is Answer.DONE and write.special:
            return await self._tell_pod(binding, key)
        return answer

    async def _make(self, binding: Binding, write: ClaimWrite) -> tuple[str, str] | Answer:
        member = binding.reservation.member
        body = special_claim(
            write.special, namespace=member.namespace, pod_name=member.name, pod_uid=binding.uid
        )
        answer = await self._client.post(claims_path(member.namespace), body)
        if not answer.ok:
            return _answer_of(answer, "making a claim for extended resources")
        meta = msgspec.json.decode(answer.body, type=ResourceClaim).metadata
        key = f"{member.namespace}/{meta.name}"
        self._machine.cluster.devices.made(write.claim, key, claim_uid=meta.uid)
        return key, meta.uid

    async def _reserve(
        self, binding: Binding, write: ClaimWrite, *, key: str, uid: str, version: str = ""
    ) -> Answer:
        member, devices = binding.reservation.member, self._machine.cluster.devices
        body = None
        if write.allocation is not None:
            claim = devices.claim(key) or ClaimRow(
                member.namespace, key.partition("/")[2], uid, requests=write.special
            )
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            classes = self._machine.device_classes()
            body = allocation_body(write.allocation, claim, classes=classes, now=now)
        patch = reserve_patch(
            uid, pod_name=member.name, pod_uid=binding.uid, allocation=body, version=version
        )
        return await self._patch(f"{claim_path(key)}/status", patch)

    async def _tell_pod(self, binding: Binding, key: str) -> Answer:
        """Which container got its extended resources by which request."""
        member, shape = binding.reservation.member, binding.reservation.shape
        answer = await self._client.get_pod(member.namespace, member.name)
        if not answer.ok:
            return _answer_of(answer, f"reading pod {member.namespace}/{member.name}")
        pod = msgspec.json.decode(answer.body, type=_Pod)
        if pod.metadata.uid != binding.uid:
            return Answer.LOST
        spec = pod.spec
        names = [container.name for container in (*spec.init_containers, *spec.containers)]
        status = {
            "resourceClaimName": key.partition("/")[2],
            "requestMappings": mappings_body(shape, binding.reservation.devices.resources, names),
        }
        body: dict[str, Any] = {
            "metadata": {"uid": binding.uid, "resourceVersion": pod.metadata.resource_version},
            "status": {"extendedResourceClaimStatus": status},
        }
        patched = await self._client.patch_pod_status(member.namespace, member.name, body)
        return _answer_of(patched, f"status of pod {member.namespace}/{member.name}")

    async def undo(self, binding: Binding, write: ClaimWrite) -> Answer:
        """Take back what :meth:`write` did, or may have done."""
        devices = self._machine.cluster.devices
        if write.special:
            return await self._delete(binding)
        allocated = write.allocation is not None
        if allocated:
            mark = f"epoch {self._machine.cluster.epoch}, fence {next(self._fences)}"
            fenced = await self._patch(claim_path(write.claim), fence_patch(write.claim_uid, mark))
            if fenced is Answer.AGAIN:
                return fenced
        patch = release_patch(write.claim_uid, pod_uid=binding.uid, deallocate=allocated)
        path = f"{claim_path(write.claim)}/status"
        answer = await self._client.patch(path, patch)
        if answer.status == 422 and allocated:
            # Others use it by now: it stays allocated, and only this pod goes.
            patch = release_patch(write.claim_uid, pod_uid=binding.uid, deallocate=False)
            answer = await self._client.patch(path, patch)
        elif answer.ok and allocated:
            devices.unwritten(write.claim)
        done = _answer_of(answer, f"giving claim {write.claim} back")
        return Answer.DONE if done is Answer.LOST else done

    async def _delete(self, binding: Binding) -> Answer:
        made = self._made.get(binding.uid)
        if made is None:
            return Answer.DONE
        key, uid = made
        answer = await delete_claim(self._client, key, uid)
        if answer is not None:
            return _answer_of(answer, f"deleting claim {key}")
        self._machine.cluster.devices.unwritten(key)
        del self._made[binding.uid]
        return Answer.DONE

    async def release(self, order: Release) -> Answer:
        """Give up a claim's devices, unless somebody uses them by now."""
        cluster = self._machine.cluster
        used = not cluster.devices.unused(order.claim, uid=order.claim_uid, pod=order.pod)
        if used or order.pod in cluster.facts:
            return Answer.LOST
        patch = release_patch(order.claim_uid, pod_uid=order.pod, deallocate=True)
        return await self._patch(f"{claim_path(order.claim)}/status", patch)

    def forget(self, uid: str) -> None:
        """A pod has passed or is over."""
        self._made.pop(uid, None)

    async def _patch(self, path: str, body: dict[str, Any]) -> Answer:
        return _answer_of(await self._client.patch(path, body), path)


async def delete_claim(client: KubeClient, key: str, uid: str) -> Response | None:
    """None: the claim is gone, or going; else the answer that does not prove it."""
    bare = {"metadata": {"uid": uid, "finalizers": None}}
    for answer in (
        await client.patch(claim_path(key), bare),
        await client.delete(claim_path(key), {"preconditions": {"uid": uid}}),
    ):
        if not answer.ok and answer.status not in (404, 409, 422):
            return answer
    return None


def _answer_of(answer: Response, what: str) -> Answer:
    if answer.ok:
        return Answer.DONE
    if answer.status != 409:
        logger.warning("%s: %d %s", what, answer.status, answer.text)
    return Answer.LOST if answer.status in _LOST else Answer.AGAIN


def mappings_body(shape: Shape, resources: tuple[str, ...], names: list[str]) -> list[Any]:
    """PodExtendedResourceClaimStatus.requestMappings. ``names``: of all containers in order."""
    return [
        {"containerName": names[container], "resourceName": resource, "requestName": request}
        for container, resource, request in container_mappings(shape, resources)
    ]


def claims_path(namespace: str) -> str:
    """Path of the claims of a namespace."""
    return f"/apis/resource.k8s.io/v1/namespaces/{path_part(namespace)}/resourceclaims"


def claim_path(key: str) -> str:
    """Path of a claim."""
    namespace, _, name = key.partition("/")
    return f"{claims_path(namespace)}/{path_part(name)}"
