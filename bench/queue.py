"""The queue: what pods that cannot run cost those that can, and how long gangs wait.

All roles as processes; the simulator stands for the API server. The first table is of
:mod:`bench.beside`. The second table creates gangs at once and waits until all their members are
bound. The last lines are about memory: a hundred thousand pods that fit nowhere, and as many
members of Jobs that wait before they have pods (:mod:`bench.queued_jobs`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from bench.machine import conditions
from bench.pipeline import Options, simulator
from bench.roles import Roles
from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.model.errors import OperatorError
from stretto.workload.exposition import Reading
from stretto.workload.processes import process_use

PODS = "/api/v1/namespaces/default/pods"
GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
WAITING = 9_000
PATIENCE_S = 120.0
CREATES = 16
"""In flight."""


class _Meta(msgspec.Struct, gc=False):
    name: str = ""


class _Object(msgspec.Struct, gc=False):
    metadata: _Meta


class _Line(msgspec.Struct, gc=False):
    type: str
    object: _Object


def pod(name: str, *, cpu: str, group: str = "", gated: bool = False) -> dict[str, Any]:
    """A pending pod."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    spec: dict[str, Any] = {"schedulerName": "stretto", "containers": [container]}
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    if gated:
        spec["schedulingGates"] = [{"name": "example.com/hold"}]
    return {"metadata": {"name": name}, "spec": spec}


class Watch:
    """When pods were seen bound, by name."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._decode = msgspec.json.Decoder(_Line).decode
        self.bound_s: dict[str, float] = {}

    async def run(self) -> None:
        """Watch bound pods until cancelled."""
        params = {"fieldSelector": "spec.nodeName!=", "timeoutSeconds": "3600"}
        async with self._client.watch("/api/v1/pods", params, silence_s=3600) as pieces:
            rest = b""
            async for piece in pieces:
                now = time.monotonic()
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    change = self._decode(line)
                    if change.type == "ADDED":
                        self.bound_s.setdefault(change.object.metadata.name, now)


@dataclass
class Load:
    """Creates objects and waits for binds."""

    client: KubeClient
    watch: Watch

    def last_words(self) -> str:
        """The ends of the logs of whatever schedules."""
        return ""

    async def create(self, path: str, bodies: Iterable[dict[str, Any]]) -> None:
        """Create objects, a few at a time."""
        source = iter(bodies)

        async def work() -> None:
            for body in source:
                answer = await self.client.post(path, json.dumps(body).encode())
                assert answer.ok, answer.text

        await asyncio.gather(*(work() for _ in range(CREATES)))

    async def bound(self, names: Iterable[str]) -> None:
        """Wait until these are bound."""
        missing = set(names)
        deadline = time.monotonic() + PATIENCE_S
        while missing:
            missing -= self.watch.bound_s.keys()
            if time.monotonic() > deadline:
                raise OperatorError(
                    f"{len(missing)} pods were not bound in {PATIENCE_S:g} s; the ends of the "
                    f"logs:\n{self.last_words()}"
                )
            await asyncio.sleep(0.02)


@dataclass
class Cluster(Load):
    """A running deployment."""

    roles: Roles

    def last_words(self) -> str:
        return self.roles.last_words()

    def dispatcher(self) -> tuple[float, float]:
        """(CPU seconds, resident MiB)."""
        use = process_use("dispatcher", self.roles.pids()["dispatcher"][0])
        assert use is not None, "the dispatcher is gone"
        return use.cpu_s, use.resident_mib

    async def attempts(self) -> float:
        """Decisions so far, by the dispatcher's count."""
        return Reading([await self.roles.dispatcher_page()]).total(
            "scheduler_schedule_attempts_total"
        )


@contextlib.asynccontextmanager
async def cluster(
    *, nodes: int, node_cpu: str, shards: int, pods: int = 0, shapes: int = 1
) -> AsyncIterator[Cluster]:
    """A fresh one; ``pods`` of so many shapes wait from the start."""
    options = Options(pods, nodes, shapes, shards, "off", 0.0)
    with tempfile.TemporaryDirectory(prefix="stretto-bench-") as text:
        folder = Path(text)
        async with (
            simulator(folder, options, node_cpu=node_cpu) as (_, url, kubeconfig),
            KubeClient(KubeConfig.from_url(url), list_timeout_s=120, timeout_s=60) as client,
            Roles(folder, kubeconfig, shards=shards, events=False) as roles,
        ):
            await roles.begin()
            watch = Watch(client)
            watching = asyncio.create_task(watch.run())
            try:
                yield Cluster(client, watch, roles)
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)


