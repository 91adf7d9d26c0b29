"""Resource columns: allocatable and used per node, int64 in base units (cpu in milli), so compares
are exact."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt

T = TypeVar("T", bound=np.generic)
Int64s = npt.NDArray[np.int64]
MutableCells = MutableMapping[int, int]
"""Single rows; a memoryview over an array serves as one too."""

PODS = "pods"
CPU = "cpu"
MEMORY = "memory"
NONZERO_CPU = "(nonzero) cpu"
NONZERO_MEMORY = "(nonzero) memory"
"""Columns of upstream's NonZeroRequested; their allocatable side is unused. Not
names that a resource can have."""


class SparseCells(dict[int, int]):
    """Amounts by row, zero where absent."""

    def __missing__(self, row: int) -> int:
        return 0

    def __setitem__(self, row: int, amount: int) -> None:
        if amount:
            super().__setitem__(row, amount)
        else:
            self.pop(row, None)


class ResourceColumn:
    """One resource over all rows.

    The ``*_cells`` views read and write single rows at half of NumPy's cost. A column is *sparse*
    until a node offers the resource or a profile scores it: a pod that was put on a node by hand
    may name thousands of resources that no node has, and dense columns for those would fill the
    memory. A sparse column has no arrays, only used cells.
    """

    __slots__ = (
        "alloc", "alloc_cells", "dense", "float_cells", "name", "used", "used_cells", "used_float",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.dense = False
        self.alloc: Int64s = np.zeros(0, dtype=np.int64)
        self.used: Int64s = np.zeros(0, dtype=np.int64)
        self.used_float: npt.NDArray[np.float64] = np.zeros(0, dtype=np.float64)
        """``used`` again, written with it: scores divide doubles, and converting costs a pass."""
        self.alloc_cells: MutableCells = SparseCells()
        self.used_cells: MutableCells = SparseCells()
        self.float_cells: MutableCells = self.used_cells

    def make_dense(self, capacity: int) -> None:
        """Turn used cells into arrays; the object stays the same for those who hold it."""
        if self.dense:
            return
        self.dense = True
        cells = self.used_cells
        assert isinstance(cells, SparseCells)
        self.grow(capacity)
        for row, amount in cells.items():
            self.used[row] = amount
            self.used_float[row] = amount

    def grow(self, capacity: int) -> None:
        """Make room for ``capacity`` rows; existing rows keep their values."""
        if not self.dense:
            return
        self.alloc = grown(self.alloc, capacity)
        self.used = grown(self.used, capacity)
        self.used_float = grown(self.used_float, capacity)
        self.alloc_cells = cast("MutableCells", self.alloc.data)
        self.used_cells = cast("MutableCells", self.used.data)
        self.float_cells = cast("MutableCells", self.used_float.data)

    def clear(self, row: int) -> None:
        """Forget a row."""
        self.alloc_cells[row] = 0
        self.used_cells[row] = 0
        self.float_cells[row] = 0


class ResourceTable:
    """The resource columns by name, made when a node or a pod first names a resource."""

    def __init__(self, *, capacity: int) -> None:
        self._capacity = capacity
        self.columns: dict[str, ResourceColumn] = {}
        for name in (PODS, CPU, MEMORY, NONZERO_CPU, NONZERO_MEMORY):
            self.dense(name)

    def column(self, name: str) -> ResourceColumn:
        """The column of a resource, sparse if it is new."""
        found = self.columns.get(name)
        if found is None:
            found = self.columns[name] = ResourceColumn(name)
        return found

    def dense(self, name: str) -> ResourceColumn:
        """The column of a resource, with arrays."""
        found = self.column(name)
        found.make_dense(self._capacity)
        return found

    def get(self, name: str) -> ResourceColumn | None:
        """The column of a resource; None if no node offers it and no profile scores it."""
        found = self.columns.get(name)
        return found if found is not None and found.dense else None

    def grow(self, capacity: int) -> None:
        """Make room for ``capacity`` rows."""
        self._capacity = capacity
        for column in self.columns.values():
            column.grow(capacity)

    def set_allocatable(self, row: int, amounts: tuple[tuple[str, int], ...]) -> None:
        """Replace what a node offers; resources it no longer names become 0."""
        columns = self.columns
        for column in columns.values():
            column.alloc_cells[row] = 0
        for name, amount in amounts:
            if amount:
                found = columns.get(name)
                if found is None or not found.dense:
                    found = self.dense(name)
                found.alloc_cells[row] = amount

    def clear(self, row: int) -> None:
        """Forget a row."""
        for column in self.columns.values():
            column.clear(row)


def grown(array: npt.NDArray[T], capacity: int) -> npt.NDArray[T]:
    """A copy with ``capacity`` entries, new ones zero."""
    bigger = np.zeros(capacity, dtype=array.dtype)
    bigger[: len(array)] = array
    return bigger
