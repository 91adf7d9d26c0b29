"""Pods that differ in their amounts only are compiled after one pattern, and go where each would on
its own."""

from __future__ import annotations

import random

import msgspec
import pytest

from stretto.model.shape import Shape
from stretto.model.unit import Cause
from stretto.placement.kernel import Kernel
from stretto.placement.parts import pattern_of
from stretto.placement.profiles import Profiles
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import Delta, NodeChange, NodeRow
from tests.placement import worlds
from tests.placement.test_batches import fresh as in_variant


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


def plain_cluster(rng: random.Random, nodes: int) -> Snapshot:
    """Every node has every resource, so that scores are computed in doubles. In every second
    cluster all nodes are of one kind; some are very large, and some are overfull."""
    snapshot = Snapshot()
    kinds = [
        (
            ("cpu", rng.choice((1000, 31_850))),
            ("ephemeral-storage", 1 << rng.randint(30, 46)),
            ("example.com/gpu", 8),
            ("memory", rng.randint(1, 1 << 46)),
            ("pods", 110),
        )
        for _ in range(rng.choice((1, 3)))
    ]
    delta = Delta(epoch=1, sequence=1)
    delta.nodes = [
        NodeChange(n + 1, NodeRow(name=f"n{n}", uid=f"u{n}", allocatable=rng.choice(kinds)))
        for n in range(nodes)
    ]
    snapshot.apply(delta)
    snapshot.apply(Delta(epoch=1, sequence=2, removed_nodes=[2]))
    for row in {0, *range(2, nodes)}:
        used = rng.randint(0, 1100), rng.randint(0, (kinds[0][3][1] * 11) // 10)
        pod = Shape("stretto", "default", requests=(("cpu", used[0]), ("memory", used[1])))
        slack = {"nonzero_cpu_milli": used[0] + 100, "nonzero_memory": used[1] + 1}
        snapshot.add_pod(msgspec.structs.replace(pod, **slack), row)
    return snapshot


@pytest.mark.parametrize("variant", range(6))
@pytest.mark.parametrize("seed", range(12))
def test_all_rows_at_once_agree_with_rows_one_at_a_time_in_doubles(seed, variant):
    """Also where a score is a whole number, or all but one, and where pods come meanwhile."""
    rng = random.Random(seed)
    snapshot = plain_cluster(rng, 24)
    kernel = in_variant(snapshot, variant=variant)
    memory = int(snapshot.resources.column("memory").alloc.max())
    for _ in range(20):
        amounts = (
            rng.choice((0, 10, 100, 637, 1000)),
            rng.choice((0, memory // 100, memory // 50 + 1, memory // 2 - 1, memory, 123_456_789)),
        )
        shape = Shape(
            "stretto", "default", requests=(("cpu", amounts[0]), ("memory", amounts[1])),
            nonzero_cpu_milli=amounts[0] or 100, nonzero_memory=amounts[1] or 200 << 20,
            score_requests=(amounts[0] or 100, amounts[1] or 200 << 20),
        )  # fmt: skip
        totals = kernel.totals(shape)
        compiled = kernel._compiled(shape)
        assert totals == [compiled.total_of_row(row) for row in range(snapshot.rows)]
        mask = kernel.filter(shape)
        fits = [kernel.check_one(shape, row) is Cause.NONE for row in range(snapshot.rows)]
        assert fits == mask.tolist()
        assert fits == [total >= 0 for total in totals]
        kernel.place(shape, rng.randint(1, 12), seed=seed)


@pytest.mark.parametrize("variant", range(6))
def test_a_dozen_changed_rows_are_refreshed_together_and_agree_with_one_row_at_a_time(variant):
    """Both those of a shape whose scores are kept and those that the next new shape reads."""
    rng = random.Random(variant)
    snapshot = plain_cluster(rng, 60)
    kernel = in_variant(snapshot, variant=variant)
    kept, pod = (
        Shape("stretto", "default", requests=(("cpu", cpu), ("memory", memory)),
              nonzero_cpu_milli=cpu, nonzero_memory=memory, score_requests=(cpu, memory))
        for cpu, memory in ((20, 1 << 20), (50, 7 << 20))
    )  # fmt: skip
    for _ in range(3):
        kernel.totals(kept)
    refreshed = kernel.statistics()["rows_refreshed"]
    for step in range(8):
        for row in rng.sample(range(2, 60), 12):
            snapshot.add_pod(pod, row)
        amounts = (("cpu", 30 + step), ("memory", 1 << 22))
        for shape in kept, msgspec.structs.replace(kept, requests=amounts):
            totals = kernel.totals(shape)
            compiled = kernel._compiled(shape)
            assert totals == [compiled.total_of_row(row) for row in range(snapshot.rows)]
    assert kernel.statistics()["rows_refreshed"] == refreshed + 8 * 12
