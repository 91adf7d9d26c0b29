"""PodTopologySpread: pods of a kind evenly over zones, hosts or whatever a topology key names.

Upstream: pkg/scheduler/framework/plugins/podtopologyspread. A shape has its own constraints or, if
it has none, the profile's default ones with a selector derived from the Services and the controller
of its pods. Events that can make a pod schedulable: see ``stretto.placement.hints``.
"""

from __future__ import annotations

from collections.abc import Set

import msgspec
import numpy as np

from stretto.model.selector import requirements_match
from stretto.model.shape import Requirement, Shape, SpreadConstraint
from stretto.model.unit import Cause
from stretto.placement.domains import Domains
from stretto.placement.framework import Bools, Filter, Gates, Plugin, Rejection, Scorer, View
from stretto.placement.plugins.node_affinity import AddedAffinity, NodeAffinityFilter
from stretto.placement.plugins.taint_toleration import TaintFilter
from stretto.placement.plugins.topology_spread_score import SpreadScorer
from stretto.placement.pod_questions import Spreading
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.workloads import KINDS as WORKLOADS
from stretto.snapshot.workloads import SERVICE, decode_selector

NAME = "PodTopologySpread"
SKEW = "node(s) didn't match pod topology spread constraints"
NO_LABEL = f"{SKEW} (missing required label)"
_SYSTEM = (
    SpreadConstraint(3, "kubernetes.io/hostname", hard=False, selector=None),
    SpreadConstraint(5, "topology.kubernetes.io/zone", hard=False, selector=None),
)


class SpreadArgs(msgspec.Struct, frozen=True):
    """PodTopologySpreadArgs."""

    defaults: tuple[SpreadConstraint, ...] = _SYSTEM
    """Constraints of pods that have none; without selectors."""
    system: bool = True
    """``defaults`` are the system's: nodes need not have every key to be scored."""


class Inclusion:
    """Nodes that constraints count: with every key, and as the inclusion policies say."""

    def __init__(
        self,
        shape: Shape,
        constraints: tuple[SpreadConstraint, ...],
        *,
        snapshot: Snapshot,
        gates: Gates,
        every_key: bool,
    ) -> None:
        self._snapshot = snapshot
        self._keys: Set[str] = {c.topology_key for c in constraints} if every_key else set()
        self._affinity = NodeAffinityFilter(shape, snapshot=snapshot, added=AddedAffinity())
        self._taints = TaintFilter(shape, snapshot=snapshot, gates=gates)
        self._stamp = -1
        self._with_keys: Bools = np.zeros(0, dtype=np.bool_)

    def with_keys(self) -> Bools:
        """bool[rows]: nodes that have every key; the caller's own. Kept until a node changes: each
        constraint asks, and a pod may have a thousand."""
        stamp = self._snapshot.node_changes.stamp
        if stamp != self._stamp:
            view = View(self._snapshot)
            if not self._keys <= self._snapshot.carried_keys:
                rows = np.zeros(view.size, dtype=np.bool_)
            else:
                rows = view.of(self._snapshot.live).copy()
                for key in self._keys:
                    rows &= view.of(self._snapshot.label_column(key).ids) != 0
            self._stamp, self._with_keys = stamp, rows
        return self._with_keys.copy()

    def of(self, constraint: SpreadConstraint) -> Bools:
        """bool[rows]: nodes whose pods a constraint counts."""
        view = View(self._snapshot)
        rows = self.with_keys()
        if constraint.honor_affinity:
            rows &= self._affinity.passes(view)
        if constraint.honor_taints:
            tolerated = self._taints.passes(view)
            if tolerated is not None:
                rows &= tolerated
        return rows


class _Hard:
    """One DoNotSchedule constraint."""

    def __init__(
        self, constraint: SpreadConstraint, shape: Shape, inclusion: Inclusion, snapshot: Snapshot
    ) -> None:
        self._constraint = constraint
        self.domains = Domains(
            Spreading(shape.namespace, constraint.selector),
            constraint.topology_key,
            snapshot=snapshot,
            eligible=lambda: inclusion.of(constraint),
        )
        self._self = int(requirements_match(constraint.selector, dict(shape.labels)))
        self._version = -1
        self._limit = 0

    def limit(self) -> int:
        """The most pods that a domain may have for one more to go there; ``domains`` is fresh
        after."""
        domains = self.domains
        domains.refresh()
        if domains.version != self._version:
            self._version = domains.version
            there = domains.nodes > 0
            few = int(np.count_nonzero(there)) < self._constraint.min_domains
            least = 0 if few else int(domains.sums.min(where=there, initial=np.iinfo("int64").max))
            self._limit = self._constraint.max_skew + least - self._self
        return self._limit


