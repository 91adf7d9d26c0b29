"""A step of the log that commits tentative pods: as if they had been taken off before it."""

from __future__ import annotations

import random
import uuid

import msgspec
import pytest

from stretto.snapshot.columns import Snapshot, SnapshotError
from stretto.snapshot.delta import Delta
from stretto.snapshot.pod_records import uid_key, uuid_keys
from tests.placement import worlds
from tests.snapshot.test_deltas import history, picture


def same_twice(seed: int) -> tuple[Snapshot, Snapshot]:
    """The same state in two snapshots."""
    snapshot, deltas = history(random.Random(seed), 15)
    other = Snapshot()
    for delta in deltas:
        other.apply(delta)
    return snapshot, other


def kins(snapshot: Snapshot) -> dict[object, dict[int, int]]:
    return {kin.identity: dict(kin.rows) for kin in snapshot.kins.enrolled(None) if kin.rows}


def proposed(rng: random.Random, snapshot: Snapshot, step: Delta) -> dict[str, tuple]:
    """Tentative pods, and a step that commits some of them: where they are counted, elsewhere, or
    as another shape; and others beside them."""
    rows = [row for row in range(snapshot.rows) if snapshot.live[row]]
    tentative = {}
    for number in range(30):
        shape, row, uid = (
            worlds.shape(rng),
            rng.choice(rows),
            str(uuid.UUID(int=rng.getrandbits(128))),
        )
        tentative[uid] = (shape, row)
        kind = rng.choice(["there", "there", "elsewhere", "other", "gone again", "not"])
        if kind == "not":
            continue
        stored = worlds.shape(rng) if kind == "other" else shape
        at = rng.choice(rows) if kind == "elsewhere" else row
        stored = msgspec.structs.replace(stored, label_keys=())
        step.shapes.append((10_000 + number, stored))
        node_id = int(snapshot.node_id[at])
        step.add_pod(shape_id=10_000 + number, node_id=node_id, uid=uid)
        if kind == "gone again":
            step.add_pod(shape_id=10_000 + number, node_id=node_id, uid=uid, sign=-1)
    return tentative


@pytest.mark.parametrize("seed", range(20))
def test_pods_that_are_handed_over_are_counted_as_if_they_had_been_taken_off_first(seed):
    together, apart = same_twice(seed)
    rng = random.Random(seed)
    step = Delta(epoch=1, sequence=together.version.sequence + 1)
    tentative = proposed(rng, together, step)
    stays = worlds.shape(rng), min(row for row in range(together.rows) if together.live[row])
    for snapshot in (together, apart):
        for shape, row in (*tentative.values(), stays):
            snapshot.add_pod(shape, row)

    stamp = together.stamp
    settling = dict(tentative)
    together.apply(step, settling)
    for shape, row in tentative.values():
        apart.remove_pod(shape, row)
    apart.apply(step)

    assert not settling
    together.validate()
    assert picture(together) == picture(apart)
    assert kins(together) == kins(apart)
    assert together.tentative == apart.tentative == 1
    committed = {together.row_of(node_id) for node_id in step.pod_node}
    assert committed <= set(together.changes.since(stamp)), "a row has other records and no mark"
    together.remove_pod(*stays)
    together.validate()


def test_a_pod_that_is_committed_where_it_is_counted_is_not_moved(monkeypatch):
    snapshot, _ = same_twice(1)
    rng = random.Random(1)
    shape, row = worlds.shape(rng), snapshot.row_of_name(snapshot.name[0])
    snapshot.add_pod(shape, row)
    step = Delta(epoch=1, sequence=snapshot.version.sequence + 1, shapes=[(10_000, shape)])
    step.add_pod(shape_id=10_000, node_id=int(snapshot.node_id[row]), uid="a")
    moved = []
    monkeypatch.setattr(snapshot, "_shift", lambda *args: moved.append(args))
    snapshot.apply(step, {"a": (shape, row)})
    assert not moved
    monkeypatch.undo()
    snapshot.validate()
    assert snapshot.tentative == 0


@pytest.mark.parametrize("wrong", ["sequence", "node", "shape"])
def test_a_step_that_does_not_fit_leaves_nothing_counted(wrong):
    snapshot, _ = same_twice(2)
    shape, row = worlds.shape(random.Random(2)), snapshot.row_of_name(snapshot.name[0])
    snapshot.add_pod(shape, row)
    sequence = 0 if wrong == "sequence" else snapshot.version.sequence + 1
    step = Delta(epoch=1, sequence=sequence)
    if wrong != "shape":
        step.shapes = [(10_000, shape)]
    node_id = 999 if wrong == "node" else int(snapshot.node_id[row])
    step.add_pod(shape_id=10_000, node_id=node_id, uid="a")
    settling = {"a": (shape, row)}
    with pytest.raises(SnapshotError):
        snapshot.apply(step, settling)
    assert not settling
    assert snapshot.tentative == 0


UID = "0f8fad5b-d9cb-469f-a165-70867728950e"


def test_keys_of_many_uids_are_those_of_each():
    uids = [UID, *(str(uuid.UUID(int=random.Random(n).getrandbits(128))) for n in range(50))]
    assert uuid_keys(uids) == [uid_key(uid) for uid in uids]
    assert uuid_keys([]) == []


@pytest.mark.parametrize(
    "odd",
    [
        ["static-pod"], [""], [UID.upper()], [UID.replace("-", "")], [UID[:-1] + "g"],
        [UID[:-1] + " "], [UID.replace("-", "0")], ["0" + UID[:-1]],
        [UID[:35], UID[35:] + UID], [UID[:8] + UID[9] + "-" + UID[10:]],
    ],
)  # fmt: skip
def test_uids_that_are_no_uuids_are_told_apart(odd):
    assert uuid_keys([UID, *odd, UID]) is None
