"""A batch of one shape, and the scores that are kept for it, against plain one-by-one placement."""

from __future__ import annotations

import random

import pytest

from stretto.model.unit import Cause
from stretto.placement.kernel import Kernel
from stretto.placement.profiles import Profiles
from tests.placement import worlds

SEEDS = range(40)


def strategy(kind, **more):
    args = {"scoringStrategy": {"type": kind, "resources": worlds.SCORED, **more}}
    return {"pluginConfig": [{"name": "NodeResourcesFit", "args": args}, worlds.BALANCED]}


POINTS = [{"utilization": 0, "score": 0}, {"utilization": 70, "score": 9}, {"utilization": 100}]
VARIANTS = (
    {},
    strategy("LeastAllocated"),
    strategy("MostAllocated"),
    strategy("RequestedToCapacityRatio", requestedToCapacityRatio={"shape": POINTS}),
    # Weights beyond what a packed rank key holds.
    {"plugins": {"score": {"enabled": [{"name": "ImageLocality", "weight": 90_000}]}}},
    {"plugins": {"multiPoint": {"disabled": [{"name": "NodeResourcesBalancedAllocation"}]}}},
)


def fresh(snapshot, *, variant: int = 0, **kwargs) -> Kernel:
    profile = {"schedulerName": "stretto", **VARIANTS[variant % len(VARIANTS)]}
    return Kernel(snapshot, Profiles.from_configuration({"profiles": [profile]}), **kwargs)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_batch_takes_the_nodes_that_one_by_one_placement_takes(seed):
    rng = random.Random(seed)
    one, many = (worlds.cluster(random.Random(seed), 25) for _ in range(2))
    own = frozenset(rng.sample(range(64), 20))
    kernel = fresh(many, variant=seed, own_partitions=own)
    for _ in range(6):
        shape, batch = worlds.shape(rng), rng.randint(1, 40)
        rows = []
        for _ in range(batch):
            # A new kernel for each pod: nothing is kept, everything is scored.
            placed = fresh(one, variant=seed, own_partitions=own).place(shape, 1, seed=seed).rows
            rows += placed
            if not placed:
                break
        assert kernel.place(shape, batch, seed=seed, spares=2).rows == rows
    one.validate()
    many.validate()


@pytest.mark.parametrize("seed", SEEDS)
def test_kept_scores_equal_fresh_ones_whatever_happens_between(seed):
    rng = random.Random(seed)
    snapshot = worlds.cluster(rng, 12)
    kernel = fresh(snapshot, variant=seed)
    shapes = [worlds.shape(rng) for _ in range(4)]
    known: list[tuple[int, int, int]] = []
    for _ in range(30):
        snapshot.apply(worlds.step(rng, snapshot, known))
        shape = rng.choice(shapes)
        assert kernel.totals(shape) == fresh(snapshot, variant=seed).totals(shape)
        if rng.random() < 0.5:
            before = list(snapshot.node_id[: snapshot.rows])
            rows = kernel.place(shape, rng.randint(1, 5), seed=seed).rows
            for row in rows:
                snapshot.remove_pod(shape, row)
            assert list(snapshot.node_id[: snapshot.rows]) == before
    snapshot.validate()


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_one_at_a_time_agree_with_all_rows_at_once(seed):
    rng = random.Random(seed)
    snapshot = worlds.cluster(rng, 20)
    known: list[tuple[int, int, int]] = []
    for _ in range(10):
        snapshot.apply(worlds.step(rng, snapshot, known))
    kernel = fresh(snapshot, variant=seed)
    for _ in range(12):
        shape = worlds.shape(rng)
        mask = kernel.filter(shape)
        totals = kernel.totals(shape)
        evaluation = kernel.evaluate(shape)
        assert [row for row, total in enumerate(totals) if total >= 0] == evaluation.feasible
        assert [total for total in totals if total >= 0] == evaluation.total
        compiled = kernel._compiled(shape)
        for row in range(snapshot.rows):
            fits = kernel.check_one(shape, row) is Cause.NONE
            assert fits == bool(mask[row])
            assert compiled.total_of_row(row) == totals[row]
            assert fits == (row in evaluation.feasible)


def test_the_cache_stays_within_its_bytes_and_counts_evictions():
    rng = random.Random(1)
    snapshot = worlds.cluster(rng, 50)
    kernel = fresh(snapshot, cache_bytes=40_000)
    for _ in range(50):
        shape = worlds.shape(rng)
        for _ in range(2):
            kernel.place(shape, 1, seed=1)
    statistics = kernel.statistics()
    assert statistics["evictions"] > 30
    assert kernel._bytes <= 40_000
