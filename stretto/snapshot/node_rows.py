"""From a node as the API server sends it to the row that the snapshot holds."""

from __future__ import annotations

from stretto.model.objects import Node
from stretto.model.requests import amounts_of
from stretto.snapshot.delta import ImageRow, NodeRow, Taint


def node_row_of(node: Node) -> NodeRow:
    """The row of a node.

    Raises:
        QuantityError: an allocatable amount that cannot be read; names the resource.
    """
    status, spec, meta = node.status, node.spec, node.metadata
    allocatable = amounts_of(status.allocatable, where=f"node {meta.name} status.allocatable")
    return NodeRow(
        name=meta.name,
        uid=meta.uid,
        labels=tuple(sorted((meta.labels or {}).items())),
        taints=tuple(Taint(t.key, t.value, t.effect) for t in spec.taints or ()),
        unschedulable=spec.unschedulable,
        allocatable=tuple(sorted(allocatable.items())),
        images=tuple(ImageRow(tuple(i.names or ()), i.size_bytes) for i in status.images or ()),
        declared_features=tuple(sorted(status.declared_features or ())),
    )
