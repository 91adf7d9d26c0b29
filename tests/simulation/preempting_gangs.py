"""A gang of high priority takes the room of another, or of single pods, whatever fails.

The cluster is full. At every revision: of a gang that goes as a whole either all members are there,
or all have been asked to go; nobody is asked to go before every member of the preempting gang that
was there is nominated; and in the end the gang of high priority runs whole.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from stretto.simulator.store import Change
from tests.simulation.cluster import GROUPS, Settings, Simulation, Violation, node_of

FULL = Settings(nodes=4, node_cpu=2, singles=8, rivals=0, gangs=1, gang_size=4, deletes=0, urgent=1)
"""Sixteen places of 500m: eight single pods, four of a gang, four free for a moment."""
URGENT = 6
"""Members of the gang of high priority: more than are free."""


class PreemptingGangs(Simulation):
    """One run; see the module docstring."""

    def __init__(self, seed: int, settings: Settings = FULL) -> None:
        super().__init__(seed, settings)
        self.settings = dataclasses.replace(
            settings, singles=self.world.rng.choice((8, 10, 12)), gang_size=4
        )
        self._asked: set[str] = set()
        """Pods of the gang of low priority that have been asked to go."""

    def _create_cluster(self) -> None:
        super()._create_cluster()
        self.kube.api.store(self.pods_kind).observe(self._changed)

    def _changed(self, change: Change) -> None:
        """Somebody is asked to go: then the preempting gang is nominated, all of it."""
        pod: Any = change.new if change.new is not None else change.old
        body = pod.body()
        leaving = change.new is None or "deletionTimestamp" in body["metadata"]
        name = body["metadata"]["name"]
        if not leaving or not node_of(body) or name.startswith("u") or name in self._asked:
            return
        self._asked.add(name)
        waiting = [p for p in self._pods() if p["metadata"]["name"].startswith("u")]
        unready = [p for p in waiting if not (node_of(p) or _nominated(p))]
        if unready:
            raise Violation(
                f"seed {self.world.seed}: {name} has to go before all members are nominated"
            )

    async def _workload(self) -> None:
        """First who fills the cluster, then who needs the room."""
        settings, rng = self.settings, self.world.rng
        self._group("g0", settings.gang_size, whole=True)
        names = [(f"p{n}", "") for n in range(settings.singles)]
        names += [(f"g0-{n}", "g0") for n in range(settings.gang_size)]
        rng.shuffle(names)
        for name, group in names:
            self.create_pod(name, group=group)
        await self._until(lambda: sum(bool(node_of(p)) for p in self._pods()) >= 12)
        self._group("urgent", URGENT)
        for number in range(URGENT):
            self.create_pod(f"u{number}", group="urgent")
            if self.world.chance(0.3):
                await asyncio.sleep(rng.random() / 5)

    def _heal(self) -> None:
        """Faults stop."""
        self.kube.loss = 0.0

    def _group(self, name: str, minimum: int, *, whole: bool = False) -> None:
        spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
        if whole:
            spec["disruptionMode"] = {"all": {}}
        self.kube.call("POST", GROUPS, {"metadata": {"name": name}, "spec": spec})

    async def _rest(self) -> None:
        """The urgent gang runs whole, and of the other all or nobody is there."""

        def runs() -> bool:
            pods = self._pods()
            placed = {p["metadata"]["name"] for p in pods if node_of(p)}
            return all(f"u{n}" in placed for n in range(URGENT))

        await self._until(runs)
        await asyncio.sleep(5)
        left = [p for p in self._pods() if p["metadata"]["name"].startswith("g0-")]
        if len(left) not in (0, self.settings.gang_size):
            names = sorted(p["metadata"]["name"] for p in left)
            raise Violation(f"seed {self.world.seed}: of a gang that goes as a whole {names} stay")

    async def _until(self, holds: Any) -> None:
        deadline = self.world.now + self.settings.patience_s
        while not holds():
            if self.world.now > deadline:
                pods = {p["metadata"]["name"]: node_of(p) for p in self._pods()}
                raise Violation(f"seed {self.world.seed}: it never came to that: {pods}")
            await asyncio.sleep(0.5)


def _nominated(pod: Any) -> str:
    return str(pod.get("status", {}).get("nominatedNodeName", ""))