async def gangs(options: Any) -> None:
    """The second table."""
    if not options.small_gangs and not options.large_gangs:
        return
    print(f"gangs on {options.gang_nodes:,} nodes, {options.shards} shards")
    print(f"{'gangs':>7}{'members':>9}{'all bound s':>13}{'P50 s':>8}{'P99 s':>8}{'created s':>11}")
    for count, size in ((options.small_gangs, 8), (options.large_gangs, 512)):
        if not count:
            continue
        async with cluster(nodes=options.gang_nodes, node_cpu="8", shards=options.shards) as here:
            names = [f"g{number}" for number in range(count)]
            policy = {"schedulingPolicy": {"gang": {"minCount": size}}}
            await here.create(GROUPS, ({"metadata": {"name": n}, "spec": policy} for n in names))
            members = {n: [f"{n}-{k}" for k in range(size)] for n in names}
            began = time.monotonic()
            await here.create(
                PODS,
                (pod(each, cpu="1", group=n) for n in names for each in members[n]),
            )
            created_s = time.monotonic() - began
            await here.bound(each for all_ in members.values() for each in all_)
            waits = sorted(max(here.watch.bound_s[m] for m in members[n]) - began for n in names)
            at = [waits[min(count - 1, count * percent // 100)] for percent in (50, 99)]
            print(
                f"{count:>7}{size:>9}{waits[-1]:>13.1f}{at[0]:>8.1f}{at[1]:>8.1f}{created_s:>11.1f}",
                flush=True,
            )


async def pending(options: Any) -> None:
    """The third table."""
    began = time.monotonic()
    async with cluster(
        nodes=1, node_cpu="1m", shards=options.shards, pods=options.pending, shapes=100
    ) as here:
        while True:
            page = Reading([await here.roles.dispatcher_page()])
            parked = dict(page.by_label("scheduler_pending_pods", "queue")).get("unschedulable", 0)
            if parked >= options.pending or time.monotonic() - began > PATIENCE_S:
                break
            await asyncio.sleep(0.5)
        cpu_s, mib = here.dispatcher()
        print(
            f"{options.pending:,} pending pods of 100 shapes that fit nowhere, {parked:,} parked: "
            f"dispatcher {mib:.0f} MiB (goal 500), {cpu_s:.1f} s of CPU, "
            f"{await here.attempts():.0f} decisions"
        )


async def measure(options: Any) -> int:
    """Both tables."""
    print(conditions())
    if options.pairs:
        from bench.beside import beside  # it is built on this module

        await beside(options)
    await gangs(options)
    if options.pending:
        await pending(options)
    if options.queued:
        from bench.queued_jobs import queued_jobs  # the same

        await queued_jobs(options)
    return 0


def run(args: list[str]) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="bench queue", description=__doc__)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--waiting", type=int, default=WAITING, help="pods that cannot run")
    parser.add_argument("--pairs", type=int, default=8, help="rounds of the first table; 0: none")
    parser.add_argument("--stream", type=int, default=400, help="pods of a round's stream")
    parser.add_argument("--rate", type=int, default=200, help="pods a second of the stream")
    parser.add_argument("--burst", type=int, default=1_500, help="pods of a round's burst")
    parser.add_argument("--gang-nodes", type=int, default=5_000)
    parser.add_argument("--small-gangs", type=int, default=1_000, help="of 8")
    parser.add_argument("--large-gangs", type=int, default=10, help="of 512")
    parser.add_argument("--pending", type=int, default=100_000, help="pods that fit nowhere")
    parser.add_argument("--queued", type=int, default=100_000, help="members of suspended Jobs")
    parser.add_argument("--jobs", type=int, default=100, help="Jobs that they are members of")
    return uvloop.run(measure(parser.parse_args(args)))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
