"""Effective pod requests, exactly as upstream's ``PodRequests``
(k8s.io/component-helpers/resource, 1.37).

base is the sum over containers and sidecars; the init peak walks the init containers in order; the
larger of both a resource counts; pod-level requests replace cpu, memory and hugepages; overhead is
added last. During an in-place resize a container counts with the largest of spec, status and
allocated resources, or the larger of the latter two when the resize is infeasible. The non-zero
variant, for scoring only, gives every container that names no cpu or memory request 100m or 200
MiB.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stretto.model.objects import Container, Pod
from stretto.model.quantity import MAX_VALUE, QuantityError, amount

Amounts = dict[str, int]

DEFAULT_CPU_MILLI = 100
DEFAULT_MEMORY = 200 * 1024 * 1024
"""Bytes; upstream's DefaultMemoryRequest."""


class ResourceRequirements(msgspec.Struct, gc=False):
    """requests and limits; only requests count."""

    requests: dict[str, str | int | float] | None = None


class ContainerStatus(msgspec.Struct, rename="camel"):
    """What kubelet says of a container's resources while it is resized."""

    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, str | int | float] | None = None


_requirements = msgspec.json.Decoder(ResourceRequirements | None)
_quantities = msgspec.json.Decoder(dict[str, str | int | float] | None)
_statuses = msgspec.json.Decoder(tuple[ContainerStatus, ...] | None)


def amounts_of(texts: Mapping[str, object] | None, *, where: str) -> Amounts:
    """Quantities of a resource list, by name, in base units (cpu in milli).

    Raises:
        QuantityError: names ``where`` and the resource.
    """
    result: Amounts = {}
    for name, text in (texts or {}).items():
        try:
            result[name] = amount(name, text)
        except QuantityError as error:
            raise QuantityError(f"{where}[{name}]: {error}") from None
        if result[name] < 0:
            raise QuantityError(f"{where}[{name}]: {text!r} is negative")
    return result


def read_requirements(raw: msgspec.Raw, *, where: str) -> Amounts:
    """The requests of an undecoded ``resources``."""
    data = bytes(raw)
    if not data:
        return {}
    decoded = _requirements.decode(data)
    return amounts_of(decoded.requests, where=f"{where}.requests") if decoded else {}


def add(total: Amounts, more: Amounts) -> None:
    """total += more; sums stay below 2^53."""
    for name, value in more.items():
        total[name] = min(MAX_VALUE, total.get(name, 0) + value)


def raise_to(total: Amounts, other: Amounts) -> None:
    """total = max(total, other), a resource at a time."""
    for name, value in other.items():
        total[name] = max(total.get(name, 0), value)


def is_sidecar(container: Container) -> bool:
    """An init container that keeps running."""
    return container.restart_policy == "Always"


class _Requests:
    """One pod's containers with their requests, resize rules applied."""

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.infeasible = any(
            condition.type == "PodResizePending" and condition.reason == "Infeasible"
            for condition in pod.status.conditions
        )
        self.statuses: dict[str, ContainerStatus] = {}
        for raw in (pod.status.container_statuses, pod.status.init_container_statuses):
            for status in (_statuses.decode(bytes(raw)) or ()) if bytes(raw) else ():
                self.statuses[status.name] = status

    def of(self, container: Container, *, where: str, resizable: bool) -> Amounts:
        """Requests of one container; plain init containers are never resized."""
        spec = read_requirements(container.resources, where=f"{where}.resources")
        status = self.statuses.get(container.name) if resizable else None
        if status is None or status.resources is None:
            return spec
        actual = amounts_of(status.resources.requests, where=f"{where} status.resources")
        allocated = amounts_of(status.allocated_resources, where=f"{where} allocatedResources")
        result: Amounts = {} if self.infeasible else dict(spec)
        raise_to(result, actual)
        raise_to(result, allocated)
        return result


def pod_level(pod: Pod, *, infeasible: bool) -> Amounts:
    """Pod-level requests for the resources they may set, resize rules applied."""
    spec = read_requirements(pod.spec.resources, where="spec.resources")
    if bytes(pod.status.resources):
        actual = read_requirements(pod.status.resources, where="status.resources")
        raw = bytes(pod.status.allocated_resources)
        allocated = amounts_of(
            _quantities.decode(raw) if raw else None, where="status.allocatedResources"
        )
        merged: Amounts = {} if infeasible else dict(spec)
        raise_to(merged, actual)
        raise_to(merged, allocated)
        spec = {name: merged[name] for name in spec if name in merged} if spec else {}
    return {
        name: value
        for name, value in spec.items()
        if name in ("cpu", "memory") or name.startswith("hugepages-")
    }


def with_defaults(requests: Amounts) -> Amounts:
    """A container's requests with the scoring defaults for a missing cpu or memory."""
    result = dict(requests)
    result.setdefault("cpu", DEFAULT_CPU_MILLI)
    result.setdefault("memory", DEFAULT_MEMORY)
    return result


def aggregate(containers: list[Amounts], init: list[tuple[Amounts, bool]]) -> Amounts:
    """max(sum of containers and sidecars, init peak), a resource at a time; ``init`` pairs
    requests with is-sidecar."""
    base: Amounts = {}
    for requests in containers:
        add(base, requests)
    running: Amounts = {}
    peak: Amounts = {}
    for requests, sidecar in init:
        use = dict(running)
        add(use, requests)
        if sidecar:
            add(base, requests)
            running = use
        raise_to(peak, use)
    raise_to(base, peak)
    return base


class PodRequests(msgspec.Struct, frozen=True):
    """The sums of one pod."""

    requests: Amounts
    """What Fit and the node's accounting use."""
    nonzero: tuple[int, int]
    """(cpu milli, memory bytes) as the node adds them for scoring."""
    score: tuple[int, int]
    """(cpu milli, memory bytes) as the pod-side scorer sees them."""


def pod_requests(pod: Pod) -> PodRequests:
    """All sums of a pod.

    Raises:
        QuantityError: a quantity that cannot be read; names the field.
    """
    reader = _Requests(pod)
    containers = [
        reader.of(c, where=f"spec.containers[{c.name}]", resizable=True)
        for c in pod.spec.containers
    ]
    init = [
        (
            reader.of(c, where=f"spec.initContainers[{c.name}]", resizable=is_sidecar(c)),
            is_sidecar(c),
        )
        for c in pod.spec.init_containers
    ]
    level = pod_level(pod, infeasible=reader.infeasible)
    overhead_raw = bytes(pod.spec.overhead)
    overhead = amounts_of(
        _quantities.decode(overhead_raw) if overhead_raw else None, where="spec.overhead"
    )
    total = aggregate(containers, init)
    defaulted = aggregate(
        [with_defaults(r) for r in containers], [(with_defaults(r), s) for r, s in init]
    )
    node_side = dict(total) if level else dict(defaulted)
    for sums in (total, node_side, defaulted):
        sums.update(level)
        add(sums, overhead)
    if level:
        # The node's sum takes the defaults only for a resource that the total lacks.
        node_side.setdefault("cpu", DEFAULT_CPU_MILLI)
        node_side.setdefault("memory", DEFAULT_MEMORY)
    return PodRequests(
        requests=total,
        nonzero=(node_side["cpu"], node_side["memory"]),
        score=(defaulted["cpu"], defaulted["memory"]),
    )
