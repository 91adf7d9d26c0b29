"""What the worst pods cost (R23): CPU to read one, and to place it on 5,000 nodes with 2,000 kinds
of pods, the first time and again.

Each is about as large as an object may be, or has as many parts of one kind as make it dear. What
is done beside a role's loop (:mod:`stretto.aside`) is told apart: the interpreter cuts it into
pieces of 0.5 ms. The rest holds up the loop in one stretch. The target is 50 ms for a pod; what is
above it is said, and is no fault that this run reports as one.
"""

from __future__ import annotations

import gc
import json
import time
from typing import Any

import msgspec

from bench.decide_world import cluster, kernel_on
from stretto.cli.runner import GC_THRESHOLDS
from stretto.model.bulk import bulk_of
from stretto.model.objects import decode_pod
from stretto.model.shape import Shape, decode_shape
from stretto.model.shaping import shape_of
from stretto.placement.kernel import Kernel
from stretto.placement.preparing import prepare
from stretto.snapshot import term_set

TARGET_MS = 50.0
REPEATS = 3
KINDS = 2_000
"""Of pods that are there."""
KEYS = ("a", "app", "tier")
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def pod(*, containers: list[dict[str, Any]] | None = None, **spec: Any) -> dict[str, Any]:
    own = containers or [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
    metadata = {"name": "x", "namespace": "default", "uid": "u", "labels": {"a": "b"}}
    whole = {"schedulerName": "stretto", "containers": own, **spec}
    return {"metadata": metadata, "spec": whole, "status": {}}


def containers(count: int) -> list[dict[str, Any]]:
    return [
        {
            "name": f"c{i}",
            "image": f"image-{i}",
            "resources": {"requests": {"cpu": f"{i % 7 + 1}m", "memory": f"{i}Ki"}},
        }
        for i in range(count)
    ]


def node_terms(count: int, values: int, *, operator: str = "In") -> list[dict[str, Any]]:
    return [
        {"matchExpressions": [{"key": f"k{i % 5}", "operator": operator,
                               "values": [f"v{i}-{j}" for j in range(values)]}]}
        for i in range(count)
    ]  # fmt: skip


def pod_terms(count: int, values: int) -> list[dict[str, Any]]:
    return [
        {"topologyKey": f"t{i}", "labelSelector": {"matchExpressions": [
            {"key": f"k{i}", "operator": "In", "values": [f"v{j}" for j in range(values)]}]}}
        for i in range(count)
    ]  # fmt: skip


def spread(count: int) -> list[dict[str, Any]]:
    return [
        {
            "maxSkew": 1,
            "topologyKey": f"t{i}",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"a": "b"}},
        }
        for i in range(count)
    ]


def required(kind: str, terms: Any) -> dict[str, Any]:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def in_two(count: int, *, operator: str = "In") -> list[dict[str, Any]]:
    """Node terms of two requirements about nodes that there are."""
    return [
        {"matchExpressions": [
            {"key": HOST, "operator": operator, "values": [f"node-{i:05}"]},
            {"key": ZONE, "operator": "In", "values": [f"zone-{i % 3}"]},
        ]}
        for i in range(count)
    ]  # fmt: skip


def about_pods(count: int, **more: Any) -> list[dict[str, Any]]:
    """Pod terms of two requirements about pods that there are."""
    return [
        {"topologyKey": ZONE, **more, "labelSelector": {"matchExpressions": [
            {"key": "app", "operator": "In", "values": [f"a{i}"]},
            {"key": "tier", "operator": "NotIn", "values": [f"b{i}"]},
        ]}}
        for i in range(count)
    ]  # fmt: skip


