"""From a Node object to its row in the snapshot."""

from __future__ import annotations

from stretto.model.errors import OperatorError
from stretto.model.objects import Node
from stretto.model.quantity import amount_of
from stretto.model.requests import RequestError, amounts_of
from stretto.snapshot.delta import ImageRow, NodeRow, Taint


class NodeError(OperatorError, ValueError):
    """A node that cannot be read; names the node and the field."""


def node_row_of(node: Node) -> NodeRow:
    """Everything about a node that plugins read, in base units (cpu in milli), rounded up.

    Raises:
        NodeError: an amount of status.allocatable that is no quantity.
    """
    meta, spec, status = node.metadata, node.spec, node.status
    try:
        nano = amounts_of(status.allocatable, where="status.allocatable")
    except RequestError as error:
        raise NodeError(f"node {meta.name}: {error}") from None
    return NodeRow(
        name=meta.name,
        uid=meta.uid,
        labels=tuple(sorted((meta.labels or {}).items())),
        taints=tuple(Taint(t.key, t.value or "", t.effect) for t in spec.taints or ()),
        unschedulable=bool(spec.unschedulable),
        allocatable=tuple(sorted((name, amount_of(name, n)) for name, n in nano.items())),
        images=tuple(
            ImageRow(tuple(image.names or ()), image.size_bytes or 0)
            for image in status.images or ()
        ),
        declared_features=tuple(sorted(status.declared_features or ())),
    )
