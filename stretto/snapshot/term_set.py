"""The pod affinity terms of a pod that has very many, asked all at once.

In both directions: which of them are about some pod, and what the pods that they are about count.
See :mod:`stretto.model.term_index`; a number below stands for terms.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence, Set
from enum import IntEnum
from typing import NamedTuple

import msgspec

from stretto.model.lately import Lately, LatelyOf
from stretto.model.shape import PodTerm, Shape
from stretto.model.term_index import TermIndex, planes

FEW = 8
"""Up to so many terms are quicker one by one."""
Planes = Sequence[tuple[int, int]]
"""(worth, terms); see :func:`stretto.model.term_index.weight_of`."""


class Flavour(IntEnum):
    """What a pod affinity term of a pod says."""

    ANTI = 0
    """Required anti-affinity."""
    AFFINITY = 1
    """Required affinity."""
    PREFERRED = 2
    PREFERRED_ANTI = 3


class Term(NamedTuple):
    """A term with what it says; ``weight`` 1..100 of preferred ones, else 0."""

    flavour: Flavour
    weight: int
    term: PodTerm


def much_in(shape: Shape) -> int:
    """How many pod affinity terms a shape has, those that ask for much counted several times."""
    found = (
        len(shape.anti_affinity)
        + len(shape.affinity)
        + len(shape.preferred_affinity)
        + len(shape.preferred_anti_affinity)
    )
    if not found or are_many(found):
        return found
    return found + sum(_much(term.term) for term in terms_of(shape))


def _much(term: PodTerm) -> int:
    return (len(term.selector or ()) + len(term.namespace_selector or ())) // FEW


def terms_of(shape: Shape) -> tuple[Term, ...]:
    """Every pod affinity term of a shape."""
    if not (
        shape.anti_affinity
        or shape.affinity
        or shape.preferred_affinity
        or shape.preferred_anti_affinity
    ):
        return ()
    return (
        *(Term(Flavour.ANTI, 0, term) for term in shape.anti_affinity),
        *(Term(Flavour.AFFINITY, 0, term) for term in shape.affinity),
        *(Term(Flavour.PREFERRED, w.weight, w.term) for w in shape.preferred_affinity),
        *(Term(Flavour.PREFERRED_ANTI, w.weight, w.term) for w in shape.preferred_anti_affinity),
    )


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


def are_many(count: int) -> bool:
    """Whether so many terms are asked all at once; see :func:`much_in`."""
    return count > FEW


_encoder = msgspec.msgpack.Encoder()


def terms_digest(terms: tuple[Term, ...]) -> bytes:
    """16 bytes that stand for terms: hashing them one by one costs a microsecond each."""
    return hashlib.blake2b(_encoder.encode(terms), digest_size=16).digest()


_KEPT = 4
_sets: Lately[TermSet] = Lately(_KEPT)
"""By digest: pods of several kinds have the same terms, and what is made of them is the same for
each snapshot. Made beside the loop, if it is to be."""
_digested: LatelyOf[tuple[tuple[Term, ...], bytes]] = LatelyOf(_KEPT)
"""By shape."""


def term_set(terms: tuple[Term, ...], digest: bytes) -> TermSet:
    """The terms that have a digest."""

    def make() -> TermSet:
        made = TermSet(terms, digest)
        made.settle()
        return made

    return _sets.of_key(digest, make)


def many_of(shape: Shape) -> tuple[tuple[Term, ...], bytes]:
    """The very many terms of a shape, and their digest."""

    def make() -> tuple[tuple[Term, ...], bytes]:
        terms = terms_of(shape)
        return terms, terms_digest(terms)

    return _digested.of(shape, make)


def prepare_terms(shape: Shape) -> None:
    """Make what deciding on a shape with very many terms needs beforehand; in any thread."""
    if are_many(much_in(shape)):
        term_set(*many_of(shape))


class TermSet:
    """See the module docstring."""

    def __init__(self, terms: tuple[Term, ...], digest: bytes) -> None:
        self.digest = digest
        self._terms = terms
        self._about = TermIndex()
        self._selecting = TermIndex()
        """By the labels of a namespace."""
        naming: dict[str, list[int]] = {}
        everywhere: list[int] = []
        over: dict[tuple[Flavour, str], list[int]] = {}
        for bit, (flavour, _, term) in enumerate(terms):
            self._about.add(term.selector)
            if term.namespace_selector == ():
                everywhere.append(bit)
            for namespace in term.namespaces:
                naming.setdefault(namespace, []).append(bit)
            over.setdefault((flavour, term.topology_key), []).append(bit)
        self._naming = {name: self._about.mask(bits) for name, bits in naming.items()}
        self._everywhere = self._about.mask(everywhere)
        self._over = over
        self._masks: dict[tuple[Flavour, str], int] = {}
        self._worth: dict[tuple[str, int], Planes] = {}
        self.keys = {key: None for _, key in over}
        """Topology keys, in the order of the terms."""
        self.selects = any(term.namespace_selector for _, _, term in terms)
        """Some select namespaces by their labels."""
        for _, _, term in terms if self.selects else ():
            self._selecting.add(term.namespace_selector or None)
        self.names: frozenset[str] | None = frozenset(naming)
        """The namespaces of the pods that they can be about; None: any."""
        if self.selects or everywhere:
            self.names = None

    def settle(self) -> None:
        """Do what can be done before the first question."""
        self._about.settle()
        self._selecting.settle()

    def about(self, labels: Mapping[str, str]) -> int:
        """The terms that are about pods with some labels, their namespaces apart."""
        return self._about.holding(labels)

    def inside(self, namespace: str, labels: Mapping[str, str] | None) -> int:
        """The terms that look into a namespace with some labels; None: there is no such object."""
        found = self._everywhere | self._naming.get(namespace, 0)
        if self.selects and labels is not None:
            found |= self._selecting.holding(labels)
        return found

    def over(self, flavour: Flavour, key: str) -> int:
        """The terms of a flavour over a topology key."""
        found = self._masks.get((flavour, key))
        if found is None:
            found = self._about.mask(self._over.get((flavour, key), ()))
            self._masks[flavour, key] = found
        return found

    def flavoured(self, flavour: Flavour) -> Sequence[str]:
        """The topology keys of a flavour's terms."""
        return [key for each, key in self._over if each is flavour]

    def all_of(self, flavour: Flavour) -> int:
        """Every term of a flavour."""
        bits = [bit for bit, term in enumerate(self._terms) if term.flavour is flavour]
        return self._about.mask(bits)

    def worth(self, key: str, *, hard_weight: int) -> Planes:
        """What its terms over a key say: to the pods that they are about, or (without the weight of
        required affinity) to the pod itself."""
        found = self._worth.get((key, hard_weight))
        if found is None:
            bits = [bit for flavour in Flavour for bit in self._over.get((flavour, key), ())]
            weights = [
                (bit, term_weight(self._terms[bit], hard_weight=hard_weight)) for bit in bits
            ]
            found = self._worth[key, hard_weight] = planes(weights, self._about)
        return found

    def keys_of(self, terms: int, *, carried: Set[str], flavours: Iterable[Flavour]) -> set[str]:
        """The topology keys that some terms of some flavours are over, of those that a node
        carries: over others nobody is near anybody, and a pod may name twenty thousand."""
        few = self.keys if len(self.keys) < len(carried) else carried
        wanted = [key for key in few if key in self.keys and key in carried]
        return {key for key in wanted if any(terms & self.over(f, key) for f in flavours)}
