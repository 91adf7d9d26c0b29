"""NodeAffinity: nodeSelector, required and preferred node affinity, and the profile's
addedAffinity."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from stretto.model.shape import NodeTerm, PreferredNodeTerm, Requirement, Shape
from stretto.placement.framework import (
    Bools,
    Filter,
    Int64s,
    Normalise,
    Plugin,
    Rejection,
    Scorer,
    View,
)
from stretto.placement.node_selector import (
    MANY,
    LabelRequirement,
    Term,
    all_of,
    compile_terms,
    compile_weighed,
)
from stretto.placement.node_term_table import TermTable
from stretto.snapshot.columns import Snapshot

NAME = "NodeAffinity"
ENFORCED = "node(s) didn't match scheduler-enforced node affinity"
CONFLICT = "pod affinity terms conflict"


class AddedAffinity(msgspec.Struct, frozen=True):
    """NodeAffinityArgs.addedAffinity; every pod of the profile gets it besides its own."""

    required: tuple[NodeTerm, ...] | None = None
    preferred: tuple[PreferredNodeTerm, ...] = ()


class AnyTerm:
    """Terms ORed; no terms match nothing."""

    def __init__(self, terms: tuple[NodeTerm, ...], snapshot: Snapshot) -> None:
        self._terms = compile_terms(terms, snapshot)

    def passes(self, view: View) -> Bools:
        """bool[view.size]."""
        passes = np.zeros(view.size, dtype=np.bool_)
        for term in self._terms:
            if passes.all():
                break
            passes |= term.passes(view)
        return passes

    def passes_row(self, row: int) -> bool:
        """The same for one row."""
        return any(term.passes_row(row) for term in self._terms)


class NodeAffinityFilter(Filter):
    """Enforced affinity first, then the pod's own."""

    name = NAME
    reason = "node(s) didn't match Pod's node affinity/selector"

    def __init__(self, shape: Shape, *, snapshot: Snapshot, added: AddedAffinity) -> None:
        self._enforced = None if added.required is None else AnyTerm(added.required, snapshot)
        self._selector: Sequence[LabelRequirement | TermTable] = (
            [
                LabelRequirement(Requirement(key, "In", (value,)), snapshot)
                for key, value in shape.node_selector
            ]
            if len(shape.node_selector) <= MANY
            else [all_of(shape.node_selector, snapshot)]
        )
        terms = shape.required_node_terms
        self._required = None if terms is None else AnyTerm(terms, snapshot)
        self._snapshot = snapshot
        self.only_node = ""
        """A parameter of the pod: the one node that its terms name; "": they name none."""

    def _own(self, view: View) -> Bools:
        passes = np.full(view.size, not self.only_node, dtype=np.bool_)
        if self.only_node:
            row = self._snapshot.row_of_name(self.only_node)
            if row is not None and view.rows is None:
                passes[row] = True
            elif row is not None:
                passes |= view.rows == row
        for requirement in self._selector:
            if not passes.any():
                break
            passes &= requirement.passes(view)
        if self._required is not None:
            passes &= self._required.passes(view)
        return passes

    def passes(self, view: View) -> Bools:
        """bool[view.size]."""
        own = self._own(view)
        return own if self._enforced is None else own & self._enforced.passes(view)

    def passes_row(self, row: int) -> bool:
        """The same for one row."""
        return (
            (not self.only_node or self._snapshot.name[row] == self.only_node)
            and (self._enforced is None or self._enforced.passes_row(row))
            and all(requirement.passes_row(row) for requirement in self._selector)
            and (self._required is None or self._required.passes_row(row))
        )

    def rejections(self, view: View) -> list[Rejection]:
        """A row that the enforced affinity rejects has only that reason."""
        own = Rejection(self.reason, ~self._own(view), unresolvable=True)
        if self._enforced is None:
            return [own]
        enforced = ~self._enforced.passes(view)
        return [
            Rejection(ENFORCED, enforced, unresolvable=True),
            Rejection(self.reason, own.rows & ~enforced, unresolvable=True),
        ]


class NodeAffinityScorer(Scorer):
    """Sum of the weights of the preferred terms that match."""

    name = NAME
    normalise = Normalise.DEFAULT

    def __init__(self, preferred: list[tuple[int, Term]], tables: list[TermTable]) -> None:
        self._preferred = preferred
        self._tables = tables

    def raw(self, view: View) -> Int64s:
        """int64[view.size]."""
        total = np.zeros(view.size, dtype=np.int64)
        for weight, term in self._preferred:
            total += term.passes(view) * np.int64(weight)
        for table in self._tables:
            total += table.raw(view)
        return total

    def raw_row(self, row: int) -> int:
        """The same for one row."""
        terms = sum(weight for weight, term in self._preferred if term.passes_row(row))
        return terms + sum(table.raw_row(row) for table in self._tables)


class NodeAffinity(Plugin):
    """Filter and score by node labels and names."""

    name = NAME
    static = True

    def __init__(self, added: AddedAffinity) -> None:
        self._added = added

    def filter(self, shape: Shape, snapshot: Snapshot) -> Filter | None:
        """None when neither the pod nor the profile asks for anything."""
        asks = shape.node_selector or shape.required_node_terms is not None
        if not asks and self._added.required is None:
            return None
        return self.filter_of_one(shape, snapshot)

    def filter_of_one(self, shape: Shape, snapshot: Snapshot) -> NodeAffinityFilter:
        """A filter whose ``only_node`` can be set, whatever else the pod asks for."""
        return NodeAffinityFilter(shape, snapshot=snapshot, added=self._added)

    def scorer(self, shape: Shape, snapshot: Snapshot) -> Scorer | None:
        """None when no preferred term can match."""
        own, added = shape.preferred_node_terms, self._added.preferred
        preferred, tables = compile_weighed((*added, *own) if added else own, snapshot)
        return NodeAffinityScorer(preferred, tables) if preferred or tables else None
