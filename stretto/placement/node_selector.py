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

from stretto.model.lately import LatelyOf
from stretto.model.shape import NAME_FIELD as NAME_FIELD
from stretto.model.shape import NodeTerm, PreferredNodeTerm, Requirement, Shape
from stretto.model.term_index import int64
from stretto.placement.framework import Bools, View
from stretto.placement.node_term_table import NodeTerms, TermTable
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.labels import LabelColumn

_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_LABEL_VALUES = re.compile(r"(?:(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?\n)*+")
"""The same of many, each ended by a newline."""

MANY = 16
"""Up to so many terms are quicker one by one, each in a few vector passes."""
VALUES = 1000
"""The same of values in all of them."""
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
            for known in self._named(column):
                table[known] = not others
        table[0] = self._absent
        return table

    def _named(self, column: LabelColumn) -> list[int]:
        """The ids of its values that nodes carry; there may be many more of either."""
        if len(self._values) > len(column.values):
            return [id_ for id_, value in enumerate(column.values) if id_ and value in self._values]
        return [id_ for value in self._values if (id_ := column.id_of(value)) > 0]

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


def are_many(terms: Sequence[NodeTerm]) -> bool:
    """Whether terms are looked up together: they are many, or ask for much."""
    if len(terms) > MANY:
        return True
    asked = [each for term in terms for each in term.expressions]
    return len(asked) > 4 * MANY or sum([len(each.values) for each in asked]) > VALUES


def compile_terms(terms: Sequence[NodeTerm], snapshot: Snapshot) -> list[Term | TermTable]:
    """Terms ready to be ORed, without those that match nothing; very many become one."""
    if not are_many(terms):
        return [each for term in terms if (each := compile_term(term, snapshot)) is not None]
    return [TermTable(_together(terms), snapshot)]


def all_of(selector: tuple[tuple[str, str], ...], snapshot: Snapshot) -> TermTable:
    """Very many labels, all of which a node must have."""
    return TermTable(_selecting(selector), snapshot)


def compile_weighed(
    weighed: Sequence[PreferredNodeTerm], snapshot: Snapshot
) -> tuple[list[tuple[int, Term]], list[TermTable]]:
    """Weighed terms ready to be added up, without those that match nothing; very many become
    one."""
    if not are_many([item.term for item in weighed]):
        compiled = ((item.weight, compile_term(item.term, snapshot)) for item in weighed)
        return [(weight, term) for weight, term in compiled if term is not None and weight], []
    return [], [TermTable(_weighed(weighed), snapshot)]


def prepare_node_terms(shape: Shape) -> None:
    """Make what deciding on a shape with very many terms needs beforehand; also beside a loop."""
    required = shape.required_node_terms or ()
    if are_many(required):
        _together(required)
    if are_many([item.term for item in shape.preferred_node_terms]):
        _weighed(shape.preferred_node_terms)
    if len(shape.node_selector) > MANY:
        _selecting(shape.node_selector)


_made: LatelyOf[NodeTerms] = LatelyOf(8)
"""By what they were made of: filters of several plugins ask for the terms of one pod."""


def _together(terms: Sequence[NodeTerm]) -> NodeTerms:
    def make() -> NodeTerms:
        found = NodeTerms()
        for term in terms:
            if _means_something(term):
                found.add(term.expressions, term.fields)
        found.settle()
        return found

    return _made.of(terms, make)


def _weighed(weighed: Sequence[PreferredNodeTerm]) -> NodeTerms:
    def make() -> NodeTerms:
        found = NodeTerms()
        for item in weighed:
            if item.weight and _means_something(item.term):
                found.add(item.term.expressions, item.term.fields, weight=item.weight)
        found.settle()
        return found

    return _made.of(weighed, make)


def _selecting(selector: tuple[tuple[str, str], ...]) -> NodeTerms:
    def make() -> NodeTerms:
        found = NodeTerms()
        found.add([Requirement(key, "In", (value,)) for key, value in selector])
        found.settle()
        return found

    return _made.of(selector, make)


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
    if len(values) > MANY:
        whole = "\n".join(values) + "\n"
        if whole.count("\n") != len(values) or not _LABEL_VALUES.fullmatch(whole):
            return False
    else:
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
