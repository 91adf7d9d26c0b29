"""Which node is chosen among equals, named nodes, nominations, avoided nodes and spares."""

from __future__ import annotations

import random

import msgspec
import pytest

from stretto.model.shape import NodeTerm, Requirement, Shape
from stretto.model.unit import Cause
from stretto.placement.kernel import Kernel, UnknownProfileError
from stretto.placement.profiles import Profiles
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import Delta, NodeChange, NodeRow
from tests.placement import worlds

PLAIN = Shape(
    profile="stretto",
    namespace="default",
    requests=(("cpu", 100), ("memory", worlds.GIB)),
    nonzero_cpu_milli=100,
    nonzero_memory=worlds.GIB,
    score_requests=(100, worlds.GIB),
)


def alike(nodes: int, *, zone: str = "") -> Snapshot:
    snapshot = Snapshot()
    amounts = (("cpu", 4000), ("memory", 16 * worlds.GIB), ("pods", 10))
    labels = (("zone", zone),) if zone else ()
    delta = Delta(epoch=1, sequence=1)
    delta.nodes = [
        NodeChange(n + 1, NodeRow(name=f"n{n}", uid=f"uid-{n}", labels=labels, allocatable=amounts))
        for n in range(nodes)
    ]
    snapshot.apply(delta)
    return snapshot


def named(*names: str) -> Shape:
    terms = tuple(NodeTerm(fields=(Requirement("metadata.name", "In", (n,)),)) for n in names)
    return msgspec.structs.replace(PLAIN, required_node_terms=terms)


def kernel_on(snapshot: Snapshot, **kwargs) -> Kernel:
    return Kernel(snapshot, Profiles.default(), **kwargs)


def checked(kernel, shapes, rows):
    return [kernel.check_one(shape, row) for shape, row in zip(shapes, rows, strict=True)]


def test_equals_are_spread_by_seed_and_own_partitions_come_first():
    own = frozenset(range(16))
    firsts = set()
    for seed in range(60):
        snapshot = alike(100)
        row = kernel_on(snapshot, own_partitions=own).place(PLAIN, 1, seed=seed).rows[0]
        assert int(snapshot.partition[row]) in own
        firsts.add(row)
    assert len(firsts) > 10


def test_the_choice_depends_on_node_uids_not_on_rows_or_names():
    forward, backward = Snapshot(), Snapshot()
    rows = [alike(30).node(row) for row in range(30)]
    changes = [NodeChange(n + 1, row) for n, row in enumerate(rows)]
    forward.apply(Delta(epoch=1, sequence=1, nodes=changes))
    backward.apply(Delta(epoch=1, sequence=1, nodes=changes[::-1]))
    chosen = [
        [s.name[row] for row in kernel_on(s).place(PLAIN, 20, seed=4).rows]
        for s in (forward, backward)
    ]
    assert chosen[0] == chosen[1]


def test_an_avoided_node_is_last_among_equals_but_still_taken_when_alone():
    snapshot = alike(3)
    avoid = [1, 2]
    assert kernel_on(snapshot).place(PLAIN, 1, seed=1, avoid=avoid).rows == [2]
    one = alike(1)
    assert kernel_on(one).place(PLAIN, 1, seed=1, avoid=[1]).rows == [0]


def test_spares_are_other_nodes_and_differ_from_pod_to_pod():
    snapshot = alike(40)
    placement = kernel_on(snapshot).place(PLAIN, 8, seed=3, spares=2)
    assert len(placement.rows) == len(placement.spares) == 8
    dealt = [row for spares in placement.spares for row in spares]
    assert len(set(dealt)) == 16
    assert not set(dealt) & set(placement.rows)


def test_a_batch_stops_when_no_more_fit():
    snapshot = alike(2)
    placement = kernel_on(snapshot).place(PLAIN, 64, seed=3, spares=1)
    assert len(placement.rows) == 20
    assert kernel_on(snapshot).place(PLAIN, 1, seed=3).rows == []


def test_named_nodes_are_the_only_ones_looked_at():
    snapshot = alike(20)
    kernel = kernel_on(snapshot)
    placement = kernel.place(named("n7", "n9", "gone"), 20, seed=1)
    assert sorted({snapshot.name[row] for row in placement.rows}) == ["n7", "n9"]
    assert len(placement.rows) == 20
    assert kernel.place(named("n7"), 1, seed=1).rows == []
    assert kernel.statistics()["builds"] == 0
    by_name = msgspec.structs.replace(PLAIN, node_name="n3")
    assert [snapshot.name[r] for r in kernel.place(by_name, 1, seed=1).rows] == ["n3"]


def test_a_nominated_node_is_taken_first_if_it_fits():
    snapshot = alike(20)
    shape = msgspec.structs.replace(PLAIN, nominated_node="n5")
    rows = kernel_on(snapshot).place(shape, 2, seed=1).rows
    assert snapshot.name[rows[0]] == "n5"
    snapshot.add_pod(PLAIN, rows[0], count=9)
    assert snapshot.name[kernel_on(snapshot).place(shape, 1, seed=1).rows[0]] != "n5"


def test_frozen_and_gone_nodes_are_named_by_the_check_and_never_chosen():
    snapshot = alike(2)
    node = snapshot.node(0)
    delta = Delta(epoch=1, sequence=2, nodes=[NodeChange(1, node, frozen=True)], removed_nodes=[2])
    kernel = kernel_on(snapshot)
    assert checked(kernel, [PLAIN, PLAIN], [0, 1]) == [Cause.NONE, Cause.NONE]
    snapshot.apply(delta)
    assert checked(kernel, [PLAIN, PLAIN, PLAIN], [0, 1, 99]) == [
        Cause.FROZEN, Cause.NODE_GONE, Cause.NODE_GONE,
    ]  # fmt: skip
    assert kernel.place(PLAIN, 1, seed=1).rows == []
    assert kernel.place(named("n0"), 1, seed=1).rows == []


def test_causes_of_a_failed_check():
    snapshot = alike(1)
    kernel = kernel_on(snapshot)
    big = msgspec.structs.replace(PLAIN, requests=(("cpu", 5000),))
    picky = msgspec.structs.replace(PLAIN, node_selector=(("a", "b"),))
    assert checked(kernel, [big, picky], [0, 0]) == [Cause.CAPACITY, Cause.NODE_CHANGED]


def test_an_unknown_profile_is_an_error_and_a_refusal():
    kernel = kernel_on(alike(1))
    shape = msgspec.structs.replace(PLAIN, profile="other")
    with pytest.raises(UnknownProfileError):
        kernel.place(shape, 1, seed=1)
    assert kernel.refusal(shape) == "there is no profile for schedulerName other"


def test_losing_the_node_that_held_a_maximum_moves_all_totals():
    rng = random.Random(2)
    renormalised = 0
    for seed in range(30):
        snapshot = worlds.cluster(random.Random(seed), 6)
        kernel = kernel_on(snapshot)
        for _ in range(3):
            kernel.place(worlds.shape(rng), 30, seed=seed)
        renormalised += kernel.statistics()["renormalised"]
    assert renormalised > 5
