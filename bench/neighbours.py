"""Decisions that look at other pods: spread and inter-pod affinity at 5,000 nodes.

The cases are those of kube-scheduler's own benchmark (test/integration/scheduler_perf, folders
affinity and topology_spreading): nodes of 4 CPUs in three zones, pods that are there before, pods
that are measured. Beside our CPU time a decision stands the throughput below which upstream's job
fails; that is of a whole kube-scheduler on upstream's machine, so it says where they stand, not
more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from stretto.model.shape import PodTerm, Requirement, Shape, SpreadConstraint, WeightedPodTerm
from stretto.placement.kernel import Kernel
from stretto.placement.profiles import Profiles
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import NAMESPACE, Delta, NodeChange, NodeRow, ObjectRow, encode_labels
from stretto.snapshot.workloads import SERVICE, encode_selector

MIB = 1 << 20
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
SPACES = 100
BLUE = (Requirement("color", "In", ("blue",)),)
TEAM = (Requirement("team", "In", ("devops",)),)
BATCH = 64
KEYS = ("color",)


@dataclass(frozen=True)
class Case:
    """One workload of scheduler_perf."""

    name: str
    floor: int
    """Pods per second below which upstream's job fails."""
    shape: Shape
    """Of the measured pods."""
    before: int
    """Pods that are there before."""
    alike: bool = True
    """Those are of the measured shape; otherwise plain."""
    spaces: int = 1
    """Namespaces that they are in."""
    nodes: int = 5_000
    zones: int = 3
    measured: int = 2_000


def plain(**fields: object) -> Shape:
    """A pod of scheduler_perf: 100m CPU and 500 MiB."""
    amounts = 100, 500 * MIB
    return Shape(
        profile="stretto",
        namespace="space-0",
        requests=(("cpu", amounts[0]), ("memory", amounts[1])),
        nonzero_cpu_milli=amounts[0],
        nonzero_memory=amounts[1],
        score_requests=amounts,
        labels=(("color", "blue"),),
        label_keys=KEYS,
        **fields,  # type: ignore[arg-type]
    )


def term(key: str, *, selected: bool = False) -> PodTerm:
    """About blue pods of two namespaces, or of those that a selector of namespaces finds."""
    if selected:
        return PodTerm(key, (), TEAM, BLUE)
    return PodTerm(key, ("space-0", "space-1"), None, BLUE)


def liked(key: str, *, selected: bool = False) -> tuple[WeightedPodTerm, ...]:
    """A preferred term."""
    return (WeightedPodTerm(1, term(key, selected=selected)),)


def spread(*, hard: bool) -> tuple[SpreadConstraint, ...]:
    """Over three zones, maxSkew 5 as upstream has it."""
    return (SpreadConstraint(5, ZONE, hard=hard, selector=BLUE),)


CASES = (
    Case("zone spread, hard", 460, plain(spread=spread(hard=True)), 5_000, alike=False),
    Case("zone spread, soft", 340, plain(spread=spread(hard=False)), 5_000, alike=False),
    Case("default spread of a Service", 160, plain(), 5_000, alike=False),
    Case("affinity, required", 35, plain(affinity=(term(ZONE),)), 5_000, zones=1),
    Case("anti-affinity, required", 60, plain(anti_affinity=(term(HOST),)), 1_000, spaces=2),
    Case("affinity, preferred", 90, plain(preferred_affinity=liked(HOST)), 5_000),
    Case("anti-affinity, preferred", 90, plain(preferred_anti_affinity=liked(HOST)), 5_000),
    Case(
        "anti-affinity, required, namespace selector", 24,
        plain(anti_affinity=(term(HOST, selected=True),)), 4_000, spaces=SPACES, nodes=6_000,
    ),
    Case(
        "anti-affinity, preferred, namespace selector", 55,
        plain(preferred_anti_affinity=liked(HOST, selected=True)), 4_000, spaces=SPACES,
    ),
    Case(
        "affinity, required, namespace selector", 35,
        plain(affinity=(term(ZONE, selected=True),)), 5_000, spaces=SPACES,
    ),
    Case(
        "affinity, preferred, namespace selector", 90,
        plain(preferred_affinity=liked(HOST, selected=True)), 5_000, spaces=SPACES,
    ),
)  # fmt: skip


def cluster(case: Case) -> Snapshot:
    """The case's nodes, namespaces and Service, and the pods that are there before."""
    snapshot = Snapshot()
    delta = Delta(epoch=1, sequence=1)
    room = (("cpu", 4_000), ("memory", 32 << 30), ("pods", 110))
    for n in range(case.nodes):
        labels = ((HOST, f"node-{n}"), (ZONE, f"zone-{n % case.zones}"))
        row = NodeRow(name=f"node-{n}", uid=f"uid-{n}", labels=labels, allocatable=room)
        delta.nodes.append(NodeChange(n + 1, row))
    for space in range(SPACES):
        labels_of = encode_labels({"team": "devops"})
        delta.objects.append(ObjectRow(NAMESPACE, f"space-{space}", payload=labels_of))
    if case.name.startswith("default"):
        payload = encode_selector(BLUE)
        delta.objects.append(ObjectRow(SERVICE, "space-0/blue", payload=payload))
    base = case.shape if case.alike else msgspec.structs.replace(plain(), labels=())
    for space in range(case.spaces):
        shape = msgspec.structs.replace(base, namespace=f"space-{space}")
        delta.shapes.append((space + 1, shape))
    for n in range(case.before):
        delta.add_pod(shape_id=n % case.spaces + 1, node_id=n * 7 % case.nodes + 1, uid=f"{n:032x}")
    snapshot.apply(delta)
    return snapshot


def cpu_each(case: Case, clock: Callable[[], float] = time.process_time) -> float:
    """CPU seconds a decision, in batches of 64 with two spares each."""
    snapshot = cluster(case)
    kernel = Kernel(snapshot, Profiles.default(), own_partitions=frozenset(range(0, 64, 4)))
    kernel.place(case.shape, BATCH, seed=0)
    start, placed = clock(), 0
    for seed in range(1, case.measured // BATCH + 1):
        placed += len(kernel.place(case.shape, BATCH, seed=seed, spares=2).rows)
    spent = clock() - start
    if case.shape.anti_affinity == () or case.before + case.measured < case.nodes:
        assert placed == case.measured // BATCH * BATCH, f"{case.name}: {placed} placed"
    return spent / placed


def table() -> None:
    """Print one line a case."""
    print(f"{'5,000 nodes, pods that look at others':<48} {'per CPU s':>9} {'us each':>8} "
          f"{'upstream fails below':>21}")  # fmt: skip
    for case in CASES:
        each = cpu_each(case)
        print(
            f"{case.name:<48} {1 / each:>9,.0f} {each * 1e6:>8.1f} "
            f"{case.floor:>12,} ({1 / each / case.floor:,.0f} ×)"
        )
