"""A large unit among small pods that never leave it room.

The small pods are an adversary: more of them wait than there is room for at any moment, and each
that ends is followed by another, so that whatever comes free is taken at once. Each lives no longer
than a stated time. The large unit (a pod that needs a whole node, or a gang of a quarter of the
cluster) must be bound within the bound of docs/starvation.md all the same.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from stretto.simulator.store import Change
from tests.simulation.cluster import GROUPS, PODS, Settings, Simulation, Violation, node_of

LIFE_S = 16.0
"""The longest life of a small pod."""
SLOTS = 64
OVER = 8
"""Small pods that wait at any time."""
WARM_S = 5.0
"""The large unit comes when the cluster is full."""
STREAM = Settings(shards=4, nodes=8, node_cpu=4, gangs=0, faults=0, stake_after_s=10.0)
BIG_POD = STREAM
BIG_GANG = dataclasses.replace(STREAM, gangs=1, gang_size=SLOTS // 4)
SLACK_S = 16.0
"""Backoff of at most 10 s, the scan's second, and messages under way."""


def bound_s(settings: Settings) -> float:
    """When the first of its pool must be bound at the latest, from its creation on."""
    return settings.stake_after_s + LIFE_S + SLACK_S


class Starving(Simulation):
    """One run; see the module docstring. ``kill``: the Binder dies once, with the stake."""

    ends_at_rest = False  # small pods come for as long as it runs

    def __init__(self, seed: int, settings: Settings, *, kill: bool = False) -> None:
        super().__init__(seed, settings)
        self._kill = kill
        self.waited_s: float | None = None
        """From the creation of the large unit to the bind of its last member."""
        self.small = 0
        """Small pods that were bound meanwhile."""
        self._created = 0
        self._big = (
            ["big"] if not settings.gangs else [f"big-{n}" for n in range(settings.gang_size)]
        )
        self._born_s = 0.0

    def _create_cluster(self) -> None:
        super()._create_cluster()
        self.kube.api.store(self.pods_kind).observe(self._changed)

    def _next_small(self) -> None:
        self._created += 1
        self.create_pod(f"s{self._created}")

    def _changed(self, change: Change) -> None:
        """A small pod that is bound ends in a while, and another one comes for it."""
        new: Any = change.new
        old: Any = change.old
        if new is None or not getattr(new, "node_name", "") or getattr(old, "node_name", ""):
            return
        if new.name.startswith("s"):
            self.small += 1
            life_s = LIFE_S * (0.25 + 0.75 * self.world.rng.random())
            self.world.loop.call_later(life_s, self._end, new.name)

    def _end(self, name: str) -> None:
        self._delete(name)
        self._next_small()

    async def _workload(self) -> None:
        for _ in range(SLOTS + OVER):
            self._next_small()
        await asyncio.sleep(WARM_S)
        if self.settings.gangs:
            policy = {"schedulingPolicy": {"gang": {"minCount": self.settings.gang_size}}}
            self.kube.call("POST", GROUPS, {"metadata": {"name": "big"}, "spec": policy})
        cpu = "500m" if self.settings.gangs else str(self.settings.node_cpu)
        self._born_s = self.world.now
        for name in self._big:
            self.create_pod(name, cpu=cpu, group="big" if self.settings.gangs else "")
        while self._kill and not len(self._parts().machine.committer.stakes):
            await asyncio.sleep(0.5)
        if self._kill:
            await asyncio.sleep(LIFE_S / 4)
            self.kill("binder")

    def _heal(self) -> None:
        """There is nothing to heal."""

    async def _rest(self) -> None:
        """Wait for the large unit alone: the small ones never rest."""
        wanted = set(self._big)
        while True:
            for host in self.hosts.values():
                self._failed(host)
            placed = {pod["metadata"]["name"] for pod in self._pods() if node_of(pod)}
            self.waited_s = self.world.now - self._born_s
            if wanted <= placed:
                break
            if wanted & placed and len(wanted & placed) < len(wanted) and self._partial_too_long():
                raise Violation(f"seed {self.world.seed}: the gang is there in part")
            if self.waited_s > self.settings.patience_s:
                raise Violation(
                    f"seed {self.world.seed}: {len(wanted - placed)} of the large unit wait after "
                    f"{self.waited_s:.0f} s, while {self.small} small pods were bound"
                )
            await asyncio.sleep(0.1)
        self.said = (
            f"bound {self.waited_s:.1f} s after its creation (bound "
            f"{bound_s(self.settings):g} s); {self.small} small pods were bound meanwhile"
        )
        await asyncio.sleep(1.0)
        parts = self._parts()
        parts.machine.validate()
        if len(parts.machine.committer.stakes):
            raise Violation(f"seed {self.world.seed}: the stake outlives its unit")

    def _partial_too_long(self) -> bool:
        assert self.waited_s is not None
        return self.waited_s > self.settings.patience_s / 2


__all__ = ["BIG_GANG", "BIG_POD", "PODS", "Starving", "bound_s"]
