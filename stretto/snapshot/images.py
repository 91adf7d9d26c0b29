"""Images on nodes, a sparse table: how many nodes hold a name, its size, and (on demand) which.

As upstream's cache: a name's size is that of the node that brought it first; a name that no node
holds any more is forgotten. Which nodes hold a name is answered by a column that is built when a
shape first asks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stretto.snapshot.delta import ImageRow, NodeRow
from stretto.snapshot.resources import grown

Bools = npt.NDArray[np.bool_]
COLUMNS = 256
"""Columns kept at most: 256 names of 10,000 nodes are 2.6 MB."""


class ImageTable:
    """Image names of the cluster; ``version`` grows whenever a count or a size may have changed."""

    def __init__(self, *, capacity: int) -> None:
        self._capacity = capacity
        self._names: dict[str, list[int]] = {}
        self._columns: dict[str, Bools] = {}
        self.version = 0

    def state(self, name: str) -> tuple[int, int] | None:
        """(nodes that hold the name, size in bytes); None when no node does."""
        found = self._names.get(name)
        return None if found is None else (found[0], found[1])

    def column(self, name: str, rows: Sequence[NodeRow | None]) -> Bools:
        """bool[capacity]: which rows hold the name; built from ``rows`` if it is not there."""
        found = self._columns.get(name)
        if found is not None:
            return found
        if len(self._columns) >= COLUMNS:
            del self._columns[next(iter(self._columns))]
        found = self._columns[name] = np.zeros(self._capacity, dtype=np.bool_)
        verdicts: dict[int, bool] = {}
        for row, node in enumerate(rows):
            if node is not None:
                for image in node.images:
                    held = verdicts.get(id(image))
                    if held is None:
                        held = verdicts[id(image)] = name in image.names
                    if held:
                        found[row] = True
                        break
        return found

    def replace(self, row: int, old: tuple[ImageRow, ...], new: tuple[ImageRow, ...]) -> None:
        """A node's images changed; ``old`` leave before ``new`` come, as upstream does it."""
        if old == new:
            return
        self.version += 1
        before = {name for image in old for name in image.names}
        for name in before:
            known = self._names[name]
            known[0] -= 1
            if not known[0]:
                del self._names[name]
        after: set[str] = set()
        for image in new:
            for name in image.names:
                if name not in after:
                    after.add(name)
                    self._names.setdefault(name, [0, image.size])[0] += 1
        for name, column in self._columns.items():
            column[row] = name in after

    def grow(self, capacity: int) -> None:
        """Make room for ``capacity`` rows."""
        self._capacity = capacity
        self._columns = {name: grown(column, capacity) for name, column in self._columns.items()}
