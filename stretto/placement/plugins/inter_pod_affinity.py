"""InterPodAffinity: near pods that a term is about, or away from them.

Upstream: pkg/scheduler/framework/plugins/interpodaffinity. Terms work both ways: a pod's required
anti-affinity keeps others off its domain, and its affinity draws others that it is about. So even a
pod without terms is concerned when a pod on some node has one that is about it. Events that can
make a pod schedulable: see ``stretto.placement.hints``.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from stretto.model.shape import PodTerm, Shape
from stretto.model.unit import Cause
from stretto.placement.domains import Domains
from stretto.placement.framework import (
    MAX_SCORE,
    Bools,
    CrossScorer,
    Filter,
    Int64s,
    Plugin,
    Rejection,
    Scorer,
    Scores,
    View,
)
from stretto.placement.pod_questions import (
    Against,
    AllOf,
    AnyOf,
    Incoming,
    OfMany,
    Own,
    Preference,
    Selected,
    incoming_of,
    selected,
)
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import NAMESPACE
from stretto.snapshot.kins import Kin
from stretto.snapshot.term_set import Flavour, term_weight, terms_of

NAME = "InterPodAffinity"
AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"


class InterPodArgs(msgspec.Struct, frozen=True):
    """InterPodAffinityArgs."""

    hard_weight: int = 1
    """hardPodAffinityWeight: what a required affinity term of a pod on a node is worth."""
    ignore_existing: bool = False
    """ignorePreferredTermsOfExistingPods: pods without preferred terms are not scored."""


class Basis(NamedTuple):
    """What pods on nodes ask of a shape, and who its own terms are about."""

    against: frozenset[str]
    """Topology keys over which a required anti-affinity term of a pod is about the shape."""
    drawn: frozenset[str]
    """Keys of the terms that score."""
    incoming: Incoming
    namespaces: int
    """Version of the namespaces if a term of the shape selects some, else 0."""
    carried: int
    """Number of label keys that nodes carry if a pod with very many terms counts, else 0: of the
    topology keys of these only such are looked at."""


NOTHING = Basis(frozenset(), frozenset(), Incoming("", (), ()), 0, 0)
"""Of a shape without terms, when no pod has any that may be about it."""


class InterPodFilter(Filter):
    """Required affinity, required anti-affinity, and that of pods on nodes."""

    name = NAME
    cause = Cause.AFFINITY
    cross = True

    def __init__(self, shape: Shape, basis: Basis, snapshot: Snapshot) -> None:
        kin = snapshot.kins.crowded_of(shape)
        if kin is None:
            self._near, self._first = _near(shape, snapshot)
            self._apart = [
                Domains(AnyOf(tuple(terms)), key, snapshot=snapshot)
                for key, terms in _by_key(shape.anti_affinity, snapshot).items()
            ]
        else:
            own = Own(kin, snapshot)
            self._near, self._first = _near_many(shape, own, snapshot)
            self._apart = _apart_many(own, snapshot)
        self._against = [
            Domains(Against(basis.incoming, key), key, snapshot=snapshot)
            for key in sorted(basis.against)
        ]

    @property
    def idle(self) -> bool:
        """It rejects nothing whatever happens."""
        return not (self._near or self._apart or self._against)

    def skips(self) -> bool:
        """The pod has no required terms, and it is what none of a placed pod is about."""
        if self._near or self._apart:
            return False
        self._refresh()
        return not any(domains.sums.any() for domains in self._against)

    @property
    def nbytes(self) -> int:
        """Of its domains."""
        return sum(d.nbytes for d in (*self._near, *self._apart, *self._against))

    def _alone(self) -> bool:
        """The pod may found its group: nobody matches its affinity, and it does itself."""
        return self._first and not any(domains.sums.any() for domains in self._near)

    def _refresh(self) -> None:
        for domains in (*self._near, *self._apart, *self._against):
            domains.refresh()

    def _drawn(self, view: View) -> Bools | None:
        """Rows that the pod's affinity allows."""
        passes: Bools | None = None
        alone = bool(self._near) and self._alone()
        for domains in self._near:
            table = domains.sums > 0
            if alone:
                table[1:] = True
            found = table[view.of(domains.ids)]
            passes = found if passes is None else passes & found
        return passes

    @staticmethod
    def _free(of: list[Domains], view: View) -> Bools | None:
        """Rows whose domains hold nobody that counts."""
        passes: Bools | None = None
        for domains in of:
            table = domains.sums <= 0
            if table.all():
                continue
            found = table[view.of(domains.ids)]
            passes = found if passes is None else passes & found
        return passes

    def passes(self, view: View) -> Bools | None:
        """bool[view.size]."""
        self._refresh()
        passes = self._drawn(view)
        for of in (self._apart, self._against):
            free = self._free(of, view)
            if free is not None:
                passes = free if passes is None else passes & free
        return passes

    def passes_row(self, row: int) -> bool:
        """The same for one row."""
        self._refresh()
        for domains in (*self._apart, *self._against):
            domain = domains.ids.item(row)
            if domain and domains.sums.item(domain) > 0:
                return False
        near = [(domains, domains.ids.item(row)) for domains in self._near]
        if not all(domain for _, domain in near):
            return False
        return all(domains.sums.item(domain) > 0 for domains, domain in near) or self._alone()

    def rejections(self, view: View) -> list[Rejection]:
        """The first that fails speaks: affinity, anti-affinity, anti-affinity of others."""
        self._refresh()
        found = []
        left = np.ones(view.size, dtype=np.bool_)
        for reason, passes in (
            (AFFINITY, self._drawn(view)),
            (ANTI_AFFINITY, self._free(self._apart, view)),
            (EXISTING, self._free(self._against, view)),
        ):
            if passes is not None:
                rejected = left & ~passes
                left &= passes
                found.append(Rejection(reason, rejected, unresolvable=reason is AFFINITY))
        return found


