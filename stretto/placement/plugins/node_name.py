"""NodeName: the pod names its node."""

from __future__ import annotations

import numpy as np

from stretto.model.shape import Shape
from stretto.placement.framework import Bools, Filter, Plugin, View
from stretto.snapshot.columns import Snapshot


class NodeNameFilter(Filter):
    """Rows other than the one with the wanted name are rejected."""

    name = "NodeName"
    reason = "node(s) didn't match the requested node name"

    def __init__(self, wanted: str, snapshot: Snapshot) -> None:
        self._wanted = wanted
        self._snapshot = snapshot

    def passes(self, view: View) -> Bools:
        """bool[view.size]."""
        row = self._snapshot.row_of_name(self._wanted)
        if view.rows is not None:
            named: Bools = view.rows == (-1 if row is None else row)
            return named
        passes = np.zeros(view.size, dtype=np.bool_)
        if row is not None:
            passes[row] = True
        return passes

    def passes_row(self, row: int) -> bool:
        """The same for one row."""
        return self._snapshot.name[row] == self._wanted


class NodeName(Plugin):
    """Also narrows PreFilter's node set, which the kernel reads from the shape itself."""

    name = "NodeName"
    static = True

    def filter(self, shape: Shape, snapshot: Snapshot) -> Filter | None:
        """None for pods that name no node."""
        return NodeNameFilter(shape.node_name, snapshot) if shape.node_name else None
