"""Sums of a tally over the domains of a topology key.

A domain is the nodes that carry one value under the key. The sums follow the tally's log, so that a
pod that comes or goes costs one addition; they are made anew in one pass over the rows when a node
changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stretto.placement.framework import Bools, Int64s
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.labels import LabelColumn
from stretto.snapshot.tallies import Question, Tally

Ids = npt.NDArray[np.intp]
_NOWHERE = ("domain ids", "", "nowhere")


class _Ids(NamedTuple):
    column: LabelColumn
    stamp: int
    ids: Ids


def domain_ids(snapshot: Snapshot, column: LabelColumn) -> Ids:
    """intp[rows]: the domain of each row under a key, 0 without it; shared by all that ask while no
    node changes."""
    key = ("domain ids", column.key)
    stamp = snapshot.node_changes.stamp
    kept = snapshot.derived.get(key)
    if isinstance(kept, _Ids) and kept.column is column and kept.stamp == stamp:
        return kept.ids
    ids = column.ids[: snapshot.rows].astype(np.intp)
    snapshot.derived[key] = _Ids(column, stamp, ids)
    return ids


def no_ids(snapshot: Snapshot) -> Ids:
    """intp[rows]: what :func:`domain_ids` gives for every key that no node carries."""
    kept = snapshot.derived.get(_NOWHERE)
    if not isinstance(kept, np.ndarray) or len(kept) != snapshot.rows:
        kept = snapshot.derived[_NOWHERE] = np.zeros(snapshot.rows, dtype=np.intp)
    found: Ids = kept
    return found


class Counted:
    """A question's tally, asked for again when it was dropped for others."""

    def __init__(self, question: Question, snapshot: Snapshot) -> None:
        self._question = question
        self._snapshot = snapshot
        self._tally: Tally | None = None

    def tally(self) -> Tally:
        """The tally, up to date."""
        tallies = self._snapshot.tallies
        if self._tally is None or not self._tally.live:
            self._tally = tallies.of(self._question)
        else:
            tallies.touch(self._tally)
        return self._tally


class Domains:
    """``sums`` by domain; index 0 stands for nodes without the key and is always 0.

    ``eligible`` gives the rows that count, bool[rows]; None: all. It may depend on the nodes'
    definitions only.
    """

    def __init__(
        self,
        question: Question,
        key: str,
        *,
        snapshot: Snapshot,
        eligible: Callable[[], Bools] | None = None,
    ) -> None:
        self.key = key
        self._counted = Counted(question, snapshot)
        self._snapshot = snapshot
        self._eligible = eligible
        self._tally: Tally | None = None
        self._column: LabelColumn | None = None
        self._node_stamp = -1
        self._stamp = -1
        self._counts: Bools | None = None
        self.ids: Ids = np.zeros(0, dtype=np.intp)
        """intp[rows]: the domain of each row; 0: it lacks the key."""
        self.sums: Int64s = np.zeros(1, dtype=np.int64)
        """int64[domains]."""
        self.nodes: Int64s = np.zeros(1, dtype=np.int64)
        """int64[domains]: eligible rows in it."""
        self.version = 0
        """Grows whenever ``sums`` may have changed."""

    @staticmethod
    def nowhere(column: LabelColumn) -> bool:
        """No node ever carried the key: there is nothing to count, and any pod may name a thousand
        such keys."""
        return len(column.values) == 1

    @property
    def nbytes(self) -> int:
        """Bytes in arrays of its own."""
        rows = 0 if self._counts is None else self._counts.nbytes
        return self.sums.nbytes + self.nodes.nbytes + rows

    def refresh(self) -> None:
        """Bring the sums up to date."""
        column = self._snapshot.label_column(self.key)
        if self.nowhere(column):
            if column is not self._column:
                self._column, self._tally = column, None
                self.sums, self.nodes = np.zeros(1, np.int64), np.zeros(1, np.int64)
                self.version += 1
            self.ids = no_ids(self._snapshot)
            return
        tally = self._counted.tally()
        stamp = self._snapshot.node_changes.stamp
        same = tally is self._tally and column is self._column and stamp == self._node_stamp
        changed = tally.since(self._stamp) if same else None
        if changed is None:
            self._build(tally, column)
            self._node_stamp = stamp
        elif changed:
            self._follow(changed)
        else:
            return
        self._stamp = tally.stamp
        self.version += 1

    def _follow(self, changed: list[tuple[int, int]]) -> None:
        ids, sums, counts = self.ids, self.sums, self._counts
        for row, by in changed:
            if counts is None or counts.item(row):
                domain = ids.item(row)
                if domain:
                    sums[domain] += by

    def _build(self, tally: Tally, column: LabelColumn) -> None:
        snapshot = self._snapshot
        rows = snapshot.rows
        self._tally, self._column = tally, column
        self._counts = None if self._eligible is None else self._eligible()
        self.ids = domain_ids(snapshot, column)
        inside = snapshot.live[:rows] if self._counts is None else self._counts
        size = len(column.values)
        counts = np.where(inside, tally.counts[:rows], 0)
        self.sums = np.bincount(self.ids, weights=counts, minlength=size).astype(np.int64)
        self.nodes = np.bincount(self.ids, weights=inside, minlength=size).astype(np.int64)
        self.sums[0] = self.nodes[0] = 0
