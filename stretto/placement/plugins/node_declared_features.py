"""NodeDeclaredFeatures: the node has declared every feature that the pod's spec needs.

Wake-up events (upstream's): Node added or its declared features changed; the pod itself changed.
"""

from __future__ import annotations

import numpy as np

from stretto.model.shape import Shape
from stretto.placement.framework import Bools, Filter, Plugin, View
from stretto.snapshot.columns import Snapshot


class FeaturesFilter(Filter):
    """Rows whose node lacks a feature are rejected."""

    name = "NodeDeclaredFeatures"
    reason = "node(s) didn't match Pod's required features"

    def __init__(self, features: tuple[str, ...], snapshot: Snapshot) -> None:
        self._features = frozenset(features)
        self._snapshot = snapshot
        self._passes: Bools = np.zeros(0, dtype=np.bool_)
        self._stamp = -1

    def passes(self, view: View) -> Bools:
        """bool[view.size]; kept while no node changes."""
        snapshot = self._snapshot
        stamp = snapshot.node_changes.stamp
        if stamp != self._stamp:
            rows = range(snapshot.rows)
            self._passes = np.fromiter(map(self.passes_row, rows), np.bool_, snapshot.rows)
            self._stamp = stamp
        return view.of(self._passes)

    def passes_row(self, row: int) -> bool:
        """The same for one row."""
        node = self._snapshot.node_rows[row]
        return node is not None and self._features.issubset(node.declared_features)


class NodeDeclaredFeatures(Plugin):
    """Filter by declared features."""

    name = "NodeDeclaredFeatures"
    static = False

    def filter(self, shape: Shape, snapshot: Snapshot) -> Filter | None:
        """None for ordinary pods, which need none."""
        features = shape.node_features
        return FeaturesFilter(features, snapshot) if features else None
