"""What spread and inter-pod affinity ask about pods, as questions that tallies answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import msgspec

from stretto.model.selector import requirements_match
from stretto.model.shape import PodTerm, Requirement, Shape
from stretto.placement.many_terms import FEW, KinColumns
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import NAMESPACE, decode_labels
from stretto.snapshot.kins import Flavour, Kin, Term

_NAME_LABEL = "kubernetes.io/metadata.name"
Selector = tuple[Requirement, ...] | None


class _OneByOne(msgspec.Struct, frozen=True):
    """A question that is put to each kin by itself."""

    def weight(self, kin: Kin) -> int:
        """What one pod of a kin counts."""
        raise AssertionError("each question has its own")

    def weights(self, kins: Sequence[Kin]) -> Sequence[int]:
        """The same of many kins."""
        return [self.weight(kin) for kin in kins]


class Spreading(_OneByOne, frozen=True):
    """Pods of a namespace under a selector, without those that are being deleted.

    An empty selector counts nobody (podtopologyspread/common.go countPodsMatchSelector).
    """

    namespace: str
    selector: Selector

    @property
    def namespaces(self) -> Iterable[str]:
        """Only this one."""
        return (self.namespace,)

    def weight(self, kin: Kin) -> int:
        """1 for pods that are counted."""
        if not self.selector or kin.terminating or kin.namespace != self.namespace:
            return 0
        return int(requirements_match(self.selector, kin.labels))


class Selected(msgspec.Struct, frozen=True):
    """Pods that a term of the pod at hand is about, its namespaces resolved to names."""

    namespaces: frozenset[str] | None
    """None: all."""
    selector: Selector

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether the term is about a pod."""
        inside = self.namespaces is None or namespace in self.namespaces
        return inside and requirements_match(self.selector, labels)


class AllOf(_OneByOne, frozen=True):
    """Pods that every one of some terms is about."""

    terms: tuple[Selected, ...]

    @property
    def namespaces(self) -> frozenset[str] | None:
        """Where to look."""
        return self.terms[0].namespaces

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether every term is about a pod."""
        return all(term.matches(namespace, labels) for term in self.terms)

    def weight(self, kin: Kin) -> int:
        """1 for pods that match."""
        return int(self.matches(kin.namespace, kin.labels))


class AnyOf(_OneByOne, frozen=True):
    """Pods that one or more of some terms are about."""

    terms: tuple[Selected, ...]

    @property
    def namespaces(self) -> frozenset[str] | None:
        """Where to look."""
        found: frozenset[str] = frozenset()
        for term in self.terms:
            if term.namespaces is None:
                return None
            found |= term.namespaces
        return found

    def weight(self, kin: Kin) -> int:
        """How many terms are about a pod."""
        return sum(term.matches(kin.namespace, kin.labels) for term in self.terms)

    def weights(self, kins: Sequence[Kin]) -> Sequence[int]:
        """The same of many kins."""
        if len(self.terms) <= FEW:
            return super().weights(kins)
        found: list[int] = KinColumns(kins).weights((1, term) for term in self.terms).tolist()
        return found


class Incoming(msgspec.Struct, frozen=True, dict=True):
    """What other pods' terms see of the pod at hand."""

    namespace: str
    labels: tuple[tuple[str, str], ...]
    namespace_labels: tuple[tuple[str, str], ...]

    @cached_property
    def _labels(self) -> dict[str, str]:
        return dict(self.labels)

    @cached_property
    def _namespace_labels(self) -> dict[str, str]:
        return dict(self.namespace_labels)

    def meant_by(self, term: PodTerm) -> bool:
        """Whether a term of another pod is about it (framework AffinityTerm.Matches)."""
        return self._inside(term) and requirements_match(term.selector, self._labels)

    def _inside(self, term: PodTerm) -> bool:
        if self.namespace in term.namespaces:
            return True
        selector = term.namespace_selector
        return selector is not None and requirements_match(selector, self._namespace_labels)


class Against(_OneByOne, frozen=True):
    """Pods whose required anti-affinity over one key is about the pod at hand."""

    incoming: Incoming
    topology_key: str
    namespaces = None

    def weight(self, kin: Kin) -> int:
        """How many terms of a pod are."""
        return sum(
            term.flavour is Flavour.ANTI and self.incoming.meant_by(term.term)
            for term in kin.terms_over(self.topology_key)
        )


class Preference(_OneByOne, frozen=True):
    """What a pod adds to its domain's score over one key: by the terms of the pod at hand that are
    about it, and by its own terms that are about the pod at hand."""

    own: tuple[tuple[int, Selected], ...]
    """(weight, negative for anti-affinity; who it is about)."""
    incoming: Incoming | None
    """None: terms of others do not count."""
    topology_key: str
    hard_weight: int
    """Weight of a required affinity term of another pod."""
    namespaces = None

    def weight(self, kin: Kin) -> int:
        """The sum over terms of both sides."""
        own = sum(weight for weight, term in self.own if term.matches(kin.namespace, kin.labels))
        return own + self._of_others(kin)

    def weights(self, kins: Sequence[Kin]) -> Sequence[int]:
        """The same of many kins."""
        if len(self.own) <= FEW:
            return super().weights(kins)
        own = KinColumns(kins).weights(self.own).tolist()
        return [weight + self._of_others(kin) for weight, kin in zip(own, kins, strict=True)]

    def _of_others(self, kin: Kin) -> int:
        """What a kin's own terms say of the pod at hand."""
        found = 0
        for term in kin.terms_over(self.topology_key) if self.incoming is not None else ():
            if weight := term_weight(term, hard_weight=self.hard_weight):
                found += weight * self.incoming.meant_by(term.term)  # type: ignore[union-attr]
        return found


def term_weight(term: Term, *, hard_weight: int) -> int:
    """What a term of a pod on a node is worth to the pods that it is about."""
    match term.flavour:
        case Flavour.AFFINITY:
            return hard_weight
        case Flavour.PREFERRED:
            return term.weight
        case Flavour.PREFERRED_ANTI:
            return -term.weight
    return 0


def selected(term: PodTerm, snapshot: Snapshot) -> Selected:
    """A term of the pod at hand with its namespace selector resolved to names
    (interpodaffinity/plugin.go mergeAffinityTermNamespacesIfNotEmpty)."""
    names = frozenset(term.namespaces)
    if term.namespace_selector is None:
        return Selected(names, term.selector)
    if not term.namespace_selector:
        return Selected(None, term.selector)
    namespaces = snapshot.objects(NAMESPACE)
    matching = {
        name
        for name, payload in namespaces.items()
        if requirements_match(term.namespace_selector, decode_labels(payload))
    }
    return Selected(names | matching, term.selector)


def incoming_of(shape: Shape, snapshot: Snapshot) -> Incoming:
    """A shape as other pods' terms see it."""
    payload = snapshot.object_payload(NAMESPACE, shape.namespace)
    labels = {_NAME_LABEL: shape.namespace} if payload is None else decode_labels(payload)
    return Incoming(shape.namespace, shape.labels, tuple(sorted(labels.items())))
