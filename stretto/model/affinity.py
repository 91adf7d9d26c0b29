"""Affinity, tolerations, ports and spread constraints: from JSON to the records of a shape."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec
from msgspec import Raw

from stretto.model.errors import OperatorError
from stretto.model.objects import ContainerPort
from stretto.model.selector import RawRequirement, RawSelector, requirements_of
from stretto.model.shape import (
    HostPort,
    NodeTerm,
    PodTerm,
    PreferredNodeTerm,
    Requirement,
    Toleration,
)

T = TypeVar("T")
ANY_IP = "0.0.0.0"  # noqa: S104  the wildcard of the Pod API, nothing is bound here


class ShapeError(OperatorError, ValueError):
    """A pod of which no shape can be made; names the field."""


class _Raw(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """camelCase on the wire."""


class _Toleration(_Raw, frozen=True, gc=False):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class _NodeTerm(_Raw, frozen=True, gc=False):
    match_expressions: list[RawRequirement] | None = None
    match_fields: list[RawRequirement] | None = None


class _NodeSelector(_Raw, frozen=True, gc=False):
    node_selector_terms: list[_NodeTerm] | None = None


class _PreferredNode(_Raw, frozen=True, gc=False):
    weight: int = 0
    preference: _NodeTerm = _NodeTerm()


class _NodeAffinity(_Raw, frozen=True, gc=False):
    required: _NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[_PreferredNode] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class _PodTerm(_Raw, frozen=True, gc=False):
    topology_key: str = ""
    label_selector: RawSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: RawSelector | None = None


class _PodAffinity(_Raw, frozen=True, gc=False):
    required: list[_PodTerm] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[object] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class _Affinity(_Raw, frozen=True, gc=False):
    node_affinity: _NodeAffinity | None = None
    pod_affinity: _PodAffinity | None = None
    pod_anti_affinity: _PodAffinity | None = None


class _Spread(_Raw, frozen=True, gc=False):
    when_unsatisfiable: str = ""


class Affinity(msgspec.Struct, frozen=True):
    """Affinity as a shape holds it."""

    required_node_terms: tuple[NodeTerm, ...] | None = None
    preferred_node_terms: tuple[PreferredNodeTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    hard: tuple[str, ...] = ()
    soft: tuple[str, ...] = ()


def decoded(raw: Raw, kind: type[T], *, where: str) -> T | None:
    """Decode a raw part; None if it is absent or null.

    Raises:
        ShapeError: the part has another type than the API's.
    """
    if not raw:
        return None
    try:
        return msgspec.json.decode(raw, type=kind | None)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ShapeError(f"{where}: {error}") from None


def tolerations_of(raw: Raw) -> tuple[Toleration, ...]:
    """Sorted, without repeats and without seconds: any of them may tolerate a taint."""
    found = decoded(raw, list[_Toleration], where="spec.tolerations") or ()
    tolerations = {
        (t.key or "", t.operator or "Equal", t.value or "", t.effect or "") for t in found
    }
    return tuple(Toleration(*parts) for parts in sorted(tolerations))


def host_ports_of(ports: Iterable[tuple[str, Raw]]) -> tuple[HostPort, ...]:
    """Host ports of (where, ports) pairs, defaults applied, sorted, without repeats."""
    found = {
        (p.protocol or "TCP", p.host_ip or ANY_IP, p.host_port)
        for where, raw in ports
        for p in decoded(raw, list[ContainerPort], where=where) or ()
        if p.host_port is not None and p.host_port > 0
    }
    return tuple(HostPort(*parts) for parts in sorted(found))


def node_selector_of(raw: Raw) -> tuple[tuple[str, str], ...]:
    """spec.nodeSelector, sorted."""
    found = decoded(raw, dict[str, str], where="spec.nodeSelector") or {}
    return tuple(sorted(found.items()))


def spread_of(raw: Raw) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of (hard, soft) spread constraints, none of which is built."""
    where = "spec.topologySpreadConstraints"
    found = {s.when_unsatisfiable for s in decoded(raw, list[_Spread], where=where) or ()}
    soft = "ScheduleAnyway" in found
    hard = bool(found - {"ScheduleAnyway"})
    return (
        ("PodTopologySpread: DoNotSchedule constraint",) if hard else (),
        ("PodTopologySpread: ScheduleAnyway constraint",) if soft else (),
    )


def affinity_of(raw: Raw, *, namespace: str) -> Affinity:
    """spec.affinity of a pod in a namespace.

    Raises:
        ShapeError: naming the field.
    """
    found = decoded(raw, _Affinity, where="spec.affinity")
    if found is None:
        return Affinity()
    node = found.node_affinity or _NodeAffinity()
    hard: list[str] = []
    soft: list[str] = []
    for kind, terms in (
        ("affinity", found.pod_affinity),
        ("anti-affinity", found.pod_anti_affinity),
    ):
        if terms is not None and terms.required:
            hard.append(f"InterPodAffinity: required pod {kind}")
        if terms is not None and terms.preferred:
            soft.append(f"InterPodAffinity: preferred pod {kind}")
    anti = (found.pod_anti_affinity or _PodAffinity()).required or ()
    return Affinity(
        required_node_terms=_required(node),
        preferred_node_terms=tuple(
            PreferredNodeTerm(p.weight, _node_term(p.preference)) for p in node.preferred or ()
        ),
        anti_affinity=tuple(_pod_term(term, namespace, i) for i, term in enumerate(anti)),
        hard=tuple(hard),
        soft=tuple(soft),
    )


def _required(node: _NodeAffinity) -> tuple[NodeTerm, ...] | None:
    if node.required is None:
        return None
    return tuple(map(_node_term, node.required.node_selector_terms or ()))


def _node_term(term: _NodeTerm) -> NodeTerm:
    return NodeTerm(
        expressions=tuple(map(_requirement, term.match_expressions or ())),
        fields=tuple(map(_requirement, term.match_fields or ())),
    )


def _requirement(raw: RawRequirement) -> Requirement:
    return Requirement(raw.key, raw.operator, tuple(raw.values or ()))


def _pod_term(term: _PodTerm, namespace: str, index: int) -> PodTerm:
    try:
        selector = requirements_of(term.label_selector)
        namespace_selector = requirements_of(term.namespace_selector)
    except ValueError as error:
        where = "requiredDuringSchedulingIgnoredDuringExecution"
        raise ShapeError(f"spec.affinity.podAntiAffinity.{where}[{index}]: {error}") from None
    namespaces = tuple(sorted(set(term.namespaces or ())))
    if not namespaces and namespace_selector is None:
        namespaces = (namespace,)
    return PodTerm(
        topology_key=term.topology_key,
        namespaces=namespaces,
        namespace_selector=namespace_selector,
        selector=selector,
    )
