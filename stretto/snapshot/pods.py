"""Pods on nodes as (shape, node) counts, and what a pod of a shape takes from a node.

A shape is kept as a template (everything but its amounts, shared by all shapes that differ in
amounts only) and the amounts packed into bytes: 90 bytes instead of two kilobytes of objects. With
300,000 pods that all differ that is the difference between a shard of 200 MB and one of half a
gigabyte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from stretto.model.shape import Claim, Disk, HostPort, Shape, decode_shape
from stretto.snapshot.kins import Kin, KinTable
from stretto.snapshot.resources import (
    NONZERO_CPU,
    NONZERO_MEMORY,
    PODS,
    ResourceColumn,
    ResourceTable,
)

REMEMBERED = 1024
"""Decoded shapes kept at most."""
_USAGES = 8192


class PodVolumes(NamedTuple):
    """Claims and inline disks of a pod."""

    namespace: str
    claims: tuple[Claim, ...]
    disks: tuple[Disk, ...]


def pod_volumes(shape: Shape) -> PodVolumes | None:
    """The volumes of a shape that the snapshot counts; None: none."""
    if not shape.claims and not shape.disks:
        return None
    return PodVolumes(shape.namespace, shape.claims, shape.disks)


class Usage(NamedTuple):
    """What one pod takes: amounts per resource column, and host ports; whom it is like, and its pod
    group. Two that are equal move the columns alike."""

    lines: tuple[tuple[ResourceColumn, int], ...]
    """No zeros; requests by name first, then the nonzero sums and the pod itself."""
    ports: tuple[HostPort, ...]
    kin: Kin
    group: str
    volumes: PodVolumes | None = None
    """Claims and disks; None: the pod has none."""
    assumes: bool = False
    """Counting a tentative pod involves the snapshot's :class:`Assumer`."""


def usage_of(shape: Shape, resources: ResourceTable, kins: KinTable) -> Usage:
    """What a pod of the shape takes, columns made if need be."""
    nonzero = (NONZERO_CPU, shape.nonzero_cpu_milli), (NONZERO_MEMORY, shape.nonzero_memory)
    amounts = (*shape.requests, *nonzero, (PODS, 1))
    return Usage(
        tuple((resources.column(name), amount) for name, amount in amounts if amount),
        shape.host_ports,
        kins.of(shape),
        shape.group,
        pod_volumes(shape),
        bool(shape.claims or shape.device_claims or shape.device_containers),
    )


class UsageTable:
    """Usages by shape for the shapes that are placed here; bounded."""

    def __init__(self, resources: ResourceTable, kins: KinTable) -> None:
        self._resources = resources
        self._kins = kins
        self._by_digest: dict[bytes, Usage] = {}

    def of(self, shape: Shape) -> Usage:
        """What a pod of the shape takes; remembered by digest, so the common case is one lookup."""
        shape = shape.anywhere
        found = self._by_digest.get(shape.digest)
        if found is None:
            if len(self._by_digest) >= _USAGES:
                self._by_digest.clear()
            found = self._by_digest[shape.digest] = usage_of(shape, self._resources, self._kins)
        return found


class _Template:
    """A shape without its amounts and its claims, which often have the pod's own name in theirs."""

    __slots__ = (
        "columns", "disks", "encoded", "group", "kin", "namespace", "packing", "ports", "priority",
        "resources",
    )  # fmt: skip

    def __init__(
        self, shape: Shape, *, encoded: bytes, resources: ResourceTable, kins: KinTable
    ) -> None:
        self.kin = kins.of(shape)
        self.encoded = encoded
        self.priority = shape.priority
        self.ports = shape.host_ports
        self.group = shape.group
        self.namespace = shape.namespace
        self.disks = shape.disks
        self.resources = tuple(name for name, _ in shape.requests)
        names = (*self.resources, NONZERO_CPU, NONZERO_MEMORY)
        self.columns = tuple(resources.column(name) for name in names)
        self.packing = struct.Struct(f"<I{len(self.columns) + 2}q")


_claims_encoder = msgspec.msgpack.Encoder()
_claims_decoder = msgspec.msgpack.Decoder(tuple[Claim, ...])


