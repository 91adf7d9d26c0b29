"""Gangs that fight for room for one of them: one runs, none ever holds a part.

Every gang takes the whole cluster. They arrive member by member in any order, four shards decide at
the same time, and what each process hears comes after delays of its own, so that each seed is
another interleaving. When a gang runs whole its pods end and the next one must run, until all have.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from stretto.simulator.store import Change
from tests.simulation.cluster import GROUPS, PODS, Settings, Simulation, Violation, node_of

FOUR_GANGS = Settings(shards=4, nodes=4, node_cpu=1, gangs=4, gang_size=8, faults=0)
"""Eight cards, 500m each, two a node."""
HALF_JOBS = dataclasses.replace(FOUR_GANGS, gangs=2)
"""The classic deadlock: two jobs that each hold half of what they need."""


class GangRaces(Simulation):
    """One run; see the module docstring."""

    ends_at_rest = False

    def __init__(self, seed: int, settings: Settings = FOUR_GANGS) -> None:
        super().__init__(seed, settings)
        self.order: list[str] = []
        """Gangs in the order in which they ran."""
        self._holding: dict[str, set[str]] = {}
        """Gang → its pods on nodes."""

    async def _workload(self) -> None:
        """Members come in any order; groups before, between or after them."""
        settings, rng = self.settings, self.world.rng
        gangs = [f"g{number}" for number in range(settings.gangs)]
        work = [(f"{gang}-{n}", gang) for gang in gangs for n in range(settings.gang_size)]
        work += [("", gang) for gang in gangs]
        rng.shuffle(work)
        for name, gang in work:
            if name:
                self.create_pod(name, group=gang)
            else:
                policy = {"schedulingPolicy": {"gang": {"minCount": settings.gang_size}}}
                self.kube.call("POST", GROUPS, {"metadata": {"name": gang}, "spec": policy})
            if self.world.chance(0.3):
                await asyncio.sleep(rng.random() / 10)

    def _create_cluster(self) -> None:
        super()._create_cluster()
        self.kube.api.store(self.pods_kind).observe(self._changed)

    def _changed(self, change: Change) -> None:
        """At no revision do two gangs hold something."""
        for pod in (change.old, change.new):
            if pod is not None:
                gang = pod.name.partition("-")[0]
                self._holding.setdefault(gang, set()).discard(pod.name)
        new: Any = change.new
        if new is not None and getattr(new, "node_name", ""):
            self._holding[new.name.partition("-")[0]].add(new.name)
        holders = sorted(gang for gang, pods in self._holding.items() if pods)
        if len(holders) > 1:
            raise Violation(f"seed {self.world.seed}: {' and '.join(holders)} hold parts")

    def _heal(self) -> None:
        """There is nothing to heal."""

    async def _rest(self) -> None:
        """Let gang after gang run whole."""
        while len(self.order) < self.settings.gangs:
            await self._one_runs()
            gang = self.order[-1]
            for number in range(self.settings.gang_size):
                self.kube.call("DELETE", f"{PODS}/{gang}-{number}", {"gracePeriodSeconds": 0})

    async def _one_runs(self) -> None:
        deadline = self.world.now + self.settings.patience_s
        while True:
            for host in self.hosts.values():
                self._failed(host)
            placed = [pod["metadata"]["name"] for pod in self._pods() if node_of(pod)]
            if len(placed) == self.settings.gang_size:
                self.order.append(placed[0].partition("-")[0])
                return
            if self.world.now > deadline:
                raise Violation(
                    f"seed {self.world.seed}: after {self.order} no gang ran; on nodes: {placed}"
                )
            await asyncio.sleep(0.5)
