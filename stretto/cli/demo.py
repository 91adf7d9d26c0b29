"""`stretto demo`: the main job on one machine, with a verdict on the invariants.

A simulated cluster (its own process, over real HTTP), a real Valkey server from a wheel, one
dispatcher, shards and one binder as separate processes, and the load generator replaying the openb
trace: 1,213 GPU nodes, 8,152 pods, 149 days compressed to a minute. Then every invariant that can
be checked from outside is checked against the simulator's own sums, and a report is written.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import pathlib
import sys
import tempfile
import urllib.request
from typing import Any

from stretto.cli.demo_report import Inside, extras_of, report
from stretto.cli.kept_ledger import KeptLedger
from stretto.cli.loadgen import LiveProgress
from stretto.cli.run import Ports, RunSettings, roles_of
from stretto.cli.runner import run_role
from stretto.cli.supervisor import Role, Supervisor, free_port
from stretto.cli.verdict import final_state, ledger_checks, load_checks
from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.model.errors import OperatorError
from stretto.workload import openb
from stretto.workload.load import run_load
from stretto.workload.processes import ProcessUse, process_use
from stretto.workload.settings import Arrival, LoadSettings

START_TIMEOUT_S = 30.0


@dataclasses.dataclass(frozen=True)
class DemoSettings:
    """Flags of `stretto demo`."""

    out: pathlib.Path = dataclasses.field(
        default=pathlib.Path("out/demo"),
        metadata={"help": "folder of the report (report.html, report.json) and the logs"},
    )
    shards: int = dataclasses.field(default=2, metadata={"help": "scheduler shard processes"})
    pods: int = dataclasses.field(
        default=0, metadata={"help": "only the first so many pods of the trace; 0: all 8,152"}
    )
    span_s: float = dataclasses.field(
        default=60.0, metadata={"help": "seconds that the trace's days are compressed to"}
    )

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not 1 <= self.shards <= 16:
            raise ValueError(f"--shards {self.shards}: take 1 to 16")
        if not 5 <= self.span_s <= 3600:
            raise ValueError(f"--span-s {self.span_s:g}: take 5 to 3600")
        if self.pods < 0:
            raise ValueError(f"--pods {self.pods}: take 0 (all) or more")


def fetch(url: str) -> bytes:
    """Body of a GET on loopback."""
    with urllib.request.urlopen(url, timeout=5) as reply:  # noqa: S310 (our own process)
        body: bytes = reply.read()
        return body


class Demo:
    """The parts of a running demo."""

    def __init__(self, settings: DemoSettings, *, ledger: KeptLedger) -> None:
        self.settings = settings
        self.ledger = ledger
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.kubeconfig = settings.out / "kubeconfig"
        self.ports = Ports()
        run = RunSettings(
            kubeconfig=self.kubeconfig,
            shards=settings.shards,
            log_dir=settings.out / "logs",
            log_level="info",
        )
        simulator = Role(
            name="simulator",
            arguments=["simulator", "--port", str(self.port), "--kubeconfig", str(self.kubeconfig)],
            ready_url=f"{self.url}/readyz",
            log=settings.out / "logs" / "simulator.log",
        )
        roles = roles_of(run, redis_url=ledger.url, ports=self.ports)
        self.supervisor = Supervisor([simulator, *roles])
        self.role_names = [role.name for role in roles]

    async def start(self) -> None:
        """Start the cluster, then the scheduler; wait until all are ready."""
        await self.supervisor.start("simulator")
        await self.supervisor.wait_ready(timeout_s=START_TIMEOUT_S, names=("simulator",))
        await self.supervisor.start(*self.role_names)
        await self.supervisor.wait_ready(timeout_s=START_TIMEOUT_S)

    def uses(self) -> dict[str, ProcessUse]:
        """What each process has used so far."""
        found = {}
        for name, role in self.supervisor.roles.items():
            use = process_use(name, role.process.pid) if role.process else None
            if use is not None:
                found[name] = use
        return found

    async def pages(self) -> dict[str, str]:
        """The metrics of each role."""
        roles = (self.supervisor.roles[name] for name in self.role_names)
        urls = [role.ready_url.replace("/readyz", "/metrics") for role in roles]
        pages = await asyncio.gather(*(asyncio.to_thread(fetch, url) for url in urls))
        return {name: page.decode() for name, page in zip(self.role_names, pages, strict=True)}

    async def simulator_stats(self) -> dict[str, Any]:
        """The simulator's own sums."""
        body = await asyncio.to_thread(fetch, f"{self.url}/simulator/stats")
        stats: dict[str, Any] = json.loads(body)
        return stats


def load_settings(settings: DemoSettings, demo: Demo) -> LoadSettings:
    """The load: the trace, compressed."""
    return LoadSettings(
        kubeconfig=demo.kubeconfig,
        run="openb",
        arrival=Arrival.TRACE,
        trace="openb",
        nodes="openb",
        pods=settings.pods,
        span_s=settings.span_s,
        max_gap_s=openb.MAX_GAP_S,
        settle_s=5.0,
    )


async def run_demo(settings: DemoSettings, *, stop: asyncio.Event) -> int:
    """Run the main job; 0 only if every invariant held."""
    try:
        (settings.out / "logs").mkdir(parents=True, exist_ok=True)
        for old in (settings.out / "logs").glob("*.log"):
            old.unlink()
    except OSError as error:
        raise OperatorError(
            f"--out {settings.out}: {error.strerror}; name a folder that can be written"
        ) from None
    with tempfile.TemporaryDirectory(prefix="stretto-demo-") as folder:
        async with KeptLedger(folder=pathlib.Path(folder)) as ledger:
            demo = Demo(settings, ledger=ledger)
            try:
                sys.stderr.write("stretto demo: starting the cluster and all roles …\n")
                await demo.start()
                return await run_load_and_judge(demo, stop=stop)
            finally:
                # The roles first: what they follow must not end before them.
                await demo.supervisor.stop(*demo.role_names)
                await demo.supervisor.stop()


async def run_load_and_judge(demo: Demo, *, stop: asyncio.Event) -> int:
    """The load, then the verdict and the report."""
    settings = demo.settings
    config = await KubeConfig.from_file(demo.kubeconfig)
    async with KubeClient(config) as client:
        before, uses = await demo.pages(), demo.uses()
        with LiveProgress(f"stretto demo: openb on {settings.shards} shards") as live:
            result = await run_load(
                load_settings(settings, demo),
                client=client,
                progress=live.show,
                stop=stop,
                notes=(openb.NOTE,),
            )
        inside = Inside.between(before, await demo.pages())
        state = await final_state(client, demo.simulator_stats)
        checks = load_checks(result, state, restarts=restarts(demo))
        checks += await ledger_checks(client, demo.ledger.url, state)
    use = tuple(now.since(uses.get(name)) for name, now in demo.uses().items())
    extras = extras_of(inside, shards=settings.shards, use=use, checks=checks)
    report(result, extras, folder=settings.out)
    return 0 if all(check.held for check in checks) and result.finished else 1


def restarts(demo: Demo) -> dict[str, int]:
    """Roles that had to be started again, with how often."""
    found = {name: role.starts - 1 for name, role in demo.supervisor.roles.items()}
    found["ledger"] = demo.ledger.restarts
    return {name: count for name, count in found.items() if count}


def demo_command(settings: DemoSettings) -> int:
    """Entry point of `stretto demo`."""
    return run_role(lambda stop: run_demo(settings, stop=stop))
