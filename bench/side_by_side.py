"""The same pods on the same real kube-apiserver: kube-scheduler, then Stretto, then the floor.

Each contender gets a fresh control plane with the same nodes and a burst of pods that exist before
it starts. A watch of the bench (identities only, the same for all) tells when each pod was bound.
Printed: pods a second from the first bind to the last, CPU a pod by group of processes, how far the
last Scheduled event trails the last bind, and the ratios to kube-scheduler.

Needs the programs of a control plane: KUBEBUILDER_ASSETS, or built once by tests/kube_env.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import uvloop

from bench.machine import CpuMeter, conditions
from bench.roles import Roles
from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.ledger.server import die_with_parent
from stretto.simulator.population import node_bodies, pod_bodies
from stretto.simulator.settings import SimulatorSettings
from tests.kube_env import binaries
from tests.kube_env.control_plane import ControlPlane

METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
GOALS = {1_000: 2.0, 5_000: 2.5}
"""Times kube-scheduler's pods a second, by nodes."""
CPU_GOAL = 0.25
"""Of kube-scheduler's CPU a pod, summed over our processes."""
STALLED_S = 60.0
TRAIL_S = 60.0


@dataclass
class Result:
    """What one contender did."""

    name: str
    bound: int = 0
    seconds: float = 0.0
    events: int = 0
    trail_s: float = 0.0
    cpu_s: dict[str, float] = field(default_factory=dict)
    """By group of processes, all of it."""
    start_s: dict[str, float] = field(default_factory=dict)
    """The part of it before the first bind: loading code, reading nodes and the first pods."""
    servers_s: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Pods a second."""
        return self.bound / self.seconds if self.seconds else 0.0

    @property
    def cpu_ms(self) -> float:
        """Milliseconds of the contender's CPU a pod, start-up included."""
        return sum(self.cpu_s.values()) * 1000 / max(self.bound, 1)

    @property
    def running_ms(self) -> float:
        """Milliseconds of the contender's CPU a pod from the first bind on."""
        return self.cpu_ms - sum(self.start_s.values()) * 1000 / max(self.bound, 1)


class BindWatch:
    """Counts binds as they are told by a watch of identities."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self.seen: set[str] = set()
        self.first_s = 0.0
        self.last_s = 0.0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch while the context lasts."""
        trusted = ssl.create_default_context(cafile=str(self._plane.authority))
        connector = aiohttp.TCPConnector(ssl=trusted)
        headers = {"Authorization": f"Bearer {self._plane.admin_token}", "Accept": METADATA_ONLY}
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
            task = asyncio.create_task(self._watch(session))
            yield
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _watch(self, session: aiohttp.ClientSession) -> None:
        params = {"watch": "1", "fieldSelector": "spec.nodeName!=", "timeoutSeconds": "3600"}
        timeout = aiohttp.ClientTimeout(total=None)
        rest = b""
        url = f"{self._plane.url}/api/v1/pods"
        async with session.get(url, params=params, timeout=timeout) as reply:
            async for piece in reply.content.iter_any():
                now = time.monotonic()
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    self._note(line, now)

    def _note(self, line: bytes, now: float) -> None:
        change = msgspec.json.decode(line)
        uid = change["object"]["metadata"]["uid"]
        if change["type"] == "ADDED" and uid not in self.seen:
            self.seen.add(uid)
            self.first_s = self.first_s or now
            self.last_s = now


async def populate(plane: ControlPlane, *, nodes: int, pods: int, shapes: int, name: str) -> None:
    """Create the nodes and the burst."""
    settings = SimulatorSettings(nodes=nodes, pods=pods, pod_shapes=shapes, pod_scheduler_name=name)
    config = await KubeConfig.from_file(plane.kubeconfig)
    async with KubeClient(config, timeout_s=60) as client:

        async def create(path: str, bodies: Any) -> None:
            for body in bodies:
                answer = await client.post(path, body)
                assert answer.status == 201, answer.text

        for path, bodies in (
            ("/api/v1/nodes", node_bodies(settings)),
            ("/api/v1/namespaces/default/pods", pod_bodies(settings)),
        ):
            await asyncio.gather(*(create(path, bodies) for _ in range(16)))


