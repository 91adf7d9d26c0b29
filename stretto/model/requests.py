"""What a pod takes of a node: upstream's PodRequests, with all its cases (1.37).

The aggregate over containers is the larger of two moments, per resource: everything running at
once (regular containers and sidecars), and the greediest moment of the start (each init container
beside the sidecars started before it). It is taken three times: from the spec, from what kubelets
have *allocated*, and from what is *actuated*; the pod takes the largest of the three, so that an
in-place resize holds room for both ends until it is done. While a resize is infeasible, the spec
does not count. Pod-level requests then replace the aggregate for the resources they name, and
overhead comes on top.

Sums are exact (billionths); rounding up happens once, at the end, as in Go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import Raw

from stretto.model.errors import OperatorError
from stretto.model.objects import Container, ContainerStatus, Pod, Resources
from stretto.model.quantity import NANO_PER_UNIT, Quantity, QuantityError, amount_of, nano_value

DEFAULT_CPU_MILLI = 100
"""What scoring assumes for a container that says nothing about cpu."""
DEFAULT_MEMORY_BYTES = 200 * 1024 * 1024
"""The same for memory."""
MAX_CONTAINERS = 100_000
"""Far beyond what fits in an object of 1.5 MiB; bounds work on hostile input from elsewhere."""

T = TypeVar("T")
Nano = dict[str, int]
"""Amounts by resource, in billionths."""

_DEFAULTS: Nano = {
    "cpu": DEFAULT_CPU_MILLI * (NANO_PER_UNIT // 1000),
    "memory": DEFAULT_MEMORY_BYTES * NANO_PER_UNIT,
}
_resources_decoder = msgspec.json.Decoder(Resources | None)
_list_decoder = msgspec.json.Decoder(dict[str, Quantity] | None)


class RequestError(OperatorError, ValueError):
    """Requests that cannot be read; names the field."""


class PodRequests(msgspec.Struct, frozen=True):
    """The requests of a pod, in base units (cpu in milli)."""

    amounts: dict[str, int]
    """What it takes of a node; explicit zeros included."""
    nonzero: tuple[int, int]
    """(cpu milli, memory bytes) that the node-side sum for scoring gets (NonZeroRequested)."""
    score: tuple[int, int]
    """(cpu milli, memory bytes) that the pod-side scorer sees."""


def amounts_of(quantities: Mapping[str, Quantity] | None, *, where: str) -> Nano:
    """Read a resource list, in billionths.

    Raises:
        RequestError: naming ``where`` and the resource.
    """
    found: Nano = {}
    for name, quantity in (quantities or {}).items():
        try:
            found[name] = nano_value(quantity)
        except QuantityError as error:
            raise RequestError(f"{where}[{name[:80]}]: {error}") from None
    return found


class _ContainerView:
    """A container's three lists: spec, allocated, actuated."""

    __slots__ = ("actuated", "allocated", "sidecar", "spec")

    def __init__(
        self, container: Container, status: ContainerStatus | None, *, infeasible: bool
    ) -> None:
        self.sidecar = container.restart_policy == "Always"
        self.spec = _requests(container.resources, where="resources.requests") or {}
        self.allocated = self.actuated = {} if infeasible else self.spec
        if status is None:
            return
        where = "status"
        allocated = _resource_list(status.allocated_resources, where=f"{where}.allocatedResources")
        if allocated is not None:
            self.allocated = self.actuated = allocated
        actuated = _requests(status.resources, where=f"{where}.resources.requests")
        if actuated is not None:
            self.actuated = actuated


def _decoded(raw: Raw, decoder: msgspec.json.Decoder[T], *, where: str) -> T | None:
    if not raw:
        return None
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(f"{where}: {error}") from None


def _requests(raw: Raw, *, where: str) -> Nano | None:
    """The requests in a ResourceRequirements; None when there is no such list."""
    found = _decoded(raw, _resources_decoder, where=where)
    if found is None or found.requests is None:
        return None
    return amounts_of(found.requests, where=where)


def _resource_list(raw: Raw, *, where: str) -> Nano | None:
    found = _decoded(raw, _list_decoder, where=where)
    return None if found is None else amounts_of(found, where=where)


def _add(into: Nano, what: Nano) -> None:
    for name, amount in what.items():
        into[name] = into.get(name, 0) + amount


def _largest(*lists: Nano) -> Nano:
    found: Nano = {}
    for each in lists:
        for name, amount in each.items():
            if amount > found.get(name, -1):
                found[name] = amount
    return found


class _Together(NamedTuple):
    """Containers that run at once, added up: a pod may have ten thousand, and is asked three
    times."""

    containers: int
    total: Nano
    naming: Nano
    """How many of them name a resource."""

    def sum(self, defaults: Nano) -> Nano:
        """The sum; ``defaults`` stand in for what a container does not name."""
        found = dict(self.total)
        for name, amount in defaults.items():
            missing = self.containers - self.naming.get(name, 0)
            if missing:
                found[name] = found.get(name, 0) + missing * amount
        return found


def _together(lists: Sequence[Nano]) -> _Together:
    total: Nano = {}
    naming: Nano = {}
    for each in lists:
        for name, amount in each.items():
            total[name] = total.get(name, 0) + amount
            naming[name] = naming.get(name, 0) + 1
    return _Together(len(lists), total, naming)


