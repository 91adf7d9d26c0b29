"""Pods that differ in their amounts only are compiled after one pattern, and go where each would on
its own."""

from __future__ import annotations

import random

import msgspec
import pytest

from stretto.model.shape import Shape
from stretto.placement.kernel import Kernel
from stretto.placement.parts import pattern_of
from stretto.placement.profiles import Profiles
from tests.placement import worlds


def fresh(snapshot) -> Kernel:
    return Kernel(snapshot, Profiles.default(), own_partitions=frozenset(range(16)))


def other_amounts(rng: random.Random, shape: Shape) -> Shape:
    """The shape with other amounts; one that was 0 is, mostly, 0 again."""
    requests = {
        name: rng.choice((amount, rng.randint(1, 3 * (amount or rng.randint(0, 1)) + 1)))
        for name, amount in shape.requests
    }
    cpu, memory = requests["cpu"] or 100, requests["memory"] or 200 << 20
    return msgspec.structs.replace(
        shape,
        requests=tuple(sorted(requests.items())),
        nonzero_cpu_milli=cpu,
        nonzero_memory=memory,
        score_requests=(cpu + rng.choice((0, 5)), memory),
    )


@pytest.mark.parametrize("make", [worlds.shape, worlds.tied_shape])
@pytest.mark.parametrize("seed", range(10))
def test_pods_that_differ_in_amounts_go_where_each_goes_on_its_own(seed, make):
    """Nodes, pods with terms and labels come and go meanwhile."""
    rng = random.Random(seed)
    snapshot = worlds.cluster(rng, 12)
    kernel = fresh(snapshot)
    bases = [make(rng) for _ in range(3)]
    known: list[tuple[int, int, int]] = []
    for step in range(30):
        snapshot.apply(worlds.step(rng, snapshot, known, make=make))
        shape = other_amounts(rng, rng.choice(bases))
        alone = fresh(snapshot)
        rows = range(snapshot.rows)
        assert [kernel.check_one(shape, r) for r in rows] == [
            alone.check_one(shape, r) for r in rows
        ]
        assert kernel.totals(shape) == alone.totals(shape)
        found = []
        for each in kernel, alone:
            placed = each.place(shape, 3, seed=step, spares=2)
            found.append((placed.rows, placed.spares))
            for row in placed.rows:
                snapshot.remove_pod(shape, row)
        assert found[0] == found[1]


def test_what_is_asked_for_and_what_is_not_are_different_patterns():
    """A resource of 0 is not looked at, whatever the node has."""
    some = Shape("stretto", "default", requests=(("cpu", 100), ("memory", 1)))
    more = msgspec.structs.replace(some, requests=(("cpu", 200), ("memory", 7)))
    none = msgspec.structs.replace(some, requests=(("cpu", 100), ("memory", 0)))
    assert pattern_of(some) == pattern_of(more)
    assert len({pattern_of(each) for each in (some, none)}) == 2
    assert pattern_of(some) != pattern_of(msgspec.structs.replace(some, namespace="other"))