async def until_bound(
    watch: BindWatch, pods: int, result: Result, *, cpu: Callable[[], dict[str, float]]
) -> None:
    """Wait for the last bind, or until nothing moves any more."""
    started = time.monotonic()
    while not watch.seen and time.monotonic() - started < STALLED_S:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    result.start_s = cpu()
    while len(watch.seen) < pods:
        await asyncio.sleep(0.05)
        if time.monotonic() - max(watch.last_s, started) > STALLED_S:
            result.problems.append(f"stalled: {len(watch.seen)} of {pods} bound")
            break
    result.bound = len(watch.seen)
    result.seconds = watch.last_s - watch.first_s


async def reasons(client: KubeClient) -> list[str]:
    """What the first few unbound pods say of themselves."""
    params = {"fieldSelector": "spec.nodeName="}
    page = msgspec.json.decode((await client.list_page("/api/v1/pods", params, limit=3)).body)
    return [f"{pod['metadata']['name']}: {pod['status']}" for pod in page["items"]]


async def until_events(client: KubeClient, watch: BindWatch, result: Result) -> None:
    """Wait until the number of events says that each bound pod may have its own; then look."""
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    while True:
        now = time.monotonic()
        page = msgspec.json.decode((await client.list_page(path, {}, limit=1)).body)
        there = len(page["items"]) + page["metadata"].get("remainingItemCount", 0)
        if there >= result.bound or now - watch.last_s > TRAIL_S:
            break
        await asyncio.sleep(0.2)
    result.trail_s = max(0.0, now - watch.last_s)
    whole = msgspec.json.decode((await client.list_page(path, {}, limit=0)).body)["items"]
    told = {event["regarding"]["uid"] for event in whole if event["reason"] == "Scheduled"}
    result.events = len(told & watch.seen)
    if result.events < result.bound:
        result.problems.append(f"{result.bound - result.events} pods without a Scheduled event")


@contextlib.asynccontextmanager
async def kube_scheduler(plane: ControlPlane, _: Path) -> AsyncIterator[Any]:
    """Contender: upstream's, with its default profile."""
    plane.start_scheduler()
    yield lambda: {"kube-scheduler": [plane.pid("kube-scheduler")]}


@contextlib.asynccontextmanager
async def stretto(plane: ControlPlane, folder: Path) -> AsyncIterator[Any]:
    """Contender: all roles of Stretto, two shards."""
    async with Roles(folder, plane.kubeconfig, shards=2) as roles:
        await asyncio.sleep(2)
        await roles.begin()
        yield roles.pids
        if roles.restarts():
            raise RuntimeError(f"{roles.restarts()} processes had to be started again")


