"""All roles as processes, with the simulator in the place of the API server.

The simulator keeps state and sends watch events, in a process of its own; nodes and pending pods
exist before the dispatcher starts. Measured from the first bind to the last: pods a second, and CPU
a pod of every process; what was spent before (the dispatcher's start, its list of the pods) is told
apart. Then it is checked, by the simulator's objects and by the ledger's, that every pod was bound
exactly once and that the two agree on what every node holds.

Two rows: binds only, and with a Scheduled event for every pod.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from bench.machine import CpuMeter, conditions
from bench.roles import Roles
from stretto.cli.supervisor import free_port
from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.ledger.client import Ledger
from stretto.ledger.server import die_with_parent
from stretto.simulator.amounts import pod_amounts

GOAL = 4_000
"""Pods a second, binds only."""
STALLED_S = 30.0
"""Without a bind for so long, a run is given up."""
POLL_S = 0.25


@dataclass
class Options:
    """What is run."""

    pods: int
    nodes: int
    shapes: int
    shards: int
    kubelet: str
    bind_ms: float


@dataclass
class Result:
    """What came out of one run."""

    bound: int = 0
    seconds: float = 0.0
    start_s: dict[str, float] = field(default_factory=dict)
    """CPU seconds by group until the first bind was seen; of the dispatcher, all of its start."""
    cpu_s: dict[str, float] = field(default_factory=dict)
    """From then on."""
    conflicts: int = 0
    events: int = 0
    dropped: int = 0
    """Events that the binder dropped because its queue was full, as it counts them itself."""
    events_trail_s: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Pods a second."""
        return self.bound / self.seconds if self.seconds else 0.0


@contextlib.asynccontextmanager
async def simulator(
    folder: Path, options: Options, *, node_cpu: str = "1000", window: int = 0
) -> AsyncIterator[tuple[int, str, Path]]:
    """The simulator as a process: (pid, url, kubeconfig). ``window``: changes that its watches
    keep at least."""
    port, kubeconfig = free_port(), folder / "kubeconfig"
    arguments = [
        "simulator", "--port", str(port), "--kubeconfig", str(kubeconfig),
        "--kubelet", options.kubelet,
        "--nodes", str(options.nodes), "--pods", str(options.pods),
        "--pod-shapes", str(options.shapes),
        "--node-cpu", node_cpu, "--node-memory", "4Ti", "--node-pods", "10000",
        "--watch-window", str(max(window, 4 * options.pods + 10_000)),
        "--event-window", str(options.pods + 1000),
    ]  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "stretto.cli.main", *arguments,
        stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        preexec_fn=die_with_parent,
    )  # fmt: skip
    try:
        async with asyncio.timeout(120):
            while not kubeconfig.exists() and process.returncode is None:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert process.returncode is None, "the simulator did not start"
        yield process.pid, f"http://127.0.0.1:{port}", kubeconfig
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def run_once(options: Options, *, events: bool) -> Result:
    """One row."""
    with tempfile.TemporaryDirectory(prefix="stretto-bench-") as text:
        folder = Path(text)
        async with (
            simulator(folder, options) as (pid, url, kubeconfig),
            KubeClient(KubeConfig.from_url(url), list_timeout_s=120, timeout_s=60) as client,
            Roles(folder, kubeconfig, shards=options.shards, events=events) as roles,
        ):
            await slow_down(client, options.bind_ms)
            meter = CpuMeter({**roles.pids(), "simulator": [pid]})
            starting = asyncio.create_task(roles.begin())
            await first_bind(client)
            start_s = meter.used({**roles.pids(), "simulator": [pid]})
            result = await watch_progress(client, roles, options, events=events)
            await starting
            whole_s = meter.used({**roles.pids(), "simulator": [pid]})
            result.start_s = start_s
            result.cpu_s = {group: s - start_s.get(group, 0.0) for group, s in whole_s.items()}
            if roles.restarts():
                result.problems.append(f"{roles.restarts()} processes had to be started again")
            await asyncio.sleep(1)  # the binder sees the last binds in its watch
            result.problems += await problems_of(client, roles.ledger_url, options)
            if result.problems:
                result.problems.append(f"the ends of the logs:\n{roles.last_words()}")
            return result


