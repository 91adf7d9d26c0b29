"""Label columns: value ids per node for the keys that some selector reads, made on first use.

A column exists only for a key that was asked for, so a node with 10,000 labels costs what it is
asked about. Columns are bounded in number; one that was dropped is rebuilt when asked for again,
with new ids.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stretto.model.term_index import int64
from stretto.snapshot.delta import NodeRow
from stretto.snapshot.resources import grown

Int32s = npt.NDArray[np.int32]
Numbers = tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]
COLUMNS = 256
"""Columns kept at most: 256 keys of 10,000 nodes are 10 MB."""

ABSENT = 16_384
"""Keys that no node carries, remembered at most."""


class LabelColumn:
    """The values of one label key: ``ids[row]`` indexes ``values``; id 0 means the key is
    absent."""

    __slots__ = ("_index", "_numbers", "cells", "ids", "key", "values")

    def __init__(self, key: str, *, capacity: int) -> None:
        self.key = key
        self.ids: Int32s = np.zeros(capacity, dtype=np.int32)
        self.cells = memoryview(self.ids)  # type: ignore[arg-type]
        self.values: list[str] = [""]
        self._index: dict[str, int] = {}
        self._numbers: Numbers = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.bool_)

    def numbers(self) -> Numbers:
        """By value id: the number that a value is, and whether it is one."""
        known = len(self._numbers[0])
        if known < len(self.values):
            read = [int64(value) for value in self.values[known:]]
            more = np.array([number or 0 for number in read], dtype=np.int64)
            are = np.array([number is not None for number in read], dtype=np.bool_)
            self._numbers = (
                np.concatenate((self._numbers[0], more)),
                np.concatenate((self._numbers[1], are)),
            )
        return self._numbers

    def id_of(self, value: str) -> int:
        """The id of a value, or -1 if no node ever carried it."""
        return self._index.get(value, -1)

    def set(self, row: int, value: str | None) -> None:
        """Write a node's value; None when it does not carry the key."""
        if value is None:
            self.cells[row] = 0
            return
        known = self._index.get(value)
        if known is None:
            known = self._index[value] = len(self.values)
            self.values.append(value)
        self.cells[row] = known

    def grow(self, capacity: int) -> None:
        """Make room for ``capacity`` rows."""
        self.ids = grown(self.ids, capacity)
        self.cells = memoryview(self.ids)  # type: ignore[arg-type]


class LabelTable:
    """Label columns by key, least recently used ones dropped first."""

    def __init__(self, *, capacity: int) -> None:
        self._capacity = capacity
        self._columns: dict[str, LabelColumn] = {}
        self.carried: set[str] = set()
        """Keys that a node carries, or did."""
        self._empty = LabelColumn("", capacity=capacity)
        self._absent: dict[str, LabelColumn] = {}
        """Of keys that no node carries, which any pod may name in any number: they share one empty
        array, and take no other key's place."""

    def column(self, key: str, rows: Sequence[NodeRow | None]) -> LabelColumn:
        """The column of a key; built from ``rows`` if it is not there, O(nodes) once."""
        found = self._columns.get(key) or self._absent.get(key)
        if found is not None:
            return found
        if key not in self.carried:
            return self._remember_absent(key)
        found = LabelColumn(key, capacity=self._capacity)
        for row, node in enumerate(rows):
            if node is not None:
                for name, value in node.labels:
                    if name == key:
                        found.set(row, value)
                        break
        if len(self._columns) >= COLUMNS:
            del self._columns[next(iter(self._columns))]
        self._columns[key] = found
        return found

    def _remember_absent(self, key: str) -> LabelColumn:
        if len(self._absent) >= ABSENT:
            self._absent.clear()
        column = LabelColumn(key, capacity=0)
        column.ids, column.cells = self._empty.ids, self._empty.cells
        self._absent[key] = column
        return column

    def set(self, row: int, labels: tuple[tuple[str, str], ...]) -> None:
        """Write a node's labels into the columns that exist."""
        for key, _ in labels:
            if key not in self.carried:
                self.carried.add(key)
                self._absent.pop(key, None)
        if self._columns:
            values = dict(labels)
            for key, column in self._columns.items():
                column.set(row, values.get(key))

    def grow(self, capacity: int) -> None:
        """Make room for ``capacity`` rows."""
        self._capacity = capacity
        self._absent.clear()
        self._empty = LabelColumn("", capacity=capacity)
        for column in self._columns.values():
            column.grow(capacity)
