"""Deltas: applied one by one, rebuilt from scratch and handed on as a full state give the same
snapshot."""

from __future__ import annotations

import random
import sys
import uuid

import msgspec
import numpy as np
import pytest

from stretto.snapshot.columns import Snapshot, SnapshotError
from stretto.snapshot.delta import Delta, NodeChange, ObjectRow, decode_node_row, encode_labels
from stretto.snapshot.pod_records import PodRecord, PodRecords
from tests.placement import worlds


def picture(snapshot: Snapshot) -> dict[str, object]:
    """Everything readers see, by node name instead of row."""
    found: dict[str, object] = {}
    for row in range(snapshot.rows):
        if not snapshot.live[row]:
            continue
        amounts = {
            name: (column.alloc_cells[row], column.used_cells[row])
            for name, column in snapshot.resources.columns.items()
            if column.alloc_cells[row] or column.used_cells[row]
        }
        ports = {
            key: dict(sorted(rows[row].items()))
            for key, rows in snapshot.ports.content().items()
            if row in rows
        }
        zone = snapshot.label_column("zone")
        found[snapshot.name[row]] = (
            int(snapshot.node_id[row]), snapshot.node(row), bool(snapshot.frozen[row]), amounts,
            dict(sorted(snapshot.pods_on(row).items())), sorted(snapshot.records.of(row)),
            dict(sorted(ports.items())),
            zone.values[zone.ids[row]], snapshot.taint_sets[snapshot.taint_set[row]],
            bool(snapshot.image_column("img-1:latest")[row]), int(snapshot.uid_hash[row]),
        )  # fmt: skip
    return found


def history(rng: random.Random, steps: int) -> tuple[Snapshot, list[Delta]]:
    snapshot = Snapshot()
    deltas = [Delta(epoch=1, sequence=1)]
    deltas[0].nodes = [NodeChange(n + 1, worlds.node_row(rng, n)) for n in range(10)]
    snapshot.apply(deltas[0])
    known: list[tuple[int, int, int]] = []
    for _ in range(steps):
        if rng.random() < 0.2:
            # Columns that exist early must follow every later change.
            snapshot.label_column("zone")
            snapshot.image_column("img-1:latest")
        delta = worlds.step(rng, snapshot, known)
        if rng.random() < 0.3:
            key, labels = str(rng.randint(0, 3)), encode_labels({})
            delta.objects.append(
                ObjectRow("Namespace", key, delta.sequence, labels, removed=rng.random() < 0.4)
            )
        deltas.append(delta)
        snapshot.apply(delta)
    return snapshot, deltas


@pytest.mark.parametrize("seed", range(25))
def test_deltas_one_by_one_equal_a_full_state(seed):
    rng = random.Random(seed)
    snapshot, deltas = history(rng, 60)
    snapshot.validate()

    replayed, follower = Snapshot(), Snapshot()
    for delta in deltas:
        replayed.apply(delta)
    for chunk in snapshot.full_state(nodes_per_chunk=4):
        follower.apply(chunk)
    for other in (replayed, follower):
        other.validate()
        assert picture(other) == picture(snapshot)
        assert other.version == snapshot.version
        assert other.node_count == snapshot.node_count
        assert other.objects("Namespace") == snapshot.objects("Namespace")


@pytest.mark.parametrize("seed", range(10))
def test_tentative_pods_leave_no_trace_and_are_not_handed_on(seed):
    rng = random.Random(seed)
    snapshot, _ = history(rng, 20)
    before = picture(snapshot)
    added = []
    for _ in range(15):
        shape = worlds.shape(rng)
        row = int(rng.choice(np.flatnonzero(snapshot.live)))
        snapshot.add_pod(shape, row, count=2)
        added.append((shape, row))
    snapshot.validate()
    follower = Snapshot()
    for chunk in snapshot.full_state():
        follower.apply(chunk)
    assert picture(follower) == before
    for shape, row in added:
        snapshot.remove_pod(shape, row, count=2)
    assert picture(snapshot) == before
    assert snapshot.tentative == 0


def test_rows_changed_since_a_stamp_are_just_those():
    rng = random.Random(3)
    snapshot = worlds.cluster(rng, 10)
    stamp = snapshot.stamp
    assert snapshot.rows_changed_since(stamp).tolist() == []
    shape = worlds.shape(rng)
    snapshot.add_pod(shape, 4)
    snapshot.remove_pod(shape, 4)
    snapshot.add_pod(shape, 7)
    assert sorted(snapshot.rows_changed_since(stamp).tolist()) == [4, 7]
    assert snapshot.rows_changed_since(-1) is None


def test_a_change_log_that_overflowed_says_all():
    rng = random.Random(3)
    snapshot = worlds.cluster(rng, 3)
    stamp = snapshot.stamp
    for _ in range(70_000):
        snapshot.changes.note(1)
    assert snapshot.rows_changed_since(stamp) is None
    assert snapshot.rows_changed_since(snapshot.stamp - 10).tolist() == [1]


def test_a_follower_grows_past_its_first_capacity_and_reuses_rows():
    rng = random.Random(5)
    snapshot = worlds.cluster(rng, 200)
    assert snapshot.node_count == 200
    snapshot.apply(Delta(epoch=1, sequence=2, removed_nodes=[1, 2]))
    again = [NodeChange(500, worlds.node_row(rng, 500)), NodeChange(501, worlds.node_row(rng, 501))]
    snapshot.apply(Delta(epoch=1, sequence=3, nodes=again))
    assert snapshot.rows == 200
    assert snapshot.row_of(1) is None
    assert snapshot.row_of_name("node-500") == snapshot.row_of(500)
    snapshot.validate()