def _aggregate(regular: _Together, initial: Sequence[tuple[Nano, bool]], defaults: Nano) -> Nano:
    """The larger of the steady state and the greediest moment of the start; see the module."""
    total = regular.sum(defaults)
    if not initial:
        return total
    running: Nano = {}
    peak: Nano = {}
    for amounts, sidecar in initial:
        amounts = defaults | amounts
        if sidecar:
            _add(total, amounts)
            _add(running, amounts)
            peak = _largest(peak, running)
        else:
            use = dict(running)
            _add(use, amounts)
            peak = _largest(peak, use)
    return _largest(total, peak)


class _Reader:
    """The parsed requests of one pod, from which the three totals are made."""

    def __init__(self, pod: Pod) -> None:
        spec, status = pod.spec, pod.status
        pending = pod.condition("PodResizePending")
        self._infeasible = pending is not None and pending.reason == "Infeasible"
        if len(spec.containers) + len(spec.init_containers or ()) > MAX_CONTAINERS:
            raise RequestError(f"spec.containers: more than {MAX_CONTAINERS} containers")
        statuses = {s.name: s for s in reversed(status.init_container_statuses or ())}
        statuses |= {s.name: s for s in reversed(status.container_statuses or ())}
        self._regular = self._views(spec.containers, statuses, "spec.containers")
        self._initial = self._views(spec.init_containers or (), statuses, "spec.initContainers")
        self._resized = bool(statuses)
        self._pod_actuated = _requests(status.resources, where="status.resources.requests")
        self._pod_allocated = _resource_list(
            status.allocated_resources, where="status.allocatedResources"
        )
        self._has_status = _decoded(status.resources, _resources_decoder, where="status.resources")
        named = _requests(spec.resources, where="spec.resources.requests") or {}
        self.pod_level = {name: n for name, n in named.items() if _pod_level(name)}
        self._overhead = _resource_list(spec.overhead, where="spec.overhead") or {}
        self._spec = _together([c.spec for c in self._regular])

    def _views(
        self, containers: Iterable[Container], statuses: dict[str, ContainerStatus], what: str
    ) -> list[_ContainerView]:
        found: list[_ContainerView] = []
        infeasible = self._infeasible
        try:
            for each in containers:
                status = statuses.get(each.name) if statuses else None
                found.append(_ContainerView(each, status, infeasible=infeasible))
        except RequestError as error:
            raise RequestError(f"{what}[{len(found)}].{error}") from None
        return found

    def _from_spec(self, defaults: Nano) -> Nano:
        return _aggregate(self._spec, [(c.spec, c.sidecar) for c in self._initial], defaults)

    def _from(self, pick: Callable[[_ContainerView], Nano], defaults: Nano) -> Nano:
        return _aggregate(
            _together([pick(c) for c in self._regular]),
            [(pick(c), c.sidecar) for c in self._initial],
            defaults,
        )

    def _containers(self, defaults: Nano) -> Nano:
        spec = self._from_spec(defaults)
        in_status = self._pod_allocated is not None and self._pod_actuated is not None
        if not self._resized and not in_status and not self._infeasible:
            return spec
        if in_status:
            assert self._pod_allocated is not None
            assert self._pod_actuated is not None
            allocated, actuated = self._pod_allocated, self._pod_actuated
        else:
            allocated = self._from(lambda c: c.allocated, defaults)
            actuated = self._from(lambda c: c.actuated, defaults)
        if self._infeasible:
            return _largest(actuated, allocated)
        return _largest(spec, actuated, allocated)

    def total(self, defaults: Nano) -> Nano:
        """The pod's requests; ``defaults`` stand in for what a container does not name."""
        found = self._containers(defaults)
        if self.pod_level:
            named = self.pod_level
            if self._has_status is not None:
                spec = {} if self._infeasible else named
                named = _largest(spec, self._pod_actuated or {}, self._pod_allocated or {})
            found |= {name: n for name, n in named.items() if _pod_level(name)}
        _add(found, self._overhead)
        return found

    def scored(self) -> Nano:
        """What NodeResourcesFit's scorer sees the pod ask for.

        Upstream builds that scorer without the settings for pod-level requests and for statuses
        (1.37.2, NewFit), so it reads the containers' specs only.
        """
        found = self._from_spec(_DEFAULTS)
        _add(found, self._overhead)
        return found


def _pod_level(name: str) -> bool:
    """Resources that pod-level requests may name."""
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def _pair(nano: Nano) -> tuple[int, int]:
    return amount_of("cpu", nano.get("cpu", 0)), amount_of("memory", nano.get("memory", 0))


def read_requests(pod: Pod) -> PodRequests:
    """All that scheduling reads of a pod's requests.

    Raises:
        RequestError: a list or quantity that cannot be read; names the field.
    """
    reader = _Reader(pod)
    total = reader.total({})
    defaulted = reader.total(_DEFAULTS)
    nonzero = defaulted
    if reader.pod_level:
        # With pod-level requests the node side assumes only what no level names.
        missing = {name: n for name, n in _DEFAULTS.items() if name not in total}
        nonzero = reader.total(missing) if missing else total
    return PodRequests(
        amounts={name: amount_of(name, n) for name, n in total.items()},
        nonzero=_pair(nonzero),
        score=_pair(reader.scored()),
    )


def pod_requests(pod: Pod) -> dict[str, int]:
    """What a pod takes of a node, in base units (cpu in milli); raises as read_requests does."""
    return read_requests(pod).amounts
