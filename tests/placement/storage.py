"""Storage objects for tests, put into snapshots as the Binder's log would."""

from __future__ import annotations

from stretto.model.shape import Claim, NodeTerm, Requirement, Shape
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import Delta, NodeChange, NodeRow, ObjectRow
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
    VolumeRow,
    encode_storage,
)

GIB = 1 << 30
HOST = "kubernetes.io/hostname"
DRIVER = "csi.example.com"


def hosts(*names):
    return (NodeTerm((Requirement(HOST, "In", names),)),)


def zone(*names):
    return (NodeTerm((Requirement("zone", "In", names),)),)


def volume(name, size=1, *, cls="local", terms=None, claim="", phase="Available", **more):
    ref = None
    if claim:
        ref = ClaimOfVolume("default", claim, f"uid-{claim}")
    return VolumeRow(
        name, f"uid-{name}", storage_class=cls, capacity=size * GIB,
        access_modes=("ReadWriteOnce",), phase="Bound" if claim else phase, terms=terms,
        claim=ref, **more,
    )  # fmt: skip


def claim(name, size=1, *, cls="local", volume="", modes=("ReadWriteOnce",), **more):
    return ClaimRow(
        "default", name, f"uid-{name}", storage_class=cls, size=size * GIB, access_modes=modes,
        volume_name=volume, completed=bool(volume), **more,
    )  # fmt: skip


def key_of(row) -> tuple[str, str]:
    kinds = {
        VolumeRow: (VOLUME, "name"),
        ClaimRow: (CLAIM, "key"),
        ClassRow: (CLASS, "name"),
        CsiNodeRow: (CSI_NODE, "node"),
        CsiDriverRow: (CSI_DRIVER, "name"),
    }
    if isinstance(row, CapacityRow):
        return CAPACITY, f"kube-system/{hash(row)}"
    kind, field = kinds[type(row)]
    return kind, getattr(row, field)


def put(snapshot: Snapshot, *rows, removed=()):
    version = snapshot.version
    objects = [ObjectRow(*key_of(row), 1, encode_storage(row)) for row in rows]
    objects += [ObjectRow(*key_of(row), 1, removed=True) for row in removed]
    epoch = version.epoch or 1
    snapshot.apply(Delta(epoch=epoch, sequence=version.sequence + 1, objects=objects))


LOCAL = ClassRow("local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer")
FAST = ClassRow("fast", DRIVER, "WaitForFirstConsumer")


def cluster(count=4, *, zones=2, first=0):
    """Nodes n0 … with a hostname label and a zone, and the classes local and fast."""
    snapshot = Snapshot()
    rows = [
        NodeRow(
            f"n{i}", f"uid-n{i}", labels=((HOST, f"n{i}"), ("zone", f"z{i % zones}")),
            allocatable=(("cpu", 64_000), ("memory", 64 * GIB), ("pods", 110)),
        )
        for i in range(count)
    ]  # fmt: skip
    nodes = [NodeChange(first + i + 1, row) for i, row in enumerate(rows)]
    snapshot.apply(Delta(epoch=1, sequence=1, nodes=nodes))
    put(snapshot, LOCAL, FAST)
    return snapshot


def pod(*claims, **more):
    return Shape("stretto", "default", claims=tuple(Claim(name) for name in claims), **more)
