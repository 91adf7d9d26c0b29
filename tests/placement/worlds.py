"""Random clusters and shapes, small enough for properties and odd enough to reach every branch."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from stretto.model.shape import (
    HostPort,
    NodeTerm,
    PodTerm,
    PreferredNodeTerm,
    Requirement,
    Shape,
    SpreadConstraint,
    Toleration,
    WeightedPodTerm,
)
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import Delta, ImageRow, NodeChange, NodeRow, Taint

GIB = 1 << 30
SCORED = [
    {"name": "cpu", "weight": 3},
    {"name": "memory", "weight": 1},
    {"name": "example.com/gpu", "weight": 5},
    {"name": "ephemeral-storage", "weight": 2},
]
BALANCED = {
    "name": "NodeResourcesBalancedAllocation",
    "args": {"resources": [{"name": r["name"]} for r in SCORED]},
}
KEYS = ("zone", "disk", "gen")


def node_row(rng: random.Random, number: int) -> NodeRow:
    labels = {"kubernetes.io/hostname": f"node-{number}"}
    for key in KEYS:
        if rng.random() < 0.8:
            labels[key] = str(rng.randint(0, 4))
    effects = ("NoSchedule", "PreferNoSchedule", "PreferNoSchedule", "NoExecute")
    taints = tuple(
        Taint(rng.choice(("a", "b")), rng.choice(("", "1", "2")), rng.choice(effects))
        for _ in range(rng.choice((0, 0, 0, 1, 2)))
    )
    allocatable = {
        "cpu": rng.choice((0, 1000, 4000, 16000)),
        "memory": rng.choice((GIB, 8 * GIB, 64 * GIB, 64 * GIB + 1)),
        "pods": rng.choice((2, 10, 110)),
        "ephemeral-storage": 100 * GIB,
    }
    if rng.random() < 0.4:
        allocatable["example.com/gpu"] = rng.randint(1, 8)
    if rng.random() < 0.05:
        allocatable["memory"] = 1 << 50
    images = tuple(
        ImageRow((f"img-{n}:latest", f"repo/img-{n}:latest"), n * 300_000_000 + 17)
        for n in rng.sample(range(4), rng.randint(0, 3))
    )
    return NodeRow(
        name=f"node-{number}",
        uid=f"uid-{number}-{rng.random()}",
        labels=tuple(sorted(labels.items())),
        taints=taints,
        unschedulable=rng.random() < 0.1,
        allocatable=tuple(sorted(allocatable.items())),
        images=images,
    )


def requirement(rng: random.Random) -> Requirement:
    key = rng.choice(KEYS)
    operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    if operator in ("Exists", "DoesNotExist"):
        return Requirement(key, operator)
    if operator in ("Gt", "Lt"):
        return Requirement(key, operator, (rng.choice(("1", "2", "x")),))
    return Requirement(key, operator, tuple(str(n) for n in rng.sample(range(5), 2)))


def term(rng: random.Random) -> NodeTerm:
    fields: tuple[Requirement, ...] = ()
    if rng.random() < 0.2:
        operator = rng.choice(("In", "NotIn"))
        fields = (Requirement("metadata.name", operator, (f"node-{rng.randint(0, 9)}",)),)
    return NodeTerm(tuple(requirement(rng) for _ in range(rng.randint(0, 2))), fields)


def shape(rng: random.Random, *, profile: str = "stretto") -> Shape:
    requests = {
        "cpu": rng.choice((0, 100, 500, 1000, 333)),
        "memory": rng.choice((0, GIB, 2 * GIB, 123456789)),
    }
    if rng.random() < 0.2:
        requests["example.com/gpu"] = rng.randint(0, 2)
    if rng.random() < 0.1:
        requests["ephemeral-storage"] = 30 * GIB
    if rng.random() < 0.02:
        requests["example.com/unknown"] = 1
    cpu, memory = requests["cpu"] or 100, requests["memory"] or 200 << 20
    tolerations = tuple(
        Toleration(
            rng.choice(("", "a", "b")), rng.choice(("Equal", "Exists")), rng.choice(("", "1"))
        )
        for _ in range(rng.choice((0, 0, 1, 2)))
    )
    return Shape(
        profile=profile,
        namespace="default",
        requests=tuple(sorted(requests.items())),
        nonzero_cpu_milli=cpu,
        nonzero_memory=memory,
        score_requests=(cpu, memory),
        tolerations=tolerations,
        node_selector=(("zone", "1"),) if rng.random() < 0.1 else (),
        required_node_terms=tuple(term(rng) for _ in range(rng.randint(0, 2)))
        if rng.random() < 0.2
        else None,
        preferred_node_terms=tuple(
            PreferredNodeTerm(rng.randint(1, 100), term(rng)) for _ in range(rng.randint(1, 3))
        )
        if rng.random() < 0.4
        else (),
        host_ports=(HostPort("TCP", rng.choice(("0.0.0.0", "10.0.0.1")), rng.choice((80, 81))),)
        if rng.random() < 0.15
        else (),
        images=("img-1:latest", "img-2:latest") if rng.random() < 0.3 else (),
        image_containers=2,
    )


TOPOLOGY = ("zone", "disk", "kubernetes.io/hostname")
POD_KEYS = ("app", "tier")


def pod_selector(rng: random.Random) -> tuple[Requirement, ...] | None:
    kind = rng.random()
    if kind < 0.1:
        return None if kind < 0.05 else ()
    key = rng.choice(POD_KEYS)
    operator = rng.choice(("In", "In", "In", "NotIn", "Exists", "DoesNotExist"))
    values = tuple(sorted(rng.sample("ab", rng.randint(1, 2)))) if "In" in operator else ()
    return (Requirement(key, operator, values),)


def pod_term(rng: random.Random, *, namespace: str) -> PodTerm:
    spaces = rng.choice((None, None, (), (Requirement("team", "In", ("x",)),)))
    names = (namespace,) if spaces is None or rng.random() < 0.3 else ()
    return PodTerm(rng.choice(TOPOLOGY), names, spaces, pod_selector(rng))


def tied_shape(rng: random.Random) -> Shape:
    """A shape with labels and, often, with constraints about other pods."""
    namespace = rng.choice(("default", "other"))

    def terms(chance: float) -> tuple[PodTerm, ...]:
        if rng.random() > chance:
            return ()
        return tuple(pod_term(rng, namespace=namespace) for _ in range(rng.randint(1, 2)))

    spread = tuple(
        SpreadConstraint(
            rng.randint(1, 3),
            rng.choice(TOPOLOGY),
            hard=rng.random() < 0.5,
            selector=pod_selector(rng),
            min_domains=rng.randint(1, 3),
            honor_affinity=rng.random() < 0.5,
            honor_taints=rng.random() < 0.5,
        )
        for _ in range(rng.choice((0, 0, 1, 2)))
    )
    return msgspec.structs.replace(
        shape(rng),
        namespace=namespace,
        labels=tuple((k, rng.choice("ab")) for k in POD_KEYS if rng.random() < 0.7),
        label_keys=POD_KEYS,
        terminating=False,
        affinity=terms(0.2),
        anti_affinity=terms(0.2),
        preferred_affinity=tuple(WeightedPodTerm(rng.randint(1, 100), term) for term in terms(0.3)),
        preferred_anti_affinity=tuple(
            WeightedPodTerm(rng.randint(1, 100), term) for term in terms(0.3)
        ),
        spread=spread,
    )


def cluster(rng: random.Random, nodes: int) -> Snapshot:
    snapshot = Snapshot()
    delta = Delta(epoch=1, sequence=1)
    delta.nodes = [NodeChange(n + 1, node_row(rng, n)) for n in range(nodes)]
    snapshot.apply(delta)
    return snapshot


def step(
    rng: random.Random,
    snapshot: Snapshot,
    known: list[tuple[int, int, int]],
    *,
    make: Callable[[random.Random], Shape] = shape,
) -> Delta:
    """A random delta that continues a snapshot; ``known`` lists (uid, shape id, node id) of its
    pods."""
    sequence = snapshot.version.sequence + 1
    delta = Delta(epoch=1, sequence=sequence)
    ids = [int(n) for n in snapshot.node_id[: snapshot.rows] if n >= 0]
    if rng.random() < 0.3:
        new = 1000 + sequence
        delta.nodes.append(NodeChange(new, node_row(rng, new), frozen=rng.random() < 0.1))
        ids.append(new)
    if ids and rng.random() < 0.3:
        changed = rng.choice(ids)
        row = snapshot.row_of(changed)
        if row is not None:
            new_row = node_row(rng, changed)
            kept = msgspec.structs.replace(
                new_row, uid=snapshot.node_uid[row], name=snapshot.name[row]
            )
            delta.nodes.append(NodeChange(changed, kept))
    for _ in range(rng.randint(0, 4)):
        if ids:
            shape_id = sequence * 10 + len(delta.shapes)
            delta.shapes.append((shape_id, make(rng)))
            pod = (rng.getrandbits(60), shape_id, rng.choice(ids))
            known.append(pod)
            delta.add_pod(shape_id=pod[1], node_id=pod[2], uid=str(pod[0]))
    for _ in range(rng.randint(0, 2)):
        if known:
            pod = known.pop(rng.randrange(len(known)))
            delta.add_pod(shape_id=pod[1], node_id=pod[2], uid=str(pod[0]), sign=-1)
    if len(ids) > 3 and rng.random() < 0.15:
        gone = rng.choice(ids)
        delta.removed_nodes.append(gone)
        known[:] = [pod for pod in known if pod[2] != gone]
    return delta
