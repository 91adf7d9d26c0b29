"""Resource columns: allocatable and used per node, int64 in base units (cpu in milli), so compares
are exact."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T", bound=np.generic)
Int64s = npt.NDArray[np.int64]

PODS = "pods"
CPU = "cpu"
MEMORY = "memory"
NONZERO_CPU = "(nonzero) cpu"
NONZERO_MEMORY = "(nonzero) memory"
"""Columns of upstream's NonZeroRequested; their allocatable side is unused. Not
names that a resource can have."""


class ResourceColumn:
    """One resource over all rows. The ``*_cells`` views read and write single rows at half of
    NumPy's cost."""

    __slots__ = ("alloc", "alloc_cells", "float_cells", "name", "used", "used_cells", "used_float")

    def __init__(self, name: str, *, capacity: int) -> None:
        self.name = name
        self.alloc: Int64s = np.zeros(capacity, dtype=np.int64)
        self.used: Int64s = np.zeros(capacity, dtype=np.int64)
        self.used_float: npt.NDArray[np.float64] = np.zeros(capacity, dtype=np.float64)
        """``used`` again, written with it: scores divide doubles, and converting costs a pass."""
        self._view()

    def _view(self) -> None:
        self.alloc_cells = memoryview(self.alloc)  # type: ignore[arg-type]
        self.used_cells = memoryview(self.used)  # type: ignore[arg-type]
        self.float_cells = memoryview(self.used_float)  # type: ignore[arg-type]

    def grow(self, capacity: int) -> None:
        """Make room for ``capacity`` rows; existing rows keep their values."""
        self.alloc = grown(self.alloc, capacity)
        self.used = grown(self.used, capacity)
        self.used_float = grown(self.used_float, capacity)
        self._view()


class ResourceTable:
    """The resource columns by name, made when a node or a pod first names a resource."""

    def __init__(self, *, capacity: int) -> None:
        self._capacity = capacity
        self.columns: dict[str, ResourceColumn] = {}
        for name in (PODS, CPU, MEMORY, NONZERO_CPU, NONZERO_MEMORY):
            self.column(name)

    def column(self, name: str) -> ResourceColumn:
        """The column of a resource, made if need be."""
        found = self.columns.get(name)
        if found is None:
            found = self.columns[name] = ResourceColumn(name, capacity=self._capacity)
        return found

    def get(self, name: str) -> ResourceColumn | None:
        """The column of a resource, or None if no node and no pod ever named it."""
        return self.columns.get(name)

    def grow(self, capacity: int) -> None:
        """Make room for ``capacity`` rows."""
        self._capacity = capacity
        for column in self.columns.values():
            column.grow(capacity)

    def set_allocatable(self, row: int, amounts: tuple[tuple[str, int], ...]) -> None:
        """Replace what a node offers; resources it no longer names become 0."""
        for column in self.columns.values():
            column.alloc_cells[row] = 0
        for name, amount in amounts:
            self.column(name).alloc_cells[row] = amount

    def clear(self, row: int) -> None:
        """Forget a row."""
        for column in self.columns.values():
            column.alloc_cells[row] = 0
            column.used_cells[row] = 0
            column.float_cells[row] = 0


def grown(array: npt.NDArray[T], capacity: int) -> npt.NDArray[T]:
    """A copy with ``capacity`` entries, new ones zero."""
    bigger = np.zeros(capacity, dtype=array.dtype)
    bigger[: len(array)] = array
    return bigger
