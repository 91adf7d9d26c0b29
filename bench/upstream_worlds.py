"""The clusters of kube-scheduler's own benchmarks (scheduler_perf), as worlds that the oracle and
the placement code both load: nodes of 4 CPU and 32 GiB in three zones, pods of 100m and 500 MiB."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
Object = dict[str, Any]
DRIVER, CLASS = "csi.example.com", "wait"


def node(number: int) -> Object:
    name = f"node-{number:05}"
    room = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    labels = {HOST: name, ZONE: f"zone-{number % 3}"}
    metadata = {"name": name, "uid": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {},
            "status": {"allocatable": room, "capacity": room}}  # fmt: skip


def pod(
    name: str, *, node: str = "", namespace: str = "default", cpu: str = "100m", color: str = "",
    **spec: Any,
) -> Object:  # fmt: skip
    amounts = {"cpu": cpu, "memory": "500Mi"}
    container = {"name": "c", "image": "registry.example/pause:1",
                 "resources": {"requests": amounts, "limits": amounts}}  # fmt: skip
    labels = {"color": color} if color else {}
    metadata = {"name": name, "namespace": namespace, "uid": name, "labels": labels}
    inner = {"schedulerName": "default-scheduler", "containers": [container], "priority": 0, **spec}
    found = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": inner, "status": {}}
    if node:
        inner["nodeName"] = node
        found["status"] = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    return found


def spread(how: str) -> Object:
    selector = {"matchLabels": {"color": "blue"}}
    return {"topologySpreadConstraints": [
        {"maxSkew": 5, "topologyKey": ZONE, "whenUnsatisfiable": how, "labelSelector": selector},
    ]}  # fmt: skip


def term(key: str, *, everywhere: bool) -> Object:
    found: Object = {"topologyKey": key, "labelSelector": {"matchLabels": {"color": "blue"}}}
    if everywhere:
        found["namespaceSelector"] = {"matchLabels": {"team": "devops"}}
    return found


def affinity(kind: str, key: str, *, hard: bool, everywhere: bool = False) -> Object:
    one = term(key, everywhere=everywhere)
    if hard:
        return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [one]}}}
    soft = [{"weight": 1, "podAffinityTerm": one}]
    return {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": soft}}}


def node_affinity() -> Object:
    zones = {"key": ZONE, "operator": "In", "values": ["zone-0", "zone-1"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [zones]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def claim(name: str) -> list[Object]:
    """A claim that waits for its first consumer."""
    resources = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": CLASS, "resources": resources,
            "volumeMode": "Filesystem"}  # fmt: skip
    return [{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": spec,
             "metadata": {"name": name, "namespace": "default", "uid": f"claim-{name}"},
             "status": {"phase": "Pending"}}]  # fmt: skip


STORAGE = [
    {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": DRIVER,
     "metadata": {"name": CLASS, "uid": CLASS}, "volumeBindingMode": "WaitForFirstConsumer",
     "reclaimPolicy": "Delete"},
    {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "spec": {"storageCapacity": False},
     "metadata": {"name": DRIVER, "uid": DRIVER}},
]  # fmt: skip


def csi_node(number: int) -> Object:
    name = f"node-{number:05}"
    driver = {"name": DRIVER, "nodeID": name, "allocatable": {"count": 39}}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "spec": {"drivers": [driver]},
            "metadata": {"name": name, "uid": f"csi-{name}"}}  # fmt: skip


GPU = "gpu.example.com"


def devices(nodes: int) -> list[Object]:
    """Ten devices on every node, and the class that takes any of them."""
    expression = f'device.driver == "{GPU}"'
    found: list[Object] = [
        {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
         "metadata": {"name": "gpu", "uid": "gpu"},
         "spec": {"selectors": [{"cel": {"expression": expression}}]}},
    ]  # fmt: skip
    for number in range(nodes):
        name = f"node-{number:05}"
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": GPU, "nodeName": name, "pool": pool,
                "devices": [{"name": f"gpu-{i}"} for i in range(10)]}  # fmt: skip
        found.append({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "spec": spec,
                      "metadata": {"name": f"slice-{name}", "uid": f"slice-{name}"}})  # fmt: skip
    return found


def device_claim(name: str) -> Object:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    spec = {"devices": {"requests": [{"name": "r0", "exactly": exactly}]}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": spec,
            "metadata": {"name": name, "namespace": "default", "uid": f"claim-{name}"}}  # fmt: skip


def world(nodes: int, bound: list[Object], pending: list[Object], *others: Object) -> Object:
    objects = [*(node(number) for number in range(nodes)), *others, *bound, *pending]
    names = [f"{p['metadata']['namespace']}/{p['metadata']['name']}" for p in pending]
    return {"id": "w", "family": "bench", "mode": "sequence", "pending": names, "objects": objects}


def spaces(*, init: int, pods: int) -> list[Object]:
    """100 namespaces of one team, and the default one."""
    labels = {"team": "devops"}
    return [
        {"apiVersion": "v1", "kind": "Namespace",
         "metadata": {"name": name, "uid": f"ns-{name}",
                      "labels": {**labels, "kubernetes.io/metadata.name": name}}}
        for name in ("default", *(f"init-{i}" for i in range(100)))
    ]  # fmt: skip


def with_affinity(
    nodes: int, pods: int, *, kind: str, key: str, hard: bool, everywhere: bool = False, init: int
) -> Object:
    """Bound pods that have the same terms; required affinity sits in one zone."""
    terms = affinity(kind, key, hard=hard, everywhere=everywhere)
    together = hard and kind == "podAffinity"

    def place(number: int) -> str:
        return f"node-{(number * 3 if together else number) % nodes:05}"

    bound = [
        pod(f"b-{i}", node=place(i), color="blue", namespace=f"init-{i % 100}" if everywhere
            else "default", **terms)
        for i in range(init)
    ]  # fmt: skip
    pending = [pod(f"p-{i}", color="blue", **terms) for i in range(pods)]
    return world(nodes, bound, pending, *(spaces(init=init, pods=pods) if everywhere else ()))


def plain_init(nodes: int, count: int, **options: Any) -> list[Object]:
    return [pod(f"b-{i}", node=f"node-{i % nodes:05}", **options) for i in range(count)]


def spreading(nodes: int, pods: int, *, how: str) -> Object:
    """The pods that are there are plain, as in TopologySpreading."""
    pending = [pod(f"p-{i}", color="blue", **spread(how)) for i in range(pods)]
    return world(nodes, plain_init(nodes, nodes), pending)


def unschedulable(nodes: int, pods: int) -> Object:
    pending = [pod(f"p-{i}", cpu="9") for i in range(pods)]
    return world(nodes, plain_init(nodes, 4 * nodes), pending)


def preemption(nodes: int, pods: int) -> Object:
    low = [pod(f"b-{i}", node=f"node-{i % nodes:05}", cpu="900m") for i in range(4 * nodes)]
    for number, each in enumerate(low):
        hours, minutes = number // 3600 % 24, number // 60 % 60
        each["status"]["startTime"] = f"2026-01-01T{hours:02}:{minutes:02}:00Z"
    high = [pod(f"p-{i}", cpu="3", priority=10) for i in range(pods)]
    return world(nodes, low, high)


def volumes(nodes: int, pods: int) -> Object:
    pending, claims = [], []
    for i in range(pods):
        claims += claim(f"c-{i}")
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": f"c-{i}"}}
        pending.append(pod(f"p-{i}", volumes=[volume]))
    others = [*STORAGE, *(csi_node(number) for number in range(nodes)), *claims]
    return world(nodes, plain_init(nodes, nodes // 5), pending, *others)


def device_pods(nodes: int, pods: int) -> Object:
    pending, claims = [], []
    for i in range(pods):
        claims.append(device_claim(f"c-{i}"))
        made = pod(f"p-{i}", resourceClaims=[{"name": "d", "resourceClaimName": f"c-{i}"}])
        made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "d"}]
        pending.append(made)
    return world(nodes, [], pending, *devices(nodes), *claims)


ANTI, WITH = "podAntiAffinity", "podAffinity"
SCENARIOS: dict[str, Callable[[int, int], Object]] = {
    "plain": lambda n, p: world(n, plain_init(n, n // 5), [pod(f"p-{i}") for i in range(p)]),
    "spread-hard": lambda n, p: spreading(n, p, how="DoNotSchedule"),
    "spread-soft": lambda n, p: spreading(n, p, how="ScheduleAnyway"),
    "anti-affinity": lambda n, p: with_affinity(n, p, kind=ANTI, key=HOST, hard=True, init=n // 5),
    "affinity": lambda n, p: with_affinity(n, p, kind=WITH, key=ZONE, hard=True, init=n),
    "affinity-soft": lambda n, p: with_affinity(n, p, kind=WITH, key=HOST, hard=False, init=n),
    "anti-affinity-soft": lambda n, p: with_affinity(n, p, kind=ANTI, key=HOST, hard=False, init=n),
    "anti-affinity-ns": lambda n, p: with_affinity(
        n, p, kind=ANTI, key=HOST, hard=True, everywhere=True, init=n * 4 // 5
    ),
    "affinity-ns": lambda n, p: with_affinity(
        n, p, kind=WITH, key=ZONE, hard=True, everywhere=True, init=n
    ),
    "node-affinity": lambda n, p: world(
        n, plain_init(n, n), [pod(f"p-{i}", **node_affinity()) for i in range(p)]
    ),
    "unschedulable": unschedulable,
    "preemption": preemption,
    "volumes": volumes,
    "devices": lambda n, p: device_pods(n // 10, p),
}
