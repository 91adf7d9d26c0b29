"""The API server of a long run, simulated or real, and pods that come and go on it."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

from stretto.cli.supervisor import Role, Supervisor, free_port
from tests.e2e.api import AT_ONCE, PODS, node_of, pod_manifest
from tests.e2e.stack import READY_S
from tests.kube_env.binaries import build
from tests.kube_env.control_plane import ControlPlane
from tests.matrix.cluster import Cluster

NODES = 30
NODE_PODS = 32
NODE_CPU = "32"
CPUS = ("100m", "400m", "700m", "1000m", "1300m")
A_BATCH = 20
LABEL_SETS = 500
"""Different labels of batches: many more than are there at once, and few enough that what roles
remember of 16,384 label sets does not grow for hours."""
MOST_WAITING = 400
MOST_BOUND = 400
"""Bound pods that stay: the oldest go when there are more. Both together nearly fill the nodes, so
that a slot given twice shows."""


class WatchedCluster(Cluster):
    """Tells of each pod that is bound, also if it is deleted at once."""

    on_bound: Callable[[str], None] = staticmethod(lambda _name: None)

    def _take(self, event: dict[str, Any]) -> None:
        super()._take(event)
        if node_of(event["object"]):
            self.on_bound(event["object"]["metadata"]["name"])


@contextlib.asynccontextmanager
async def world(
    folder: pathlib.Path, *, real: bool
) -> AsyncIterator[tuple[pathlib.Path, WatchedCluster]]:
    """(kubeconfig, our own access) of a fresh cluster: kube-apiserver and etcd, or the simulator in
    a process of its own."""
    async with contextlib.AsyncExitStack() as open_:
        if real:
            plane = open_.enter_context(ControlPlane(folder / "plane", build()))
            trust = ssl.create_default_context(cafile=str(plane.authority))
            kubeconfig = plane.kubeconfig
            cluster = WatchedCluster(plane.url, token=plane.admin_token, tls=trust)
        else:
            url, kubeconfig = f"http://127.0.0.1:{free_port()}", folder / "kubeconfig"
            port = url.rpartition(":")[2]
            role = Role(
                "simulator",
                ["simulator", "--port", port, "--kubeconfig", str(kubeconfig)],
                ready_url=f"{url}/readyz",
                log=folder / "simulator.log",
            )
            supervisor = Supervisor([role])
            open_.push_async_callback(supervisor.stop)
            await supervisor.start()
            await supervisor.wait_ready(timeout_s=READY_S)
            cluster = WatchedCluster(url, token="", tls=None)
        await open_.enter_async_context(cluster)
        for number in range(NODES):
            await cluster.create_node(f"n-{number}", cpu=NODE_CPU, pods=str(NODE_PODS))
        await open_.enter_async_context(cluster.watching())
        yield kubeconfig, cluster


class Flow:
    """Pods that arrive in batches, are bound, and go."""

    def __init__(self, cluster: WatchedCluster) -> None:
        self.created = 0
        self.waiting: set[str] = set()
        """Created and never seen bound: what is left of them at the end is lost."""
        self.bound_at: deque[float] = deque()
        """Monotonic times at which pods were seen bound."""
        self._cluster = cluster
        self._batches: dict[str, set[str]] = {}
        """Batch → its pods that are bound and were not deleted, oldest first."""
        cluster.on_bound = self._seen

    @property
    def bound(self) -> int:
        """Created and seen bound, ever."""
        return self.created - len(self.waiting)

    def _seen(self, name: str) -> None:
        if name in self.waiting:
            self.waiting.remove(name)
            self.bound_at.append(time.monotonic())
            self._batches[batch_of(name)].add(name)

    async def pour(self, *, pods: int, rate: float = 0.0) -> None:
        """Create pods, at most ``rate`` a second (0: as fast as they are bound)."""
        began = time.monotonic()
        while self.created < pods:
            ahead_s = began + self.created / rate - time.monotonic() if rate else 0.0
            if len(self.waiting) >= MOST_WAITING or ahead_s > 0:
                await asyncio.sleep(min(max(ahead_s, 0.02), 1.0))
                continue
            number, count = self.created // A_BATCH, min(A_BATCH, pods - self.created)
            names = [f"c-{number}-{i}" for i in range(count)]
            self.created += count
            self.waiting.update(names)
            labels = {"batch": label_of(batch_of(names[0]))}
            self._batches[batch_of(names[0])] = set()
            await self._cluster.all(
                self._cluster.insist("POST", PODS, pod_manifest(name, cpu=cpu, labels=labels))
                for name, cpu in zip(names, CPUS * A_BATCH, strict=False)
            )

    async def drain(self) -> None:
        """Delete what is bound of the oldest batches when there is too much, until cancelled."""
        while True:
            while sum(map(len, self._batches.values())) > MOST_BOUND:
                batch, there = next((b, t) for b, t in self._batches.items() if t)
                path = (
                    f"{PODS}?labelSelector=batch%3D{label_of(batch)}"
                    "&fieldSelector=spec.nodeName%21%3D"
                )
                gone = set(there)
                await self._cluster.insist("DELETE", path, AT_ONCE)
                there -= gone
                if not there and not any(batch_of(name) == batch for name in self.waiting):
                    del self._batches[batch]
            await asyncio.sleep(0.05)


def batch_of(name: str) -> str:
    """The batch that a pod came with."""
    return name.split("-")[1]


def label_of(batch: str) -> str:
    """What the pods of a batch are labelled with."""
    return str(int(batch) % LABEL_SETS)
