"""Node selector terms over label columns (component-helpers nodeaffinity of 1.37).

A requirement becomes a table over the values that a key has in the cluster, so a selector costs one
look-up per node whatever its operator. A term that upstream fails to parse (a value that no label
can have, a Gt bound that is no integer) matches nothing, as there.
"""

from __future__ import annotations

import re

import numpy as np

from stretto.model.shape import NAME_FIELD as NAME_FIELD
from stretto.model.shape import NodeTerm, Requirement
from stretto.placement.framework import Bools, View
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.labels import LabelColumn

_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_INT64 = 1 << 63


def int64(text: str) -> int | None:
    """Go's strconv.ParseInt(text, 10, 64)."""
    if len(text) > 64 or not _INTEGER.fullmatch(text):
        return None
    value = int(text)
    return value if -_INT64 <= value < _INT64 else None


class LabelRequirement:
    """key operator values on node labels; a table by value id, extended when new values appear."""

    def __init__(self, requirement: Requirement, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._key = requirement.key
        self._operator = requirement.operator
        self._values = frozenset(requirement.values)
        self._bound = int64(requirement.values[0]) if self._operator in ("Gt", "Lt") else None
        self._column: LabelColumn | None = None
        self._table: list[bool] = []

    def _matches(self, value: str) -> bool:
        match self._operator:
            case "In":
                return value in self._values
            case "NotIn":
                return value not in self._values
            case "Exists":
                return True
            case "DoesNotExist":
                return False
        number = int64(value)
        if number is None or self._bound is None:
            return False
        return number > self._bound if self._operator == "Gt" else number < self._bound

    def _refreshed(self) -> LabelColumn:
        column = self._snapshot.label_column(self._key)
        if column is not self._column:
            self._column = column
            self._table = [self._operator in ("NotIn", "DoesNotExist")]
        if len(self._table) < len(column.values):
            self._table += [self._matches(v) for v in column.values[len(self._table) :]]
        return column

    def passes(self, view: View) -> Bools:
        """bool[view.size]."""
        column = self._snapshot.label_column(self._key)
        if self._operator == "In" and len(self._values) == 1:
            wanted = column.id_of(next(iter(self._values)))
            equal: Bools = view.of(column.ids) == wanted
            return equal
        column = self._refreshed()
        passes: Bools = np.array(self._table, dtype=np.bool_)[view.of(column.ids)]
        return passes

    def passes_row(self, row: int) -> bool:
        """The same for one row."""
        column = self._refreshed()
        return self._table[column.cells[row]]


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
            passes = passes & requirement.passes(view)
        return passes

    def passes_row(self, row: int) -> bool:
        """The same for one row."""
        return all(requirement.passes_row(row) for requirement in self._requirements)


def compile_term(term: NodeTerm, snapshot: Snapshot) -> Term | None:
    """A term ready to evaluate; None when it is empty or upstream could not parse it."""
    if not term.expressions and not term.fields:
        return None
    if not all(map(_parses, term.expressions)) or not all(map(_field_parses, term.fields)):
        return None
    return Term(
        [LabelRequirement(r, snapshot) for r in term.expressions]
        + [NameRequirement(r, snapshot) for r in term.fields]
    )


def _parses(requirement: Requirement) -> bool:
    values = requirement.values
    if not all(len(v) <= 63 and _LABEL_VALUE.fullmatch(v) for v in values):
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
