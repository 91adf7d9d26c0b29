"""Affinity, tolerations, ports and spread constraints: from JSON to the records of a shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec
from msgspec import Raw

from stretto.model.errors import OperatorError
from stretto.model.objects import ContainerPort
from stretto.model.selector import RawRequirement, RawSelector, requirement_order, requirements_of
from stretto.model.shape import (
    NAME_FIELD,
    HostPort,
    NodeTerm,
    PodTerm,
    PreferredNodeTerm,
    Requirement,
    SpreadConstraint,
    Toleration,
    WeightedPodTerm,
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


class _WeightedPodTerm(_Raw, frozen=True, gc=False):
    weight: int = 0
    pod_affinity_term: _PodTerm = _PodTerm()


class _PodAffinity(_Raw, frozen=True, gc=False):
    required: list[_PodTerm] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[_WeightedPodTerm] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class _Affinity(_Raw, frozen=True, gc=False):
    node_affinity: _NodeAffinity | None = None
    pod_affinity: _PodAffinity | None = None
    pod_anti_affinity: _PodAffinity | None = None


class _Spread(_Raw, frozen=True, gc=False):
    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: RawSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class Affinity(msgspec.Struct, frozen=True):
    """Affinity as a shape holds it."""

    required_node_terms: tuple[NodeTerm, ...] | None = None
    only_node: str = ""
    """The one node that every required term names; it is in no term then."""
    preferred_node_terms: tuple[PreferredNodeTerm, ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    preferred_affinity: tuple[WeightedPodTerm, ...] = ()
    preferred_anti_affinity: tuple[WeightedPodTerm, ...] = ()


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


def spread_of(raw: Raw, *, labels: Mapping[str, str]) -> tuple[SpreadConstraint, ...]:
    """spec.topologySpreadConstraints in order; ``labels`` are the pod's, for matchLabelKeys.

    Raises:
        ShapeError: a selector that cannot be read; names the constraint.
    """
    where = "spec.topologySpreadConstraints"
    found = decoded(raw, list[_Spread], where=where) or ()
    return tuple(_spread(c, labels, where=f"{where}[{i}]") for i, c in enumerate(found))


def _spread(raw: _Spread, labels: Mapping[str, str], *, where: str) -> SpreadConstraint:
    try:
        selector = requirements_of(raw.label_selector)
    except ValueError as error:
        raise ShapeError(f"{where}: {error}") from None
    if selector is not None:
        # The API server has added these itself; a set makes them one.
        own = {
            Requirement(k, "In", (labels[k],)) for k in raw.match_label_keys or () if k in labels
        }
        selector = tuple(sorted({*selector, *own}, key=requirement_order))
    return SpreadConstraint(
        max_skew=raw.max_skew,
        topology_key=raw.topology_key,
        hard=raw.when_unsatisfiable != "ScheduleAnyway",
        selector=selector,
        min_domains=1 if raw.min_domains is None else raw.min_domains,
        honor_affinity=raw.node_affinity_policy in (None, "Honor"),
        honor_taints=raw.node_taints_policy == "Honor",
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
    together = found.pod_affinity or _PodAffinity()
    apart = found.pod_anti_affinity or _PodAffinity()
    required, only_node = _of_one_node(_required(node))
    return Affinity(
        required_node_terms=required,
        only_node=only_node,
        preferred_node_terms=tuple(
            PreferredNodeTerm(p.weight, _node_term(p.preference)) for p in node.preferred or ()
        ),
        affinity=_pod_terms(together, namespace, where="spec.affinity.podAffinity"),
        anti_affinity=_pod_terms(apart, namespace, where="spec.affinity.podAntiAffinity"),
        preferred_affinity=_weighted(together, namespace, where="spec.affinity.podAffinity"),
        preferred_anti_affinity=_weighted(apart, namespace, where="spec.affinity.podAntiAffinity"),
    )


def _required(node: _NodeAffinity) -> tuple[NodeTerm, ...] | None:
    if node.required is None:
        return None
    return tuple(map(_node_term, node.required.node_selector_terms or ()))


def _of_one_node(
    terms: tuple[NodeTerm, ...] | None,
) -> tuple[tuple[NodeTerm, ...] | None, str]:
    """Required terms without the one node that each of them names, and its name; as they are, and
    "", if they do not all name the same. The DaemonSet controller writes them so
    (ReplaceDaemonSetPodNodeNameNodeAffinity).
    """
    first = terms[0].fields if terms else ()
    named = len(first) == 1 and (first[0].key, first[0].operator) == (NAME_FIELD, "In")
    if not terms or not named or len(first[0].values) != 1 or not first[0].values[0]:
        return terms, ""
    if any(term.fields != first for term in terms):
        return terms, ""
    if any(not term.expressions for term in terms):  # one asks for nothing else: neither do all
        return None, first[0].values[0]
    return tuple(NodeTerm(term.expressions) for term in terms), first[0].values[0]


def _node_term(term: _NodeTerm) -> NodeTerm:
    return NodeTerm(
        expressions=tuple(map(_requirement, term.match_expressions or ())),
        fields=tuple(map(_requirement, term.match_fields or ())),
    )


def _requirement(raw: RawRequirement) -> Requirement:
    return Requirement(raw.key, raw.operator, tuple(raw.values or ()))


def _pod_terms(found: _PodAffinity, namespace: str, *, where: str) -> tuple[PodTerm, ...]:
    path = f"{where}.requiredDuringSchedulingIgnoredDuringExecution"
    return tuple(
        _pod_term(term, namespace, where=f"{path}[{i}]")
        for i, term in enumerate(found.required or ())
    )


def _weighted(found: _PodAffinity, namespace: str, *, where: str) -> tuple[WeightedPodTerm, ...]:
    path = f"{where}.preferredDuringSchedulingIgnoredDuringExecution"
    return tuple(
        WeightedPodTerm(
            each.weight,
            _pod_term(each.pod_affinity_term, namespace, where=f"{path}[{i}].podAffinityTerm"),
        )
        for i, each in enumerate(found.preferred or ())
    )


def _pod_term(term: _PodTerm, namespace: str, *, where: str) -> PodTerm:
    try:
        selector = requirements_of(term.label_selector)
        namespace_selector = requirements_of(term.namespace_selector)
    except ValueError as error:
        raise ShapeError(f"{where}: {error}") from None
    namespaces = tuple(sorted(set(term.namespaces or ())))
    if not namespaces and namespace_selector is None:
        namespaces = (namespace,)
    return PodTerm(
        topology_key=term.topology_key,
        namespaces=namespaces,
        namespace_selector=namespace_selector,
        selector=selector,
    )
