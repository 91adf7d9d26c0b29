"""A full state in chunks: what a new follower applies to an empty snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from stretto.snapshot.delta import Delta, NodeChange, ObjectRow
from stretto.snapshot.pod_records import PodRecords
from stretto.snapshot.pods import PodTable, ShapeTable

if TYPE_CHECKING:
    from stretto.snapshot.columns import Snapshot

_OBJECTS_PER_CHUNK = 5_000
_SHAPES_PER_CHUNK = 2_000


def chunks(
    snapshot: Snapshot,
    shapes: ShapeTable,
    pods: PodTable,
    records: PodRecords,
    objects: Mapping[str, Mapping[str, ObjectRow]],
    *,
    nodes_per_chunk: int,
) -> Iterator[Delta]:
    """Yield chunks of the committed state, all at the snapshot's version; at least one.

    Every shape that was not dropped is defined, also one that no pod has now: a later delta may
    name it.
    """
    rows = [row for row in range(snapshot.rows) if snapshot.live[row]]
    ids = shapes.ids()
    for start in range(0, len(ids), _SHAPES_PER_CHUNK):
        delta = _empty(snapshot)
        delta.shapes = [(n, shapes.shape(n)) for n in ids[start : start + _SHAPES_PER_CHUNK]]
        yield delta
    for start in range(0, len(rows), nodes_per_chunk):
        delta = _empty(snapshot)
        for row in rows[start : start + nodes_per_chunk]:
            _append_row(delta, snapshot, pods, records, row=row)
        yield delta
    delta = _empty(snapshot)
    for kind in sorted(objects):
        for item in objects[kind].values():
            delta.objects.append(item)
            if len(delta.objects) >= _OBJECTS_PER_CHUNK:
                yield delta
                delta = _empty(snapshot)
    if delta.objects or not (rows or ids):
        yield delta


def _empty(snapshot: Snapshot) -> Delta:
    return Delta(epoch=snapshot.version.epoch, sequence=snapshot.version.sequence)


def _append_row(
    delta: Delta, snapshot: Snapshot, pods: PodTable, records: PodRecords, *, row: int
) -> None:
    """The node, its pods by uid, and those that are only known in numbers."""
    node_id = int(snapshot.node_id[row])
    delta.nodes.append(
        NodeChange(node_id=node_id, row=snapshot.node(row), frozen=bool(snapshot.frozen[row]))
    )
    left = dict(pods.of(row))
    for record in records.of(row):
        left[record.shape_id] -= 1
        _append_pod(delta, node_id, record.shape_id, uid=record.uid)
        delta.pod_start[-1], delta.pod_flags[-1] = record.start_s, record.flags
    for shape_id, count in left.items():
        if count:
            _append_pod(delta, node_id, shape_id, count=count)


def _append_pod(
    delta: Delta, node_id: int, shape_id: int, *, uid: str = "", count: int = 1
) -> None:
    delta.pod_sign.append(1)
    delta.pod_shape.append(shape_id)
    delta.pod_node.append(node_id)
    delta.pod_uid.append(uid)
    delta.pod_count.append(count)
    delta.pod_start.append(0)
    delta.pod_flags.append(0)
