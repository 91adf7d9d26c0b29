"""The score of PodTopologySpread: ScheduleAnyway constraints
(podtopologyspread/scoring.go of 1.37).

A node's raw score is the number of matching pods in its domains, each count weighed by the
logarithm of the number of domains, and less is better. Which domains there are depends on which
nodes are feasible.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from stretto.model.shape import Shape, SpreadConstraint
from stretto.placement.domains import Counted, Domains
from stretto.placement.framework import (
    MAX_SCORE,
    Bools,
    CrossScorer,
    Floats,
    Int64s,
    Scores,
)
from stretto.placement.pod_questions import Spreading
from stretto.snapshot.columns import Snapshot

HOSTNAME = "kubernetes.io/hostname"


class Including(Protocol):
    """Which nodes constraints count."""

    def with_keys(self) -> Bools:
        """bool[rows]: nodes that have every key."""

    def of(self, constraint: SpreadConstraint) -> Bools:
        """bool[rows]: nodes whose pods a constraint counts."""


class _Soft:
    """One ScheduleAnyway constraint."""

    def __init__(
        self, constraint: SpreadConstraint, shape: Shape, inclusion: Including, snapshot: Snapshot
    ) -> None:
        self._snapshot = snapshot
        self._key = constraint.topology_key
        self._slack = float(constraint.max_skew - 1)
        question = Spreading(shape.namespace, constraint.selector)
        self._counted = Counted(question, snapshot)
        self.domains = Domains(
            question, self._key, snapshot=snapshot, eligible=lambda: inclusion.of(constraint)
        )

    def scores(self, considered: Bools) -> Floats:
        """float64[rows]: what the constraint adds; 0 on nodes without the key.

        Over host names only the node's own pods count, without inclusion policies.
        """
        if self._key == HOSTNAME:
            weight = _weight(int(np.count_nonzero(considered)))
            rows = self._snapshot.rows
            counts = self._counted.tally().counts[:rows].astype(np.float64)
            scores: Floats = counts * weight + self._slack
            scores[self._snapshot.label_column(HOSTNAME).ids[:rows] == 0] = 0.0
            return scores
        domains = self.domains
        domains.refresh()
        present = np.bincount(domains.ids[considered], minlength=len(domains.sums))
        weight = _weight(int(np.count_nonzero(present)))
        table: Floats = domains.sums.astype(np.float64) * weight + self._slack
        table[0] = 0.0
        found: Floats = table[domains.ids]
        return found


def _weight(domains: int) -> float:
    """Upstream's topologyNormalizingWeight."""
    return math.log(domains + 2)


class SpreadScorer(CrossScorer):
    """See the module docstring."""

    name = "PodTopologySpread"

    def __init__(
        self,
        shape: Shape,
        constraints: tuple[SpreadConstraint, ...],
        inclusion: Including,
        *,
        snapshot: Snapshot,
        every_key: bool,
    ) -> None:
        self._snapshot = snapshot
        self._inclusion = inclusion
        self._every_key = every_key
        self._shape = shape
        self._constraints = constraints
        self._keys = frozenset(c.topology_key for c in constraints)
        self._made: list[_Soft] = []
        self._node_stamp = -1
        self._with_keys: Bools = np.zeros(0, dtype=np.bool_)

    @property
    def nbytes(self) -> int:
        """Of its domains."""
        return self._with_keys.nbytes + sum(soft.domains.nbytes for soft in self._made)

    @property
    def _soft(self) -> list[_Soft]:
        if not self._made:
            self._made = [
                _Soft(constraint, self._shape, self._inclusion, self._snapshot)
                for constraint in self._constraints
            ]
        return self._made

    def over(self, feasible: Bools) -> Scores:
        """Raw scores, and 100·(max + min − raw)/max; nodes that lack a key have 0."""
        if self._every_key and not self._keys <= self._snapshot.carried_keys:
            # A key that no node carries: none is considered. A pod may name eleven thousand.
            nothing = np.zeros(len(feasible), dtype=np.int64)
            return Scores(nothing, nothing.copy())
        considered = feasible & self._keyed() if self._every_key else feasible
        total = self._soft[0].scores(considered)
        for soft in self._soft[1:]:
            total = total + soft.scores(considered)
        raw = _rounded(total)
        if self._every_key:
            raw *= considered
        highest = int(raw.max(where=considered, initial=0))
        if not highest:
            return Scores(raw, considered * np.int64(MAX_SCORE))
        lowest = int(raw.min(where=considered, initial=np.iinfo(np.int64).max))
        weighted = (highest + lowest - raw) * MAX_SCORE // highest
        if self._every_key:
            weighted *= considered
        return Scores(raw, weighted)

    def _keyed(self) -> Bools:
        """bool[rows]: nodes with every key; follows the nodes."""
        stamp = self._snapshot.node_changes.stamp
        if stamp != self._node_stamp:
            self._node_stamp = stamp
            self._with_keys = self._inclusion.with_keys()
        return self._with_keys


def _rounded(values: Floats) -> Int64s:
    """Go's math.Round of values that are not negative: halves go up."""
    whole = np.floor(values)
    whole += values - whole >= 0.5
    return whole.astype(np.int64)
