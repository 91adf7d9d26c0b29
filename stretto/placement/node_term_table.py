"""Very many node selector terms over the nodes, all at once (:mod:`stretto.model.term_index`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from stretto.model.shape import NAME_FIELD, Requirement
from stretto.model.term_index import TermIndex, bits_of, planes, weight_of
from stretto.placement.framework import Bools, Int64s, View
from stretto.snapshot.columns import Snapshot

_NAME = "\0name"
"""The key that a node's name goes by; no label has it."""


class NodeTerms:
    """Terms that can be parsed, each of one requirement or more; the same for each snapshot."""

    def __init__(self) -> None:
        self.index = TermIndex()
        self._weights: list[int] = []
        self._planes: list[tuple[int, int]] = []

    def add(
        self,
        expressions: Sequence[Requirement],
        fields: Sequence[Requirement] = (),
        *,
        weight: int = 1,
    ) -> None:
        """One more term, before the first use."""
        self._weights.append(weight)
        if not fields:
            self.index.add(expressions)
            return
        # A field that there is not has no value: it is never in a list, and always not in it.
        if any(each.key != NAME_FIELD and each.operator == "In" for each in fields):
            self.index.add(None)
            return
        named = [Requirement(_NAME, f.operator, f.values) for f in fields if f.key == NAME_FIELD]
        self.index.add((*expressions, *named))

    def worth(self, terms: int) -> int:
        """The sum of the weights of some of them."""
        if terms.bit_count() <= len(self._planes):
            return sum([self._weights[bit] for bit in bits_of(terms)])
        return weight_of(terms, self._planes)

    def settle(self) -> None:
        """Do what can be done before the first question."""
        self.index.settle()
        self._planes = planes(enumerate(self._weights), self.index)


class TermTable:
    """Terms on the nodes of a snapshot."""

    def __init__(self, terms: NodeTerms, snapshot: Snapshot) -> None:
        self._terms = terms
        self._index = terms.index
        self._snapshot = snapshot

    def passes(self, view: View) -> Bools:
        """bool[view.size]: one or more terms hold."""
        found = self._holding(view)
        return np.fromiter(map(bool, found), dtype=np.bool_, count=view.size)

    def passes_row(self, row: int) -> bool:
        """The same for one row."""
        return bool(self._holding_on(row))

    def raw(self, view: View) -> Int64s:
        """int64[view.size]: the weights of those that hold."""
        found = self._holding(view)
        worth = {terms: self._terms.worth(terms) for terms in set(found)}
        return np.array([worth[terms] for terms in found], dtype=np.int64)

    def raw_row(self, row: int) -> int:
        """The same for one row."""
        return self._terms.worth(self._holding_on(row))

    def _holding(self, view: View) -> list[int]:
        return self._index.by_row(self._columns(view), rows=view.size)

    def _columns(self, view: View) -> Iterable[tuple[str, Sequence[str], Sequence[int]]]:
        snapshot = self._snapshot
        for key in self._index.keys:
            if key == _NAME:
                rows = range(view.size) if view.rows is None else view.rows.tolist()
                names = ["", *(snapshot.name[row] for row in rows)]
                yield key, names, range(1, len(names))
            elif key in snapshot.carried_keys:
                column = snapshot.label_column(key)
                yield key, column.values, view.of(column.ids).tolist()

    def _holding_on(self, row: int) -> int:
        snapshot = self._snapshot
        node = snapshot.node_rows[row]
        labels = {} if node is None else dict(node.labels)
        labels[_NAME] = snapshot.name[row]
        return self._index.holding(labels)
