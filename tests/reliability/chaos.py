"""Pods arrive while every few seconds one process, the ledger's server included, is killed (R3–R5,
R10): on a real kube-apiserver, with leases of 3 s, and the whole history held against the
invariants afterwards.
"""

from __future__ import annotations

import asyncio
import pathlib
import random
import tempfile
import time
from collections import Counter

from tests.e2e.api import Api
from tests.e2e.stack import Stack, StackSettings, until
from tests.kube_env.binaries import build
from tests.kube_env.control_plane import ControlPlane

NODES = 40
POD_CPU = "20m"
A_BATCH = 20
PAUSE_S = 0.4
"""After each batch: load that lasts, so that the kills meet it."""
CONVERGED_S = 120.0


class Chaos:
    """The load and the killing."""

    def __init__(self, api: Api, stack: Stack, *, pods: int, every_s: float, seed: int) -> None:
        self.api = api
        self.stack = stack
        self.pods = pods
        self.every_s = every_s
        self.kills: Counter[str] = Counter()
        self.created = 0
        self._rng = random.Random(seed)
        self._over = asyncio.Event()

    async def pour(self) -> None:
        """Create all pods, a batch at a time; never more than 400 ahead of the binds."""
        while self.created < self.pods:
            while self.created - await self.api.bound() > 400:
                await asyncio.sleep(0.2)
            names = [f"c-{self.created + i}" for i in range(min(A_BATCH, self.pods - self.created))]
            await self.api.all(self.api.create_pod(name, cpu=POD_CPU) for name in names)
            self.created += len(names)
            await asyncio.sleep(PAUSE_S)
        self._over.set()

    async def kill(self) -> None:
        """Kill one at random, again and again, until the load is over."""
        while True:
            try:
                await asyncio.wait_for(self._over.wait(), timeout=self.every_s)
            except TimeoutError:
                name = self._rng.choice([*self.stack.supervisor.roles, "ledger"])
                if name == "ledger":
                    await self.stack.restart_ledger(empty=self._rng.random() < 0.3)
                elif self.stack.supervisor.roles[name].process is None:
                    continue  # it is being started again
                else:
                    await self.stack.kill(name)
                self.kills[name] += 1
            else:
                return


async def run(*, pods: int, every_s: float, seed: int) -> int:
    """Print what happened; 1 if anything was lost or broken."""
    with (
        tempfile.TemporaryDirectory(prefix="stretto-chaos-") as text,
        ControlPlane(pathlib.Path(text) / "plane", build()) as plane,
    ):
        folder = pathlib.Path(text) / "stack"
        folder.mkdir()
        async with Api(plane) as api:
            await api.create_nodes(NODES, cpu="64", pods="900")
            try:
                await under_fire(api, plane, folder, pods=pods, every_s=every_s, seed=seed)
            except (AssertionError, TimeoutError) as error:
                print(error)
                return 1
    return 0


async def under_fire(
    api: Api, plane: ControlPlane, folder: pathlib.Path, *, pods: int, every_s: float, seed: int
) -> None:
    """The run; leaving the stack checks its history."""
    settings = StackSettings(standbys=True)
    async with Stack(folder, plane.kubeconfig, settings) as stack:
        chaos = Chaos(api, stack, pods=pods, every_s=every_s, seed=seed)
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            group.create_task(chaos.pour())
            group.create_task(chaos.kill())
        calm = time.monotonic()

        async def all_bound() -> bool:
            return await api.bound() == pods

        await until(all_bound, timeout_s=CONVERGED_S, what="every pod bound after the last kill")
        converged = time.monotonic() - calm
        await stack.ready_again()
        await stack.settle(timeout_s=60)
        over = await api.overcommitted()
        print(
            f"{pods:,} pods in {calm - began:.0f} s, {sum(chaos.kills.values())} kills "
            f"({dict(chaos.kills)}): 0 lost, {len(over)} nodes overcommitted, converged "
            f"{converged:.1f} s after the last pod"
        )
        assert not over, over
    print("the history holds every invariant that is checked (docs/history.md)")
