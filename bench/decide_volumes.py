"""Decisions for pods with claims: each pod names a claim of its own, so that no two shapes are
alike and nothing is reused from pod to pod but what is known of classes, volumes and nodes."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from bench.decide_world import GIB, cluster, kernel_on, shape
from stretto.model.shape import Claim, NodeTerm, Requirement
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import Delta, ObjectRow
from stretto.snapshot.volume_rows import (
    CAPACITY,
    CLAIM,
    CLASS,
    CSI_DRIVER,
    CSI_NODE,
    VOLUME,
    CapacityRow,
    ClaimOfVolume,
    ClaimRow,
    ClassRow,
    CsiDriverRow,
    CsiNodeRow,
    StorageRow,
    VolumeRow,
    encode_storage,
)

DRIVER = "csi.example.com"
HOST = "kubernetes.io/hostname"
MODES = ("ReadWriteOnce",)
LIMIT = 64
Objects = list[tuple[str, str, StorageRow]]


def _put(snapshot: Snapshot, objects: Objects) -> None:
    sequence = snapshot.version.sequence
    rows = [ObjectRow(kind, key, 1, encode_storage(row)) for kind, key, row in objects]
    snapshot.apply(Delta(epoch=1, sequence=sequence + 1, objects=rows))


def _claims(pods: int, *, storage_class: str, bound: bool = False) -> Objects:
    return [
        (
            CLAIM,
            f"default/c{i}",
            ClaimRow(
                "default", f"c{i}", f"u{i}", storage_class=storage_class, size=GIB,
                access_modes=MODES, volume_name=f"v{i}" if bound else "", completed=bound,
            ),
        )
        for i in range(pods)
    ]  # fmt: skip


def _drivers(snapshot: Snapshot) -> Objects:
    """A limit of attachments on every node, as CSI drivers set one."""
    names = snapshot.name[: snapshot.rows]
    return [(CSI_NODE, name, CsiNodeRow(name, ((DRIVER, LIMIT),))) for name in names]


def _host(name: str) -> tuple[NodeTerm, ...]:
    return (NodeTerm((Requirement(HOST, "In", (name,)),)),)


def provisioned(snapshot: Snapshot, pods: int) -> Objects:
    """WaitForFirstConsumer; the driver makes a volume wherever the pod goes."""
    fast = ClassRow("fast", DRIVER, "WaitForFirstConsumer")
    return [(CLASS, "fast", fast), *_drivers(snapshot), *_claims(pods, storage_class="fast")]


def measured(snapshot: Snapshot, pods: int) -> Objects:
    """The same with free storage published per node (CSIStorageCapacity), and scored by it."""
    names = snapshot.name[: snapshot.rows]
    free: Objects = [
        (
            CAPACITY,
            f"kube-system/{name}",
            CapacityRow("fast", (50 + i % 50) * GIB, topology=(Requirement(HOST, "In", (name,)),)),
        )
        for i, name in enumerate(names)
    ]
    driver = CsiDriverRow(DRIVER, storage_capacity=True)
    return [(CSI_DRIVER, DRIVER, driver), *free, *provisioned(snapshot, pods)]


def local(snapshot: Snapshot, pods: int) -> Objects:
    """WaitForFirstConsumer with one free local volume a node."""
    names = snapshot.name[: snapshot.rows]
    volumes: Objects = [
        (
            VOLUME,
            f"v{i}",
            VolumeRow(
                f"v{i}", f"uid-{i}", storage_class="local", capacity=GIB + i,
                access_modes=MODES, phase="Available", terms=_host(name),
            ),
        )
        for i, name in enumerate(names)
    ]  # fmt: skip
    kind = ClassRow("local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer")
    return [(CLASS, "local", kind), *volumes, *_claims(pods, storage_class="local")]


def bound(snapshot: Snapshot, pods: int) -> Objects:
    """Claims that have their CSI volumes, each tied to a zone."""
    zones = [
        (NodeTerm((Requirement("topology.kubernetes.io/zone", "In", (f"zone-{z}",)),)),)
        for z in range(3)
    ]
    volumes: Objects = [
        (
            VOLUME,
            f"v{i}",
            VolumeRow(
                f"v{i}", f"uid-{i}", storage_class="fast", capacity=GIB, access_modes=MODES,
                phase="Bound", terms=zones[i % 3], claim=ClaimOfVolume("default", f"c{i}", f"u{i}"),
                driver=DRIVER, handle=f"h{i}",
            ),
        )
        for i in range(pods)
    ]  # fmt: skip
    fast = ClassRow("fast", DRIVER, "WaitForFirstConsumer")
    claims = _claims(pods, storage_class="fast", bound=True)
    return [(CLASS, "fast", fast), *_drivers(snapshot), *volumes, *claims]


CASES: tuple[tuple[str, Callable[[Snapshot, int], Objects]], ...] = (
    ("WaitForFirstConsumer, provisioned", provisioned),
    ("WaitForFirstConsumer, storage capacity", measured),
    ("WaitForFirstConsumer, local volumes", local),
    ("bound CSI volumes of a zone", bound),
)


def decisions(
    make: Callable[[Snapshot, int], Objects], *, nodes: int, pods: int
) -> tuple[float, str]:
    """Decisions per second of CPU time, and how many pods found a node."""
    snapshot = cluster(nodes)
    kernel = kernel_on(snapshot)
    _put(snapshot, make(snapshot, pods))
    plain = shape(500, GIB)
    shapes = [msgspec.structs.replace(plain, claims=(Claim(f"c{i}"),)) for i in range(pods)]
    kernel.place(shapes[0], 1, seed=0)
    snapshot.remove_pod(shapes[0], _row_of(snapshot, "default/c0"))
    began = time.process_time()
    placed = sum(len(kernel.place(each, 1, seed=i).rows) for i, each in enumerate(shapes))
    rate = pods / (time.process_time() - began)
    assert placed == pods, f"{placed} of {pods} pods found a node"
    return rate, "CPU time; claims of their own"


def _row_of(snapshot: Snapshot, claim: str) -> int:
    """Where the only pod of a claim is counted."""
    namespace, _, name = claim.partition("/")
    return next(
        row
        for row in range(snapshot.rows)
        if (namespace, Claim(name)) in snapshot.volumes.claims_on(row)
    )


def rows(*, nodes: int, pods: int) -> list[tuple[str, tuple[float, str], int]]:
    """Rows of the table."""
    return [
        (f"{nodes:,} nodes, {name}", decisions(make, nodes=nodes, pods=pods), 0)
        for name, make in CASES
    ]