async def slow_down(client: KubeClient, bind_ms: float) -> None:
    """Let the simulator answer each bind and each event so late: pods then come one by one, as they
    do from a real API server."""
    if bind_ms:
        rules = [
            {"effect": "delay", "method": "POST", "resource": resource, "delay_s": bind_ms / 1000}
            for resource in ("pods/binding", "events")
        ]
        answer = await client.post("/simulator/faults", {"rules": rules})
        assert answer.ok, answer.text


async def stats_of(client: KubeClient) -> dict[str, Any]:
    """The simulator's counts."""
    stats: dict[str, Any] = msgspec.json.decode((await client.get("/simulator/stats")).body)
    return stats


async def first_bind(client: KubeClient) -> None:
    """Wait until something is bound."""
    deadline = time.monotonic() + STALLED_S
    while not (await stats_of(client))["api"]["bound"] and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


async def watch_progress(
    client: KubeClient, roles: Roles, options: Options, *, events: bool
) -> Result:
    """Poll until every pod is bound (and its event written or dropped), or nothing moves any
    more."""
    done, moved_at = (0, 0), time.monotonic()
    while True:
        await asyncio.sleep(POLL_S)
        api = (await stats_of(client))["api"]
        requests = api["requests"]
        now = time.monotonic()
        written = sum(n for key, n in requests.items() if key.startswith("POST events 201"))
        if (api["bound"], written) != done:
            done, moved_at = (api["bound"], written), now
        dropped = await roles.events_dropped() if events else 0
        told = written + dropped >= options.pods or not events
        finished = told and api["bound"] >= options.pods
        if finished or now - moved_at > STALLED_S:
            break
    result = Result(
        bound=api["bound"],
        seconds=api["last_bind_s"] - api["first_bind_s"],
        conflicts=sum(n for key, n in requests.items() if key.startswith("POST pods/binding 4")),
        events=written,
        dropped=dropped,
        events_trail_s=max(0.0, moved_at - api["last_bind_s"]) if events else 0.0,
    )
    if not finished:
        result.problems.append(
            f"given up after {STALLED_S:.0f} s without progress: {api['bound']} of {options.pods} "
            f"bound, {written} events; requests {requests}"
        )
    return result


async def problems_of(client: KubeClient, ledger_url: str, options: Options) -> list[str]:
    """Lost and double binds, overcommitted nodes, and where the ledger and the API differ."""
    api = (await stats_of(client))["api"]
    kubelet = (await stats_of(client))["kubelet"]
    found = []
    held, unbound = await held_by_nodes(client)
    if unbound:
        found.append(f"{unbound} pods lost: not bound at the end")
    if api["bound"] != options.pods - unbound:
        found.append(f"{api['bound']} binds carried out for {options.pods - unbound} bound pods")
    if kubelet.get("rejected"):
        found.append(f"kubelets rejected {kubelet['rejected']}")
    sums = await ledger_sums(client, ledger_url)
    differing = [uid for uid in held.keys() | sums.keys() if held.get(uid, {}) != sums.get(uid, {})]
    if differing:
        uid = differing[0]
        found.append(
            f"ledger and API differ on {len(differing)} nodes, for one: API {held.get(uid)}, "
            f"ledger {sums.get(uid)}"
        )
    return found


async def held_by_nodes(client: KubeClient) -> tuple[dict[str, dict[str, int]], int]:
    """What the pods of the API hold by node uid, reckoned by the kubelet's code; unbound pods."""
    uids = {
        node["metadata"]["name"]: node["metadata"]["uid"]
        for node in await all_of(client, "/api/v1/nodes")
    }
    held: dict[str, dict[str, int]] = {}
    unbound = 0
    for pod in await all_of(client, "/api/v1/pods"):
        node = pod["spec"].get("nodeName")
        if not node:
            unbound += 1
            continue
        sums = held.setdefault(uids[node], {})
        for name, value in pod_amounts(pod["spec"]).items():
            sums[name] = sums.get(name, 0) + value
    return held, unbound


