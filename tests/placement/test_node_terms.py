"""Terms of a pod by the thousand: put together, and of the same meaning."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest

from stretto.model.shape import NodeTerm, PreferredNodeTerm, Requirement
from stretto.placement.domains import Domains
from stretto.placement.framework import View
from stretto.placement.node_selector import MANY, compile_term, compile_terms, compile_weighed
from stretto.placement.node_term_table import TermTable
from stretto.placement.plugins.node_affinity import NodeAffinityScorer
from stretto.placement.pod_questions import AnyOf, Selected
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import Delta, NodeChange
from tests.placement import worlds

VALUES = ("", "1", "2", "3", "x", "-7", "9" * 30)


def nodes(rng: random.Random, count: int, *, first: int = 0) -> list[NodeChange]:
    rows = []
    for number in range(first, first + count):
        labels = [(key, rng.choice(VALUES)) for key in ("disk", "zone") if rng.random() < 0.8]
        row = worlds.node_row(rng, number)
        rows.append(NodeChange(number, msgspec.structs.replace(row, labels=tuple(labels))))
    return rows


def requirement(rng: random.Random) -> Requirement:
    operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    values = {"Exists": (), "DoesNotExist": (), "Gt": ("2",), "Lt": ("2",)}.get(
        operator, tuple(rng.sample((*VALUES[:5], "no value!"), rng.randint(1, 3)))
    )
    return Requirement(rng.choice(("zone", "disk", "absent")), operator, values)


def field(rng: random.Random) -> Requirement:
    name = f"n{rng.randint(0, 30)}" if rng.random() < 0.9 else "elsewhere"
    return Requirement(
        rng.choice(("metadata.name", "metadata.name", "other")),
        rng.choice(("In", "NotIn")),
        (name,),
    )


def term(rng: random.Random) -> NodeTerm:
    asked = tuple(requirement(rng) for _ in range(rng.choice((0, 1, 1, 2, 2, 3))))
    return NodeTerm(asked, (field(rng),) if rng.random() < 0.3 else ())


@pytest.mark.parametrize("seed", range(80))
def test_very_many_terms_together_are_what_they_are_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    snapshot = Snapshot()
    snapshot.apply(Delta(1, 1, nodes=nodes(rng, 12)))
    few = rng.randint(0, MANY)
    weighed = [
        PreferredNodeTerm(rng.randint(0, 100), term(rng))
        for _ in range(rng.choice((few, MANY + 1, 60)))
    ]
    terms = [each.term for each in weighed]
    together = compile_terms(terms, snapshot)
    assert len(together) <= (MANY if len(terms) <= MANY else 1)
    compiled = [(each.weight, compile_term(each.term, snapshot)) for each in weighed]
    scorer = NodeAffinityScorer(*compile_weighed(weighed, snapshot))
    for step in range(2):  # then with values that were not there before
        for rows in (None, np.array([3, 0, 7], dtype=np.int64)):
            view = View(snapshot, rows)
            asked = range(view.size) if rows is None else rows.tolist()
            holding = [
                [weight for weight, each in compiled if each is not None and each.passes_row(row)]
                for row in asked
            ]
            vector = np.zeros(view.size, dtype=np.bool_)
            for each in together:
                vector |= each.passes(view)
            assert vector.tolist() == [bool(weights) for weights in holding]
            assert [any(each.passes_row(row) for each in together) for row in asked] == (
                vector.tolist()
            )
            assert scorer.raw(view).tolist() == list(map(sum, holding))
            assert [scorer.raw_row(row) for row in asked] == list(map(sum, holding))
        snapshot.apply(Delta(1, 2 + step, nodes=nodes(rng, 12, first=12 * (step + 1))))


@pytest.mark.parametrize("seed", range(20))
def test_one_by_one_a_row_is_what_the_vector_says(seed: int) -> None:
    rng = random.Random(seed)
    snapshot = Snapshot()
    snapshot.apply(Delta(1, 1, nodes=nodes(rng, 12)))
    for each in (compile_term(term(rng), snapshot) for _ in range(30)):
        if each is not None:
            rows = range(snapshot.rows)
            assert each.passes(View(snapshot)).tolist() == [each.passes_row(row) for row in rows]


def test_the_terms_of_a_pod_are_put_together_once() -> None:
    """The filters of two plugins read them: node affinity, and spread for the nodes it counts."""
    terms = [NodeTerm((Requirement("zone", "NotIn", (str(n),)),)) for n in range(1_000)]
    snapshot = Snapshot()
    one, again, others = (compile_terms(each, snapshot)[0] for each in (terms, terms, list(terms)))
    assert all(isinstance(each, TermTable) for each in (one, again, others))
    assert vars(one)["_terms"] is vars(again)["_terms"] is not vars(others)["_terms"]


def test_topology_keys_that_no_node_carries_cost_no_tally() -> None:
    """A pod may name a thousand; when a node gets the key, its pods count."""
    rng = random.Random(1)
    snapshot = Snapshot()
    snapshot.apply(Delta(1, 1, nodes=nodes(rng, 3)))
    domains = Domains(AnyOf((Selected(None, ()),)), "rack", snapshot=snapshot)
    domains.refresh()
    assert len(snapshot.tallies) == 0
    assert (domains.sums.tolist(), domains.ids.tolist()) == ([0], [0, 0, 0])
    version = domains.version
    domains.refresh()
    assert domains.version == version
    shape = worlds.tied_shape(rng)
    snapshot.add_pod(shape, 1)
    row = msgspec.structs.replace(worlds.node_row(rng, 1), labels=(("rack", "r1"),))
    kept = msgspec.structs.replace(row, uid=snapshot.node_uid[1])
    snapshot.apply(Delta(1, 2, nodes=[NodeChange(1, kept)]))
    domains.refresh()
    assert domains.version > version
    assert domains.ids.tolist() == [0, 1, 0]
    assert domains.sums.tolist() == [0, 1]