@contextlib.asynccontextmanager
async def null_scheduler(plane: ControlPlane, _: Path) -> AsyncIterator[Any]:
    """Contender: binds and events without decisions."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.null_scheduler", "--kubeconfig", str(plane.kubeconfig),
        preexec_fn=die_with_parent,
    )  # fmt: skip
    yield lambda: {"null scheduler": [process.pid]}
    assert process.returncode is None, "it stays, so that its CPU time can be read"
    process.kill()
    await process.wait()


CONTENDERS = {
    "kube-scheduler": (kube_scheduler, "default-scheduler"),
    "stretto": (stretto, "stretto"),
    "null scheduler": (null_scheduler, "stretto"),
}


async def contend(name: str, *, nodes: int, pods: int, shapes: int) -> Result:
    """One contender on a fresh control plane."""
    contender, scheduler_name = CONTENDERS[name]
    programs = binaries.find()
    assert programs is not None, "checked at the start"
    result = Result(name)
    with tempfile.TemporaryDirectory(prefix="stretto-bench-") as text:
        plane = await asyncio.to_thread(ControlPlane(Path(text) / "kube", programs).__enter__)
        try:
            await populate(plane, nodes=nodes, pods=pods, shapes=shapes, name=scheduler_name)
            servers = {part: [plane.pid(part)] for part in ("kube-apiserver", "etcd")}
            watch = BindWatch(plane)
            config = await KubeConfig.from_file(plane.kubeconfig)
            async with KubeClient(config) as client, watch.running():
                meter = CpuMeter(servers)
                async with contender(plane, Path(text)) as processes:
                    await until_bound(watch, pods, result, cpu=lambda: meter.used(processes()))
                    if result.problems:
                        result.problems += await reasons(client)
                    result.servers_s = meter.used(servers)
                    await until_events(client, watch, result)
                    result.cpu_s = meter.used(processes())
        finally:
            plane.stop()
    return result


def print_table(results: list[Result], *, nodes: int) -> None:
    """A line for each contender, and the ratios."""
    heads = ("bound", "s", "pods/s", "CPU ms/pod", "after start", "API ms/pod", "events", "trail s")
    print(f"\n{f'{nodes:,} nodes':<16}" + "".join(f"{head:>12}" for head in heads))
    for one in results:
        pods = max(one.bound, 1)
        servers = sum(one.servers_s.values()) * 1000 / pods
        print(
            f"{one.name:<16}{one.bound:>12,}{one.seconds:>12.1f}{one.rate:>12,.0f}"
            f"{one.cpu_ms:>12.2f}{one.running_ms:>12.2f}{servers:>12.2f}{one.events:>12,}"
            f"{one.trail_s:>12.1f}"
        )
        groups = (
            f"{name} {(s - one.start_s.get(name, 0)) * 1000 / pods:.2f}"
            for name, s in one.cpu_s.items()
        )
        print(f"{'':16}after start, ms/pod: {', '.join(groups)}")
        for problem in one.problems:
            print(f"{'':16}PROBLEM: {problem}")
    by_name = {one.name: one for one in results}
    theirs, ours = by_name.get("kube-scheduler"), by_name.get("stretto")
    if theirs and ours and theirs.rate and theirs.running_ms:
        goal = GOALS.get(nodes)
        print(
            f"stretto: {ours.rate / theirs.rate:.2f} x its pods/s"
            + (f" (goal {goal:g} x)" if goal else "")
            + f"; CPU a pod {ours.running_ms / theirs.running_ms:.2f} of its after start, "
            f"{ours.cpu_ms / theirs.cpu_ms:.2f} with start (goal {CPU_GOAL:g})"
        )


async def measure(*, sizes: list[int], pods: int, shapes: int, names: list[str]) -> int:
    """Print a table for each number of nodes; 1 if anything was lost."""
    print(
        f"{conditions()}\nburst of {pods:,} pods of {shapes} shapes that exist before the "
        "scheduler starts; etcd without fsync; fresh control plane each"
    )
    broken = False
    for nodes in sizes:
        results = []
        for name in names:
            results.append(await contend(name, nodes=nodes, pods=pods, shapes=shapes))
            print(f"  {name} done: {results[-1].rate:,.0f} pods/s", flush=True)
        print_table(results, nodes=nodes)
        broken = broken or any(result.problems for result in results)
    return int(broken)


def run(args: list[str]) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="bench side-by-side",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=[1_000, 5_000])
    parser.add_argument("--pods", type=int, default=4_000)
    parser.add_argument("--shapes", type=int, default=20)
    parser.add_argument("--only", choices=list(CONTENDERS), action="append", default=[])
    options = parser.parse_args(args)
    if binaries.find() is None:
        print(f"side-by-side: {binaries.how_to_get()}", file=sys.stderr)
        return 2
    names = options.only or list(CONTENDERS)
    return uvloop.run(
        measure(sizes=options.nodes, pods=options.pods, shapes=options.shapes, names=names)
    )


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
