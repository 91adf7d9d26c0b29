"""Pods with very many affinity terms: all at once they are what they are one by one."""

from __future__ import annotations

import random

import msgspec
import pytest

from stretto.model.shape import PodTerm, Requirement, Shape, SpreadConstraint
from stretto.placement.kernel import Kernel
from stretto.placement.plugins.inter_pod_affinity import NOTHING, InterPodFilter
from stretto.placement.profiles import Profiles
from stretto.snapshot import term_set
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import Delta, NodeChange, NodeRow
from tests.placement import worlds
from tests.placement.test_cross_nodes import fresh, step


def told(seed: int) -> list[object]:
    """What is decided, and said, of shapes in a world that goes on; by the row checks too."""
    rng = random.Random(seed)
    snapshot = worlds.cluster(rng, 8)
    known: list[Shape] = []
    kernel = fresh(snapshot, variant=seed)
    found: list[object] = []
    asked = [worlds.tied_shape(rng) for _ in range(6)]
    for _ in range(6):
        snapshot.apply(step(rng, snapshot, known))
        for shape in asked:
            rows = kernel.filter(shape)
            causes = [kernel.check_one(shape, row) for row in range(snapshot.rows)]
            evaluation = kernel.evaluate(shape)
            found += [
                rows.tolist(), causes, kernel.diagnose(shape).message,
                evaluation.feasible, evaluation.total, evaluation.weighted,
            ]  # fmt: skip
            placed = kernel.place(shape, 2, seed=rng.randint(0, 99)).rows
            found.append(placed)
            for row in placed[1:]:
                snapshot.remove_pod(shape, row)
        snapshot.validate()
    return found


@pytest.mark.parametrize("seed", range(60))
def test_terms_asked_all_at_once_are_what_they_are_one_by_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(term_set, "FEW", 1_000)
    expected = told(seed)
    monkeypatch.setattr(term_set, "FEW", seed % 2)
    assert told(seed) == expected


def bound_with(keys: list[str], *, nodes: int = 4) -> tuple[Kernel, Snapshot, Shape]:
    """A pod on the first node that keeps others off its domains over some topology keys."""
    rng = random.Random(1)
    terms = tuple(PodTerm(key, ("default",), None, ()) for key in keys)
    plain = Shape(profile="stretto", namespace="default", nonzero_cpu_milli=1, nonzero_memory=1)
    snapshot = Snapshot()
    rows = [bare_node(rng, number) for number in range(nodes)]
    snapshot.apply(Delta(1, 1, nodes=[NodeChange(n + 1, row) for n, row in enumerate(rows)]))
    snapshot.add_pod(msgspec.structs.replace(plain, anti_affinity=terms), 0)
    return Kernel(snapshot, Profiles.default()), snapshot, plain


def bare_node(rng: random.Random, number: int) -> NodeRow:
    row = worlds.node_row(rng, number)
    labels = (("kubernetes.io/hostname", row.name),)
    return msgspec.structs.replace(
        row, uid=f"u{number}", labels=labels, taints=(), unschedulable=False,
        allocatable=(("cpu", 9_000), ("memory", 1 << 40), ("pods", 100)),
    )  # fmt: skip


def test_topology_keys_that_no_node_carries_are_not_looked_at_until_one_does() -> None:
    """Twenty thousand of them on a pod would cost every other pod of its cluster."""
    kernel, snapshot, plain = bound_with([*(f"t{n}" for n in range(20_000)), "rack"])
    assert kernel.filter(plain).all()
    assert len(snapshot.tallies) == 0
    rng = random.Random(1)
    changes = []
    for number in range(4):
        row = bare_node(rng, number)
        rack = (*row.labels, ("rack", f"r{number % 2}"))
        changes.append(NodeChange(number + 1, msgspec.structs.replace(row, labels=rack)))
    snapshot.apply(Delta(1, 2, nodes=changes))
    assert kernel.filter(plain).tolist() == [False, True, False, True]
    assert len(snapshot.tallies) == 1


@pytest.mark.parametrize("key", ["kubernetes.io/hostname", "t0"])
def test_a_pod_with_many_affinity_terms_needs_every_key(key: str) -> None:
    """Of keys that no node carries one is enough to say so."""
    _, snapshot, plain = bound_with([])
    keys = ["kubernetes.io/hostname"] * 20 + [key] + [f"t{n}" for n in range(50) if key == "t0"]
    near = tuple(
        PodTerm(each, ("default",), None, (Requirement("a", "NotIn", (str(n),)),))
        for n, each in enumerate(keys)
    )
    shape = msgspec.structs.replace(plain, affinity=near)
    kernel = Kernel(snapshot, Profiles.default())
    expected = [key != "t0", False, False, False]
    assert kernel.filter(shape).tolist() == expected
    found = InterPodFilter(shape, NOTHING, snapshot)
    assert [each.key for each in found._near] == list(dict.fromkeys(keys))[:2]


@pytest.mark.parametrize("hard", [True, False])
def test_spread_over_keys_that_no_node_carries_is_not_counted_until_all_are_there(
    hard: bool,
) -> None:
    """No node passes, or scores, for want of one key; then the pods of a kind are counted."""
    _, snapshot, plain = bound_with([])
    spread = tuple(
        SpreadConstraint(1, key, hard=hard, selector=(Requirement("a", "DoesNotExist"),))
        for key in ("kubernetes.io/hostname", "rack", *(f"t{n}" for n in range(3)))
    )
    shape = msgspec.structs.replace(plain, spread=spread)
    kernel = Kernel(snapshot, Profiles.default())

    def seen() -> tuple[list[bool], list[int]]:
        found = kernel.evaluate(shape)
        return kernel.filter(shape).tolist(), found.weighted.get("PodTopologySpread", [])

    assert seen() == ([not hard] * 4, [] if hard else [0] * 4)
    labels = [("rack", "r0"), *((f"t{n}", "x") for n in range(3))]
    changes = []
    for number in range(4):
        row = bare_node(random.Random(1), number)
        every = tuple(sorted((*row.labels, *labels)))
        changes.append(NodeChange(number + 1, msgspec.structs.replace(row, labels=every)))
    snapshot.apply(Delta(1, 2, nodes=changes))
    rows, weighted = seen()
    assert rows == ([False, True, True, True] if hard else [True] * 4)
    assert weighted == ([] if hard else [132, 200, 200, 200])
