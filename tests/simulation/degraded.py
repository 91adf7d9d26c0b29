"""Throughput that is kept while something is wrong, in virtual time: only waiting counts there, not
the machine (R15; on real processes: :mod:`tests.reliability.degraded`).

A constant number of pods waits, and each that is bound makes room for another. A run has one fault,
or none, and counts binds from some time after it began.

How many pods wait decides what is measured. The Binder of these runs has four binds in flight, and
a request takes 27.6 ms there and back on average: 145 binds a second at most. A pod that is refused
waits for a second at least before it is sent again, as the API server asks; three in ten requests
refused make that 0.3 / 0.7 = 0.43 s a pod on average. So, however good the scheduler, 40 waiting
pods leave at most 40 / (0.43 s + the rest of a pod's way) binds a second, of about 0.1 s for the
rest 75: half of what they are without a fault, because nearly all of them wait to be sent again and
the four ways to the API server are idle. That says how few pods there are, and nothing about the
scheduler. 150 pods (as on real processes) keep the four busy: 60 or 70 of them wait to be sent
again. Then what limits is what is refused, and the most that can be kept is 1 - 0.3 = 70 %; with
packets lost, each of two ways taking 10 ms longer on average, it is 27.6 / 47.6 = 58 %.

Binds a second of one run differ by chance. A share is therefore that of the sums over many seeds,
and comes with its standard error, estimated by leaving out one seed after the other (jackknife).
"""

from __future__ import annotations

import asyncio
import enum
import itertools
import math
import statistics
from typing import Any, NamedTuple

from stretto.simulator.store import Change
from tests.simulation.cluster import Settings, Simulation
from tests.simulation.world import Host

STREAM = Settings(shards=2, nodes=32, node_cpu=4, singles=0, rivals=0, gangs=0, deletes=0, faults=0)
WAITING = 150
LIFE_S = 0.2
"""From a pod's bind to its end: room never runs out."""
START_S, SETTLE_S, COUNT_S = 1.0, 2.0, 4.0
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


class Share(NamedTuple):
    """How much of the throughput without a fault is kept."""

    value: float
    error: float
    """Standard error of the value."""

    def __str__(self) -> str:
        return f"{self.value:.1%} ± {self.error:.1%}"


def rates(seed: int) -> dict[Wrong, float]:
    """Binds a second, with each thing wrong."""
    found: dict[Wrong, float] = {}
    for wrong in Wrong:
        run = Degraded(seed, wrong)
        run.run()
        assert bool(run.kube.refusals) == (wrong is Wrong.REFUSED)
        found[wrong] = run.rate
    return found


def shares(runs: list[dict[Wrong, float]]) -> dict[Wrong, Share]:
    """Of all seeds' runs together."""
    return {wrong: _share(runs, wrong) for wrong in Wrong if wrong is not Wrong.NOTHING}


def _share(runs: list[dict[Wrong, float]], wrong: Wrong) -> Share:
    count = len(runs)
    parts = [_ratio(runs[:at] + runs[at + 1 :], wrong) for at in range(count)]
    mean = statistics.fmean(parts)
    error = math.sqrt((count - 1) / count * sum((part - mean) ** 2 for part in parts))
    return Share(_ratio(runs, wrong), error)


def _ratio(runs: list[dict[Wrong, float]], wrong: Wrong) -> float:
    return sum(run[wrong] for run in runs) / sum(run[Wrong.NOTHING] for run in runs)
