"""Decisions for pods with claims to devices: each pod has a claim of its own from one template, so
that no two shapes are alike; what a node answers is kept per template and taken devices."""

from __future__ import annotations

import time

import msgspec

from bench.decide_world import GIB, cluster, kernel_on, shape
from stretto.model.devices import (
    CLAIM,
    CLASS,
    SLICE,
    CapacityRow,
    ClaimRow,
    ClassRow,
    DeviceObjectRow,
    DeviceRow,
    NodeChoice,
    Request,
    SliceRow,
    SubRequest,
    encode_row,
)
from stretto.model.shape import ClaimRef, Shape
from stretto.placement.devices.claimed import allocations_of, rows_of
from stretto.placement.devices.world import world_of
from stretto.placement.kernel import Kernel
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import Delta, ObjectRow

DRIVER = "gpu.example.com"
PER_NODE = 8
CLASS_SELECTOR = f'device.driver == "{DRIVER}"'
BIG = (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0',)
Objects = list[tuple[str, str, DeviceObjectRow]]


def put(snapshot: Snapshot, objects: Objects) -> None:
    """A step of the log with these objects."""
    rows = [ObjectRow(kind, key, payload=encode_row(row)) for kind, key, row in objects]
    sequence = snapshot.version.sequence + 1
    snapshot.apply(Delta(epoch=1, sequence=sequence, objects=rows))


def slices(nodes: int, *, unique: bool) -> Objects:
    """Eight devices a node; ``unique``: each with a serial number, so that none are alike."""
    found: Objects = [(CLASS, "gpu", ClassRow("gpu", (CLASS_SELECTOR,)))]
    for number in range(nodes):
        node = f"node-{number:05}"
        devices = tuple(
            DeviceRow(
                f"gpu-{i}",
                attributes=(
                    ("index", i),
                    ("model", "h100"),
                    *((("uuid", f"{number}-{i}"),) if unique else ()),
                ),
                capacity=(CapacityRow("memory", "80Gi"),),
            )
            for i in range(PER_NODE)
        )
        row = SliceRow(f"{node}-s", DRIVER, node, 1, 1, NodeChoice(node), devices=devices)
        found.append((SLICE, row.name, row))
    return found


def claims(pods: int, request: Request) -> Objects:
    """A claim a pod."""
    return [
        (
            CLAIM,
            f"default/c{i}",
            ClaimRow("default", f"c{i}", f"u{i}", (request,), owner_uid=f"p{i}"),
        )
        for i in range(pods)
    ]


def exact(count: int) -> Request:
    """So many devices of 40 GiB and more."""
    return Request("r", SubRequest("r", "gpu", count=count, selectors=BIG))


def listed() -> Request:
    """Four devices, or two, or one."""
    forms = tuple(SubRequest(f"s{n}", "gpu", count=n, selectors=BIG) for n in (4, 2, 1))
    return Request("r", alternatives=forms)


CASES: tuple[tuple[str, Request, bool], ...] = (
    ("DRA, 1 of 8 alike", exact(1), False),
    ("DRA, 2 of 8, all different", exact(2), True),
    ("DRA, firstAvailable 4, 2, 1", listed(), False),
)


def decisions(request: Request, *, unique: bool, nodes: int, pods: int) -> tuple[float, str]:
    """Decisions per second of CPU time, commits that allocate in between included."""
    snapshot = cluster(nodes)
    kernel = kernel_on(snapshot)
    put(snapshot, slices(nodes, unique=unique) + claims(pods, request))
    plain = shape(500, GIB)
    shapes = [
        msgspec.structs.replace(
            plain, device_claims=(ClaimRef(f"c{i}", owned=True),), owner=(f"p{i}", f"p{i}")
        )
        for i in range(pods)
    ]
    began = time.process_time()
    kernel.filter(shapes[0])
    first_s = time.process_time() - began
    began = time.process_time()
    for number, each in enumerate(shapes):
        _decide(kernel, snapshot, each, seed=number)
    rate = pods / (time.process_time() - began)
    return rate, f"CPU time; claims of their own; first look {first_s * 1e3:.0f} ms"


def _decide(kernel: Kernel, snapshot: Snapshot, each: Shape, *, seed: int) -> None:
    placed = kernel.place(each, 1, seed=seed).rows
    assert len(placed) == 1, "a pod found no node"
    snapshot.remove_pod(each, placed[0])
    world = world_of(snapshot)
    chosen = allocations_of(world, each, placed[0])
    put(snapshot, [(CLAIM, row.key, row) for row in rows_of(world, each, chosen, special="")])


def rows(*, nodes: int, pods: int) -> list[tuple[str, tuple[float, str], int]]:
    """Rows of the table."""
    return [
        (f"{nodes:,} nodes, {name}", decisions(request, unique=u, nodes=nodes, pods=pods), 0)
        for name, request, u in CASES
    ]
