"""Kins: pods that no label selector and no affinity term can tell apart, and where they are.

Spread and inter-pod affinity count pods that match something: a selector, a list of terms, or pods
whose own terms match the pod at hand. What matches depends on a pod's *kin* alone (namespace,
labels, affinity terms, whether it is being deleted), so each question is put once to each kin, and
its answer, a weight, is added to the row's count with every pod of that kin that comes or goes
(:class:`~stretto.snapshot.tallies.Tally`).

A kin knows on which rows its pods are, tentative ones too: a new tally is counted from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

from stretto.model.shape import Shape
from stretto.snapshot.term_set import (
    Term,
    TermSet,
    are_many,
    many_of,
    much_in,
    term_set,
    terms_of,
)

if TYPE_CHECKING:
    from stretto.snapshot.tallies import Tally

_IDLE = 1024
"""Kins without pods that stay enrolled at most, before a sweep."""


class _Identity(NamedTuple):
    namespace: str
    labels: tuple[tuple[str, str], ...]
    terminating: bool
    terms: tuple[Term, ...] | bytes
    """A digest if they are many."""


class Kin:
    """See the module docstring."""

    __slots__ = (
        "__dict__", "__weakref__", "enrolled", "identity", "rows", "table", "tallies", "terms",
    )  # fmt: skip

    def __init__(self, identity: _Identity, table: KinTable, *, terms: tuple[Term, ...]) -> None:
        self.identity = identity
        self.table = table
        self.terms = terms
        """Affinity terms of its pods."""
        self.rows: dict[int, int] = {}
        """Pods by row."""
        self.tallies: list[tuple[Tally, int]] = []
        """Tallies that its pods count in, with the weight of one."""
        self.enrolled = False
        """Its tallies are kept up to date."""

    @property
    def namespace(self) -> str:
        """Namespace of its pods."""
        return self.identity.namespace

    @property
    def crowded(self) -> bool:
        """Its pods have very many terms: they are in ``many``."""
        return isinstance(self.identity.terms, bytes)

    @cached_property
    def many(self) -> TermSet:
        """The terms of a crowded kin."""
        assert isinstance(self.identity.terms, bytes), "few terms are asked one by one"
        return term_set(self.terms, self.identity.terms)

    @property
    def terminating(self) -> bool:
        """Its pods are being deleted."""
        return self.identity.terminating

    @cached_property
    def labels(self) -> dict[str, str]:
        """Labels under the keys that selectors read."""
        return dict(self.identity.labels)

    def shift(self, row: int, by: int) -> None:
        """``by`` more (or fewer) pods on a row."""
        rows = self.rows
        if not rows:
            self.table.woken(self)
        left = rows.get(row, 0) + by
        if left:
            rows[row] = left
        else:
            rows.pop(row, None)
        for tally, weight in self.tallies:
            tally.shift(row, weight * by)
        if not rows:
            self.table.emptied(self)


class KinTable:
    """The kins of a snapshot, and the distinct terms of those that have pods."""

    def __init__(self) -> None:
        self._kins: WeakValueDictionary[_Identity, Kin] = WeakValueDictionary()
        self._enrolled: dict[str, dict[Kin, None]] = {}
        """By namespace."""
        self._idle = 0
        self._terms: dict[str, dict[Term, int]] = {}
        """Distinct terms of kins with pods, by namespace they name; "": of any that a selector of
        namespaces matches. With the number of kins that have them; crowded ones apart."""
        self._last: tuple[Shape, Kin] | None = None
        """The crowded kin that was asked for last: deciding on a pod asks several times, and what
        is made of its terms should last until it has pods."""
        self._crowded: dict[Kin, int] = {}
        """Crowded kins that have pods, or are promised any, for how many reasons."""
        self.terms_version = 0
        """Grows when a distinct term appears or disappears."""
        self._promised: dict[Kin, int] = {}
        """Kins of nominated pods, with how many there are."""
        self.tallies: list[Tally] = []
        """Live tallies; kept by the tally table."""

    def of(self, shape: Shape) -> Kin:
        """The kin of a shape's pods."""
        last = self._last
        if last is not None and last[0] is shape:
            return last[1]
        known: tuple[Term, ...] | bytes
        if are_many(much_in(shape)):
            terms, known = many_of(shape)
        else:
            terms = known = terms_of(shape)
        identity = _Identity(shape.namespace, shape.labels, shape.terminating, known)
        found = self._kins.get(identity)
        if found is None:
            found = self._kins[identity] = Kin(identity, self, terms=terms)
        if found.crowded:
            self._last = shape, found
        return found

    def crowded_of(self, shape: Shape) -> Kin | None:
        """The same if it is crowded, else None."""
        return self.of(shape) if are_many(much_in(shape)) else None

    def enrolled(self, namespaces: Iterable[str] | None) -> Iterator[Kin]:
        """Kins of some namespaces, or of all, that may have pods."""
        for namespace in self._enrolled if namespaces is None else namespaces:
            yield from self._enrolled.get(namespace, ())

    def terms_for(self, namespace: str) -> tuple[Term, ...]:
        """Distinct terms on pods that may be about pods of a namespace; those with a selector of
        namespaces come whether or not it matches. Without those of crowded kins."""
        if not self._terms:
            return ()
        return (*self._terms.get(namespace, ()), *self._terms.get("", ()))

    @property
    def crowded(self) -> Iterable[Kin]:
        """Crowded kins on whose terms it may depend where others go."""
        return self._crowded

    def woken(self, kin: Kin) -> None:
        """A kin is about to have its first pod."""
        if kin.enrolled:
            self._idle -= 1
        else:
            kin.enrolled = True
            self._enrolled.setdefault(kin.namespace, {})[kin] = None
            for tally in self.tallies:
                tally.admit(kin)
        self._count_terms(kin, 1)

    def emptied(self, kin: Kin) -> None:
        """A kin has lost its last pod. It stays enrolled for a while: pods of a Deployment come and
        go."""
        self._idle += 1
        self._count_terms(kin, -1)
        if self._idle > _IDLE:
            self._sweep()

    def promise(self, shape: Shape, by: int) -> None:
        """``by`` more (or fewer) pods are nominated: filters count them for the length of a
        question, so their terms must be known beforehand."""
        kin = self.of(shape)
        left = self._promised.pop(kin, 0) + by
        assert left >= 0, "a nomination was taken back more often than made"
        if left:
            self._promised[kin] = left
        if left == (1 if by > 0 else 0):
            self._count_terms(kin, by)

    def _count_terms(self, kin: Kin, by: int) -> None:
        if kin.crowded:
            self._count_crowded(kin, by)
            return
        for term in kin.terms:
            for place in _places(term):
                terms = self._terms.setdefault(place, {})
                left = terms.get(term, 0) + by
                if left == by or not left:
                    self.terms_version += 1
                if left:
                    terms[term] = left
                else:
                    del terms[term]
                    if not terms:
                        del self._terms[place]

    def _count_crowded(self, kin: Kin, by: int) -> None:
        left = self._crowded.pop(kin, 0) + by
        assert left >= 0, "a crowded kin has left more often than it came"
        if left:
            self._crowded[kin] = left
        if left == (1 if by > 0 else 0):
            self.terms_version += 1

    def _sweep(self) -> None:
        for namespace, kins in list(self._enrolled.items()):
            kept = {kin: None for kin in kins if kin.rows}
            for kin in kins:
                if not kin.rows:
                    kin.enrolled = False
                    for tally, _ in kin.tallies:
                        tally.dismiss(kin)
                    kin.tallies = []
            if kept:
                self._enrolled[namespace] = kept
            else:
                del self._enrolled[namespace]
        self._idle = 0

    def clear(self, row: int) -> None:
        """Forget the pods of a row."""
        for kin in [kin for kin in self.enrolled(None) if row in kin.rows]:
            kin.shift(row, -kin.rows[row])

    def validate(self) -> None:
        """Assert that enrolled kins, their terms and every tally agree; O(everything)."""
        terms: dict[str, dict[Term, int]] = {}
        for kin in self._kins.values():
            assert kin.enrolled or not kin.rows
            assert all(kin.rows.values())
            reasons = bool(kin.rows) + (kin in self._promised)
            if kin.crowded:
                assert self._crowded.get(kin, 0) == reasons
                continue
            for term in kin.terms * reasons:
                for place in _places(term):
                    counts = terms.setdefault(place, {})
                    counts[term] = counts.get(term, 0) + 1
        assert terms == self._terms
        for tally in self.tallies:
            tally.validate(self.enrolled(None))


def _places(term: Term) -> set[str]:
    """Where a term is kept: under the namespaces it names, and "" if it selects some."""
    selects = term.term.namespace_selector is not None
    return {*term.term.namespaces, ""} if selects else set(term.term.namespaces)
