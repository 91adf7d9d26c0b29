"""Columns of label keys: keys that no node carries, which any pod may name, cost nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stretto.snapshot.delta import NodeRow
from stretto.snapshot.labels import ABSENT, COLUMNS, LabelTable


class Rows(Sequence[NodeRow | None]):
    """Nodes that count how often all of them are looked through."""

    def __init__(self, *nodes: NodeRow) -> None:
        self.nodes = list(nodes)
        self.passes = 0

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self.nodes[index]

    def __iter__(self) -> Iterator[NodeRow | None]:
        self.passes += 1
        return iter(self.nodes)


def table_of(*labels: tuple[tuple[str, str], ...]) -> tuple[LabelTable, Rows]:
    rows = Rows(*(NodeRow(name=f"n{i}", uid=f"u{i}", labels=each) for i, each in enumerate(labels)))
    table = LabelTable(capacity=8)
    for row, each in enumerate(labels):
        table.set(row, each)
    return table, rows


def test_keys_that_no_node_carries_take_nobodys_place() -> None:
    """A pod may name a thousand of them, and does so again at each decision."""
    table, rows = table_of((("zone", "a"),), (("zone", "b"),))
    zone = table.column("zone", rows)
    assert rows.passes == 1
    for number in range(ABSENT + COLUMNS):
        assert not table.column(f"absent-{number}", rows).ids.any()
    assert table.column("zone", rows) is zone
    assert rows.passes == 1
    assert len(table._absent) <= ABSENT


def test_a_key_that_a_node_gets_later_has_a_column_of_its_own() -> None:
    table, rows = table_of((), ())
    absent = table.column("zone", rows)
    other = table.column("other", rows)
    rows.nodes[1] = NodeRow(name="n1", uid="u1", labels=(("zone", "b"),))
    table.set(1, (("zone", "b"),))
    zone = table.column("zone", rows)
    assert zone is not absent
    assert zone.ids.tolist()[:2] == [0, 1]
    assert not other.ids.any()
    table.grow(16)
    assert len(table.column("other", rows).ids) == 16
    assert len(table.column("zone", rows).ids) == 16
