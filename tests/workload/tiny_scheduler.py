"""A scheduler of thirty lines, so that the load generator has something to measure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.kube.reflections import EventKind
from stretto.kube.reflector import Reflector
from stretto.model.objects import Pod
from stretto.simulator.cluster import SimulatedCluster
from stretto.simulator.settings import SimulatorSettings


async def bind_everything(client: KubeClient, *, nodes: int, refuse: str = "") -> None:
    """Bind pods to nodes in turn; pods whose name contains ``refuse`` are told that none fits."""
    reflector: Reflector[Pod] = Reflector(
        client, "/api/v1/pods", kind=Pod, params={"fieldSelector": "spec.nodeName="}
    )
    turn = 0
    async for batch in reflector.run():
        for event in batch:
            if event.new is None or event.kind is not EventKind.ADDED:
                continue
            meta = event.new.metadata
            if refuse and refuse in meta.name:
                await client.patch_pod_status(
                    meta.namespace,
                    meta.name,
                    {
                        "metadata": {"resourceVersion": meta.resource_version},
                        "status": {
                            "conditions": [
                                {
                                    "type": "PodScheduled",
                                    "status": "False",
                                    "reason": "Unschedulable",
                                    "message": "0/3 nodes are available",
                                }
                            ]
                        },
                    },
                )
                continue
            turn += 1
            await client.bind(
                namespace=meta.namespace,
                name=meta.name,
                uid=meta.uid,
                resource_version=meta.resource_version,
                node=f"node-{turn % nodes:05d}",
            )


@asynccontextmanager
async def cluster(*, nodes: int, refuse: str = "") -> AsyncIterator[KubeClient]:
    """A simulated cluster with the scheduler at work on ``nodes`` generated nodes."""
    async with (
        SimulatedCluster(SimulatorSettings(seed=1)) as sim,
        KubeClient(KubeConfig.from_url(sim.url)) as client,
        asyncio.TaskGroup() as group,
    ):
        task = group.create_task(bind_everything(client, nodes=nodes, refuse=refuse))
        yield client
        task.cancel()