def preferred(kind: str, what: str, terms: list[dict[str, Any]]) -> dict[str, Any]:
    weighed = [{"weight": i % 100 + 1, what: term} for i, term in enumerate(terms)]
    return {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": weighed}}}


def node_affinity(terms: list[dict[str, Any]]) -> dict[str, Any]:
    return required("nodeAffinity", {"nodeSelectorTerms": terms})


def asked(count: int, *, key: str = "k{}", operator: str = "NotIn") -> list[dict[str, Any]]:
    """Requirements of one term."""
    return [{"key": key.format(i), "operator": operator, "values": [f"v{i}"]} for i in range(count)]


PODS = {
    "1,000 containers": pod(containers=containers(1_000)),
    "10,000 containers": pod(containers=containers(10_000)),
    "5,000 host ports": pod(containers=[
        {"name": f"c{i}", "image": "i", "ports": [{"hostPort": i + 1, "containerPort": i + 1}]}
        for i in range(5_000)
    ]),
    "100 node terms of 100 values": pod(**node_affinity(node_terms(100, 100))),
    "10,000 node terms": pod(**node_affinity(node_terms(10_000, 1, operator="NotIn"))),
    "5,000 node terms of two": pod(**node_affinity(in_two(5_000))),
    "5,000 node terms of two, NotIn": pod(**node_affinity(in_two(5_000, operator="NotIn"))),
    "5,000 preferred node terms": pod(**preferred("nodeAffinity", "preference", in_two(5_000))),
    "1 node term of 10,000": pod(
        **node_affinity([{"matchExpressions": asked(10_000, key=HOST)}])
    ),
    "1 node term of 100,000 values": pod(**node_affinity([{"matchExpressions": [
        {"key": HOST, "operator": "In", "values": [f"x-{i:06}" for i in range(100_000)]}
    ]}])),
    "20,000 keys of nodes": pod(nodeSelector={f"k{i}": "v" for i in range(20_000)}),
    "100 anti-affinity terms of 100": pod(**required("podAntiAffinity", pod_terms(100, 100))),
    "900 anti-affinity terms of 10": pod(**required("podAntiAffinity", pod_terms(900, 10))),
    "5,000 anti-affinity terms": pod(**required("podAntiAffinity", about_pods(5_000))),
    "5,000 affinity terms": pod(**required("podAffinity", about_pods(5_000))),
    "4,000 anti-affinity, namespaces": pod(**required("podAntiAffinity", about_pods(
        4_000, namespaceSelector={"matchLabels": {"team": "t"}}))),
    "30,000 anti-affinity, own keys": pod(**required("podAntiAffinity", [
        {"topologyKey": f"t{i}", "labelSelector": {}} for i in range(30_000)])),
    "1 anti-affinity term of 10,000": pod(**required("podAntiAffinity", [
        {"topologyKey": ZONE, "labelSelector": {"matchExpressions": asked(10_000)}}])),
    "900 preferred affinity terms": pod(
        **preferred("podAffinity", "podAffinityTerm", pod_terms(900, 10))
    ),
    "1,000 spread constraints": pod(topologySpreadConstraints=spread(1_000)),
    "12,000 spread constraints": pod(topologySpreadConstraints=spread(12_000)),
    "10,000 tolerations": pod(
        tolerations=[{"key": f"t{i}", "operator": "Exists"} for i in range(10_000)]
    ),
    "10,000 claims": pod(volumes=[
        {"name": f"v{i}", "persistentVolumeClaim": {"claimName": f"c{i}"}} for i in range(10_000)]),
    "10,000 disks": pod(volumes=[
        {"name": f"v{i}", "gcePersistentDisk": {"pdName": f"d{i}"}} for i in range(10_000)]),
    "10,000 resources": pod(containers=[{"name": "c", "image": "i", "resources": {
        "requests": {f"example.com/r{i}": "1" for i in range(10_000)}}}]),
}  # fmt: skip
BESIDE = ("read", "order")
"""Done beside the loop: reading at the dispatcher (and at the Binder if others bound it), putting
terms in order at a shard and at the Binder."""
STRETCHES = ("tell", "decode", "place", "again", "why", "check", "count", "others")
"""Stretches of a loop: the dispatcher looks what is bulky; a shard or the Binder decodes the shape;
a shard places it for the first time, and again, or says why not; the Binder checks a node; anybody
counts the pod; another kind of pods is decided on once it is there."""


def timed(work: Any) -> tuple[float, Any]:
    """(milliseconds of CPU, what it gave)."""
    began = time.process_time()
    found = work()
    return (time.process_time() - began) * 1e3, found


def field(nodes: int, plain: Shape) -> Kernel:
    """A cluster with many kinds of pods."""
    kernel = kernel_on(cluster(nodes))
    snapshot = vars(kernel)["_snapshot"]
    for number in range(KINDS):
        labels = (("app", f"a{number}"), ("tier", f"b{number}"))
        snapshot.add_pod(msgspec.structs.replace(plain, labels=labels), number % nodes)
    kernel.place(plain, 1, seed=1)
    return kernel


def costs_of(document: dict[str, Any], *, nodes: int) -> dict[str, float]:
    """Milliseconds of each of BESIDE and STRETCHES."""
    raw = json.dumps(document).encode()
    plain = shape_of(decode_pod(json.dumps(pod()).encode()), label_keys=KEYS)
    kernel, binder = field(nodes, plain), field(nodes, plain)
    vars(term_set)["_sets"].clear()  # else a repeat finds its terms in order
    gc.collect()
    gc.freeze()
    costs: dict[str, float] = {}

    def take(what: str, work: Any) -> Any:
        costs[what], found = timed(work)
        return found

    seen = take("read", lambda: shape_of(decode_pod(raw), label_keys=KEYS))
    encoded = seen.encoded
    take("tell", lambda: bulk_of(seen))
    shape = take("decode", lambda: decode_shape(encoded))
    take("order", lambda: prepare([shape]))
    placed = take("place", lambda: kernel.place(shape, 1, seed=1))
    take("again", lambda: kernel.place(shape, 1, seed=2))
    take("why", lambda: None if placed.rows else kernel.diagnose(shape))
    take("check", lambda: binder.check_one(shape, nodes // 2))
    take("count", lambda: vars(binder)["_snapshot"].add_pod(shape, nodes // 2))
    new = msgspec.structs.replace(plain, labels=(("app", "another"),))
    take("others", lambda: binder.place(new, 1, seed=3))
    gc.unfreeze()
    return costs


async def run(*, nodes: int) -> int:
    """Print the table; nothing of it is a fault."""
    above = 0
    before = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLDS)  # as the roles do
    columns = (*BESIDE, *STRETCHES)
    head = "".join(f"{what:>8}" for what in columns)
    print(f"{f'CPU, ms (best of {REPEATS})':32} {'KiB':>6}{head}{'longest':>9}")
    for name, document in PODS.items():
        runs = [costs_of(document, nodes=nodes) for _ in range(REPEATS)]
        best = {what: min(costs[what] for costs in runs) for what in columns}
        longest = max(best[what] for what in STRETCHES)
        above += max(best.values()) > TARGET_MS
        size = len(json.dumps(document)) // 1024
        cells = "".join(f"{best[what]:8.1f}" for what in columns)
        print(f"{name:32} {size:6}{cells}{longest:9.1f}", flush=True)
    gc.set_threshold(*before)
    print(
        f"{above} of {len(PODS)} cost more than {TARGET_MS:.0f} ms somewhere; of {nodes:,} nodes, "
        f"{KINDS:,} kinds of pods; {', '.join(BESIDE)} are done beside the loop, 0.5 ms at a time"
    )
    return 0
