"""A mask over all rows that depends on the nodes' definitions alone, kept up to date by the rows
whose nodes changed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stretto.model.shape import NodeTerm, Requirement
from stretto.placement.framework import Bools, View
from stretto.placement.node_selector import compile_terms
from stretto.snapshot.columns import Snapshot


class LiveMask:
    """``evaluate`` over all rows, remembered."""

    def __init__(self, snapshot: Snapshot, evaluate: Callable[[View], Bools]) -> None:
        self._snapshot = snapshot
        self._evaluate = evaluate
        self._stamp = -1
        self._mask: Bools = np.zeros(0, dtype=np.bool_)

    def get(self) -> Bools:
        """bool[rows]; not to be written to."""
        log = self._snapshot.node_changes
        if log.stamp != self._stamp:
            rows = self._snapshot.rows
            changed = log.since(self._stamp) if self._stamp >= 0 else None
            if changed is None or len(self._mask) != rows or len(changed) * 4 > rows:
                self._mask = self._evaluate(View(self._snapshot)).copy()
            elif changed:
                some = np.array(changed, dtype=np.int64)
                self._mask[some] = self._evaluate(View(self._snapshot, some))
            self._stamp = log.stamp
        return self._mask


class Terms:
    """Node selector terms ORed, on labels; None: every node, (): none."""

    def __init__(self, terms: tuple[NodeTerm, ...] | None, snapshot: Snapshot) -> None:
        self._all = terms is None
        self._terms = compile_terms(terms or (), snapshot)

    def passes(self, view: View) -> Bools:
        """bool[view.size]."""
        if self._all:
            return np.ones(view.size, dtype=np.bool_)
        passes = np.zeros(view.size, dtype=np.bool_)
        for term in self._terms:
            passes |= term.passes(view)
        return passes

    def passes_row(self, row: int) -> bool:
        """The same for one row."""
        return self._all or any(term.passes_row(row) for term in self._terms)


def terms_of_selector(
    selector: tuple[Requirement, ...] | None,
) -> tuple[NodeTerm, ...] | None:
    """A label selector as node terms: None (matches nothing) as (), an empty one as None."""
    if selector is None:
        return ()
    return (NodeTerm(selector),) if selector else None
