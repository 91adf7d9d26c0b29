"""ImageLocality: nodes that hold the pod's images already, weighed by size and by how spread an
image is.

Spreading keeps pods from heating the few nodes that hold an image: the size counts by the share of
nodes that do.
"""

from __future__ import annotations

import numpy as np

from stretto.model.shape import Shape
from stretto.placement.framework import MAX_SCORE, Int64s, Plugin, Scorer, View
from stretto.snapshot.columns import Snapshot

_MIB = 1024 * 1024
_LOW = 23 * _MIB
_HIGH_PER_IMAGE = 1000 * _MIB


class ImageScorer(Scorer):
    """Depends on the nodes' images only, but a change on one node can move the score of all."""

    name = "ImageLocality"

    def __init__(self, shape: Shape, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._images = shape.images
        self._high = _HIGH_PER_IMAGE * shape.image_containers

    def _amounts(self) -> list[tuple[str, int]]:
        """(name, bytes after spreading) of the images that any node holds, repeats kept."""
        found = []
        for name in self._images:
            state = self._snapshot.images.state(name)
            if state is not None:
                nodes, size = state
                found.append((name, int(float(size) * (nodes / self._snapshot.node_count))))
        return found

    def raw(self, view: View) -> Int64s | None:
        """int64[view.size]."""
        amounts = self._amounts()
        if not amounts:
            return None
        total = np.zeros(view.size, dtype=np.int64)
        for name, amount in amounts:
            total += view.of(self._snapshot.image_column(name)) * np.int64(amount)
        np.clip(total, _LOW, self._high, out=total)
        total -= _LOW
        total *= MAX_SCORE
        scores: Int64s = total // (self._high - _LOW)
        return scores

    def raw_row(self, row: int) -> int:
        """The same for one row."""
        total = 0
        for name, amount in self._amounts():
            if self._snapshot.image_column(name).item(row):
                total += amount
        return (min(max(total, _LOW), self._high) - _LOW) * MAX_SCORE // (self._high - _LOW)


class ImageLocality(Plugin):
    """Score by images."""

    name = "ImageLocality"
    static = True

    def scorer(self, shape: Shape, snapshot: Snapshot) -> Scorer | None:
        """None for pods without images."""
        if not shape.images or shape.image_containers < 1:
            return None
        return ImageScorer(shape, snapshot)