def _near(shape: Shape, snapshot: Snapshot) -> tuple[list[Domains], bool]:
    """Domains of the pods that match every required affinity term, by key; and whether the pod
    itself does."""
    if not shape.affinity:
        return [], False
    everyone = AllOf(tuple(selected(term, snapshot) for term in shape.affinity))
    keys = dict.fromkeys(term.topology_key for term in shape.affinity)
    own = everyone.matches(shape.namespace, dict(shape.labels))
    return [Domains(everyone, key, snapshot=snapshot) for key in keys], own


def _by_key(terms: tuple[PodTerm, ...], snapshot: Snapshot) -> dict[str, list[Selected]]:
    found: dict[str, list[Selected]] = {}
    for term in terms:
        found.setdefault(term.topology_key, []).append(selected(term, snapshot))
    return found


def _near_many(shape: Shape, own: Own, snapshot: Snapshot) -> tuple[list[Domains], bool]:
    """:func:`_near` of very many terms. Of keys that no node carries one is enough: it lets no node
    pass, and has nobody in it."""
    if not shape.affinity:
        return [], False
    everyone = own.terms.all_of(Flavour.AFFINITY)
    question = OfMany(own, all_of=everyone)
    keys, carried = own.terms.flavoured(Flavour.AFFINITY), snapshot.carried_keys
    some = [key for key in keys if key in carried]
    some += next(([key] for key in keys if key not in carried), [])
    matched = everyone & ~own.holding(shape.namespace, dict(shape.labels)) == 0
    return [Domains(question, key, snapshot=snapshot) for key in some], matched


def _apart_many(own: Own, snapshot: Snapshot) -> list[Domains]:
    """Domains of the pods that anti-affinity terms are about."""
    found = []
    for key in own.terms.flavoured(Flavour.ANTI):
        if key in snapshot.carried_keys:
            terms = [(1, own.terms.over(Flavour.ANTI, key))]
            question = OfMany(own, planes=terms, topology_key=key)
            found.append(Domains(question, key, snapshot=snapshot))
    return found


class InterPodScorer(CrossScorer):
    """Weights of matching terms, summed over domains; 100·(s − min)/(max − min)."""

    name = NAME

    def __init__(
        self, shape: Shape, basis: Basis, *, args: InterPodArgs, snapshot: Snapshot
    ) -> None:
        kin = snapshot.kins.crowded_of(shape)
        if kin is not None:
            self._domains = _preferred_many(kin, basis, args, snapshot)
            return
        own: dict[str, list[tuple[int, Selected]]] = {key: [] for key in sorted(basis.drawn)}
        for sign, terms in ((1, shape.preferred_affinity), (-1, shape.preferred_anti_affinity)):
            for weighted in terms:
                pair = sign * weighted.weight, selected(weighted.term, snapshot)
                own.setdefault(weighted.term.topology_key, []).append(pair)
        self._domains = [
            Domains(
                Preference(tuple(terms), basis.incoming, key, args.hard_weight),
                key,
                snapshot=snapshot,
            )
            for key, terms in own.items()
        ]

    @property
    def idle(self) -> bool:
        """It adds nothing whatever happens."""
        return not self._domains

    @property
    def nbytes(self) -> int:
        """Of its domains."""
        return sum(domains.nbytes for domains in self._domains)

    def over(self, feasible: Bools) -> Scores | None:
        """None while no pod counts."""
        raw: Int64s | None = None
        for domains in self._domains:
            domains.refresh()
            if domains.sums.any():
                part = domains.sums[domains.ids]
                raw = part if raw is None else raw + part
        if raw is None:
            return None
        limits = np.iinfo(np.int64)
        highest = int(raw.max(where=feasible, initial=limits.min))
        lowest = int(raw.min(where=feasible, initial=limits.max))
        if highest <= lowest:
            return Scores(raw, np.zeros_like(raw))
        # Upstream divides before it multiplies, in doubles, and truncates.
        shares = (raw - lowest) / float(highest - lowest)
        return Scores(raw, (shares * MAX_SCORE).astype(np.int64))