async def all_of(client: KubeClient, path: str) -> list[Any]:
    """A whole list, in pages."""
    items, token = [], ""
    while True:
        page = msgspec.json.decode(
            (await client.list_page(path, {}, limit=2000, continue_token=token)).body
        )
        items += page["items"]
        token = page["metadata"].get("continue", "")
        if not token:
            return items


async def ledger_sums(client: KubeClient, url: str) -> dict[str, dict[str, int]]:
    """What the ledger's entries hold by node uid, zeros left out."""
    system = await client.get("/api/v1/namespaces/kube-system")
    uid = msgspec.json.decode(system.body)["metadata"]["uid"]
    ledger = await Ledger.open(url, owner=f"{uid}:kube-system/stretto-binder")
    try:
        await ledger.load_names()
        sums = await ledger.sums()
    finally:
        await ledger.close()
    nonzero = {
        uid: {name: value for name, value in held.items() if value} for uid, held in sums.items()
    }
    return {uid: held for uid, held in nonzero.items() if held}


GROUPS = ("dispatcher", "shards", "binder", "ledger server", "simulator")


def print_row(name: str, result: Result, *, goal: int) -> None:
    """A line of the table, and its problems below it."""
    ratio = f"{result.rate / goal:.2f} x" if goal else "-"
    pods = max(result.bound, 1)
    costs = "".join(f"{result.cpu_s.get(group, 0) / pods * 1e6:>15.0f}" for group in GROUPS)
    print(
        f"{name:<12}{result.bound:>9,}{result.seconds:>8.1f}{result.rate:>9,.0f}{ratio:>9}"
        f"{result.conflicts:>11}{costs}"
    )
    starts = (f"{group} {s:.2f}" for group, s in result.start_s.items() if s >= 0.005)
    print(f"{'':12}CPU until the first bind, s, not in the columns: {', '.join(starts)}")
    if result.events:
        print(
            f"{'':12}{result.events:,} events written, {result.dropped:,} dropped at the queue's "
            f"bound, the last {result.events_trail_s:.1f} s behind"
        )
    for problem in result.problems:
        print(f"{'':12}PROBLEM: {problem}")
    if not result.problems:
        print(f"{'':12}0 lost, 0 double; ledger sums equal to the projection of the API")


async def measure(options: Options, *, rows: list[bool]) -> int:
    """Print the table; 1 if an invariant broke."""
    print(
        f"{conditions()}\n{options.pods:,} pods of {options.shapes} shapes, {options.nodes:,} "
        f"nodes, {options.shards} shards; kubelets: {options.kubelet}; ledger: append-only file, "
        "fsync every second"
    )
    print(
        f"{'':12}{'bound':>9}{'s':>8}{'pods/s':>9}{'of goal':>9}{'conflicts':>11}"
        + "".join(f"{group + ' us':>15}" for group in GROUPS)
    )
    broken = False
    for events in rows:
        result = await run_once(options, events=events)
        print_row("with events" if events else "binds only", result, goal=0 if events else GOAL)
        broken = broken or bool(result.problems)
    return int(broken)


def run(args: list[str]) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="bench pipeline", description=__doc__)
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--shapes", type=int, default=20)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--kubelet", choices=["count", "off"], default="off")
    parser.add_argument(
        "--bind-ms", type=float, default=0.0, help="the API server answers a bind so late"
    )
    parser.add_argument("--no-events", action="store_true", help="the first row only")
    options = parser.parse_args(args)
    rows = [False] if options.no_events else [False, True]
    wanted = Options(
        options.pods,
        options.nodes,
        options.shapes,
        options.shards,
        options.kubelet,
        options.bind_ms,
    )
    return uvloop.run(measure(wanted, rows=rows))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
