"""The same pods on the same real kube-apiserver: kube-scheduler, then Stretto, then the floor.

Each contender gets a fresh control plane with the same nodes and a burst of pods that exist before
it starts; it starts when the servers have calmed down. A watch of the bench (identities only, the
same for all) tells when each pod was bound. Printed: pods a second from the first bind to the last,
CPU until the first bind (loading code, reading nodes and pods: a fixed cost) and CPU a pod after
it, by group of processes, how far the last Scheduled event trails the last bind, what others took
of the machine meanwhile, and the ratios to kube-scheduler. A contender that lost a pod, an event or
a process, or took too long, is INVALID: it is said why, no ratio is given, and the exit code is 1.

Needs the programs of a control plane: KUBEBUILDER_ASSETS, or built once by tests/kube_env.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from bench.bind_watch import BindWatch
from bench.contenders import CONTENDERS, InvalidRun, Running
from bench.machine import BUSY, CpuMeter, Disturbance, conditions
from stretto.cli.run import shards_for
from stretto.cli.supervisor import process_cpu_s
from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.model.errors import OperatorError
from stretto.simulator.population import node_bodies, pod_bodies
from stretto.simulator.settings import SimulatorSettings
from tests.kube_env import binaries
from tests.kube_env.control_plane import ControlPlane

GOALS = {1_000: 2.0, 5_000: 2.5}
"""Times kube-scheduler's pods a second, by nodes."""
CPU_GOAL = 0.25
"""Of kube-scheduler's CPU a pod, summed over our processes."""
STALLED_S = 60.0
TRAIL_S = 60.0
CALM_S = 30.0
"""How long is waited at most until the servers have calmed down."""
LIMIT_S = 300.0
"""For one contender, the filling of its cluster included."""


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
    others: float = 0.0
    """Share of the machine that others took from the contender's start to the last bind."""
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


async def populate(plane: ControlPlane, *, nodes: int, pods: int, shapes: int, name: str) -> None:
    """Create the nodes and the burst."""
    settings = SimulatorSettings(nodes=nodes, pods=pods, pod_shapes=shapes, pod_scheduler_name=name)
    config = await KubeConfig.from_file(plane.kubeconfig)
    async with KubeClient(config, timeout_s=60) as client:

        async def create(path: str, bodies: Any) -> None:
            for body in bodies:
                answer = await client.post(path, body)
                if answer.status != 201:
                    raise InvalidRun(f"POST {path} was answered {answer.status}: {answer.text}")

        for path, bodies in (
            ("/api/v1/nodes", node_bodies(settings)),
            ("/api/v1/namespaces/default/pods", pod_bodies(settings)),
        ):
            await asyncio.gather(*(create(path, bodies) for _ in range(16)))


async def until_calm(pids: list[int], result: Result) -> None:
    """Wait until the servers take less than a tenth of a CPU: what they do after the filling
    (collecting garbage, building caches) is nobody's cost."""
    deadline = time.monotonic() + CALM_S
    while time.monotonic() < deadline:
        before = sum(map(process_cpu_s, pids))
        await asyncio.sleep(1)
        if sum(map(process_cpu_s, pids)) - before < 0.1:
            return
    result.problems.append(f"the servers were still at work {CALM_S:.0f} s after the filling")


async def until_bound(
    watch: BindWatch,
    pods: int,
    result: Result,
    *,
    running: Running,
    cpu: Callable[[], dict[str, float]],
) -> None:
    """Wait for the last bind, or until nothing moves any more."""
    moved_at, checked_at, seen = time.monotonic(), 0.0, 0
    while (count := len(watch.seen)) < pods:
        now = time.monotonic()
        if now - checked_at > 1:
            checked_at = now
            running.check()
        if count > seen:
            if not seen:
                result.start_s = cpu()
            seen, moved_at = count, now
        elif now - moved_at > STALLED_S:
            result.problems.append(f"stalled: {count} of {pods} bound")
            break
        await asyncio.sleep(0.05 if seen else 0.01)
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


async def contend(name: str, *, nodes: int, pods: int, shapes: int, shards: int) -> Result:
    """One contender on a fresh control plane."""
    programs = binaries.find()
    assert programs is not None, "checked at the start"
    result = Result(name)
    with tempfile.TemporaryDirectory(prefix="stretto-bench-") as text:
        plane = await asyncio.to_thread(ControlPlane(Path(text) / "kube", programs).__enter__)
        try:
            async with asyncio.timeout(LIMIT_S):
                scheduler_name = CONTENDERS[name][1]
                await populate(plane, nodes=nodes, pods=pods, shapes=shapes, name=scheduler_name)
                await race(plane, Path(text), result, pods=pods, shards=shards)
        except TimeoutError:
            result.problems.append(f"not done after {LIMIT_S:.0f} s")
        except (InvalidRun, OperatorError) as error:
            result.problems.append(str(error))
        finally:
            plane.stop()
    return result


