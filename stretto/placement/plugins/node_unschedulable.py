"""NodeUnschedulable: cordoned nodes take only pods that tolerate the taint the cordon stands
for."""

from __future__ import annotations

from stretto.model.shape import Shape
from stretto.placement.framework import Bools, Filter, Gates, Plugin, View
from stretto.placement.tolerations import tolerates
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import Taint

_CORDON = Taint(key="node.kubernetes.io/unschedulable", value="", effect="NoSchedule")


class NodeUnschedulableFilter(Filter):
    """Cordoned rows are rejected."""

    name = "NodeUnschedulable"
    reason = "node(s) were unschedulable"

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def passes(self, view: View) -> Bools | None:
        """bool[view.size]."""
        cordoned = view.of(self._snapshot.unschedulable)
        return ~cordoned if cordoned.any() else None

    def passes_row(self, row: int) -> bool:
        """The same for one row."""
        return not self._snapshot.unschedulable.item(row)


class NodeUnschedulable(Plugin):
    """Filters nothing for pods that tolerate the cordon."""

    name = "NodeUnschedulable"
    static = True

    def __init__(self, gates: Gates) -> None:
        self._gates = gates

    def filter(self, shape: Shape, snapshot: Snapshot) -> Filter | None:
        """None for pods that tolerate ``node.kubernetes.io/unschedulable:NoSchedule``."""
        tolerated = tolerates(shape.tolerations, _CORDON, self._gates)
        return None if tolerated else NodeUnschedulableFilter(snapshot)
