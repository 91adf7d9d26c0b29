"""Very many terms at once: the same as one after the other, for whatever labels."""

from __future__ import annotations

import random

from stretto.model.selector import requirement_matches
from stretto.model.shape import Requirement
from stretto.model.term_index import TermIndex, bits_of, int64, planes, weight_of

KEYS = ("a", "b", "c", "d")
VALUES = ("x", "y", "z", "1", "2", "3", "+3", "9" * 30, str(-(1 << 63)), str((1 << 63) - 1))
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def requirement(rng: random.Random) -> Requirement:
    operator = rng.choice(OPERATORS)
    if operator in ("Exists", "DoesNotExist"):
        values: tuple[str, ...] = ()
    elif operator in ("Gt", "Lt"):
        values = (str(rng.randint(-1, 4)),)
    else:
        values = tuple(rng.sample(VALUES, rng.randint(1, 4)))
    return Requirement(rng.choice(KEYS), operator, values)


def holds(term: list[Requirement] | None, labels: dict[str, str]) -> bool:
    return term is not None and all(meets(each, labels) for each in term)


def meets(each: Requirement, labels: dict[str, str]) -> bool:
    if each.operator not in ("Gt", "Lt"):
        return requirement_matches(each, labels)
    number, bound = int64(labels.get(each.key, "none")), int64(each.values[0])
    assert bound is not None
    return number is not None and (number > bound if each.operator == "Gt" else number < bound)


def some_labels(rng: random.Random) -> dict[str, str]:
    return {key: rng.choice(VALUES) for key in (*KEYS, "e") if rng.random() < 0.5}


def test_terms_together_hold_where_they_do_one_by_one() -> None:
    rng = random.Random(7)
    for _ in range(300):
        terms = [
            None if rng.random() < 0.05 else [requirement(rng) for _ in range(rng.randint(0, 4))]
            for _ in range(rng.choice((0, 1, 5, 60)))
        ]
        index = TermIndex()
        for term in terms:
            index.add(term)
        worlds = [some_labels(rng) for _ in range(30)]
        expected = [
            {bit for bit, term in enumerate(terms) if holds(term, labels)} for labels in worlds
        ]
        assert [set(bits_of(index.holding(labels))) for labels in worlds] == expected
        columns = []
        for key in index.keys:
            values = ["", *sorted({labels[key] for labels in worlds if key in labels})]
            if len(values) > 1:  # a key that no row has needs no column
                ids = [values.index(labels[key]) if key in labels else 0 for labels in worlds]
                columns.append((key, values, ids))
        assert [set(bits_of(each)) for each in index.by_row(columns, rows=30)] == expected


def test_weights_of_many_terms_are_sums() -> None:
    rng = random.Random(3)
    index = TermIndex()
    for _ in range(200):
        index.add([])
    weights = {bit: rng.randint(-100, 100) for bit in range(200)}
    parts = planes(weights.items(), index)
    assert len(parts) <= 14
    for _ in range(50):
        chosen = rng.sample(range(200), rng.randint(0, 200))
        assert weight_of(index.mask(chosen), parts) == sum(weights[bit] for bit in chosen)


def test_more_values_than_are_remembered() -> None:
    index = TermIndex()
    for number in range(600):
        index.add([Requirement("k", "NotIn", (str(number),))])
    for _ in range(2):
        for number in range(600):
            assert index.holding({"k": str(number)}) == index.all ^ (1 << number)


def test_few_keys_are_looked_at_whatever_the_terms_need() -> None:
    """A thousand terms that need a common key and one of their own wait at their own."""
    index = TermIndex()
    for number in range(1_000):
        own = Requirement(f"own-{number}", "Exists")
        index.add([Requirement("common", "In", ("yes",)), own])
    assert index.holding({"common": "yes"}) == 0
    assert all(key != "common" for key in index._at_key)
    assert index.holding({"common": "yes", "own-7": ""}) == 1 << 7
