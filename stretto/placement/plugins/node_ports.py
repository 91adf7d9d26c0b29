"""NodePorts: host ports are taken once per node, protocol and ip."""

from __future__ import annotations

import numpy as np

from stretto.model.shape import HostPort, Shape
from stretto.placement.framework import Bools, Filter, Plugin, View
from stretto.snapshot.columns import Snapshot


class NodePortsFilter(Filter):
    """Rows on which a wanted port is taken are rejected."""

    name = "NodePorts"
    reason = "node(s) didn't have free ports for the requested pod ports"
    unresolvable = False

    def __init__(self, ports: tuple[HostPort, ...], snapshot: Snapshot) -> None:
        self._ports = ports
        self._snapshot = snapshot

    def passes(self, view: View) -> Bools | None:
        """bool[view.size]; the index of used ports is asked, not the nodes."""
        taken = self._snapshot.ports.clashing_rows(self._ports)
        if not taken:
            return None
        if view.rows is not None:
            return ~np.isin(view.rows, np.array(taken, dtype=np.int64))
        passes = np.ones(view.size, dtype=np.bool_)
        passes[taken] = False
        return passes

    def passes_row(self, row: int) -> bool:
        """The same for one row."""
        return not self._snapshot.ports.clashes(row, self._ports)


class NodePorts(Plugin):
    """Filter by host ports."""

    name = "NodePorts"
    static = False

    def filter(self, shape: Shape, snapshot: Snapshot) -> Filter | None:
        """None for pods without host ports."""
        return NodePortsFilter(shape.host_ports, snapshot) if shape.host_ports else None
