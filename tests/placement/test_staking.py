"""Nodes for stakes, and own partitions first: no mode refuses what another would place."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stretto.model.groups import POD_GROUP, GroupRow, encode_group
from stretto.model.shape import Shape
from stretto.placement.kernel import Kernel
from stretto.placement.profiles import Profiles
from stretto.placement.staking import Staking
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import Delta, NodeChange, NodeRow, ObjectRow
from tests.placement import worlds


def shape(cpu: int, **fields: object) -> Shape:
    return Shape(
        profile="stretto",
        namespace="default",
        requests=(("cpu", cpu),),
        nonzero_cpu_milli=cpu,
        **fields,  # type: ignore[arg-type]
    )


def world(used: dict[str, int], *, cpu: int = 4000, zones: str = "") -> Snapshot:
    """Nodes with so many pods of one cpu each; ``zones``: a letter a node."""
    delta = Delta(epoch=1, sequence=1)
    delta.shapes = [(1, shape(1000))]
    for number, (name, count) in enumerate(used.items(), 1):
        labels = (("zone", zones[number - 1]),) if zones else ()
        amounts = (("cpu", cpu), ("pods", 20))
        row = NodeRow(name=name, uid=f"uid-{name}", labels=labels, allocatable=amounts)
        delta.nodes.append(NodeChange(number, row))
        for each in range(count):
            delta.add_pod(shape_id=1, node_id=number, uid=f"{name}-{each}")
    snapshot = Snapshot()
    snapshot.apply(delta)
    return snapshot


def staking(snapshot: Snapshot) -> Staking:
    return Staking(Kernel(snapshot, Profiles.default(("stretto",))), snapshot)


def test_the_node_with_the_least_left_to_come_free_is_chosen_and_nothing_is_counted():
    snapshot = world({"a": 4, "b": 2, "c": 3})
    names = [snapshot.name[row] for row in staking(snapshot).choose([shape(4000)], seed=1)]
    assert names == ["b"]
    snapshot.validate()
    assert snapshot.tentative == 0


def test_fruitless_nodes_come_last_but_are_not_left_out():
    snapshot = world({"a": 4, "b": 2})
    chosen = staking(snapshot).choose([shape(4000)], seed=1, passed={"b"})
    assert [snapshot.name[row] for row in chosen] == ["a"]
    chosen = staking(snapshot).choose([shape(4000)], seed=1, passed={"a", "b"})
    assert [snapshot.name[row] for row in chosen] == ["b"]


def test_a_gang_fills_nodes_and_what_would_fit_no_empty_cluster_gets_none():
    snapshot = world({"a": 4, "b": 4, "c": 4})
    rows = staking(snapshot).choose([shape(2000)] * 3, seed=1)
    assert sorted(rows.count(row) for row in set(rows)) == [1, 2]
    assert staking(snapshot).choose([shape(2000)] * 7, seed=1) == []
    assert staking(snapshot).choose([shape(5000)], seed=1) == []
    snapshot.validate()


def test_a_required_topology_keeps_the_stake_in_one_domain():
    snapshot = world({"a": 1, "b": 4, "c": 4, "d": 4}, zones="xyyz")
    row = GroupRow(uid="u", min_count=4, topology_key="zone", topology_required=True)
    object_ = ObjectRow(POD_GROUP, "default/g", 2, encode_group(row))
    snapshot.apply(Delta(epoch=1, sequence=2, objects=[object_]))
    members = [shape(2000, group="default/g")] * 4
    rows = staking(snapshot).choose(members, seed=1)
    assert {snapshot.name[row] for row in rows} == {"b", "c"}


def test_room_that_is_kept_for_others_is_not_chosen():
    snapshot = world({"a": 2, "b": 4})
    snapshot.nominations.put("other#0.0", node="a", shape=shape(4000))
    rows = staking(snapshot).choose([shape(4000)], seed=1)
    assert [snapshot.name[row] for row in rows] == ["b"]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(1, 40), st.sets(st.integers(0, 63), max_size=40))
def test_own_partitions_first_places_as_many_pods_as_ties_do(seed: int, count: int, own: set[int]):
    rng = random.Random(seed)
    snapshot = worlds.cluster(rng, 24)
    kernel = Kernel(snapshot, Profiles.default(), own_partitions=frozenset(own))
    asked = worlds.shape(rng)
    placed: list[int] = []
    for own_first in (False, True):
        rows = kernel.place(asked, count, seed=seed, own_first=own_first).rows
        placed.append(len(rows))
        for row in rows:
            snapshot.remove_pod(asked, row)
    assert placed[0] == placed[1]


@pytest.mark.parametrize("seed", range(5))
def test_own_partitions_are_full_before_others_are_taken(seed: int):
    snapshot = world({f"n{n}": n % 3 for n in range(60)})
    own = frozenset(range(32))
    kernel = Kernel(snapshot, Profiles.default(("stretto",)), own_partitions=own)
    rows = kernel.place(shape(1000), 400, seed=seed, own_first=True).rows
    mine = [int(snapshot.partition[row]) in own for row in rows]
    assert mine == sorted(mine, reverse=True)
    assert 0 < sum(mine) < len(mine) == 60 * 4 - sum(n % 3 for n in range(60))


def test_a_stake_is_lifted_for_its_own_unit_only():
    snapshot = world({"a": 0})
    kernel = Kernel(snapshot, Profiles.default(("stretto",)))
    key = "group/default/g"
    from stretto.snapshot.stakes import STAKE, Seat, StakeRow, encode_stake

    big = shape(4000)
    payload = encode_stake(StakeRow("u", "", 0, (Seat("a", 2),)))
    objects = [ObjectRow(STAKE, key, 2, payload)]
    snapshot.apply(Delta(epoch=1, sequence=2, shapes=[(2, big)], objects=objects))
    assert not kernel.filter(shape(1000)).any()
    with snapshot.stakes.lifted(key):
        assert kernel.filter(shape(1000)).any()
    with snapshot.stakes.lifted("somebody"):
        assert not kernel.filter(shape(1000)).any()
    assert kernel.filter(msgspec.structs.replace(shape(1000), priority=1)).any()
    gone = ObjectRow(STAKE, key, 3, b"", removed=True)
    snapshot.apply(Delta(epoch=1, sequence=3, objects=[gone]))
    assert kernel.filter(shape(1000)).any()
    assert not snapshot.nominations
