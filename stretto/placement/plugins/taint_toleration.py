"""TaintToleration: taints keep pods off (NoSchedule, NoExecute) or are better avoided
(PreferNoSchedule).

Taints are interned as sets per node, so a shape is matched against each distinct set once.
"""

from __future__ import annotations

import numpy as np

from stretto.model.shape import Shape, Toleration
from stretto.placement.framework import (
    Bools,
    Filter,
    Gates,
    Int64s,
    Normalise,
    Plugin,
    Scorer,
    View,
)
from stretto.placement.tolerations import tolerates
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import Taint

_HARD = ("NoSchedule", "NoExecute")
_SOFT = "PreferNoSchedule"


class _PerTaintSet:
    """A table over the snapshot's taint sets, extended when new sets appear."""

    def __init__(self, tolerations: tuple[Toleration, ...], *, gates: Gates) -> None:
        self._tolerations = tolerations
        self._gates = gates
        self._values: list[int] = []
        self._array: Int64s = np.zeros(0, dtype=np.int64)

    def value(self, taints: tuple[Taint, ...]) -> int:
        """What the table says about one set."""
        raise AssertionError("each table has its own")

    def tolerates(self, taint: Taint) -> bool:
        """Whether the shape's tolerations tolerate a taint."""
        return tolerates(self._tolerations, taint, self._gates)

    def values(self, snapshot: Snapshot) -> list[int]:
        """Values by taint set id."""
        if len(self._values) < len(snapshot.taint_sets):
            for taints in snapshot.taint_sets[len(self._values) :]:
                self._values.append(self.value(taints))
            self._array = np.array(self._values, dtype=np.int64)
        return self._values

    def array(self, snapshot: Snapshot) -> Int64s:
        """The same as int64[sets]."""
        self.values(snapshot)
        return self._array


class _Untolerated(_PerTaintSet):
    """1 when a set holds a hard taint that is not tolerated."""

    def value(self, taints: tuple[Taint, ...]) -> int:
        return int(any(t.effect in _HARD and not self.tolerates(t) for t in taints))


class _SoftCount(_PerTaintSet):
    """How many PreferNoSchedule taints of a set are not tolerated."""

    def value(self, taints: tuple[Taint, ...]) -> int:
        return sum(t.effect == _SOFT and not self.tolerates(t) for t in taints)


class TaintFilter(Filter):
    """Rows with a hard taint that is not tolerated are rejected."""

    name = "TaintToleration"
    reason = "node(s) had untolerated taint(s)"

    def __init__(self, shape: Shape, *, snapshot: Snapshot, gates: Gates) -> None:
        self._snapshot = snapshot
        self._table = _Untolerated(shape.tolerations, gates=gates)

    def passes(self, view: View) -> Bools | None:
        """bool[view.size]."""
        table = self._table.array(self._snapshot)
        if not table.any():
            return None
        passes: Bools = (table == 0)[view.of(self._snapshot.taint_set)]
        return passes

    def passes_row(self, row: int) -> bool:
        """The same for one row."""
        return not self._table.values(self._snapshot)[self._snapshot.taint_set.item(row)]


class TaintScorer(Scorer):
    """Counts untolerated soft taints; fewer is better."""

    name = "TaintToleration"
    normalise = Normalise.REVERSED

    def __init__(self, shape: Shape, *, snapshot: Snapshot, gates: Gates) -> None:
        self._snapshot = snapshot
        soft = tuple(t for t in shape.tolerations if t.effect in ("", _SOFT))
        self._table = _SoftCount(soft, gates=gates)

    def raw(self, view: View) -> Int64s | None:
        """int64[view.size]."""
        table = self._table.array(self._snapshot)
        if not table.any():
            return None
        counts: Int64s = table[view.of(self._snapshot.taint_set)]
        return counts

    def raw_row(self, row: int) -> int:
        """The same for one row."""
        return self._table.values(self._snapshot)[self._snapshot.taint_set.item(row)]


class TaintToleration(Plugin):
    """Filter and score by taints."""

    name = "TaintToleration"
    static = True

    def __init__(self, gates: Gates) -> None:
        self._gates = gates

    def filter(self, shape: Shape, snapshot: Snapshot) -> Filter:
        """Every shape: a node may always gain a taint."""
        return TaintFilter(shape, snapshot=snapshot, gates=self._gates)

    def scorer(self, shape: Shape, snapshot: Snapshot) -> Scorer:
        """Every shape: without taints it adds the full score everywhere."""
        return TaintScorer(shape, snapshot=snapshot, gates=self._gates)
