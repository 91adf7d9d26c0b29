"""From a pod to its shape, cheaply when the shape is known.

Naively every pod would be decoded whole and its shape built and hashed: about 100 µs. Most pods
come in bursts of few shapes, and equal shapes have byte-equal parts of the spec. So the parts that
matter stay undecoded, their bytes are the key of a bounded memory, and only a key not seen before
costs the full reading. What differs between equal pods (names, uids, generated names of token
volumes, labels nobody reads) is not in the key. Two keys may lead to one shape; the content hash
unites them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec

from stretto.model.affinity import (
    Affinity,
    decode_affinity,
    pod_term,
    preferred_node_terms,
    required_node_terms,
)
from stretto.model.errors import OperatorError
from stretto.model.objects import Container, ContainerPort, Pod, Volume
from stretto.model.requests import PodRequests, pod_requests
from stretto.model.shape import HostPort, Shape, Toleration

MAX_CONTAINERS = 1000
MEMO_SIZE = 16_384
"""Keys remembered; a key of an ordinary pod is about 1 kB with its shape, so this is about 16
MB."""

COUNTED_VOLUMES = (
    "gce_persistent_disk", "aws_elastic_block_store", "azure_disk", "cinder", "portworx_volume",
    "vsphere_volume", "iscsi", "rbd", "csi",
)  # fmt: skip
"""Inline kinds that VolumeRestrictions or the attach limits read."""


class ShapeError(OperatorError, ValueError):
    """A pod that has no shape: the text names the field."""


class TolerationSpec(msgspec.Struct, rename="camel", gc=False):
    """A toleration as it is sent."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class SpreadConstraint(msgspec.Struct, rename="camel", gc=False):
    """As much of a spread constraint as refusing needs."""

    when_unsatisfiable: str = "DoNotSchedule"


_tolerations = msgspec.json.Decoder(tuple[TolerationSpec, ...] | None)
_spread = msgspec.json.Decoder(tuple[SpreadConstraint, ...] | None)
_selector = msgspec.json.Decoder(dict[str, str] | None)
_ports = msgspec.json.Decoder(tuple[ContainerPort, ...] | None)
_claims = msgspec.json.Decoder(list[dict[str, Any]] | None)
_claim_volume = msgspec.json.Decoder(dict[str, Any] | None)


class ShapeMaker:
    """Makes shapes and remembers them; not thread-safe."""

    def __init__(self, *, memo_size: int = MEMO_SIZE) -> None:
        self._memo: OrderedDict[tuple[Any, ...], Shape] = OrderedDict()
        self._memo_size = memo_size
        self.hits = 0
        self.misses = 0

    def shape_of(self, pod: Pod, *, label_keys: tuple[str, ...] = ()) -> Shape:
        """The shape of a pod, its labels projected on ``label_keys`` (sorted).

        Raises:
            ShapeError: a field that cannot be read, named in one line.
        """
        key = memo_key(pod, label_keys)
        shape = self._memo.get(key)
        if shape is not None:
            self.hits += 1
            self._memo.move_to_end(key)
            return shape
        self.misses += 1
        shape = make_shape(pod, label_keys=label_keys)
        self._memo[key] = shape
        if len(self._memo) > self._memo_size:
            self._memo.popitem(last=False)
        return shape


