"""Random trees of queues under random load: nothing is overspent, guarantees are reached, and
preemption comes to rest."""

from __future__ import annotations

import random

import pytest

from stretto.quota.accounts import NO_LEVEL
from stretto.quota.rows import QueueRow
from tests.quota.market import Market, shape_of

RUNTIME_MIN = 5
pytestmark = pytest.mark.timeout(120)


def cpu(amount: int) -> tuple[tuple[str, int], ...]:
    return (("cpu", amount),) if amount else ()


def random_tree(rng: random.Random, market: Market, *, unit: int) -> list[str]:
    """A few roots with children, some of them with children of their own; the leaves. What is
    guaranteed in all fits on the nodes."""
    left = market.nodes * market.node_cpu // unit
    names: list[str] = []
    leaves: list[str] = []
    for number in range(rng.randint(1, 3)):
        parent = f"r{number}"
        limit = rng.choice([0, rng.randint(left // 2, left + 4) * unit])
        market.queue(parent, QueueRow(limit=cpu(limit)))
        names.append(parent)
        open_: list[str] = []
        """Children without a limit: a guarantee below them can be kept."""
        for child in range(rng.randint(1, 3)):
            above = rng.choice([parent, *open_])
            name = f"{parent}c{child}"
            promised = rng.randint(0, max(0, left // 3))
            if limit:
                promised = min(promised, limit // unit // 3)
            left -= promised
            most = rng.choice([0, 0, (promised + rng.randint(0, 6)) * unit])
            open_ += [] if most else [name]
            market.queue(
                name,
                QueueRow(
                    parent=above,
                    guaranteed=cpu(promised * unit),
                    limit=cpu(most),
                    weight=rng.randint(1, 3),
                    min_runtime_s=rng.choice([0, 60, RUNTIME_MIN * 60]),
                ),
            )
            names.append(name)
            leaves.append(name)
    return [*leaves, *rng.sample(names, 1)]


def churn(rng: random.Random, market: Market, queues: list[str], sizes: list[int]) -> None:
    for _ in range(rng.randint(0, 6)):
        market.create(shape_of(rng.choice(queues), rng.choice(sizes), priority=rng.choice([0, 9])))
    stay = [uid for uid in sorted(market.running) if uid not in market.leaving]
    for uid in rng.sample(stay, min(len(stay), rng.randint(0, 4))):
        market.end(uid)
    while len(market.waiting) > 60:
        del market.waiting[rng.choice(sorted(market.waiting.keys() - market.cluster.nominated))]


def run(seed: int, *, minutes: int, sizes: list[int]) -> Market:
    """Churn for ten minutes, quiet for thirty, and again."""
    rng = random.Random(seed)
    market = Market(rng)
    queues = random_tree(rng, market, unit=1000)
    while market.minute < minutes:
        for _ in range(10):
            churn(rng, market, queues, sizes)
            market.step()
        for _ in range(20):
            market.step()
        before = len(market.evicted)
        for _ in range(10):
            market.step()
        after = market.evicted[before:]
        assert not after, f"seed {seed}: still preempting in a quiet time: {after[:5]}"
        if sizes == [1000]:
            all_guarantees_are_met(market, seed)
    return market


def all_guarantees_are_met(market: Market, seed: int) -> None:
    """Pods of one size on nodes of whole such sizes: nothing but quota can keep a pod out."""
    quota = market.cluster.snapshot.quota
    for uid, shape in market.waiting.items():
        standing = quota.standing(shape)
        limited = quota.refusal(shape) and not any(
            quota.may_leave(standing, other, market.cluster.quota.flags_of(o), lower=False)
            for o, other in market.running.items()
        )
        assert standing.level == NO_LEVEL or limited, f"seed {seed}: {uid} of {shape.queue} waits"


@pytest.mark.parametrize("seed", range(16))
def test_guarantees_are_reached_within_twenty_minutes_of_quiet(seed: int) -> None:
    market = run(seed, minutes=320, sizes=[1000])
    assert market.made > 20


@pytest.mark.parametrize("seed", range(100, 116))
def test_pods_of_all_sizes_never_overspend_and_come_to_rest(seed: int) -> None:
    run(seed, minutes=320, sizes=[500, 1000, 2500, 4000])
