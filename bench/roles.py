"""All roles of Stretto beside a real ledger server, as processes started through the command."""

from __future__ import annotations

import asyncio
import compileall
import re
from pathlib import Path
from typing import Self

import aiohttp

from stretto.cli.run import Ports, RunSettings, roles_of
from stretto.cli.supervisor import Supervisor
from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.kube.lease import CLEAN
from stretto.ledger.server import EmbeddedServer
from stretto.model.errors import OperatorError

READY_S = 60.0
ROOT = Path(__file__).parent.parent
PACKAGES = ("binder", "dispatcher", "proto", "scheduler_shard", "stretto")


async def leave_clean_lease(settings: RunSettings) -> None:
    """The binder's Lease as an orderly stop leaves it, unless there is one.

    A binder that starts without that proof touches every pending pod first, see docs/failure.md;
    what is measured is the common case.
    """
    namespace = settings.lease_namespace
    async with KubeClient(await KubeConfig.from_file(settings.kubeconfig)) as client:
        answer = await client.post(
            f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases",
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": "stretto-binder", "annotations": {CLEAN: "true"}},
                "spec": {"holderIdentity": ""},
            },
        )
    if not answer.ok and answer.status != 409:
        raise OperatorError(f"the binder's lease was not made: {answer.status} {answer.text}")


def compile_packages() -> None:
    """An installed package is compiled; a checkout may not be, and would be at each start."""
    for package in PACKAGES:
        compileall.compile_dir(ROOT / package, quiet=2)


def last_words(logs: Path) -> str:
    """The end of every log of a folder."""
    ends = (
        f"--- {file.name}\n" + "\n".join(file.read_text().splitlines()[-8:])
        for file in sorted(logs.glob("*.log"))
    )
    return "\n".join(ends)


class Roles:
    """``async with Roles(…) as roles``: all roles ready when entered, all gone when left."""

    def __init__(
        self,
        folder: Path,
        kubeconfig: Path,
        *,
        shards: int,
        scheduler_name: str = "stretto",
        events: bool = True,
    ) -> None:
        self._server = EmbeddedServer(folder=folder / "ledger")
        self._events = events
        self._ports = Ports()
        self.logs = folder / "logs"
        self._settings = RunSettings(
            kubeconfig=kubeconfig,
            shards=shards,
            scheduler_name=(scheduler_name,),
            log_dir=self.logs,
            log_format="text",
            log_level="warning",
        )

    async def __aenter__(self) -> Self:
        await leave_clean_lease(self._settings)
        await asyncio.to_thread(compile_packages)
        await self._server.__aenter__()
        roles = roles_of(self._settings, redis_url=self._server.url, ports=self._ports)
        for role in roles:
            if role.name == "binder" and not self._events:
                role.arguments.append("--no-events")
        self._supervisor = Supervisor(roles, stop_grace_s=10.0)
        try:
            # The dispatcher last: pods wait already, and would be bound while others start.
            names = [role.name for role in roles]
            await self._supervisor.start(*(name for name in names if name != "dispatcher"))
            await self._supervisor.wait_ready(timeout_s=READY_S, names=("binder",))
            await asyncio.sleep(1)  # the shards follow it
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def begin(self) -> None:
        """Start the dispatcher: from here on pods flow."""
        await self._supervisor.start("dispatcher")
        try:
            await self._supervisor.wait_ready(timeout_s=READY_S)
        except OperatorError as error:
            raise OperatorError(f"{error}\n{self.last_words()}") from error

    async def dispatcher_page(self) -> str:
        """The dispatcher's /metrics."""
        url = f"http://127.0.0.1:{self._ports.dispatcher_http}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as reply:
            return await reply.text()

    async def events_dropped(self) -> int:
        """Events that did not fit into the binder's queue, by its own count."""
        url = f"http://127.0.0.1:{self._ports.binder_http}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as reply:
            text = await reply.text()
        found = re.search(r"^stretto_events_dropped_total ([0-9.e+]+)$", text, re.MULTILINE)
        assert found, f"{url} has no stretto_events_dropped_total"
        return int(float(found[1]))

    def last_words(self) -> str:
        """The end of every log."""
        return last_words(self.logs)

    async def __aexit__(self, *_: object) -> None:
        await self._supervisor.stop()
        await self._server.__aexit__(None, None, None)

    @property
    def ledger_url(self) -> str:
        return self._server.url

    def pids(self) -> dict[str, list[int]]:
        """Process ids by group."""
        groups: dict[str, list[int]] = {"ledger server": [self._server.pid]}
        if (server := self._supervisor.forks.server_pid) is not None:
            groups["fork server"] = [server]
        for name, role in self._supervisor.roles.items():
            group = "shards" if name.startswith("shard") else name
            if role.process is not None:
                groups.setdefault(group, []).append(role.process.pid)
        return groups

    def restarts(self) -> int:
        """How often a role had to be started again; any makes the figures worthless."""
        return sum(role.starts - 1 for role in self._supervisor.roles.values() if role.starts)