def test_a_node_recreated_under_its_name_keeps_the_name_for_the_new_one():
    rng = random.Random(6)
    snapshot = worlds.cluster(rng, 3)
    new = NodeChange(9, worlds.node_row(rng, 1))
    snapshot.apply(Delta(epoch=1, sequence=2, nodes=[new], removed_nodes=[2]))
    assert snapshot.row_of_name("node-1") == snapshot.row_of(9)
    snapshot.validate()


@pytest.mark.parametrize(
    ("delta", "words"),
    [
        (Delta(epoch=2, sequence=9), "does not continue"),
        (Delta(epoch=1, sequence=0), "older than"),
        (Delta(epoch=1, sequence=2, pod_sign=[1], pod_shape=[1], pod_node=[77]), "is not there"),
        (Delta(epoch=1, sequence=2, pod_sign=[1], pod_shape=[5], pod_node=[1]), "not defined"),
    ],
)
def test_a_delta_that_does_not_continue_is_refused(delta, words):
    snapshot = worlds.cluster(random.Random(1), 2)
    with pytest.raises(SnapshotError, match=words):
        snapshot.apply(delta)


def test_a_pod_that_was_never_there_cannot_leave():
    rng = random.Random(1)
    snapshot = worlds.cluster(rng, 2)
    delta = Delta(epoch=1, sequence=2, shapes=[(1, worlds.shape(rng))])
    delta.add_pod(shape_id=1, node_id=1, uid="u", sign=-1)
    with pytest.raises(SnapshotError, match="has fewer"):
        snapshot.apply(delta)


def test_node_rows_travel_as_canonical_bytes():
    row = worlds.node_row(random.Random(9), 3)
    assert decode_node_row(row.encoded) == row
    assert decode_node_row(row.encoded).encoded == row.encoded


def test_resources_that_no_node_offers_cost_a_cell_each_and_count_once_one_does():
    rng = random.Random(2)
    snapshot = worlds.cluster(rng, 3)
    requests = tuple(sorted((f"example.com/r{n}", n + 1) for n in range(10_000)))
    hostile = msgspec.structs.replace(worlds.shape(rng), requests=requests)
    delta = Delta(epoch=1, sequence=2, shapes=[(1, hostile)])
    delta.add_pod(shape_id=1, node_id=1, uid="u")
    snapshot.apply(delta)
    snapshot.validate()
    assert sum(column.dense for column in snapshot.resources.columns.values()) < 12
    offered = (("example.com/r7", 20), ("pods", 10))
    node = msgspec.structs.replace(snapshot.node(0), allocatable=offered)
    snapshot.apply(Delta(epoch=1, sequence=3, nodes=[NodeChange(1, node)]))
    column = snapshot.resources.get("example.com/r7")
    assert (column.alloc.item(0), column.used.item(0)) == (20, 8)
    snapshot.validate()
    leave = Delta(epoch=1, sequence=4)
    leave.add_pod(shape_id=1, node_id=1, uid="u", sign=-1)
    snapshot.apply(leave)
    assert column.used.item(0) == 0
    snapshot.validate()


def test_tentative_pods_go_with_their_node():
    rng = random.Random(2)
    snapshot = worlds.cluster(rng, 3)
    snapshot.add_pod(worlds.shape(rng), snapshot.row_of(2), count=3)
    snapshot.apply(Delta(epoch=1, sequence=2, removed_nodes=[2]))
    assert snapshot.tentative == 0
    snapshot.validate()


UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"


@pytest.mark.parametrize("uid", [UUID, UUID.upper(), "static-pod", UUID.replace("-", "")])
def test_a_pod_has_a_record_of_its_uid_start_and_flags_while_it_is_on_its_node(uid):
    rng = random.Random(7)
    snapshot = worlds.cluster(rng, 2)
    shape = worlds.shape(rng)
    delta = Delta(epoch=1, sequence=2, shapes=[(1, shape)])
    delta.add_pod(shape_id=1, node_id=1, uid="another")
    delta.add_pod(shape_id=1, node_id=1, uid=uid)
    snapshot.apply(delta)
    stamp = snapshot.stamp
    change = Delta(epoch=1, sequence=3)
    change.add_pod(shape_id=1, node_id=1, uid=uid, sign=0, start_s=77, flags=3)
    snapshot.apply(change)
    row = snapshot.row_of(1)
    assert PodRecord(uid, 1, 77, 3) in snapshot.records.of(row)
    assert snapshot.pods_on(row) == {1: 2}
    assert snapshot.stamp == stamp, "scores do not depend on it"
    assert snapshot.record_changes.since(0) == [row]
    snapshot.validate()
    leave = Delta(epoch=1, sequence=4)
    leave.add_pod(shape_id=1, node_id=1, uid=uid, sign=-1)
    snapshot.apply(leave)
    assert [record.uid for record in snapshot.records.of(row)] == ["another"]
    assert snapshot.records._odd.keys() == {snapshot.records._key("another")}


def test_records_of_many_pods_stay_small():
    records = PodRecords()
    for n in range(30_000):
        records.put(n % 1_000, str(uuid.UUID(int=n)), shape_id=n, start_s=n, flags=0)
    used = sum(map(sys.getsizeof, records._rows.values()))
    assert used < 40 * 30_000
    rows, columns = records.columns([3, 999])
    assert rows.tolist() == [3] * 30 + [999] * 30
    assert columns["shape"].tolist() == [r.shape_id for row in (3, 999) for r in records.of(row)]
