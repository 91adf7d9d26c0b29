"""All roles of Stretto as real processes beside a real ledger, for end-to-end tests."""

from __future__ import annotations

import asyncio
import dataclasses
import pathlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, Self

import yaml

from stretto.cli.run import Ports, RunSettings, roles_of, shard_role
from stretto.cli.supervisor import Supervisor
from stretto.ledger.server import EmbeddedServer
from tests.kube_env.control_plane import ControlPlane

READY_S = 30.0
LEASE_FLAGS = ["--lease-duration-s=3"]
"""Short leases, so that a killed role is succeeded within the test."""


def plain_kubeconfig(folder: pathlib.Path, *, url: str, name: str) -> pathlib.Path:
    """A kubeconfig for an address that asks for no credentials."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = folder / f"{name}.kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


@dataclasses.dataclass
class StackSettings:
    """What a test varies."""

    shards: int = 2
    scheduler_name: str = "stretto"
    binder_kubeconfig: pathlib.Path | None = None
    """Another way to the API server for the Binder: through a nemesis."""


class Stack:
    """``async with Stack(folder, kubeconfig) as stack``: ready when entered, gone when left."""

    def __init__(
        self, folder: pathlib.Path, kubeconfig: pathlib.Path, settings: StackSettings | None = None
    ) -> None:
        self.folder = folder
        self.settings = settings or StackSettings()
        self.ports = Ports()
        self.run = RunSettings(
            kubeconfig=kubeconfig,
            shards=self.settings.shards,
            scheduler_name=(self.settings.scheduler_name,),
            log_dir=folder / "logs",
            log_format="text",
            log_level="info",
        )
        self.server = EmbeddedServer(folder=folder / "ledger")

    async def __aenter__(self) -> Self:
        await self.server.__aenter__()
        roles = roles_of(self.run, redis_url=self.server.url, ports=self.ports)
        for role in roles:
            if role.name in ("binder", "dispatcher"):
                role.arguments += LEASE_FLAGS
            if role.name == "binder" and self.settings.binder_kubeconfig:
                role.arguments += ["--kubeconfig", str(self.settings.binder_kubeconfig)]
        self.supervisor = Supervisor(roles, stop_grace_s=5.0)
        try:
            await self.supervisor.start()
            await self.supervisor.wait_ready(timeout_s=READY_S)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.supervisor.stop()
        await self.server.__aexit__(None, None, None)

    async def add_shard(self, number: int) -> None:
        """Start one more shard."""
        role = shard_role(self.run, number=number, ports=self.ports)
        self.supervisor.roles[role.name] = role
        await self.supervisor.start(role.name)

    def log_of(self, name: str, *, lines: int = 30) -> str:
        """The end of a role's log."""
        path = self.folder / "logs" / f"{name}.log"
        return "\n".join(path.read_text().splitlines()[-lines:]) if path.exists() else ""


async def until(
    condition: Callable[[], Awaitable[bool] | bool], *, timeout_s: float, what: str
) -> None:
    """Wait for a condition; fail with ``what`` when the time is over."""
    deadline = time.monotonic() + timeout_s
    while True:
        got = condition()
        if got if isinstance(got, bool) else await got:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout_s:.0f} s")
        await asyncio.sleep(0.1)


def node_manifest(
    name: str, *, cpu: str = "4", memory: str = "32Gi", pods: str = "110"
) -> dict[str, Any]:
    """A ready node."""
    room = {"cpu": cpu, "memory": memory, "pods": pods}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def pod_manifest(
    name: str, *, cpu: str = "100m", memory: str = "64Mi", scheduler: str = "stretto", **spec: Any
) -> dict[str, Any]:
    """A pod that asks for a little."""
    container = {
        "name": "c",
        "image": "registry.example/app:1",
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulerName": scheduler, "containers": [container], **spec},
    }


class Api:
    """A few blocking calls on a control plane, moved off the loop; independent of Stretto's client."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane

    async def call(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """One request; the decoded body of an answer below 300, else an AssertionError."""
        status, reply = await asyncio.to_thread(self.plane.request, method, path, body, **options)
        assert status < 300, (method, path, status, reply)
        return reply

    async def create_node(self, name: str, **room: str) -> None:
        """Create a node and set its status, as kubelet does."""
        manifest = node_manifest(name, **room)
        await self.call("POST", "/api/v1/nodes", manifest)
        await self.call(
            "PATCH", f"/api/v1/nodes/{name}/status", {"status": manifest["status"]},
            content_type="application/merge-patch+json",
        )  # fmt: skip

    async def create_pod(self, name: str, **options: Any) -> dict[str, Any]:
        """Create a pod in namespace default."""
        manifest = pod_manifest(name, **options)
        reply: dict[str, Any] = await self.call("POST", "/api/v1/namespaces/default/pods", manifest)
        return reply

    async def pod(self, name: str) -> dict[str, Any] | None:
        """A pod, None if it does not exist."""
        path = f"/api/v1/namespaces/default/pods/{name}"
        status, reply = await asyncio.to_thread(self.plane.request, "GET", path)
        return reply if status == 200 else None

    async def pods(self) -> list[dict[str, Any]]:
        """All pods of namespace default."""
        reply = await self.call("GET", "/api/v1/namespaces/default/pods")
        return list(reply["items"])

    async def node_of(self, name: str) -> str:
        """Where a pod is bound, empty if it is not."""
        pod = await self.pod(name)
        return str(pod["spec"].get("nodeName", "")) if pod else ""

    async def delete_pod(self, name: str) -> None:
        """Delete a pod at once, without a kubelet's help."""
        path = f"/api/v1/namespaces/default/pods/{name}"
        await self.call("DELETE", path, {"gracePeriodSeconds": 0})

    async def clear(self) -> None:
        """Delete all pods of namespace default and all nodes."""
        await self.call("DELETE", "/api/v1/namespaces/default/pods", {"gracePeriodSeconds": 0})
        await self.call("DELETE", "/api/v1/nodes")