class ShapeTable:
    """Shape definitions of the Binder's epoch, by number, until they are dropped."""

    def __init__(self, resources: ResourceTable, kins: KinTable) -> None:
        self._resources = resources
        self._kins = kins
        self._pods = resources.column(PODS)
        self.lowest_priority = 1 << 31
        """Of all shapes of the epoch: no pod on a node has less."""
        self._packed: dict[int, bytes] = {}
        self._templates: dict[int, _Template] = {}
        self._by_content: dict[bytes, int] = {}
        self._template_users: dict[int, int] = {}
        self._last_template = -1
        self._decoded: dict[int, Shape] = {}
        self._recent: dict[int, Usage] = {}

    def define(self, shape_id: int, shape: Shape) -> None:
        """Learn a number; a number means one shape for as long as the epoch lasts."""
        packed = self._pack(shape)
        self.lowest_priority = min(self.lowest_priority, shape.priority)
        known = self._packed.get(shape_id)
        if known is None:
            self._packed[shape_id] = packed
            number = _template_of(packed)
            self._template_users[number] = self._template_users.get(number, 0) + 1
        else:
            assert known == packed, f"shape {shape_id} was defined twice, differently"

    def drop(self, shape_id: int) -> None:
        """Forget a number; nothing happens if it is not defined."""
        packed = self._packed.pop(shape_id, None)
        if packed is None:
            return
        self._decoded.pop(shape_id, None)
        self._recent.pop(shape_id, None)
        number = _template_of(packed)
        left = self._template_users.pop(number) - 1
        if left:
            self._template_users[number] = left
        else:
            del self._by_content[self._templates.pop(number).encoded]

    def _pack(self, shape: Shape) -> bytes:
        bare = msgspec.structs.replace(
            shape,
            requests=tuple((name, 0) for name, _ in shape.requests),
            nonzero_cpu_milli=0,
            nonzero_memory=0,
            score_requests=(0, 0),
            claims=(),
        )
        encoded = bare.encoded
        number = self._by_content.get(encoded)
        if number is None:
            self._last_template += 1
            number = self._by_content[encoded] = self._last_template
            self._templates[number] = _Template(
                shape, encoded=encoded, resources=self._resources, kins=self._kins
            )
        packed = self._templates[number].packing.pack(
            number,
            *(amount for _, amount in shape.requests),
            shape.nonzero_cpu_milli,
            shape.nonzero_memory,
            *shape.score_requests,
        )
        return packed + _claims_encoder.encode(shape.claims) if shape.claims else packed

    def _unpacked(self, shape_id: int) -> tuple[_Template, tuple[int, ...], tuple[Claim, ...]]:
        packed = self._packed[shape_id]
        template = self._templates[_template_of(packed)]
        tail = packed[template.packing.size :]
        claims = _claims_decoder.decode(tail) if tail else ()
        return template, template.packing.unpack_from(packed), claims

    def priority(self, shape_id: int) -> int:
        """The priority of a shape."""
        return self._templates[_template_of(self._packed[shape_id])].priority

    def group(self, shape_id: int) -> str:
        """The pod group of a shape, '' if none."""
        return self._templates[_template_of(self._packed[shape_id])].group

    def ids(self) -> list[int]:
        """Every number that is defined."""
        return list(self._packed)

    def shape(self, shape_id: int) -> Shape:
        """The definition.

        Raises:
            KeyError: the number is not defined.
        """
        found = self._decoded.get(shape_id)
        if found is None:
            if len(self._decoded) >= REMEMBERED:
                self._decoded.clear()
            template, numbers, claims = self._unpacked(shape_id)
            _, *amounts, nonzero_cpu, nonzero_memory, cpu, memory = numbers
            found = msgspec.structs.replace(
                decode_shape(template.encoded),
                requests=tuple(zip(template.resources, amounts, strict=True)),
                nonzero_cpu_milli=nonzero_cpu,
                nonzero_memory=nonzero_memory,
                score_requests=(cpu, memory),
                claims=claims,
            )
            self._decoded[shape_id] = found
        return found

    def usage(self, shape_id: int) -> Usage | None:
        """What a pod of the shape takes; None when the number is not defined."""
        found = self._recent.get(shape_id)
        if found is not None or shape_id not in self._packed:
            return found
        if len(self._recent) >= REMEMBERED:
            self._recent.clear()
        template, (_, *amounts, _, _), claims = self._unpacked(shape_id)
        lines = [line for line in zip(template.columns, amounts, strict=True) if line[1]]
        volumes = PodVolumes(template.namespace, claims, template.disks)
        found = self._recent[shape_id] = Usage(
            (*lines, (self._pods, 1)),
            template.ports,
            template.kin,
            template.group,
            volumes if claims or template.disks else None,
        )
        return found

    def validate(self) -> None:
        """Assert that what is kept is what is defined."""
        users: dict[int, int] = {}
        for packed in self._packed.values():
            number = _template_of(packed)
            users[number] = users.get(number, 0) + 1
        assert users == self._template_users
        assert users.keys() == self._templates.keys()
        assert self._by_content == {t.encoded: n for n, t in self._templates.items()}
        assert self._decoded.keys() | self._recent.keys() <= self._packed.keys()


def _template_of(packed: bytes) -> int:
    """The number of a packed shape's template."""
    return int.from_bytes(packed[:4], "little")


class PodTable:
    """Committed pods per row: shape number → count."""

    def __init__(self) -> None:
        self._rows: dict[int, dict[int, int]] = {}

    def shift(self, row: int, shape_id: int, by: int) -> bool:
        """Count ``by`` more (or fewer) pods; False if that would fall below zero: nothing
        changes."""
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