def _preferred_many(
    kin: Kin, basis: Basis, args: InterPodArgs, snapshot: Snapshot
) -> list[Domains]:
    """Domains over which a pod with very many terms prefers, or is drawn by others."""
    own, keys = Own(kin, snapshot), dict.fromkeys(sorted(basis.drawn))
    for flavour in (Flavour.PREFERRED, Flavour.PREFERRED_ANTI):
        keys |= dict.fromkeys(kin.many.flavoured(flavour))
    found = []
    for key in keys:
        if key in snapshot.carried_keys:
            worth = kin.many.worth(key, hard_weight=0)
            question = OfMany(
                own,
                planes=worth,
                incoming=basis.incoming,
                topology_key=key,
                hard_weight=args.hard_weight,
            )
            found.append(Domains(question, key, snapshot=snapshot))
    return found


class InterPodAffinity(Plugin):
    """Filter and score by pod affinity and anti-affinity."""

    name = NAME
    static = False
    basis_kinds = frozenset({NAMESPACE})

    def __init__(self, args: InterPodArgs) -> None:
        self._args = args
        self._last: tuple[Shape, Snapshot, tuple[int, int, int], Basis] | None = None

    def basis(self, shape: Shape, snapshot: Snapshot) -> Basis:
        """Terms of pods on nodes that are about the shape, its own counted as if one of its pods
        were there already: placing the first must not change it."""
        kins, keys = snapshot.kins, len(snapshot.carried_keys)
        stamp = snapshot.kind_version(NAMESPACE), kins.terms_version, keys
        last = self._last
        if last is not None and last[0] is shape and last[1] is snapshot and last[2] == stamp:
            return last[3]  # each of filter, scorer and what they rest on asks
        found = self._basis(shape, snapshot)
        self._last = shape, snapshot, stamp, found
        return found

    def _basis(self, shape: Shape, snapshot: Snapshot) -> Basis:
        mine = snapshot.kins.crowded_of(shape)
        own = terms_of(shape) if mine is None else ()
        terms = (*snapshot.kins.terms_for(shape.namespace), *own)
        crowded = dict.fromkeys(snapshot.kins.crowded)
        if mine is not None:
            crowded[mine] = None
        if not terms and not crowded:
            return NOTHING
        incoming = incoming_of(shape, snapshot)
        against: set[str] = set()
        drawn: set[str] = set()
        for term in terms:
            scores = term_weight(term, hard_weight=self._args.hard_weight)
            wanted = against if term.flavour is Flavour.ANTI else drawn if scores else None
            key = term.term.topology_key
            if wanted is not None and key not in wanted and incoming.meant_by(term.term):
                wanted.add(key)
        for kin in crowded:
            self._add_keys(kin, incoming, snapshot, against=against, drawn=drawn)
        preferring = bool(shape.preferred_affinity or shape.preferred_anti_affinity)
        if self._args.ignore_existing and not preferring:
            drawn.clear()
        selects = any(term.term.namespace_selector for term in own)
        selects |= mine is not None and mine.many.selects
        version = snapshot.kind_version(NAMESPACE) if selects else 0
        carried = len(snapshot.carried_keys) if crowded else 0
        return Basis(frozenset(against), frozenset(drawn), incoming, version, carried)

    def _add_keys(
        self,
        kin: Kin,
        incoming: Incoming,
        snapshot: Snapshot,
        *,
        against: set[str],
        drawn: set[str],
    ) -> None:
        """The topology keys of a crowded kin's terms that are about the pod."""
        meant = incoming.meant_by_many(kin)
        if meant:
            scoring = [Flavour.PREFERRED, Flavour.PREFERRED_ANTI]
            if self._args.hard_weight:
                scoring.append(Flavour.AFFINITY)
            carried = snapshot.carried_keys
            against |= kin.many.keys_of(meant, carried=carried, flavours=(Flavour.ANTI,))
            drawn |= kin.many.keys_of(meant, carried=carried, flavours=scoring)

    def filter(self, shape: Shape, snapshot: Snapshot) -> Filter | None:
        """None when no required term is about the shape, nor is it about others."""
        basis = self.basis(shape, snapshot)
        if basis is NOTHING:
            return None
        found = InterPodFilter(shape, basis, snapshot)
        return None if found.idle else found

    def scorer(self, shape: Shape, snapshot: Snapshot) -> Scorer | None:
        """None when no term scores."""
        basis = self.basis(shape, snapshot)
        if basis is NOTHING:
            return None
        found = InterPodScorer(shape, basis, args=self._args, snapshot=snapshot)
        return None if found.idle else found
