"""Pods come and go while every few seconds one process, the ledger's server included, is killed
(R3–R5, R10): with leases of 3 s, and the whole history held against the invariants afterwards.

The API server is the real kube-apiserver, or the simulator over real HTTP, which takes more pods.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import pathlib
import random
import statistics
import tempfile
import time

from tests.e2e.stack import Stack, StackSettings, until
from tests.reliability.chaos_world import Flow, WatchedCluster, world

CONVERGED_S = 120.0
TELL_S = 60.0
LEDGER = "ledger"
EMPTIED = 0.3
"""Of the kills of the ledger's server: it comes back without its data."""


@dataclasses.dataclass(frozen=True)
class Kill:
    """One of them."""

    at: float
    what: str
    """The role's kind, and whether it led."""


class Killer:
    """Kills one at random, again and again, until cancelled."""

    def __init__(self, stack: Stack, *, every_s: float, seed: int) -> None:
        self.kills: list[Kill] = []
        self._stack = stack
        self._every_s = every_s
        self._rng = random.Random(seed)

    async def run(self) -> None:
        """Every ``every_s`` seconds, one that runs."""
        next_at = time.monotonic()
        while True:
            next_at = max(next_at + self._every_s, time.monotonic())
            await asyncio.sleep(next_at - time.monotonic())
            roles = self._stack.supervisor.roles.values()
            name = self._rng.choice([*(role.name for role in roles if role.process), LEDGER])
            what = await self._described(name)
            at = time.monotonic()
            if name == LEDGER:
                await self._stack.restart_ledger(empty=what.endswith("emptied"))
            elif self._stack.supervisor.roles[name].process is None:
                continue  # it has ended by itself meanwhile
            else:
                await self._stack.kill(name)
            self.kills.append(Kill(at, what))

    async def _described(self, name: str) -> str:
        if name == LEDGER:
            return f"{LEDGER}, emptied" if self._rng.random() < EMPTIED else LEDGER
        kind = name.partition("-")[0]
        if kind == "shard":
            return kind
        leads = await self._stack.leader(kind) == name
        return f"{kind}, {'leading' if leads else 'standing by'}"

    def table(self, flow: Flow, *, end: float) -> str:
        """A line a kind: how often, and the longest time without a bind until the next kill."""
        pauses: dict[str, list[float]] = {}
        times = list(flow.bound_at)
        for kill, until_ in zip(self.kills, [*(k.at for k in self.kills[1:]), end], strict=True):
            inside = [t for t in times if kill.at < t < until_]
            marks = [kill.at, *inside, until_]
            longest = max(b - a for a, b in itertools.pairwise(marks))
            pauses.setdefault(kill.what, []).append(longest)
        return "\n".join(
            f"  {what:24} {len(found):4} kills; nothing bound for "
            f"{statistics.median(found):4.1f} s (median), {max(found):4.1f} s (longest)"
            for what, found in sorted(pauses.items())
        )


async def run(*, pods: int, every_s: float, seed: int, real: bool) -> int:
    """Print what happened; 1 if anything was lost or broken."""
    with tempfile.TemporaryDirectory(prefix="stretto-chaos-") as text:
        folder = pathlib.Path(text)
        (folder / "stack").mkdir()
        async with world(folder, real=real) as (kubeconfig, cluster):
            stack = Stack(folder / "stack", kubeconfig, StackSettings(standbys=True))
            try:
                await under_fire(stack, cluster, pods=pods, every_s=every_s, seed=seed)
            except (AssertionError, TimeoutError) as error:
                print(error)
                return 1
    return 0


async def under_fire(
    stack: Stack, cluster: WatchedCluster, *, pods: int, every_s: float, seed: int
) -> None:
    """The run; leaving the stack checks its history."""
    flow = Flow(cluster)
    async with stack:
        killer = Killer(stack, every_s=every_s, seed=seed)
        began = time.monotonic()
        tasks = [asyncio.create_task(flow.drain()), asyncio.create_task(tell(flow, killer))]
        killing = asyncio.create_task(killer.run())
        try:
            await flow.pour(pods=pods)
            assert not killing.done(), killing.result()
        finally:
            killing.cancel()
            await asyncio.gather(killing, return_exceptions=True)
        calm = time.monotonic()
        await stack.ready_again()
        await until(
            lambda: not flow.waiting,
            timeout_s=CONVERGED_S,
            what=f"every pod bound after the last kill ({len(flow.waiting)} wait)",
        )
        converged = time.monotonic() - calm
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await stack.settle(timeout_s=60)
        over = await cluster.overcommitted()
        print(
            f"{flow.created:,} pods in {calm - began:.0f} s, {len(killer.kills)} kills:\n"
            f"{killer.table(flow, end=calm)}\n"
            f"{len(flow.waiting)} lost, {len(over)} nodes overcommitted, all bound "
            f"{converged:.1f} s after the last pod",
            flush=True,
        )
        assert not over, over
    print("the history holds every invariant that is checked (docs/history.md)")


async def tell(flow: Flow, killer: Killer) -> None:
    """A line now and then."""
    while True:
        await asyncio.sleep(TELL_S)
        print(
            f"  {time.strftime('%H:%M:%S')} {flow.bound:,} bound, {len(flow.waiting)} wait, "
            f"{len(killer.kills)} kills",
            flush=True,
        )
