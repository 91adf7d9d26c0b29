"""Parts of node definitions that many nodes share, kept once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from stretto.snapshot.delta import NodeRow


class Interner:
    """Equal parts become one object; forgets all of them when there are too many."""

    def __init__(self) -> None:
        self._known: dict[object, object] = {}

    def node(self, node: NodeRow, *, nodes: int) -> NodeRow:
        """The same definition with labels, taints, amounts and images shared between ``nodes``
        nodes."""
        if len(self._known) > 16 * nodes + 4096:
            self._known.clear()
        known: Callable[[Any, Any], Any] = self._known.setdefault  # a call each is most of the cost
        taints, amounts, features = node.taints, node.allocatable, node.declared_features
        images = tuple([known(image, image) for image in node.images])
        return msgspec.structs.replace(
            node,
            labels=tuple([known(pair, pair) for pair in node.labels]),
            taints=known(taints, taints),
            allocatable=known(amounts, amounts),
            images=known(images, images),
            declared_features=known(features, features),
        )
