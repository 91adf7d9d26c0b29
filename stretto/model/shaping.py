"""From a pod to its shape, once for each kind of pod.

A burst brings thousands of pods that differ in name, uid and generated token volume only. So the
maker first builds a *key* from the undecoded parts that a shape depends on (a few microseconds)
and looks the shape up; only a pod of a new kind is decoded, which costs some fifty times as much.
The key is a superset of what the shape reads: two pods with one key have one shape, while two
keys may well lead to equal shapes (spaces in JSON, order of tolerations). The node that each pod of
a DaemonSet names is a parameter: it is in the shape, and not in the key.

The memory is a least-recently-used list bounded in entries and in bytes, so that pods that are all
different cost time, not memory.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable

import msgspec
from msgspec import Raw

from stretto.model.affinity import (
    ShapeError,
    affinity_of,
    decoded,
    host_ports_of,
    node_selector_of,
    spread_of,
    tolerations_of,
)
from stretto.model.device_claims import device_claims_of, device_containers_of
from stretto.model.groups import group_key_of
from stretto.model.objects import Container, Pod, PodSpec, PodStatus
from stretto.model.pod_volumes import volumes_of
from stretto.model.requests import PodRequests, RequestError, read_requests
from stretto.model.shape import QUEUE_LABEL, Shape

__all__ = ["ShapeError", "ShapeMaker", "shape_of"]

Key = tuple[object, ...]
_ONE_NODE = re.compile(
    rb'"matchFields":\[\{"key":"metadata.name","operator":"In","values":\["([^"\\]+)"\]\}\]'
)
"""How the API server writes that a term asks for one node by name."""

SPREAD_CONTROLLERS = {
    "ReplicationController": "v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
}
"""Kinds of controllers that default spread constraints know, with their apiVersion."""


class _RestartRule(msgspec.Struct, frozen=True, gc=False):
    action: str = ""


class ShapeMaker:
    """Makes shapes and remembers them.

    ``entries`` and ``bytes_limit`` bound the memory; ``hits`` and ``misses`` count.
    """

    def __init__(self, *, entries: int = 16_384, bytes_limit: int = 64 << 20) -> None:
        self._known: OrderedDict[Key, tuple[Shape, int]] = OrderedDict()
        self._entries = entries
        self._bytes_limit = bytes_limit
        self._bytes = 0
        self.hits = 0
        self.misses = 0

    def shape_of(
        self, pod: Pod, *, label_keys: tuple[str, ...] = (), placed: bool = False
    ) -> Shape:
        """The shape of a pod.

        ``label_keys``: the sorted keys that live selectors read; labels under other keys are left
        out. ``placed``: the pod sits on a node already, so the name of that node and a nomination
        are no wish of its any more; without them it has the shape it had while it was pending.

        Raises:
            ShapeError: a part that cannot be read; names the field.
        """
        affinity = bytes(pod.spec.affinity)
        if b"matchFields" in affinity:
            return self._of_one_node(pod, affinity, label_keys=label_keys, placed=placed)
        key = _key(pod, label_keys, placed, affinity)
        found = self._remembered(key)
        if found is None:
            found = shape_of(pod, label_keys=label_keys, placed=placed)
            self._remember(key, found)
        return found

    def _of_one_node(
        self, pod: Pod, affinity: bytes, *, label_keys: tuple[str, ...], placed: bool
    ) -> Shape:
        """The shape of a pod that may name its node: remembered without the name if that is a
        parameter, else as any other."""
        names = set(_ONE_NODE.findall(affinity))
        name = names.pop().decode() if len(names) == 1 else ""
        nameless = _ONE_NODE.sub(b'"matchFields":1', affinity)
        shared = _key(pod, label_keys, placed, nameless)
        found = self._remembered(shared) if name else None
        if found is not None:
            return found if placed else msgspec.structs.replace(found, only_node=name)
        full = _key(pod, label_keys, placed, affinity)
        found = self._remembered(full)
        if found is None:
            found = _made(pod, label_keys=label_keys, placed=placed)
            preferred = found.preferred_node_terms
            if name and found.only_node == name and not any(p.term.fields for p in preferred):
                self._remember(shared, found.anywhere)
                return found.anywhere if placed else found
            found = found.anywhere if placed else found
            self._remember(full, found)
        return found

    def _remembered(self, key: Key) -> Shape | None:
        found = self._known.get(key)
        if found is None:
            return None
        self.hits += 1
        self._known.move_to_end(key)
        return found[0]

    def _remember(self, key: Key, shape: Shape) -> None:
        self.misses += 1
        size = _size(key)
        self._known[key] = (shape, size)
        self._bytes += size
        while self._bytes > self._bytes_limit or len(self._known) > self._entries:
            _, (_, freed) = self._known.popitem(last=False)
            self._bytes -= freed

    def statistics(self) -> dict[str, int]:
        """Counts for metrics."""
        return {
            "hits": self.hits,
            "misses": self.misses,
            "entries": len(self._known),
            "bytes": self._bytes,
        }


def _key(pod: Pod, label_keys: tuple[str, ...], placed: bool, affinity: bytes) -> Key:
    spec = pod.spec
    status = pod.status
    labels = pod.metadata.labels
    spread = bytes(spec.topology_spread_constraints)
    return (
        spec.scheduler_name,
        pod.metadata.namespace,
        spec.priority,
        spec.preemption_policy,
        None if placed else spec.node_name,
        None if placed else status.nominated_node_name,
        _containers_key(spec.containers),
        _containers_key(spec.init_containers) if spec.init_containers else None,
        bytes(spec.node_selector),
        affinity,
        bytes(spec.tolerations),
        spread,
        _match_values(spread, labels),
        None if spread else controller_of(pod),
        placed and pod.metadata.deletion_timestamp is not None,
        bytes(spec.overhead),
        bytes(spec.resources),
        _device_claims_key(pod) if spec.resource_claims else None,
        _volumes_key(pod) if spec.volumes else None,
        (spec.host_network, spec.host_users, group_key_of(pod), spec.workload_ref),
        _status_key(pod, status) if status.container_statuses or status.resources else None,
        label_keys,
        tuple([labels.get(key) for key in label_keys]) if label_keys and labels else None,
        labels.get(QUEUE_LABEL) if labels else None,
    )


def _match_values(spread: bytes, labels: dict[str, str] | None) -> Key | None:
    """The labels that matchLabelKeys of spread constraints may read; seldom any."""
    return tuple(sorted((labels or {}).items())) if b"matchLabelKeys" in spread else None


def _device_claims_key(pod: Pod) -> Key:
    """Claims from templates are the pod's own, so its name and uid count; others are anybody's."""
    raw = bytes(pod.spec.resource_claims)
    own = b"resourceClaimTemplateName" in raw
    meta = pod.metadata
    return (
        raw,
        bytes(pod.status.resource_claim_statuses) if own else None,
        (meta.name, meta.uid) if own else None,
    )


def _volumes_key(pod: Pod) -> Key:
    """The volumes that mean something; generic ephemeral ones belong to this very pod."""
    found = tuple([v for v in pod.spec.volumes or () if not v.free])
    if any(v.ephemeral is not None for v in found):
        return found, pod.metadata.name, pod.metadata.uid
    return found


def _containers_key(containers: list[Container]) -> Key:
    return tuple(
        [
            (
                c.image,
                bytes(c.resources),
                bytes(c.ports),
                c.restart_policy,
                bytes(c.restart_policy_rules),
            )
            for c in containers
        ]
    )


def _status_key(pod: Pod, status: PodStatus) -> Key:
    """What in-place resize depends on."""
    pending = pod.condition("PodResizePending")
    containers = (pod.spec.containers, pod.spec.init_containers or ())
    reported = (status.container_statuses or (), status.init_container_statuses or ())
    return (
        tuple([c.name for some in containers for c in some]),
        pending is not None and pending.reason == "Infeasible",
        bytes(status.resources),
        bytes(status.allocated_resources),
        tuple(
            [
                (s.name, bytes(s.resources), bytes(s.allocated_resources))
                for some in reported
                for s in some
            ]
        ),
    )


def _size(part: object) -> int:
    """About what a key takes in memory, in bytes."""
    if isinstance(part, tuple):
        return 56 + sum(map(_size, part))
    return 40 + len(part) if isinstance(part, str | bytes) else 16


def shape_of(pod: Pod, *, label_keys: tuple[str, ...] = (), placed: bool = False) -> Shape:
    """Make a shape without memory; see :meth:`ShapeMaker.shape_of`."""
    found = _made(pod, label_keys=label_keys, placed=placed)
    return found.anywhere if placed else found


def _made(pod: Pod, *, label_keys: tuple[str, ...], placed: bool) -> Shape:
    """The shape, which names its one node even if the pod is on it."""
    spec = pod.spec
    namespace = pod.metadata.namespace
    requests = _requests_of(pod)
    affinity = affinity_of(spec.affinity, namespace=namespace)
    labels = pod.metadata.labels or {}
    spread = spread_of(spec.topology_spread_constraints, labels=labels)
    images, image_containers = _images(spec)
    claims, disks = volumes_of(pod)
    device_claims, claim_problem, owner = device_claims_of(pod)
    return Shape(
        profile=spec.scheduler_name,
        namespace=namespace,
        priority=spec.priority or 0,
        requests=tuple(sorted((k, v) for k, v in requests.amounts.items() if v and k != "pods")),
        nonzero_cpu_milli=requests.nonzero[0],
        nonzero_memory=requests.nonzero[1],
        score_requests=requests.score,
        tolerations=tolerations_of(spec.tolerations),
        node_selector=node_selector_of(spec.node_selector),
        required_node_terms=affinity.required_node_terms,
        only_node=affinity.only_node,
        preferred_node_terms=affinity.preferred_node_terms,
        host_ports=host_ports_of(_ports(spec)),
        images=images,
        image_containers=image_containers,
        node_name="" if placed else spec.node_name,
        nominated_node="" if placed else pod.status.nominated_node_name or "",
        preemption_policy=spec.preemption_policy or "PreemptLowerPriority",
        labels=tuple((key, labels[key]) for key in label_keys if key in labels),
        label_keys=label_keys,
        anti_affinity=affinity.anti_affinity,
        claims=claims,
        disks=disks,
        unbuilt_hard=_hard(spec),
        terminating=placed and pod.metadata.deletion_timestamp is not None,
        affinity=affinity.affinity,
        preferred_affinity=affinity.preferred_affinity,
        preferred_anti_affinity=affinity.preferred_anti_affinity,
        spread=spread,
        controller=("", "") if spread else controller_of(pod),
        group=group_key_of(pod),
        device_claims=device_claims,
        claim_problem=claim_problem,
        owner=owner,
        device_containers=device_containers_of(pod),
        node_features=tuple(sorted(_features(spec))),
        queue=labels.get(QUEUE_LABEL, ""),
    )


def _requests_of(pod: Pod) -> PodRequests:
    try:
        return read_requests(pod)
    except RequestError as error:
        raise ShapeError(str(error)) from None


def controller_of(pod: Pod) -> tuple[str, str]:
    """(kind, name) of the controller that manages the pod if its selector makes default spread
    constraints (upstream's helper.DefaultSelector); otherwise two empty strings."""
    for owner in pod.metadata.owner_references or ():
        if owner.controller:
            known = SPREAD_CONTROLLERS.get(owner.kind) == owner.api_version
            return (owner.kind, owner.name) if known else ("", "")
    return "", ""


def _ports(spec: PodSpec) -> Iterable[tuple[str, Raw]]:
    """Ports of what runs as long as the pod does: containers and sidecars."""
    for i, container in enumerate(spec.init_containers or ()):
        if container.ports and container.restart_policy == "Always":
            yield f"spec.initContainers[{i}].ports", container.ports
    for i, container in enumerate(spec.containers):
        if container.ports:
            yield f"spec.containers[{i}].ports", container.ports


def _images(spec: PodSpec) -> tuple[tuple[str, ...], int]:
    """Normalised image names, and how many images the pod has."""
    names = [c.image or "" for c in (*(spec.init_containers or ()), *spec.containers)]
    names += [v.image.reference for v in spec.volumes or () if v.image is not None]
    return tuple(map(normal_image_name, names)), len(names)


def normal_image_name(name: str) -> str:
    """With ":latest" if the last colon is not behind the last slash."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def _hard(spec: PodSpec) -> tuple[str, ...]:
    """Hard constraints that no plugin of this release checks, beside affinity and spread."""
    found = []
    if spec.workload_ref is not None:
        found.append("GangScheduling: spec.workloadRef (use spec.schedulingGroup)")
    return tuple(found)


def _features(spec: PodSpec) -> list[str]:
    """Node features that the pod needs (component-helpers nodedeclaredfeatures of 1.37): two that
    can be told from a pod's spec; ordinary pods need none.
    """
    found = []
    containers = (*spec.containers, *(spec.init_containers or ()))
    rules = [
        rule
        for c in containers
        if c.restart_policy_rules
        for rule in decoded(c.restart_policy_rules, list[_RestartRule], where=c.name) or ()
    ]
    if any(rule.action == "RestartAllContainers" for rule in rules):
        found.append("RestartAllContainersOnContainerExits")
    if spec.host_network and spec.host_users is False:
        found.append("UserNamespacesHostNetworkSupport")
    return found
