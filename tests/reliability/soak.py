"""Pods come and go at a steady rate for a long time, and nothing is done to anybody (R26): does a
process grow, and does the history hold?

Memory, open files and threads of each role are looked at now and then; the slope is that of the
straight line with the least squares, the first third left out: caches fill up until then.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import pathlib
import statistics
import tempfile
import time

from tests.e2e.stack import Stack, StackSettings, until
from tests.reliability.chaos import CONVERGED_S
from tests.reliability.chaos_world import Flow, WatchedCluster, world

LOOK_S = 10.0
WARM_UP = 1 / 3
MIB = 1 << 20
CALM = ["--lease-duration-s=30", "--lease-renew-deadline-s=25", "--lease-retry-s=2"]
"""Nobody takes over because the machine has stood still for a while, as in one run for 27 s."""
SMALL = {
    "binder": ["--log-bytes", str(MIB), "--stories", "500", *CALM],
    "dispatcher": ["--stories", "500", *CALM],
    "shard": ["--stories", "500"],
}
"""What is kept of the past: by default 64 MiB of what followers may have missed and the stories of
20,000 units, which look like leaks until they are full."""
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclasses.dataclass(frozen=True)
class Look:
    """At one process, once."""

    at_s: float
    rss_mib: float
    files: int
    threads: int


def look_at(pid: int, *, at_s: float) -> Look | None:
    """From /proc; None if the process is gone."""
    folder = pathlib.Path(f"/proc/{pid}")
    try:
        pages = int((folder / "statm").read_text().split()[1])
        return Look(
            at_s,
            pages * PAGE / MIB,
            files=len(list((folder / "fd").iterdir())),
            threads=len(list((folder / "task").iterdir())),
        )
    except OSError:
        return None


def slope_an_hour(looks: list[Look], *, of: str) -> float:
    """Growth of a figure of the looks, an hour."""
    fit = statistics.linear_regression(
        [each.at_s for each in looks], [getattr(each, of) for each in looks]
    )
    return fit.slope * 3600


def line(name: str, looks: list[Look]) -> str:
    """What became of a process."""
    warm = looks[round(len(looks) * WARM_UP) :]
    first, last = warm[0], warm[-1]
    return (
        f"  {name:14} {slope_an_hour(warm, of='rss_mib'):+7.2f} MiB/h "
        f"({first.rss_mib:.1f} → {last.rss_mib:.1f} MiB RSS), files {first.files} → {last.files} "
        f"({slope_an_hour(warm, of='files'):+.1f}/h), threads {first.threads} → {last.threads}"
    )


async def run(*, minutes: float, rate: float, real: bool) -> int:
    """Print the slopes; 1 if anything was lost or broken."""
    with tempfile.TemporaryDirectory(prefix="stretto-soak-") as text:
        folder = pathlib.Path(text)
        (folder / "stack").mkdir()
        async with world(folder, real=real) as (kubeconfig, cluster):
            settings = StackSettings(standbys=True, flags=SMALL)
            stack = Stack(folder / "stack", kubeconfig, settings)
            try:
                await soaked(stack, cluster, minutes=minutes, rate=rate)
            except (AssertionError, TimeoutError) as error:
                print(error)
                return 1
    return 0


async def soaked(stack: Stack, cluster: WatchedCluster, *, minutes: float, rate: float) -> None:
    """The run; leaving the stack checks its history."""
    flow = Flow(cluster)
    looks: dict[str, list[Look]] = {}
    async with stack:
        began = time.monotonic()
        tasks = [
            asyncio.create_task(flow.drain()),
            asyncio.create_task(looking(stack, looks, began=began)),
        ]
        await flow.pour(pods=round(rate * minutes * 60), rate=rate)
        await until(lambda: not flow.waiting, timeout_s=CONVERGED_S, what="every pod bound")
        took_min = (time.monotonic() - began) / 60
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await stack.settle(timeout_s=60)
        starts = {name: role.starts for name, role in stack.supervisor.roles.items()}
        print(f"{flow.created:,} pods in {took_min:.1f} min, {len(flow.waiting)} lost:", flush=True)
        for name, seen in sorted(looks.items()):
            print(line(name, seen), flush=True)
        assert set(starts.values()) == {1}, f"roles were started again: {starts}"
    print("the history holds every invariant that is checked (docs/history.md)")


async def looking(stack: Stack, looks: dict[str, list[Look]], *, began: float) -> None:
    """At every process, until cancelled."""
    while True:
        at_s = time.monotonic() - began
        pids = {n: r.process.pid for n, r in stack.supervisor.roles.items() if r.process}
        for name, pid in {**pids, "ledger": stack.server.pid}.items():
            if (seen := look_at(pid, at_s=at_s)) is not None:
                looks.setdefault(name, []).append(seen)
        await asyncio.sleep(LOOK_S)
