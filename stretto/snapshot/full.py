"""A full state in chunks: what a new follower applies to an empty snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from stretto.snapshot.delta import Delta, NodeChange, ObjectRow
from stretto.snapshot.pods import PodTable

if TYPE_CHECKING:
    from stretto.snapshot.columns import Snapshot

_OBJECTS_PER_CHUNK = 5_000


def chunks(
    snapshot: Snapshot,
    pods: PodTable,
    objects: Mapping[str, Mapping[str, ObjectRow]],
    *,
    nodes_per_chunk: int,
) -> Iterator[Delta]:
    """Yield chunks of the committed state, all at the snapshot's version; at least one, even if it is empty.

    Each chunk defines the shapes that it is the first to name.
    """
    rows = [row for row in range(snapshot.rows) if snapshot.live[row]]
    sent: set[int] = set()
    for start in range(0, len(rows), nodes_per_chunk):
        delta = _empty(snapshot)
        for row in rows[start : start + nodes_per_chunk]:
            _append_row(delta, snapshot, pods, row=row, sent=sent)
        yield delta
    delta = _empty(snapshot)
    for kind in sorted(objects):
        for row in objects[kind].values():
            delta.objects.append(row)
            if len(delta.objects) >= _OBJECTS_PER_CHUNK:
                yield delta
                delta = _empty(snapshot)
    if delta.objects or not rows:
        yield delta


def _empty(snapshot: Snapshot) -> Delta:
    return Delta(epoch=snapshot.version.epoch, sequence=snapshot.version.sequence)


def _append_row(
    delta: Delta, snapshot: Snapshot, pods: PodTable, *, row: int, sent: set[int]
) -> None:
    node_id = int(snapshot.node_id[row])
    delta.nodes.append(
        NodeChange(node_id=node_id, row=snapshot.node(row), frozen=bool(snapshot.frozen[row]))
    )
    for shape_id, count in pods.of(row).items():
        if shape_id not in sent:
            sent.add(shape_id)
            delta.shapes.append((shape_id, snapshot.shape(shape_id)))
        delta.pod_sign.append(1)
        delta.pod_shape.append(shape_id)
        delta.pod_node.append(node_id)
        delta.pod_uid.append("")
        delta.pod_count.append(count)
