"""Node selector terms over label columns (component-helpers nodeaffinity of 1.37).

A requirement becomes a table over the values that a key has in the cluster, so a selector costs one
look-up per node whatever its operator. A term that upstream fails to parse (a value that no label
can have, a Gt bound that is no integer) matches nothing, as there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from stretto.model.shape import NAME_FIELD as NAME_FIELD
from stretto.model.shape import NodeTerm, Requirement
from stretto.placement.framework import Bools, Int64s, View
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.labels import LabelColumn, int64

_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")

_NO_TABLE: Bools = np.zeros(0, dtype=np.bool_)


class LabelRequirement:
    """key operator values on node labels, or several requirements on one key of which one must
    hold; a table by value id, made anew when new values appear.

    What passes is a set of values, or all but a set, beside numbers beyond a bound: so a thousand
    requirements on a key, ORed, are one table.
    """

    def __init__(self, requirement: Requirement, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._key = requirement.key
        self._absent = False
        """Nodes without the key pass."""
        self._inside: set[str] = set()
        """Values that pass."""
        self._outside: set[str] | None = None
        """All values but these pass; None: nothing of the kind."""
        self._above: int | None = None
        self._below: int | None = None
        self._column: LabelColumn | None = None
        self._table = _NO_TABLE
        self.or_else(requirement)

    def or_else(self, requirement: Requirement) -> None:
        """Pass what another requirement on the same key passes as well."""
        self._column = None
        match requirement.operator:
            case "In":
                self._inside.update(requirement.values)
            case "NotIn" | "Exists":
                self._absent |= requirement.operator == "NotIn"
                but = set(requirement.values)
                self._outside = but if self._outside is None else self._outside & but
            case "DoesNotExist":
                self._absent = True
            case "Gt":
                bound = int64(requirement.values[0])
                assert bound is not None
                self._above = bound if self._above is None else min(bound, self._above)
            case "Lt":
                bound = int64(requirement.values[0])
                assert bound is not None
                self._below = bound if self._below is None else max(bound, self._below)

    def table(self, column: LabelColumn) -> Bools:
        """bool by value id; id 0 stands for nodes without the key."""
        table: Bools = np.full(len(column.values), self._outside is not None, dtype=np.bool_)
        for values, passes in ((self._outside or (), False), (self._inside, True)):
            for value in values:
                known = column.id_of(value)
                if known > 0:
                    table[known] = passes
        if self._above is not None or self._below is not None:
            numbers, are_numbers = column.numbers()
            if self._above is not None:
                table |= are_numbers & (numbers > self._above)
            if self._below is not None:
                table |= are_numbers & (numbers < self._below)
        table[0] = self._absent
        return table

    def _refreshed(self) -> LabelColumn:
        column = self._snapshot.label_column(self._key)
        if column is not self._column or len(self._table) != len(column.values):
            self._column = column
            self._table = self.table(column)
        return column

    def passes(self, view: View) -> Bools:
        """bool[view.size]."""
        column = self._refreshed()
        passes: Bools = self._table[view.of(column.ids)]
        return passes

    def passes_row(self, row: int) -> bool:
        """The same for one row."""
        column = self._snapshot.label_column(self._key)
        known = column.cells[row]
        return self._takes(column.values[known]) if known else self._absent

    def _takes(self, value: str) -> bool:
        if value in self._inside or (self._outside is not None and value not in self._outside):
            return True
        if self._above is None and self._below is None:
            return False
        number = int64(value)
        return number is not None and (
            (self._above is not None and number > self._above)
            or (self._below is not None and number < self._below)
        )


class KeyWeights:
    """Weighed label requirements on one key, added up: a table by value id, as a pod may prefer ten
    thousand things of a key."""

    def __init__(self, key: str, snapshot: Snapshot) -> None:
        self._key = key
        self._snapshot = snapshot
        self._weighed: list[tuple[int, LabelRequirement]] = []
        self._column: LabelColumn | None = None
        self._table: Int64s = np.zeros(0, dtype=np.int64)

    def add(self, weight: int, requirement: Requirement) -> None:
        """One more, before the first use."""
        self._weighed.append((weight, LabelRequirement(requirement, self._snapshot)))

    def raw(self, view: View) -> Int64s:
        """int64[view.size]: the weights of those that hold."""
        column = self._snapshot.label_column(self._key)
        if column is not self._column or len(self._table) != len(column.values):
            self._column = column
            self._table = np.zeros(len(column.values), dtype=np.int64)
            for weight, requirement in self._weighed:
                self._table += weight * requirement.table(column)
        raw: Int64s = self._table[view.of(column.ids)]
        return raw

    def raw_row(self, row: int) -> int:
        """The same for one row."""
        return sum(weight for weight, each in self._weighed if each.passes_row(row))


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
    if not term.expressions and not term.fields:
        return None
    if not all(map(_parses, term.expressions)) or not all(map(_field_parses, term.fields)):
        return None
    return Term(
        [LabelRequirement(r, snapshot) for r in term.expressions]
        + [NameRequirement(r, snapshot) for r in term.fields]
    )


def compile_weighed(
    weighed: Iterable[tuple[int, NodeTerm]], snapshot: Snapshot
) -> tuple[list[tuple[int, Term]], list[KeyWeights]]:
    """Weighed terms ready to be added up, without those that match nothing; those of a single label
    requirement by key."""
    found: list[tuple[int, Term]] = []
    by_key: dict[str, KeyWeights] = {}
    for weight, term in weighed:
        if len(term.expressions) != 1 or term.fields:
            compiled = compile_term(term, snapshot)
            if compiled is not None:
                found.append((weight, compiled))
        elif _parses(requirement := term.expressions[0]):
            if requirement.key not in by_key:
                by_key[requirement.key] = KeyWeights(requirement.key, snapshot)
            by_key[requirement.key].add(weight, requirement)
    return found, list(by_key.values())


def compile_terms(terms: Iterable[NodeTerm], snapshot: Snapshot) -> list[Term]:
    """Terms ready to be ORed, without those that match nothing. Those that consist of a single
    label requirement become one for each key: a pod may have ten thousand."""
    found: list[Term] = []
    single: dict[str, LabelRequirement] = {}
    for term in terms:
        if len(term.expressions) != 1 or term.fields:
            compiled = compile_term(term, snapshot)
            if compiled is not None:
                found.append(compiled)
            continue
        requirement = term.expressions[0]
        if not _parses(requirement):
            continue
        known = single.get(requirement.key)
        if known is not None:
            known.or_else(requirement)
        else:
            known = single[requirement.key] = LabelRequirement(requirement, snapshot)
            found.append(Term([known]))
    return found


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
