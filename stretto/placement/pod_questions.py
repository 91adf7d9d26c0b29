"""What spread and inter-pod affinity ask about pods, as questions that tallies answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import msgspec

from stretto.model.selector import requirements_match
from stretto.model.shape import PodTerm, Requirement, Shape
from stretto.model.term_index import weight_of
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import NAMESPACE, decode_labels
from stretto.snapshot.kins import Kin
from stretto.snapshot.term_set import Flavour, Planes, TermSet, term_weight

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

    def meant_by_many(self, kin: Kin) -> int:
        """Which terms of a crowded kin are about it."""
        inside = kin.many.inside(self.namespace, self._namespace_labels)
        return inside and inside & kin.many.about(self._labels)

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
        if kin.crowded:
            against = kin.many.over(Flavour.ANTI, self.topology_key)
            return (against and against & self.incoming.meant_by_many(kin)).bit_count()
        return sum(
            term.term.topology_key == self.topology_key
            and term.flavour is Flavour.ANTI
            and self.incoming.meant_by(term.term)
            for term in kin.terms
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
        return own + said_by(kin, self.incoming, self.topology_key, self.hard_weight)


def said_by(kin: Kin, incoming: Incoming | None, topology_key: str, hard_weight: int) -> int:
    """What a kin's own terms over a key say of the pod at hand; of None nothing."""
    if incoming is None:
        return 0
    if kin.crowded:
        worth = kin.many.worth(topology_key, hard_weight=hard_weight)
        return weight_of(incoming.meant_by_many(kin), worth) if worth else 0
    found = 0
    for term in kin.terms:
        if term.term.topology_key == topology_key:
            weight = term_weight(term, hard_weight=hard_weight)
            if weight and incoming.meant_by(term.term):
                found += weight
    return found


class Own:
    """Very many terms of the pod at hand, and who they are about in a snapshot."""

    _KEPT = 4096

    def __init__(self, kin: Kin, snapshot: Snapshot) -> None:
        self.terms: TermSet = kin.many
        self._kin = kin
        """Kept, and with it what was made of its terms, before it has pods."""
        self._snapshot = snapshot
        self.version = snapshot.kind_version(NAMESPACE) if kin.many.selects else 0
        """Of what is asked about namespaces."""
        self._inside: dict[str, int] = {}
        self._known: dict[tuple[str, tuple[tuple[str, str], ...]], int] = {}
        """By namespace and labels: each question, of one for each topology key, asks."""

    def about(self, kin: Kin) -> int:
        """The terms that are about a kin's pods."""
        asked = kin.namespace, kin.identity.labels
        found = self._known.get(asked)
        if found is None:
            if len(self._known) >= self._KEPT:
                self._known.clear()
            found = self._known[asked] = self.holding(kin.namespace, kin.labels)
        return found

    def holding(self, namespace: str, labels: Mapping[str, str]) -> int:
        """The terms that are about a pod."""
        inside = self._inside.get(namespace)
        if inside is None:
            payload = self._snapshot.object_payload(NAMESPACE, namespace)
            known = None if payload is None else decode_labels(payload)
            inside = self._inside[namespace] = self.terms.inside(namespace, known)
        return inside and inside & self.terms.about(labels)


class OfMany:
    """A question about the pods that terms of a pod with very many are about.

    ``planes``: what a pod counts for each term that is about it; ``all_of``: or 1 if all of these
    are. ``incoming``: what terms of others say of it over the key counts too.
    """

    def __init__(
        self,
        own: Own,
        *,
        planes: Planes = (),
        all_of: int = 0,
        incoming: Incoming | None = None,
        topology_key: str = "",
        hard_weight: int = 0,
    ) -> None:
        self._own = own
        self._planes = tuple(planes)
        self._all_of = all_of
        self._incoming = incoming
        self._topology_key = topology_key
        self._hard_weight = hard_weight
        self._equal_by = (
            own.terms.digest, own.version, self._planes, all_of, incoming, topology_key,
            hard_weight,
        )  # fmt: skip

    @property
    def namespaces(self) -> frozenset[str] | None:
        """Where to look."""
        return None if self._incoming is not None else self._own.terms.names

    def weight(self, kin: Kin) -> int:
        """The sum over terms of both sides."""
        about = self._own.about(kin)
        if self._all_of:
            return int(about & self._all_of == self._all_of)
        others = said_by(kin, self._incoming, self._topology_key, self._hard_weight)
        return weight_of(about, self._planes) + others

    def weights(self, kins: Sequence[Kin]) -> Sequence[int]:
        """The same of many kins."""
        return [self.weight(kin) for kin in kins]

    def __hash__(self) -> int:
        return hash((self._own.terms.digest, self._topology_key, self._all_of))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OfMany) and self._equal_by == other._equal_by


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
