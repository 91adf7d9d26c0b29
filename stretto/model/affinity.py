"""The affinity of a pod as it is sent, and its terms as shapes hold them."""

from __future__ import annotations

import msgspec

from stretto.model.selector import (
    LabelSelectorSpec,
    SelectorError,
    SelectorExpression,
    compile_label_selector,
)
from stretto.model.shape import NodeTerm, PodTerm, PreferredNodeTerm, Requirement

NODE_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})
MAX_TERMS = 100
MAX_VALUES = 1000


class NodeSelectorTerm(msgspec.Struct, rename="camel"):
    """A term over a node's labels and fields."""

    match_expressions: tuple[SelectorExpression, ...] | None = None
    match_fields: tuple[SelectorExpression, ...] | None = None


class NodeSelector(msgspec.Struct, rename="camel"):
    """Terms, any of which must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] | None = None


class PreferredSchedulingTerm(msgspec.Struct, rename="camel"):
    """A weighted term."""

    weight: int = 0
    preference: NodeSelectorTerm = msgspec.field(default_factory=NodeSelectorTerm)


class NodeAffinity(msgspec.Struct, rename="camel"):
    """nodeAffinity."""

    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[PreferredSchedulingTerm, ...] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(msgspec.Struct, rename="camel"):
    """A term over pods in a domain."""

    topology_key: str = ""
    label_selector: LabelSelectorSpec | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelectorSpec | None = None


class PodAffinity(msgspec.Struct, rename="camel"):
    """podAffinity or podAntiAffinity."""

    required: tuple[PodAffinityTerm, ...] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[msgspec.Raw, ...] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(msgspec.Struct, rename="camel"):
    """spec.affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


_decoder = msgspec.json.Decoder(Affinity | None)


def decode_affinity(raw: msgspec.Raw) -> Affinity:
    """Read spec.affinity; absent and null are empty.

    Raises:
        SelectorError: it is malformed.
    """
    data = bytes(raw)
    try:
        return (_decoder.decode(data) if data else None) or Affinity()
    except msgspec.DecodeError as error:
        raise SelectorError(f"spec.affinity cannot be read: {error}") from None


def _requirements(
    expressions: tuple[SelectorExpression, ...] | None, *, where: str
) -> tuple[Requirement, ...]:
    result = []
    for expression in expressions or ():
        values = tuple(expression.values or ())
        if expression.operator not in NODE_OPERATORS:
            raise SelectorError(f"{where}: operator {expression.operator!r} is unknown")
        if len(values) > MAX_VALUES:
            raise SelectorError(f"{where}: {len(values)} values; at most {MAX_VALUES}")
        result.append(Requirement(expression.key, expression.operator, values))
    return tuple(result)


def node_term(term: NodeSelectorTerm, *, where: str) -> NodeTerm:
    """A node selector term as shapes hold it."""
    return NodeTerm(
        _requirements(term.match_expressions, where=where),
        _requirements(term.match_fields, where=where),
    )


def required_node_terms(affinity: NodeAffinity) -> tuple[NodeTerm, ...] | None:
    """Required terms; None when there is no requirement."""
    if affinity.required is None:
        return None
    terms = affinity.required.node_selector_terms or ()
    if len(terms) > MAX_TERMS:
        raise SelectorError(f"spec.affinity.nodeAffinity: {len(terms)} terms; at most {MAX_TERMS}")
    return tuple(node_term(term, where="spec.affinity.nodeAffinity") for term in terms)


def preferred_node_terms(affinity: NodeAffinity) -> tuple[PreferredNodeTerm, ...]:
    """Preferred terms; those without weight or content are left out, as upstream does."""
    found = []
    for preferred in affinity.preferred or ():
        term = node_term(preferred.preference, where="spec.affinity.nodeAffinity")
        if preferred.weight and (term.expressions or term.fields):
            found.append(PreferredNodeTerm(preferred.weight, term))
    if len(found) > MAX_TERMS:
        raise SelectorError(f"spec.affinity.nodeAffinity: {len(found)} terms; at most {MAX_TERMS}")
    return tuple(found)


def pod_term(term: PodAffinityTerm, *, namespace: str, where: str) -> PodTerm:
    """A required pod (anti-)affinity term, its namespaces resolved against the pod's own."""
    selector = namespace_selector = None
    if term.label_selector is not None:
        selector = compile_label_selector(term.label_selector, where=where).requirements
    if term.namespace_selector is not None:
        namespace_selector = compile_label_selector(
            term.namespace_selector, where=where
        ).requirements
    named = tuple(sorted(term.namespaces or ()))
    own = () if named or term.namespace_selector is not None else (namespace,)
    return PodTerm(term.topology_key, named or own, namespace_selector, selector)
