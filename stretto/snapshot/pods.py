"""Pods on nodes as (shape, node) counts, and what a pod of a shape takes from a node.

Shapes are kept as their encoded bytes and what they use, not as objects: with 300,000 pods that all differ that
is the difference between a shard of 200 MB and one of half a gigabyte.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from stretto.model.shape import HostPort, Shape, decode_shape
from stretto.snapshot.resources import (
    NONZERO_CPU,
    NONZERO_MEMORY,
    PODS,
    ResourceColumn,
    ResourceTable,
)

DECODED = 1024
"""Decoded shapes kept at most."""


class Usage(NamedTuple):
    """What one pod takes: amounts per resource column, and host ports. Shared by all shapes that take the same."""

    lines: tuple[tuple[ResourceColumn, int], ...]
    ports: tuple[HostPort, ...]


class UsageTable:
    """Usages by content, and by shape for the shapes that are placed here."""

    def __init__(self, resources: ResourceTable) -> None:
        self._resources = resources
        self._by_content: dict[tuple[object, ...], Usage] = {}
        self._by_digest: dict[bytes, Usage] = {}

    def of(self, shape: Shape) -> Usage:
        """What a pod of the shape takes; remembered by digest, so the common case is one lookup."""
        found = self._by_digest.get(shape.digest)
        if found is None:
            if len(self._by_digest) >= DECODED * 8:
                self._by_digest.clear()
            found = self._by_digest[shape.digest] = self.interned(shape)
        return found

    def interned(self, shape: Shape) -> Usage:
        """The usage of a shape, one object for all shapes of equal content."""
        content = (
            shape.requests,
            shape.nonzero_cpu_milli,
            shape.nonzero_memory,
            shape.host_ports,
        )
        found = self._by_content.get(content)
        if found is None:
            column = self._resources.column
            lines = [(column(name), amount) for name, amount in shape.requests if amount]
            lines.append((column(PODS), 1))
            lines.append((column(NONZERO_CPU), shape.nonzero_cpu_milli))
            lines.append((column(NONZERO_MEMORY), shape.nonzero_memory))
            found = Usage(tuple(lines), shape.host_ports)
            self._by_content[content] = found
        return found


class ShapeTable:
    """Shape definitions of the Binder's epoch, by number."""

    def __init__(self, usages: UsageTable) -> None:
        self._usages = usages
        self._encoded: dict[int, bytes] = {}
        self._usage: dict[int, Usage] = {}
        self._decoded: dict[int, Shape] = {}

    def define(self, shape_id: int, shape: Shape) -> None:
        """Learn a number; a number means one shape for as long as the epoch lasts."""
        known = self._encoded.get(shape_id)
        if known is not None:
            assert known == shape.encoded, f"shape {shape_id} was defined twice, differently"
            return
        self._encoded[shape_id] = shape.encoded
        self._usage[shape_id] = self._usages.interned(shape)

    def ids(self) -> list[int]:
        """Every number that is defined."""
        return list(self._encoded)

    def shape(self, shape_id: int) -> Shape:
        """The definition.

        Raises:
            KeyError: the number is not defined.
        """
        found = self._decoded.get(shape_id)
        if found is None:
            if len(self._decoded) >= DECODED:
                self._decoded.clear()
            found = self._decoded[shape_id] = decode_shape(self._encoded[shape_id])
        return found

    def usage(self, shape_id: int) -> Usage | None:
        """What a pod of the shape takes; None when the number is not defined."""
        return self._usage.get(shape_id)


class PodTable:
    """Committed pods per row: shape number → count."""

    def __init__(self) -> None:
        self._rows: dict[int, dict[int, int]] = {}

    def shift(self, row: int, shape_id: int, by: int) -> bool:
        """Count ``by`` more (or fewer) pods; False if that would fall below zero (nothing is changed)."""
        counts = self._rows.setdefault(row, {})
        left = counts.get(shape_id, 0) + by
        if left < 0:
            return False
        if left:
            counts[shape_id] = left
        else:
            counts.pop(shape_id, None)
        return True

    def of(self, row: int) -> dict[int, int]:
        """Shape number → count on a row."""
        return self._rows.get(row, {})

    def clear(self, row: int) -> dict[int, int]:
        """Forget a row; returns what was on it."""
        return self._rows.pop(row, {})

    def items(self) -> Iterator[tuple[int, int, int]]:
        """(row, shape number, count) of everything."""
        for row, counts in self._rows.items():
            for shape_id, count in counts.items():
                yield row, shape_id, count
