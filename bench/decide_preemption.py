"""Preemption on a full cluster: who has to go for a pod of higher priority, and from which node.

*As scheduler_perf's Preemption*: four pods of 900m CPU on each node of 4 CPUs, then pods of 3 CPUs,
so that three have to go. *Mixed*: 30 pods of several sizes and priorities a node, budgets over some
of them. *Host port*: the filter that keeps the pod out is not room, so nodes are tried one by one,
as many as upstream would try. A decision is counted as the shard's: the message of the fit error
once for 64 pods, victims and node for each, its nomination seen by the next.
"""

from __future__ import annotations

import itertools
import random
import time
import uuid

import msgspec

from bench.decide_world import GIB, kernel_on
from stretto.model.shape import HostPort, Requirement, Shape
from stretto.placement.kernel import Kernel
from stretto.snapshot.budgets import BUDGET, BudgetRow, encode_budget
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import Delta, NodeChange, NodeRow, ObjectRow

BATCH = 64
PORT = (HostPort("TCP", "0.0.0.0", 80),)


def pod(cpu: int, *, priority: int, app: str = "a", ports: tuple[HostPort, ...] = ()) -> Shape:
    """A pod of some priority."""
    return Shape(
        profile="stretto", namespace="default", priority=priority,
        requests=(("cpu", cpu), ("memory", GIB // 2)), nonzero_cpu_milli=cpu,
        nonzero_memory=GIB // 2, score_requests=(cpu, GIB // 2), host_ports=ports,
        labels=(("app", app),), label_keys=("app",),
    )  # fmt: skip


def full(nodes: int, *, each: list[list[Shape]], cpu: int) -> Snapshot:
    """Nodes of some CPU, each with the pods of one of the lists in turn."""
    snapshot = Snapshot()
    rng = random.Random(1)
    numbers = {shape.digest: (i + 1, shape) for i, shape in enumerate(itertools.chain(*each))}
    defined = Delta(epoch=1, sequence=1, shapes=list(numbers.values()))
    snapshot.apply(defined)
    for start in range(0, nodes, 500):
        delta = Delta(epoch=1, sequence=2)
        for n in range(start, min(start + 500, nodes)):
            room = (("cpu", cpu), ("memory", 256 * GIB), ("pods", 110))
            row = NodeRow(f"node-{n:05}", str(uuid.UUID(int=n)), allocatable=room)
            delta.nodes.append(NodeChange(n + 1, row))
            for shape in each[n % len(each)]:
                uid = str(uuid.UUID(int=rng.getrandbits(128)))
                number = numbers[shape.digest][0]
                start_s = rng.randint(1, 1 << 30)
                delta.add_pod(shape_id=number, node_id=n + 1, uid=uid, start_s=start_s)
        snapshot.apply(delta)
    return snapshot


def guard(snapshot: Snapshot, apps: str, *, allowed: int) -> None:
    """A budget for each app."""
    delta = Delta(epoch=1, sequence=3)
    for app in apps:
        row = BudgetRow("default", (Requirement("app", "In", (app,)),), allowed)
        delta.objects.append(ObjectRow(BUDGET, f"default/{app}", payload=encode_budget(row)))
    snapshot.apply(delta)


def decisions(snapshot: Snapshot, wanted: Shape, *, pods: int) -> tuple[float, str]:
    """Decisions per second of CPU time."""
    kernel: Kernel = kernel_on(snapshot)
    began = time.process_time()
    kernel.post_filter(wanted, seed=0)
    first_s = time.process_time() - began
    victims = 0
    began = time.process_time()
    for number in range(pods):
        if number % BATCH == 0:
            kernel.diagnose(wanted)
        found = kernel.post_filter(wanted, seed=number)
        assert found.nominate, found.message
        victims += len(found.victims)
        bare = msgspec.structs.replace(wanted, nominated_node="")
        snapshot.nominations.put(f"p{number}", node=found.nominate, shape=bare)
    rate = pods / (time.process_time() - began)
    return rate, f"CPU time; {victims / pods:.1f} victims each; first {first_s * 1e3:.0f} ms"


def rows(*, nodes: int, pods: int) -> list[tuple[str, tuple[float, str], int]]:
    """Rows of the table."""
    perf = full(nodes, each=[[pod(900, priority=0)] * 4], cpu=4_000)
    rng = random.Random(3)
    lists = [
        [
            pod(
                rng.choice((200, 500, 900)), priority=rng.choice((0, 5, 10)), app=rng.choice("abcd")
            )
            for _ in range(30)
        ]
        for _ in range(20)
    ]
    mixed = full(nodes, each=lists, cpu=16_000)
    guard(mixed, "ab", allowed=1)
    ported = full(nodes, each=[[pod(200, priority=0, ports=PORT), pod(200, priority=5)]], cpu=4_000)
    high = pod(3_000, priority=100)
    return [
        (f"{nodes:,} nodes, preemption, 4 pods a node", decisions(perf, high, pods=pods), 0),
        (f"{nodes:,} nodes, preemption, 30 pods, budgets", decisions(mixed, high, pods=pods), 0),
        (
            f"{nodes:,} nodes, preemption for a host port",
            decisions(ported, pod(500, priority=100, ports=PORT), pods=max(pods // 20, 1)),
            0,
        ),
    ]
