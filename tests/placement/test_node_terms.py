"""Terms of a pod by the thousand: put together where that is possible, and of the same meaning."""

from __future__ import annotations

import random

import msgspec
import pytest

from stretto.model.shape import NodeTerm, PodTerm, Requirement
from stretto.placement.domains import Domains
from stretto.placement.framework import View
from stretto.placement.node_selector import compile_term, compile_terms, compile_weighed
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


def term(rng: random.Random) -> NodeTerm:
    operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    values = {"Exists": (), "DoesNotExist": (), "Gt": ("2",), "Lt": ("2",)}.get(
        operator, tuple(rng.sample(VALUES[:5], rng.randint(1, 3)))
    )
    own = (Requirement(rng.choice(("zone", "disk", "absent")), operator, values),)
    more = (Requirement("zone", "Exists"),) if rng.random() < 0.2 else ()
    return NodeTerm(own + more)


@pytest.mark.parametrize("seed", range(60))
def test_single_requirements_ored_on_one_key_are_one_table(seed: int) -> None:
    rng = random.Random(seed)
    snapshot = Snapshot()
    snapshot.apply(Delta(1, 1, nodes=nodes(rng, 12)))
    terms = [term(rng) for _ in range(rng.randint(0, 6))]
    together = compile_terms(terms, snapshot)
    one_by_one = [each for each in (compile_term(t, snapshot) for t in terms) if each is not None]
    assert len(together) <= len(one_by_one)
    for step in range(2):  # then with values that were not there before
        view = View(snapshot)
        expected = [any(each.passes_row(row) for each in one_by_one) for row in range(view.size)]
        assert [any(each.passes_row(row) for each in together) for row in range(view.size)] == (
            expected
        )
        vector = [any(each.passes(view)[row] for each in together) for row in range(view.size)]
        assert vector == expected
        snapshot.apply(Delta(1, 2 + step, nodes=nodes(rng, 12, first=12 * (step + 1))))


def test_a_thousand_terms_on_a_key_are_one() -> None:
    terms = [NodeTerm((Requirement("zone", "NotIn", (str(n),)),)) for n in range(1_000)]
    assert len(compile_terms(terms, Snapshot())) == 1


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


def test_terms_of_a_kin_by_topology_key() -> None:
    terms = tuple(PodTerm(f"t{n % 2}", ("default",), None, ()) for n in range(4))
    shape = msgspec.structs.replace(worlds.tied_shape(random.Random(1)), anti_affinity=terms)
    kin = Snapshot().kins.of(shape)
    assert [each.term for each in kin.terms_over("t0") if each.term in terms] == [terms[0]] * 2
    assert kin.terms_over("other") == ()


@pytest.mark.parametrize("seed", range(40))
def test_weighed_requirements_on_one_key_are_one_table(seed: int) -> None:
    rng = random.Random(seed)
    snapshot = Snapshot()
    snapshot.apply(Delta(1, 1, nodes=nodes(rng, 12)))
    weighed = [(rng.randint(1, 100), term(rng)) for _ in range(rng.randint(0, 8))]
    terms, by_key = compile_weighed(weighed, snapshot)
    compiled = [(weight, compile_term(each, snapshot)) for weight, each in weighed]
    for step in range(2):
        view = View(snapshot)
        expected = [
            sum(weight for weight, each in compiled if each is not None and each.passes_row(row))
            for row in range(view.size)
        ]
        scorer = NodeAffinityScorer(terms, by_key)
        assert scorer.raw(view).tolist() == expected
        assert [scorer.raw_row(row) for row in range(view.size)] == expected
        more = nodes(rng, 12, first=12 * (step + 1))
        snapshot.apply(Delta(1, 2 + step, nodes=more))
