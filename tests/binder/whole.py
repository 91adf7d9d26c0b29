"""All roles as tasks of one event loop, beside a simulated API server and a real ledger server."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

import binder.process
import dispatcher.process
import scheduler_shard.process
from stretto.audit.checker import API_LOG, AUDIT_LOG, OWNER
from stretto.audit.recorder import Recorder
from stretto.cli.supervisor import free_port
from stretto.cli.verdict import ledger_owner, unscheduled_reason
from stretto.config.binder import BinderSettings
from stretto.config.dispatcher import DispatcherSettings
from stretto.config.shard import ShardSettings
from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.kube.listing import read_all
from stretto.ledger.server import EmbeddedServer
from stretto.model.objects import Pod
from stretto.simulator.cluster import SimulatedCluster
from stretto.simulator.settings import KubeletMode, SimulatorSettings
from tests.binder.shells import node_manifest

LEASES: dict[str, Any] = {
    "lease_duration_s": 3.0,
    "lease_renew_deadline_s": 2.0,
    "lease_retry_s": 0.5,
}


@dataclasses.dataclass
class Role:
    """A process, played by a task."""

    task: asyncio.Task[None]
    stopping: asyncio.Event
    ready: asyncio.Event

    async def stop(self) -> None:
        """SIGTERM, and wait for the end."""
        self.stopping.set()
        async with asyncio.timeout(10):
            await self.task


class Whole:
    """Start roles with :meth:`binder`, :meth:`dispatcher`, :meth:`shard`."""

    def __init__(
        self, cluster: SimulatedCluster, client: KubeClient, *, folder: pathlib.Path, ledger: str
    ) -> None:
        self.cluster = cluster
        self.client = client
        self.ledger = ledger
        self.kubeconfig = folder / "kubeconfig"
        self.binders: list[str] = []
        """Addresses of every Binder, as a headless service would give them."""
        self.dispatchers: list[str] = []
        self.roles: list[Role] = []
        self.folder = folder
        self.recorder: Recorder
        """Of all that happens; see :mod:`stretto.audit`."""

    def _start(self, run: Callable[..., Awaitable[None]], settings: object) -> Role:
        stopping, ready = asyncio.Event(), asyncio.Event()
        task = asyncio.ensure_future(run(settings, stop=stopping, ready=ready))
        role = Role(task, stopping, ready)
        self.roles.append(role)
        return role

    def binder(self, **fields: Any) -> Role:
        """A Binder; the first one leads."""
        address = fields.pop("listen", f"127.0.0.1:{free_port()}")
        if address not in self.binders:
            self.binders.append(address)
        settings = BinderSettings(
            kubeconfig=self.kubeconfig,
            redis_url=self.ledger,
            listen=address,
            telemetry_listen="127.0.0.1:0",
            audit_log=self.folder / AUDIT_LOG,
            **{**LEASES, **fields},
        )
        return self._start(binder.process.run, settings)

    def dispatcher(self, **fields: Any) -> Role:
        """A dispatcher that knows the Binders started before."""
        self.dispatchers.append(f"127.0.0.1:{free_port()}")
        settings = DispatcherSettings(
            kubeconfig=self.kubeconfig,
            listen=self.dispatchers[-1],
            telemetry_listen="127.0.0.1:0",
            binder=",".join(self.binders),
            **{**LEASES, **fields},
        )
        return self._start(dispatcher.process.run, settings)

    def shard(self, **fields: Any) -> Role:
        """A shard that knows the Binders and dispatchers started before."""
        settings = ShardSettings(
            dispatcher=",".join(self.dispatchers),
            binder=",".join(self.binders),
            telemetry_listen="127.0.0.1:0",
            **fields,
        )
        return self._start(scheduler_shard.process.run, settings)

    async def leads(self, role: str) -> str:
        """Who has a role's Lease, once somebody has."""
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
        async with asyncio.timeout(10):
            while True:
                answer = await self.client.get(f"{path}/stretto-{role}")
                if answer.ok:
                    spec = msgspec.json.decode(answer.body)["spec"]
                    if spec.get("holderIdentity"):
                        return str(spec["holderIdentity"])
                await asyncio.sleep(0.05)

    async def pods(self) -> list[Pod]:
        """All pods."""
        return await read_all(self.client, "/api/v1/pods", kind=Pod)

    async def bound(self) -> int:
        """How many pods have a node."""
        return sum(bool(pod.spec.node_name) for pod in await self.pods())

    async def told(self) -> int:
        """How many pods know why they wait."""
        return sum(bool(unscheduled_reason(pod)) for pod in await self.pods())

    async def events(self) -> int:
        """How many events there are."""
        path = "/apis/events.k8s.io/v1/namespaces/default/events"
        return len(await read_all(self.client, path, kind=dict))


@contextlib.asynccontextmanager
async def whole(folder: pathlib.Path, *, nodes: int = 2) -> AsyncIterator[Whole]:
    """The world without roles; those that were started are ended with it."""
    settings = SimulatorSettings(kubelet=KubeletMode.OFF, kubeconfig=folder / "kubeconfig")
    async with (
        SimulatedCluster(settings) as cluster,
        EmbeddedServer(folder=folder / "ledger") as server,
        KubeClient(KubeConfig.from_url(cluster.url)) as client,
    ):
        for number in range(1, nodes + 1):
            answer = await client.post("/api/v1/nodes", node_manifest(f"n{number}"))
            assert answer.ok, answer.text
        world = Whole(cluster, client, folder=folder, ledger=server.url)
        (folder / OWNER).write_text(await ledger_owner(client))
        try:
            async with Recorder(client, folder / API_LOG) as world.recorder:
                yield world
        finally:
            cluster.faults.clear()
            for role in reversed(world.roles):
                if not role.task.done():
                    await role.stop()


async def eventually(
    condition: Callable[[], Awaitable[bool]], what: str, *, timeout_s: float = 10.0
) -> None:
    """Wait for a condition; fail with ``what`` when the time is over."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not await condition():
        assert asyncio.get_running_loop().time() < deadline, f"never: {what}"
        await asyncio.sleep(0.05)
