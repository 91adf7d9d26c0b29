"""The roles of the matrix: each a process of its own entry, each joined to the others by links."""

from __future__ import annotations

import asyncio
import pathlib
import sys
from typing import Any

import msgspec

from stretto.cli.forks import Fork, Forks
from stretto.cli.supervisor import Role, Supervisor
from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.kube.lease import ADDRESS
from stretto.ledger.server import die_with_parent
from tests.e2e.stack import Stack, plain_kubeconfig
from tests.matrix.http_link import HttpLink
from tests.matrix.link import Link

BINDERS = ("binder", "binder-2")
DISPATCHERS = ("dispatcher", "dispatcher-2")
SHARDS = ("shard-1", "shard-2")


class Apart(Forks):
    """Starts each role's process through :mod:`tests.matrix.role` instead of forking it."""

    def __init__(self, control: pathlib.Path) -> None:
        super().__init__()
        self._control = control
        self._waiting: set[asyncio.Task[None]] = set()

    async def start(self, name: str, arguments: list[str], *, output: int | None) -> Fork:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.matrix.role", name, str(self._control), *arguments,
            stdout=output, stderr=output, stdin=asyncio.subprocess.DEVNULL,
            preexec_fn=die_with_parent, start_new_session=True,
        )  # fmt: skip
        fork = Fork(process.pid)
        task = asyncio.create_task(ended(process, fork))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)
        return fork


async def ended(process: asyncio.subprocess.Process, fork: Fork) -> None:
    """Tell how a process has ended."""
    fork.end(await process.wait())


class MatrixStack(Stack):
    """The roles, started through the matrix's own entry and joined by links."""

    links: dict[str, Link]
    control: pathlib.Path

    def make_supervisor(self) -> Supervisor:
        supervisor = super().make_supervisor()
        supervisor.forks = Apart(self.control)
        return supervisor

    def make_roles(self) -> list[Role]:
        roles = super().make_roles()
        for role in roles:
            role.arguments += self._ways(role.name)
        return roles

    def _ways(self, name: str) -> list[str]:
        """Flags by which a role reaches everybody through its own links."""
        flags = [f"--advertise={name}:1"] if name in (*BINDERS, *DISPATCHERS) else []
        for flag, peers in (("binder", BINDERS), ("dispatcher", DISPATCHERS)):
            found = [self.links[f"{name}>{p}"] for p in peers if f"{name}>{p}" in self.links]
            if found:
                flags.append(f"--{flag}={','.join(link.address for link in found)}")
        if api := self.links.get(f"{name}>api"):
            assert isinstance(api, HttpLink)
            path = plain_kubeconfig(self.folder, url=api.url, name=name)
            flags.append(f"--kubeconfig={path}")
        if ledger := self.links.get(f"{name}>ledger"):
            flags.append(f"--redis-url=unix://{ledger.address}")
        return flags

    async def leader(self, role: str) -> str:
        """Name of the process that its Lease names, "" if it does not run."""
        config = await KubeConfig.from_file(self.kubeconfig)
        async with KubeClient(config) as client:
            answer = await client.get(
                f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/stretto-{role}"
            )
        body: dict[str, Any] = msgspec.json.decode(answer.body)
        address = str((body.get("metadata", {}).get("annotations") or {}).get(ADDRESS, ""))
        name = address.partition(":")[0]
        found = self.supervisor.roles.get(name)
        return name if found is not None and found.process is not None else ""
