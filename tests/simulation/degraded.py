"""Throughput that is kept while something is wrong, in virtual time: only waiting counts there, not
the machine (R15; on real processes: :mod:`tests.reliability.degraded`).

A constant number of pods waits, and each that is bound makes room for another. A run has one fault,
or none, and counts binds from some time after it began.
"""

from __future__ import annotations

import asyncio
import enum
import itertools
from typing import Any

from stretto.simulator.store import Change
from tests.simulation.cluster import Settings, Simulation
from tests.simulation.world import Host

STREAM = Settings(shards=2, nodes=32, node_cpu=4, singles=0, rivals=0, gangs=0, deletes=0, faults=0)
WAITING = 40
LIFE_S = 0.2
"""From a pod's bind to its end: room never runs out."""
START_S, SETTLE_S, COUNT_S = 1.0, 1.2, 1.5
LOSS, REFUSED = 0.05, 0.3


class Wrong(enum.Enum):
    """What is wrong, and how much of the throughput is to be kept."""

    NOTHING = 1.0
    SHARD_DEAD = 0.8
    PACKETS_LOST = 0.5
    REFUSED = 0.6


class Degraded(Simulation):
    """One run; see the module docstring."""

    def __init__(self, seed: int, wrong: Wrong) -> None:
        super().__init__(seed, STREAM)
        self._wrong = wrong
        self._numbers = itertools.count()
        self._on = True
        self._binds = 0
        self.rate = 0.0
        """Binds a second."""

    def _create_cluster(self) -> None:
        super()._create_cluster()
        self.kube.api.store(self.pods_kind).observe(self._changed)

    def _changed(self, change: Change) -> None:
        old: Any = change.old
        new: Any = change.new
        if self._on and new is not None and new.node_name and not (old and old.node_name):
            self._binds += 1
            self.world.loop.call_soon(self._next)
            self.world.loop.call_later(LIFE_S, self._delete, new.name)

    def _next(self) -> None:
        if self._on:
            self.create_pod(f"s{next(self._numbers)}")

    async def _workload(self) -> None:
        for _ in range(WAITING):
            self._next()
        await asyncio.sleep(START_S)
        if self._wrong is Wrong.SHARD_DEAD:
            self.kill("shard-1")
        elif self._wrong is Wrong.PACKETS_LOST:
            self.world.lost = LOSS
        elif self._wrong is Wrong.REFUSED:
            self.kube.refused = REFUSED
        await asyncio.sleep(SETTLE_S)
        before = self._binds
        await asyncio.sleep(COUNT_S)
        self.rate = (self._binds - before) / COUNT_S
        self._on = False

    def _again(self, dead: Host, role: str) -> None:
        """Who is dead stays so."""

    async def _faults(self) -> None:
        """The workload makes the one there is."""

    def _heal(self) -> None:
        """The run is over."""

    async def _rest(self) -> None:
        for host in self.hosts.values():
            self._failed(host)


def kept(seed: int) -> dict[Wrong, float]:
    """How much of the throughput without a fault each fault leaves."""
    rates: dict[Wrong, float] = {}
    for wrong in Wrong:
        run = Degraded(seed, wrong)
        run.run()
        assert bool(run.kube.refusals) == (wrong is Wrong.REFUSED)
        rates[wrong] = run.rate
    return {wrong: rate / rates[Wrong.NOTHING] for wrong, rate in rates.items()}
