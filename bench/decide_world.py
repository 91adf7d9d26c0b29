"""The cluster and the pods that decisions are measured on."""

from __future__ import annotations

from stretto.model.shape import Shape, Toleration
from stretto.placement.kernel import Kernel
from stretto.placement.profiles import Profiles
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import Delta, ImageRow, NodeChange, NodeRow, Taint

GIB = 1 << 30
_TOLERATIONS = tuple(
    Toleration(f"node.kubernetes.io/{what}", "Exists", "", "NoExecute")
    for what in ("not-ready", "unreachable")
)


def node_row(number: int) -> NodeRow:
    """A 32-core node of one of three zones; some tainted, all with labels, images and a gpu here
    and there."""
    name = f"node-{number:05}"
    labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": f"m{number % 4}",
        "topology.kubernetes.io/region": "region-1",
        "topology.kubernetes.io/zone": f"zone-{number % 3}",
    }
    allocatable = {"cpu": 31_850, "memory": 125 * GIB, "pods": 110, "ephemeral-storage": 400 * GIB}
    if number % 10 == 0:
        allocatable["nvidia.com/gpu"] = 8
    images = tuple(ImageRow((f"registry.local/app-{i}:v1",), 200_000_000 + i) for i in range(20))
    taints = (Taint("dedicated", "batch", "NoSchedule"),) if number % 50 == 0 else ()
    return NodeRow(
        name=name,
        uid=f"00000000-0000-4000-8000-{number:012}",
        labels=tuple(sorted(labels.items())),
        taints=taints,
        allocatable=tuple(sorted(allocatable.items())),
        images=images[: 5 + number % 16],
    )


def cluster(nodes: int) -> Snapshot:
    """A snapshot of empty nodes."""
    snapshot = Snapshot()
    for start in range(0, nodes, 500):
        delta = Delta(epoch=1, sequence=1)
        numbers = range(start, min(start + 500, nodes))
        delta.nodes = [NodeChange(n + 1, node_row(n)) for n in numbers]
        snapshot.apply(delta)
    return snapshot


def shape(cpu_milli: int, memory: int, *, image: str = "registry.local/web:v1") -> Shape:
    """An ordinary pod: cpu and memory, the default tolerations, one image."""
    return Shape(
        profile="stretto",
        namespace="default",
        requests=(("cpu", cpu_milli), ("memory", memory)),
        nonzero_cpu_milli=cpu_milli,
        nonzero_memory=memory,
        score_requests=(cpu_milli, memory),
        tolerations=_TOLERATIONS,
        images=(image,),
        image_containers=1,
    )


def kernel_on(snapshot: Snapshot) -> Kernel:
    """A kernel with the default profile and a quarter of the partitions."""
    own = frozenset(range(0, 64, 4))
    return Kernel(snapshot, Profiles.default(), own_partitions=own)