def project(
    labels: dict[str, str] | None, label_keys: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """The labels whose key some selector reads, in the order of the keys."""
    if not labels or not label_keys:
        return ()
    return tuple((key, labels[key]) for key in label_keys if key in labels)


def _container_key(container: Container) -> tuple[Any, ...]:
    return (
        container.image,
        bytes(container.resources),
        bytes(container.ports),
        container.restart_policy,
    )


def _volume_key(volume: Volume) -> tuple[Any, ...] | None:
    parts = (
        bytes(volume.persistent_volume_claim), bytes(volume.ephemeral),
        *(bytes(getattr(volume, kind)) for kind in COUNTED_VOLUMES),
        volume.image.reference if volume.image else "",
    )  # fmt: skip
    return parts if any(parts) else None


def memo_key(pod: Pod, label_keys: tuple[str, ...]) -> tuple[Any, ...]:
    """Everything a shape is made of, undecoded."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    resizing: tuple[Any, ...] = ()
    if spec.node_name:
        resizing = (
            bytes(status.container_statuses), bytes(status.init_container_statuses),
            bytes(status.resources), bytes(status.allocated_resources),
            any(c.reason == "Infeasible" for c in status.conditions),
        ) if resize_matters(pod) else ()  # fmt: skip
    return (
        meta.namespace, spec.scheduler_name, spec.priority, spec.preemption_policy, spec.node_name,
        status.nominated_node_name,
        tuple([_container_key(c) for c in spec.containers]),
        tuple([(c.name, *_container_key(c)) for c in spec.init_containers]),
        bytes(spec.node_selector), bytes(spec.affinity), bytes(spec.tolerations),
        bytes(spec.overhead), bytes(spec.resources), bytes(spec.topology_spread_constraints),
        bytes(spec.resource_claims),
        tuple([key for v in spec.volumes if (key := _volume_key(v))]) if spec.volumes else (),
        label_keys, project(meta.labels, label_keys) if label_keys else (), resizing,
    )  # fmt: skip


def resize_matters(pod: Pod) -> bool:
    """Whether the status carries resources that may differ from the spec."""
    status = pod.status
    return (
        b'"resources"' in bytes(status.container_statuses)
        or b'"resources"' in bytes(status.init_container_statuses)
        or bool(bytes(status.resources))
    )


def make_shape(pod: Pod, *, label_keys: tuple[str, ...]) -> Shape:
    """Read a pod whole.

    Raises:
        ShapeError: a field that cannot be read.
    """
    spec = pod.spec
    count = len(spec.containers) + len(spec.init_containers)
    if count > MAX_CONTAINERS:
        raise ShapeError(f"spec.containers: {count} containers; at most {MAX_CONTAINERS}")
    try:
        requests = pod_requests(pod)
        affinity = decode_affinity(spec.affinity)
        return _assemble(pod, requests=requests, affinity=affinity, label_keys=label_keys)
    except msgspec.DecodeError as error:
        raise ShapeError(f"the pod's spec cannot be read: {error}") from None
    except OperatorError as error:
        raise ShapeError(str(error)) from None


def _assemble(
    pod: Pod, *, requests: PodRequests, affinity: Affinity, label_keys: tuple[str, ...]
) -> Shape:
    spec, namespace = pod.spec, pod.metadata.namespace
    node = affinity.node_affinity
    anti = affinity.pod_anti_affinity
    hard, soft = unbuilt(pod, affinity=affinity)
    selector = _selector.decode(bytes(spec.node_selector)) if bytes(spec.node_selector) else None
    images = [c.image for c in (*spec.init_containers, *spec.containers) if c.image]
    volumes = [v.image.reference for v in spec.volumes if v.image and v.image.reference]
    return Shape(
        profile=spec.scheduler_name,
        namespace=namespace,
        priority=spec.priority or 0,
        requests=tuple(sorted((k, v) for k, v in requests.requests.items() if v)),
        nonzero_cpu_milli=requests.nonzero[0],
        nonzero_memory=requests.nonzero[1],
        score_requests=requests.score,
        tolerations=read_tolerations(spec.tolerations),
        node_selector=tuple(sorted((selector or {}).items())),
        required_node_terms=required_node_terms(node) if node else None,
        preferred_node_terms=preferred_node_terms(node) if node else (),
        host_ports=host_ports(pod),
        images=tuple(normalised_image(name) for name in images + volumes),
        image_containers=len(spec.containers) + len(spec.init_containers) + len(volumes),
        node_name=spec.node_name,
        nominated_node=pod.status.nominated_node_name,
        preemption_policy=spec.preemption_policy or "PreemptLowerPriority",
        labels=project(pod.metadata.labels, label_keys),
        label_keys=label_keys,
        anti_affinity=tuple(
            pod_term(term, namespace=namespace, where="spec.affinity.podAntiAffinity")
            for term in (anti.required or () if anti else ())
        ),
        unbuilt_hard=hard,
        unbuilt_soft=soft,
    )


def read_tolerations(raw: msgspec.Raw) -> tuple[Toleration, ...]:
    """Tolerations with defaults applied, duplicates dropped, order kept."""
    data = bytes(raw)
    specs = (_tolerations.decode(data) if data else None) or ()
    found = [Toleration(t.key, t.operator or "Equal", t.value, t.effect) for t in specs]
    return tuple(dict.fromkeys(found))


def normalised_image(name: str) -> str:
    """The name with ":latest" where it has no tag (upstream ImageLocality.normalizedImageName)."""
    return name if name.rfind(":") > name.rfind("/") else name + ":latest"


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Host ports of containers and sidecars, defaults applied, sorted."""
    found = set()
    sidecars = [c for c in pod.spec.init_containers if c.restart_policy == "Always"]
    for container in (*pod.spec.containers, *sidecars):
        data = bytes(container.ports)
        if b"hostPort" not in data:
            continue
        for port in _ports.decode(data) or ():
            if port.host_port > 0:
                ip = port.host_ip or "0.0.0.0"  # noqa: S104 (a port's default, not a listener)
                found.add(HostPort(port.protocol or "TCP", ip, port.host_port))
    return tuple(sorted(found, key=lambda p: (p.protocol, p.ip, p.port)))


def unbuilt(pod: Pod, *, affinity: Affinity) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(hard, soft) constraints that no plugin of this release obeys, named for people."""
    hard: list[str] = []
    soft: list[str] = []
    for title, part in (
        ("required pod affinity", affinity.pod_affinity),
        ("required pod anti-affinity", affinity.pod_anti_affinity),
    ):
        if part and part.required:
            hard.append(f"InterPodAffinity: {title}")
        if part and part.preferred:
            soft.append(f"InterPodAffinity: {title.replace('required', 'preferred')}")
    raw = bytes(pod.spec.topology_spread_constraints)
    for constraint in (_spread.decode(raw) if raw else None) or ():
        kind = constraint.when_unsatisfiable
        bucket = soft if kind == "ScheduleAnyway" else hard
        bucket.append(f"PodTopologySpread: {kind} constraint")
    for volume in pod.spec.volumes:
        hard += unbuilt_volume(volume)
    claims = bytes(pod.spec.resource_claims)
    for claim in (_claims.decode(claims) if claims else None) or ():
        hard.append(f'DynamicResources: resource claim "{claim.get("name", "")}"')
    return tuple(dict.fromkeys(hard)), tuple(dict.fromkeys(soft))


def unbuilt_volume(volume: Volume) -> list[str]:
    """Why a volume cannot be handled yet; empty for free kinds."""
    if data := bytes(volume.persistent_volume_claim):
        claim = (_claim_volume.decode(data) or {}).get("claimName", "")
        return [f'VolumeBinding: persistentVolumeClaim "{claim}"']
    if bytes(volume.ephemeral):
        return ["VolumeBinding: ephemeral volume"]
    return [
        f"NodeVolumeLimits: inline volume of kind {kind}"
        for kind in COUNTED_VOLUMES
        if bytes(getattr(volume, kind))
    ]
