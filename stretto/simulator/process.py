"""The simulated cluster as a process of its own."""

from __future__ import annotations

import asyncio
import sys

from stretto.simulator.cluster import SimulatedCluster
from stretto.simulator.settings import SimulatorSettings


async def run(
    settings: SimulatorSettings, *, stop: asyncio.Event, ready: asyncio.Event | None
) -> None:
    """Serve until ``stop``.

    Raises:
        SimulatorError: the port is taken, or the kubeconfig cannot be written.
    """
    async with SimulatedCluster(settings) as cluster:
        sys.stderr.write(f"stretto simulator: serving {cluster.url}\n")
        if ready is not None:
            ready.set()
        await stop.wait()
