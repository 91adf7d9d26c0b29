"""Whether a snapshot's columns, indexes and counts agree; for tests and audits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from stretto.snapshot.pods import PodTable, ShapeTable

if TYPE_CHECKING:
    from stretto.snapshot.columns import Snapshot


def check(
    snapshot: Snapshot,
    *,
    shapes: ShapeTable,
    pods: PodTable,
    row_of_id: Mapping[int, int],
    tentative_on: Mapping[int, int],
) -> None:
    """Assert it; O(everything)."""
    rows = snapshot.rows
    assert snapshot.node_count == int(snapshot.live[:rows].sum()) == len(row_of_id)
    for node_id, row in row_of_id.items():
        assert snapshot.live[row], f"node {node_id} maps to the dead row {row}"
        assert snapshot.node_id[row] == node_id
        assert snapshot.node_uid[row] == snapshot.node(row).uid
    assert snapshot.tentative == sum(tentative_on.values())
    snapshot.kins.validate()
    snapshot.volumes.validate()
    shapes.validate()
    expected = _committed(snapshot, shapes, pods)
    recorded: dict[tuple[int, int], int] = {}
    for row, record in snapshot.records.items():
        key = row, record.shape_id
        recorded[key] = recorded.get(key, 0) + 1
    for (row, shape_id), count in recorded.items():
        assert count <= pods.of(row).get(shape_id, 0), f"row {row} records too many pods"
    for name, column in snapshot.resources.columns.items():
        if column.dense:
            assert (column.used_float == column.used).all()
        for row in range(rows):
            used, committed = column.used_cells[row], expected.get((name, row), 0)
            held = tentative_on.get(row, 0) > 0
            assert used >= committed, f"{name} of row {row} fell short"
            assert held or used == committed, f"{name} of row {row} drifted"


def _committed(
    snapshot: Snapshot, shapes: ShapeTable, pods: PodTable
) -> dict[tuple[str, int], int]:
    """(column, row) → what committed pods take."""
    expected: dict[tuple[str, int], int] = {}
    for row, shape_id, count in pods.items():
        assert snapshot.live[row]
        assert count > 0
        usage = shapes.usage(shape_id)
        assert usage is not None, f"shape {shape_id} was dropped while a pod had it"
        for column, amount in usage.lines:
            cell = column.name, row
            expected[cell] = expected.get(cell, 0) + amount * count
    return expected
