"""Node selector terms over label columns (component-helpers nodeaffinity of 1.37).

A requirement becomes a table over the values that a key has in the cluster, so a selector costs one
look-up per node whatever its operator; very many terms are looked up together. A term that upstream
fails to parse (a value that no label can have, a Gt bound that is no integer) matches nothing, as
there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from stretto.model.shape import NAME_FIELD as NAME_FIELD
from stretto.model.shape import NodeTerm, Requirement
from stretto.model.term_index import int64
from stretto.placement.framework import Bools, View
from stretto.placement.node_term_table import TermTable
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.labels import LabelColumn

_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")

MANY = 16
"""Up to so many terms are quicker one by one, each in a few vector passes."""
_LAST = ("node terms",)
_NO_TABLE: Bools = np.zeros(0, dtype=np.bool_)


class LabelRequirement:
    """key operator values on node labels; a table by value id, made anew when new values appear."""

    def __init__(self, requirement: Requirement, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._requirement = requirement
        self._values = frozenset(requirement.values)
        self._absent = requirement.operator in ("NotIn", "DoesNotExist")
        """Nodes without the key pass."""
        self._column: LabelColumn | None = None
        self._table = _NO_TABLE

    def _made(self, column: LabelColumn) -> Bools:
        """bool by value id; id 0 stands for nodes without the key."""
        operator = self._requirement.operator
        others = operator in ("NotIn", "Exists")
        table: Bools = np.full(len(column.values), others, dtype=np.bool_)
        if operator in ("Gt", "Lt"):
            numbers, are_numbers = column.numbers()
            bound = int64(self._requirement.values[0])
            assert bound is not None
            table = are_numbers & (numbers > bound if operator == "Gt" else numbers < bound)
        else:
            for value in self._values:
                known = column.id_of(value)
                if known > 0:
                    table[known] = not others
        table[0] = self._absent
        return table

    def _refreshed(self) -> LabelColumn:
        column = self._snapshot.label_column(self._requirement.key)
        if column is not self._column or len(self._table) != len(column.values):
            self._column = column
            self._table = self._made(column)
        return column

    def passes(self, view: View) -> Bools:
        """bool[view.size]."""
        column = self._refreshed()
        passes: Bools = self._table[view.of(column.ids)]
        return passes

    def passes_row(self, row: int) -> bool:
        """The same for one row."""
        column = self._snapshot.label_column(self._requirement.key)
        known = column.cells[row]
        return self._takes(column.values[known]) if known else self._absent

    def _takes(self, value: str) -> bool:
        match self._requirement.operator:
            case "In":
                return value in self._values
            case "NotIn":
                return value not in self._values
            case "Exists":
                return True
            case "DoesNotExist":
                return False
        number, bound = int64(value), int64(self._requirement.values[0])
        assert bound is not None
        above = self._requirement.operator == "Gt"
        return number is not None and (number > bound if above else number < bound)


class NameRequirement:
    """metadata.name In or NotIn one name."""

    def __init__(self, requirement: Requirement, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._known = requirement.key == NAME_FIELD
        self._name = requirement.values[0]
        self._wants = requirement.operator == "In"

    def passes(self, view: View) -> Bools:
        """bool[view.size]."""
        row = self._snapshot.row_of_name(self._name) if self._known else None
        passes: Bools = np.zeros(view.size, dtype=np.bool_)
        if row is not None and view.rows is None:
            passes[row] = True
        elif row is not None:
            passes |= view.rows == row
        return passes if self._wants else ~passes

    def passes_row(self, row: int) -> bool:
        """The same for one row."""
        named = self._known and self._snapshot.name[row] == self._name
        return named is self._wants


class Term:
    """Requirements ANDed; ``None`` from :func:`compile_term` is a term that matches nothing."""

    def __init__(self, requirements: list[LabelRequirement | NameRequirement]) -> None:
        self._requirements = requirements

    def passes(self, view: View) -> Bools:
        """bool[view.size]."""
        first, *rest = self._requirements
        passes = first.passes(view)
        for requirement in rest:
            if not passes.any():
                break
            passes = passes & requirement.passes(view)
        return passes

    def passes_row(self, row: int) -> bool:
        """The same for one row."""
        return all(requirement.passes_row(row) for requirement in self._requirements)


def compile_term(term: NodeTerm, snapshot: Snapshot) -> Term | None:
    """A term ready to evaluate; None when it is empty or upstream could not parse it."""
    if not _means_something(term):
        return None
    return Term(
        [LabelRequirement(r, snapshot) for r in term.expressions]
        + [NameRequirement(r, snapshot) for r in term.fields]
    )


def compile_terms(terms: Sequence[NodeTerm], snapshot: Snapshot) -> list[Term | TermTable]:
    """Terms ready to be ORed, without those that match nothing; very many become one."""
    if len(terms) <= MANY:
        return [each for term in terms if (each := compile_term(term, snapshot)) is not None]
    kept = snapshot.derived.get(_LAST)
    if isinstance(kept, tuple) and kept[0] is terms:
        return [kept[1]]  # filters of several plugins ask for those of one pod
    table = TermTable(snapshot)
    for term in terms:
        if _means_something(term):
            table.add(term.expressions, term.fields)
    snapshot.derived[_LAST] = (terms, table)
    return [table]


def compile_weighed(
    weighed: Sequence[tuple[int, NodeTerm]], snapshot: Snapshot
) -> tuple[list[tuple[int, Term]], list[TermTable]]:
    """Weighed terms ready to be added up, without those that match nothing; very many become
    one."""
    if len(weighed) <= MANY:
        compiled = ((weight, compile_term(term, snapshot)) for weight, term in weighed)
        return [(weight, term) for weight, term in compiled if term is not None], []
    table = TermTable(snapshot)
    for weight, term in weighed:
        if _means_something(term):
            table.add(term.expressions, term.fields, weight=weight)
    return [], [table]


def _means_something(term: NodeTerm) -> bool:
    """Whether a term is not empty, and upstream could parse it. (Loops: there are thousands.)"""
    for requirement in term.expressions:
        if not _parses(requirement):
            return False
    for field in term.fields:
        if not _field_parses(field):
            return False
    return bool(term.expressions or term.fields)


def _parses(requirement: Requirement) -> bool:
    values = requirement.values
    for value in values:
        if len(value) > 63 or not _LABEL_VALUE.fullmatch(value):
            return False
    match requirement.operator:
        case "In" | "NotIn":
            return len(values) > 0
        case "Exists" | "DoesNotExist":
            return not values
        case "Gt" | "Lt":
            return len(values) == 1 and int64(values[0]) is not None
    return False


def _field_parses(requirement: Requirement) -> bool:
    return requirement.operator in ("In", "NotIn") and len(requirement.values) == 1


def named_nodes(terms: tuple[NodeTerm, ...] | None) -> frozenset[str] | None:
    """The node set that PreFilter narrows the search to; None: all nodes.

    Only when *every* term has a ``metadata.name In`` field: the union over terms of the
    intersections within one. An empty set means that the terms contradict each other.
    """
    if not terms:
        return None
    union: set[str] = set()
    for term in terms:
        names: set[str] | None = None
        for field in term.fields:
            if field.key == NAME_FIELD and field.operator == "In":
                values = set(field.values)
                names = values if names is None else names & values
        if names is None:
            return None
        union |= names
    return frozenset(union)
