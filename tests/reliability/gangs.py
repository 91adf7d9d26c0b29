"""Gangs on real processes, and the whole history held against the invariants (R11, R12).

The simulator, a process of its own, stands for the API server. ``gangs``: many gangs at once, with
room for all, and then with room for a few at a time; each that is whole ends and leaves room for
the next. ``largest-gang``: a gang of a quarter of the pool comes while small pods ask for nine
tenths of it, and for more than all of it, with starvation protection and without.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import random
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from bench.beside import percentile
from bench.pipeline import Options, simulator
from bench.queue import GROUPS, PODS, Load, Watch, pod
from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.model.errors import OperatorError
from tests.e2e.stack import Stack, StackSettings

PATIENCE_S = 300.0
GONE = {"gracePeriodSeconds": 0}
HISTORY = "the history holds every invariant that is checked (docs/history.md), I6 and R11 of gangs"


class Arena(Load):
    """A stack that keeps its history, and means to load it."""

    def __init__(self, client: KubeClient, watch: Watch, stack: Stack) -> None:
        super().__init__(client, watch)
        self.stack = stack

    def last_words(self) -> str:
        return "\n".join(self.stack.log_of(name, lines=5) for name in self.stack.supervisor.roles)

    async def group(self, name: str, size: int) -> list[str]:
        """Create a group; the names that its members are to have."""
        policy = {"schedulingPolicy": {"gang": {"minCount": size}}}
        await self.create(GROUPS, [{"metadata": {"name": name}, "spec": policy}])
        return [f"{name}-{number}" for number in range(size)]

    async def delete(self, names: Iterable[str]) -> None:
        """End pods."""
        source = iter(names)

        async def work() -> None:
            for name in source:
                await self.client.delete(f"{PODS}/{name}", GONE)

        await asyncio.gather(*(work() for _ in range(8)))


@contextlib.asynccontextmanager
async def arena(
    *, nodes: int, node_cpu: str, at_rest: bool = True, stake_after_s: float = 60.0
) -> AsyncIterator[Arena]:
    """Four shards and an empty cluster; the history is checked at the end.

    Raises:
        AssertionError: it does not hold.
    """
    options = Options(0, nodes, 1, 4, "count", 0.0)
    with tempfile.TemporaryDirectory(prefix="stretto-gangs-") as text:
        folder = pathlib.Path(text)
        (folder / "stack").mkdir()
        flags = {"dispatcher": [f"--stake-after-s={stake_after_s:g}"]}
        settings = StackSettings(shards=4, at_rest=at_rest, flags=flags, log_level="warning")
        async with (
            simulator(folder, options, node_cpu=node_cpu, window=100_000) as (_, url, kubeconfig),
            KubeClient(KubeConfig.from_url(url), timeout_s=60) as client,
            Stack(folder / "stack", kubeconfig, settings) as stack,
        ):
            watch = Watch(client)
            watching = asyncio.create_task(watch.run())
            try:
                yield Arena(client, watch, stack)
                if at_rest:
                    await stack.settle(timeout_s=60)
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)


# --------------------------------------------------------------------------------------------- R11
@dataclass(frozen=True)
class Many:
    """So many gangs at once."""

    gangs: int
    size: int
    nodes: int
    node_cpu: str
    room: str

    async def measure(self) -> None:
        """Create them all, let each end that is whole, and print how long they took."""
        async with arena(nodes=self.nodes, node_cpu=self.node_cpu) as here:
            members = {}
            for number in range(self.gangs):
                members[f"g{number}"] = await here.group(f"g{number}", self.size)
            began = time.monotonic()
            ends = [asyncio.create_task(self._end(here, names)) for names in members.values()]
            bodies = (pod(m, cpu="500m", group=g) for g, names in members.items() for m in names)
            await here.create(PODS, bodies)
            waits = [whole - began for whole in await asyncio.gather(*ends)]
        print(
            f"{self.gangs:>6}{self.size:>9}{self.nodes:>8}  {self.room:<22}{max(waits):>8.1f}"
            f"{percentile(waits, 50):>8.1f}{percentile(waits, 99):>8.1f}",
            flush=True,
        )

    @staticmethod
    async def _end(here: Arena, names: list[str]) -> float:
        """When a gang was whole; its pods are gone soon after."""
        bound = here.watch.bound_s
        deadline = time.monotonic() + PATIENCE_S
        while not all(name in bound for name in names):
            if time.monotonic() > deadline:
                raise OperatorError(f"{names[0]} waits after {PATIENCE_S:g} s\n{here.last_words()}")
            await asyncio.sleep(0.1)
        await here.delete(names)
        return max(bound[name] for name in names)


MANY = (
    Many(1_000, 8, 5_000, "8", "for all"),
    Many(10, 512, 5_000, "8", "for all"),
    Many(200, 8, 20, "4", "for 20 gangs at a time"),
    Many(12, 512, 64, "8", "for 2 gangs at a time"),
)


async def run(*, rows: Iterable[Many] = MANY) -> int:
    """R11: print a row for each; 1 if a history does not hold."""
    print(
        f"{'gangs':>6}{'members':>9}{'nodes':>8}  {'room':<22}{'last s':>8}{'P50 s':>8}{'P99 s':>8}"
    )
    for row in rows:
        try:
            await row.measure()
        except (AssertionError, OperatorError) as error:
            print(error)
            return 1
    print(f"0 partial gangs at any revision: {HISTORY}")
    return 0


# --------------------------------------------------------------------------------------------- R12
NODES, NODE_CPU, SLOTS = 50, "8", 800
BIGGEST = SLOTS // 4
LOADS = (0.9, 1.1)
LIFE_S = (4.0, 16.0)
STAKE_AFTER_S = 10.0
BOUND_S = STAKE_AFTER_S + LIFE_S[1] + 10.0 + 6.0
"""docs/starvation.md: stake_after + life + backoff + 6 s."""
WARM_S = 20.0


class Stream:
    """Small pods that come at a rate that would take a part of the pool."""

    def __init__(self, here: Arena, *, load: float, seed: int) -> None:
        self.here = here
        self.gap_s = sum(LIFE_S) / 2 / (load * SLOTS)
        self.rng = random.Random(seed)
        self.alive: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._count = 0

    def used(self) -> float:
        """Part of the pool that small pods take now."""
        return sum(name in self.here.watch.bound_s for name in self.alive) / SLOTS

    def bound(self) -> int:
        """Small pods bound so far."""
        return sum(name.startswith("s") for name in self.here.watch.bound_s)

    async def run(self) -> None:
        """Until cancelled."""
        due = time.monotonic()
        try:
            while True:
                self._count += 1
                task = asyncio.create_task(self._live(f"s{self._count}"))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                due += self.rng.expovariate(1 / self.gap_s)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _live(self, name: str) -> None:
        """It ends a while after its bind."""
        self.alive.add(name)
        await self.here.create(PODS, [pod(name, cpu="500m")])
        while name not in self.here.watch.bound_s:
            await asyncio.sleep(0.2)
        await asyncio.sleep(self.rng.uniform(*LIFE_S))
        await self.here.delete([name])
        self.alive.discard(name)


async def largest(*, seed: int) -> int:
    """R12: print how long the largest gang waited; 1 if it was longer than the bound."""
    print(
        f"a gang of {BIGGEST} of {SLOTS} places on {NODES} nodes, small pods of {LIFE_S[0]:g} to "
        f"{LIFE_S[1]:g} s; bound: {STAKE_AFTER_S:g} s until its stake, life, backoff 10 s and 6 s"
    )
    wrong = 0
    for load in LOADS:
        for stake_after_s in (STAKE_AFTER_S, 0.0):
            try:
                waited_s = await _largest(load=load, stake_after_s=stake_after_s, seed=seed)
            except (AssertionError, OperatorError) as error:
                print(error)
                return 1
            if stake_after_s and (waited_s is None or waited_s > BOUND_S):
                wrong = 1
    print(HISTORY)
    return wrong


async def _largest(*, load: float, stake_after_s: float, seed: int) -> float | None:
    """Seconds from the gang's creation to its last bind; None: it was not bound."""
    async with arena(
        nodes=NODES, node_cpu=NODE_CPU, stake_after_s=stake_after_s, at_rest=False
    ) as here:
        stream = Stream(here, load=load, seed=seed)
        flowing = asyncio.create_task(stream.run())
        await asyncio.sleep(WARM_S)
        before, began = stream.bound(), time.monotonic()
        names = await here.group("big", BIGGEST)
        await here.create(PODS, (pod(each, cpu="500m", group="big") for each in names))
        used = []
        while missing := sum(name not in here.watch.bound_s for name in names):
            used.append(stream.used())
            if time.monotonic() - began > 2 * BOUND_S:
                break
            await asyncio.sleep(0.5)
        now = time.monotonic()
        rate = (stream.bound() - before) / (now - began)
        waited_s = None if missing else max(here.watch.bound_s[n] for n in names) - began
        flowing.cancel()
        await asyncio.gather(flowing, return_exceptions=True)
    print(
        f"load {load:.0%}, protection {'on ' if stake_after_s else 'off'}: "
        + (f"bound after {waited_s:.1f} s" if waited_s else f"not bound in {now - began:.0f} s")
        + f" (bound {BOUND_S:g} s); meanwhile {rate:.0f} small pods/s, which took "
        f"{sum(used) / len(used):.0%} of the pool on average, {min(used):.0%} at least",
        flush=True,
    )
    return waited_s