class SpreadFilter(Filter):
    """DoNotSchedule: no domain may exceed the emptiest one by more than maxSkew."""

    name = NAME
    cause = Cause.SPREAD
    cross = True

    def __init__(
        self,
        shape: Shape,
        constraints: tuple[SpreadConstraint, ...],
        *,
        snapshot: Snapshot,
        gates: Gates,
    ) -> None:
        self._shape = shape
        self._constraints = constraints
        self._snapshot = snapshot
        self._inclusion = Inclusion(
            shape, constraints, snapshot=snapshot, gates=gates, every_key=True
        )
        self._made: list[_Hard] = []
        self._carried = -1

    @property
    def _hard(self) -> list[_Hard]:
        """Those that decide. No node passes the first whose key no node carries, so none after it
        is asked: a pod may have twelve thousand."""
        carried = self._snapshot.carried_keys
        if len(carried) != self._carried:
            known = [constraint.topology_key in carried for constraint in self._constraints]
            asked = known.index(False) + 1 if False in known else len(known)
            self._made = [
                _Hard(constraint, self._shape, self._inclusion, self._snapshot)
                for constraint in self._constraints[:asked]
            ]
            self._carried = len(carried)
        return self._made

    @property
    def nbytes(self) -> int:
        """Of its domains."""
        return sum(hard.domains.nbytes for hard in self._made)

    def passes(self, view: View) -> Bools:
        """bool[view.size]."""
        passes: Bools | None = None
        for hard in self._hard:
            limit = hard.limit()
            table = hard.domains.sums <= limit
            table[0] = False
            found = table[view.of(hard.domains.ids)]
            passes = found if passes is None else passes & found
        assert passes is not None
        return passes

    def passes_row(self, row: int) -> bool:
        """The same for one row."""
        for hard in self._hard:
            limit = hard.limit()
            domain = hard.domains.ids.item(row)
            if not domain or hard.domains.sums.item(domain) > limit:
                return False
        return True

    def rejections(self, view: View) -> list[Rejection]:
        """The first constraint that a node fails speaks, in the pod's order."""
        found = []
        left = np.ones(view.size, dtype=np.bool_)
        for hard in self._hard:
            limit = hard.limit()
            ids = view.of(hard.domains.ids)
            missing = left & (ids == 0)
            left &= ~missing
            skewed = left & (hard.domains.sums > limit)[ids]
            left &= ~skewed
            found.append(Rejection(NO_LABEL, missing, unresolvable=True))
            found.append(Rejection(SKEW, skewed, unresolvable=False))
        return found


class PodTopologySpread(Plugin):
    """Filter and score by topology spread constraints."""

    name = NAME
    static = False
    basis_kinds = frozenset(WORKLOADS)

    def __init__(self, args: SpreadArgs, gates: Gates) -> None:
        self._args = args
        self._gates = gates

    def basis(self, shape: Shape, snapshot: Snapshot) -> object:
        """The selector of default constraints."""
        return None if shape.spread else self._default_selector(shape, snapshot)

    def filter(self, shape: Shape, snapshot: Snapshot) -> Filter | None:
        """None without a hard constraint."""
        constraints = self._constraints(shape, snapshot, hard=True)
        if not constraints:
            return None
        return SpreadFilter(shape, constraints, snapshot=snapshot, gates=self._gates)

    def scorer(self, shape: Shape, snapshot: Snapshot) -> Scorer | None:
        """None without a soft constraint."""
        constraints = self._constraints(shape, snapshot, hard=False)
        if not constraints:
            return None
        every_key = bool(shape.spread) or not self._args.system
        inclusion = Inclusion(
            shape, constraints, snapshot=snapshot, gates=self._gates, every_key=every_key
        )
        return SpreadScorer(shape, constraints, inclusion, snapshot=snapshot, every_key=every_key)

    def _constraints(
        self, shape: Shape, snapshot: Snapshot, *, hard: bool
    ) -> tuple[SpreadConstraint, ...]:
        if shape.spread:
            return tuple(c for c in shape.spread if c.hard is hard)
        defaults = tuple(c for c in self._args.defaults if c.hard is hard)
        selector = self._default_selector(shape, snapshot) if defaults else ()
        if not selector:
            return ()
        return tuple(msgspec.structs.replace(c, selector=selector) for c in defaults)

    def _default_selector(self, shape: Shape, snapshot: Snapshot) -> tuple[Requirement, ...]:
        """What the Services and the controller of a pod select, together; () if there is none
        (helper.DefaultSelector)."""
        services = snapshot.objects_in(SERVICE, shape.namespace)
        kind, name = shape.controller
        if not self._args.defaults or not (services or kind):
            return ()
        labels = dict(shape.labels)
        found: set[Requirement] = set()
        for row in services.values():
            selector = decode_selector(row.payload)
            if requirements_match(selector, labels):
                found.update(selector)
        payload = snapshot.object_payload(kind, f"{shape.namespace}/{name}") if kind else None
        if payload is not None:
            found.update(decode_selector(payload))
        return tuple(sorted(found, key=_order))


def _order(requirement: Requirement) -> tuple[str, str, tuple[str, ...]]:
    return requirement.key, requirement.operator, requirement.values
