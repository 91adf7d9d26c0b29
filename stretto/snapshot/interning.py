"""Parts of node definitions that many nodes share, kept once."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from stretto.snapshot.delta import NodeRow

Part = TypeVar("Part")


class Interner:
    """Equal parts become one object; forgets all of them when there are too many."""

    def __init__(self) -> None:
        self._known: dict[object, object] = {}

    def node(self, node: NodeRow, *, nodes: int) -> NodeRow:
        """The same definition with labels, taints, amounts and images shared between ``nodes``
        nodes."""
        if len(self._known) > 16 * nodes + 4096:
            self._known.clear()
        one = self._one
        return msgspec.structs.replace(
            node,
            labels=tuple(one(pair) for pair in node.labels),
            taints=one(node.taints),
            allocatable=one(node.allocatable),
            images=one(tuple(one(image) for image in node.images)) if node.images else (),
            declared_features=one(node.declared_features),
        )

    def _one(self, value: Part) -> Part:
        return self._known.setdefault(value, value)  # type: ignore[return-value]
