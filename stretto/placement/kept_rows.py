"""Numbers by row that are the same for every shape, kept up to date by the rows that changed.

Like kept totals they are for passes over all rows: while pods are supposed somewhere without a
note (:meth:`stretto.snapshot.columns.Snapshot.suppose`), nobody asks.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from stretto.placement.framework import View
from stretto.snapshot.columns import Snapshot

T = TypeVar("T", bound=np.generic)
_FEW = 8
"""Up to this many changed rows are refreshed one by one: a vector pass costs about as much."""


class KeptRows(Generic[T]):
    """One number a row."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._stamp = -1
        self._values: npt.NDArray[T] | None = None

    @abstractmethod
    def _over(self, view: View) -> npt.NDArray[T]:
        """The numbers of some rows, in an array of their own."""

    @abstractmethod
    def _of_row(self, row: int) -> float:
        """The number of one row."""

    def of(self, view: View) -> npt.NDArray[T]:
        """[view.size]; not to be written to.

        Of some rows they are computed: that costs less than to bring all that is kept up to date.
        """
        return self._over(view) if view.rows is not None else self._refreshed()

    def _refreshed(self) -> npt.NDArray[T]:
        snapshot, values = self._snapshot, self._values
        stamp = snapshot.changes.stamp
        changed = snapshot.changes.since(self._stamp) if values is not None else None
        self._stamp = stamp
        if (
            values is None
            or changed is None
            or len(values) != snapshot.rows
            or len(changed) * 4 > snapshot.rows
        ):
            values = self._values = self._over(View(snapshot))
        elif len(changed) <= _FEW:
            for row in changed:
                values[row] = self._of_row(row)
        else:
            rows = np.array(changed, dtype=np.int64)
            values[rows] = self._over(View(snapshot, rows))
        return values
