"""A run just above the least that counts, so that as many seeds as possible fit into the time.

The cluster is drawn by the seed: shards, nodes, pods, a gang or a pod of higher priority. Faults of
all kinds fire and pods come and go until enough has happened; then faults stop, and the end and
its judge are those of every other run.
"""

from __future__ import annotations

import asyncio

from tests.simulation.cluster import Settings, Simulation

EVENTS, FAULTS = 200, 3
"""The least of a run that counts (reliability R1)."""
TO_REST = 70
"""Events that the way to rest brings along at least; usually it is 120. With 100 a run costs 5 %
less, and finds a bind that is freed in doubt in 4 of 170 runs instead of 13: most is found while
faults fire."""
PACE_S = 0.4
"""Between two faults, and two deletions, at most."""


def drawn(seed: int) -> Settings:
    """A small cluster; it is exactly full when the pods that stay are bound."""
    gang, nodes, shards = seed % 2, 2 + seed // 2 % 2, 1 + seed // 4 % 2
    return Settings(
        shards=shards, nodes=nodes, node_cpu=1, singles=2 * nodes - 2 - gang, rivals=2,
        urgent=1 - gang, gangs=gang, gang_size=2, deletes=0, pause_s=0.1, lease_s=2.0, list_s=2.0,
        restart_s=0.5, redial_s=0.5, patience_s=40.0,
    )  # fmt: skip


class Brief(Simulation):
    """One run; see the module docstring."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, drawn(seed))
        self._created: list[tuple[str, str]] = []

    async def _faults(self) -> None:
        world = self.world
        while world.faults < FAULTS or world.events < EVENTS - TO_REST:
            await asyncio.sleep(world.rng.random() * PACE_S)
            if world.faults < FAULTS:
                self._some_fault()
            elif self._created:
                self._renew(self._created)

    async def _workload(self) -> None:
        self._created = await self._create_all()

    async def _rest(self) -> None:
        await super()._rest()
        while self.world.events < EVENTS:  # rest came early
            self._delete("last")
            self.create_pod("last")
            await super()._rest()