async def race(
    plane: ControlPlane, folder: Path, result: Result, *, pods: int, shards: int
) -> None:
    """The contender on the filled cluster."""
    servers = {part: [plane.pid(part)] for part in ("kube-apiserver", "etcd")}
    server_pids = [pid for pids in servers.values() for pid in pids]
    watch = BindWatch(plane)
    config = await KubeConfig.from_file(plane.kubeconfig)
    async with KubeClient(config, timeout_s=60) as client, watch.running():
        await until_calm(server_pids, result)
        meter, disturbance = CpuMeter(servers), Disturbance([*server_pids, os.getpid()])
        async with CONTENDERS[result.name][0](plane, folder, shards) as running:

            def cpu() -> dict[str, float]:
                return meter.used(running.pids())

            await until_bound(watch, pods, result, running=running, cpu=cpu)
            ours = [pid for pids in running.pids().values() for pid in pids]
            result.others = disturbance.share([*server_pids, os.getpid(), *ours])
            if result.problems:
                result.problems += [*await reasons(client), running.words()]
            result.servers_s = meter.used(servers)
            await until_events(client, watch, result)
            running.check()
            result.cpu_s = cpu()


def print_table(results: list[Result], *, nodes: int) -> None:
    """A line for each contender, and the ratios."""
    heads = (
        "bound", "s", "pods/s", "start CPU s", "+ ms/pod", "all ms/pod", "API ms/pod", "events",
        "trail s", "others",
    )  # fmt: skip
    print(f"\n{f'{nodes:,} nodes':<16}" + "".join(f"{head:>12}" for head in heads))
    for one in results:
        pods = max(one.bound, 1)
        servers = sum(one.servers_s.values()) * 1000 / pods
        print(
            f"{one.name:<16}{one.bound:>12,}{one.seconds:>12.1f}{one.rate:>12,.0f}"
            f"{sum(one.start_s.values()):>12.2f}{one.running_ms:>12.3f}{one.cpu_ms:>12.3f}"
            f"{servers:>12.2f}{one.events:>12,}{one.trail_s:>12.1f}{one.others:>12.0%}"
        )
        groups = (
            f"{name} {one.start_s.get(name, 0):.2f} s + "
            f"{(s - one.start_s.get(name, 0)) * 1000 / pods:.3f}"
            for name, s in one.cpu_s.items()
        )
        print(f"{'':16}CPU: start s + ms/pod: {', '.join(groups)}")
        if one.others > BUSY:
            print(f"{'':16}NOTE: the machine was busy with other work; pods/s is not undisturbed")
        for problem in one.problems:
            print(f"{'':16}INVALID: {problem}")
    print_ratios({one.name: one for one in results if not one.problems}, nodes=nodes)


def print_ratios(by_name: dict[str, Result], *, nodes: int) -> None:
    """Stretto's to kube-scheduler's and to the floor's."""
    theirs, ours = by_name.get("kube-scheduler"), by_name.get("stretto")
    floor = by_name.get("null scheduler")
    if theirs and ours:
        goal = GOALS.get(nodes)
        print(
            f"stretto: {ours.rate / theirs.rate:.2f} x kube-scheduler's pods/s"
            + (f" (goal {goal:g} x)" if goal else "")
            + f"; CPU a pod {ours.running_ms / theirs.running_ms:.2f} of its after start, "
            f"{ours.cpu_ms / theirs.cpu_ms:.2f} with start (goal {CPU_GOAL:g})"
        )
    if floor and ours:
        print(
            f"stretto: {ours.rate / floor.rate:.2f} of the floor's pods/s; CPU a pod after start "
            f"{ours.running_ms / floor.running_ms:.1f} x the floor's"
        )


async def measure(
    *, sizes: list[int], pods: int, shapes: int, shards: int, names: list[str]
) -> int:
    """Print a table for each number of nodes; 1 if a run was invalid."""
    print(
        f"{conditions()}\nburst of {pods:,} pods of {shapes} shapes that exist before the "
        f"scheduler starts; shards: {shards}; etcd without fsync; fresh control plane each"
    )
    broken = False
    for nodes in sizes:
        results = []
        for name in names:
            load = os.getloadavg()[0]
            result = await contend(name, nodes=nodes, pods=pods, shapes=shapes, shards=shards)
            results.append(result)
            word = "INVALID" if result.problems else "done"
            print(
                f"  {nodes:,} nodes, {name} {word}: {result.rate:,.0f} pods/s; load before "
                f"{load:.1f}, others took {result.others:.0%} of the machine",
                flush=True,
            )
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
    parser.add_argument("--shards", type=int, default=shards_for(len(os.sched_getaffinity(0))))
    parser.add_argument("--only", choices=list(CONTENDERS), action="append", default=[])
    options = parser.parse_args(args)
    programs = binaries.find()
    if programs is None:
        print(f"side-by-side: {binaries.how_to_get()}", file=sys.stderr)
        return 2
    names = options.only or list(CONTENDERS)
    if "kube-scheduler" in names and not os.access(programs / "kube-scheduler", os.X_OK):
        print(f"side-by-side: {programs} lacks kube-scheduler; use --only", file=sys.stderr)
        return 2
    return uvloop.run(
        measure(
            sizes=options.nodes,
            pods=options.pods,
            shapes=options.shapes,
            shards=options.shards,
            names=names,
        )
    )


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
