"""All roles of Stretto as real processes beside a real ledger, for end-to-end tests."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import pathlib
import signal
import sys
import time
import urllib.request
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Self

import msgspec
import yaml

from stretto.audit.checker import API_LOG, AUDIT_LOG, OWNER, check, read_history
from stretto.audit.recorder import Recorder
from stretto.cli.run import Ports, RunSettings, roles_of, shard_role
from stretto.cli.supervisor import Role, Supervisor
from stretto.cli.verdict import difference, ledger_owner
from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.kube.lease import ADDRESS
from stretto.ledger.client import Ledger
from stretto.ledger.server import EmbeddedServer
from stretto.workload.exposition import Reading
from tests.deploy.test_manifests import MANIFESTS, folder_of

READY_S = 40.0
LEASE_FLAGS = ["--lease-duration-s=3", "--lease-renew-deadline-s=2", "--lease-retry-s=0.5"]
"""Short leases, so that a killed role is succeeded within the test."""
LOG_LINES = 60
KEEP_WHOLE = b"CONFIG SET auto-aof-rewrite-percentage 0"
"""The ledger's file is its history: a rewrite at 64 MB would take the beginning."""


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


@dataclasses.dataclass(frozen=True)
class StackSettings:
    """What a test varies."""

    shards: int = 2
    binder_kubeconfig: pathlib.Path | None = None
    """Another way to the API server for the Binder: through a nemesis, or with other rights."""
    dispatcher_kubeconfig: pathlib.Path | None = None
    lease_namespace: str = "kube-system"
    standbys: bool = False
    """A second binder and a second dispatcher, which stand by."""
    at_rest: bool = True
    """Nothing is under way when the test ends: pods are bound or told why not, entries closed."""
    ports: Ports = dataclasses.field(default_factory=Ports)
    standby_ports: Ports = dataclasses.field(default_factory=Ports)
    binder_address: str = ""
    """Where dispatcher and shards dial the Binder, if not at its own port: a proxy."""
    flags: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    """More flags of a kind of role: "binder", "dispatcher", "shard"."""
    ledger_login: Callable[[str], Sequence[str]] | None = None
    """Prepares the ledger's server at the URL; gives the Binder's flags for it."""
    log_level: str = "info"
    ready_urls: bool = True
    """Readiness is asked of the roles over plain HTTP; else they count as ready once started."""


async def with_accounts(
    settings: StackSettings, client: KubeClient, kubeconfig: pathlib.Path
) -> StackSettings:
    """The same, with the rights of deploy/base for the two roles that have any."""
    for manifest in MANIFESTS:
        await client.post(folder_of(manifest), manifest)
    document = yaml.safe_load(await asyncio.to_thread(kubeconfig.read_text))
    files = {}
    for role in ("binder", "dispatcher"):
        path = f"/api/v1/namespaces/stretto/serviceaccounts/stretto-{role}/token"
        answer = await client.post(path, {"spec": {"expirationSeconds": 3600}})
        token = msgspec.json.decode(answer.body)["status"]["token"]
        document["users"] = [{"name": "u", "user": {"token": token}}]
        document["contexts"][0]["context"]["user"] = "u"
        files[role] = kubeconfig.with_name(f"account-{role}-{uuid.uuid4().hex}.kubeconfig")
        files[role].write_text(yaml.safe_dump(document))
    return dataclasses.replace(
        settings,
        binder_kubeconfig=files["binder"],
        dispatcher_kubeconfig=settings.dispatcher_kubeconfig or files["dispatcher"],
        lease_namespace="stretto",
    )


class Stack:
    """``async with Stack(folder, kubeconfig) as stack``: ready when entered, gone when left."""

    def __init__(
        self, folder: pathlib.Path, kubeconfig: pathlib.Path, settings: StackSettings | None = None
    ) -> None:
        self.folder = folder
        self.kubeconfig = kubeconfig
        self.settings = settings or StackSettings()
        self.ports = self.settings.ports
        self.run = RunSettings(
            kubeconfig=kubeconfig,
            shards=self.settings.shards,
            log_dir=folder / "logs",
            log_format="text",
            log_level=self.settings.log_level,
            lease_namespace=self.settings.lease_namespace,
        )
        self.server = EmbeddedServer(folder=folder / "ledger")
        self._kept = 0
        self._recording = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self.server.__aenter__()
        await self._tell_ledger(KEEP_WHOLE)
        config = await KubeConfig.from_file(self.kubeconfig)
        client = await self._recording.enter_async_context(KubeClient(config))
        if os.environ.get("STRETTO_AUDIT") and self.settings.binder_kubeconfig is None:
            self.settings = await with_accounts(self.settings, client, self.kubeconfig)
            self.run = dataclasses.replace(self.run, lease_namespace=self.settings.lease_namespace)
        (self.folder / OWNER).write_text(await self._owner(client))
        recorder = Recorder(client, self.folder / API_LOG)
        self.recorder = await self._recording.enter_async_context(recorder)
        self.supervisor = self.make_supervisor()
        try:
            await self.supervisor.start()
            await self.supervisor.wait_ready(timeout_s=READY_S)
        except BaseException:
            await self._stop(failed=True)
            raise
        return self

    def make_supervisor(self) -> Supervisor:
        """What keeps the roles running."""
        return Supervisor(self.make_roles(), stop_grace_s=8.0)

    def make_roles(self) -> list[Role]:
        """The roles with their flags."""
        roles = roles_of(self.run, redis_url=self.server.url, ports=self.ports)
        own: dict[str, pathlib.Path | None] = {
            "binder": self.settings.binder_kubeconfig,
            "dispatcher": self.settings.dispatcher_kubeconfig,
        }
        if self.settings.standbys:
            roles = self._with_standbys(roles)
        for role in roles:
            if role.name.startswith("binder"):
                role.arguments += ["--audit-log", str(self.folder / AUDIT_LOG)]
            kind = role.name.removesuffix("-2")
            if kind in own:
                role.arguments += LEASE_FLAGS
                path = own[kind]
                role.arguments += ["--kubeconfig", str(path)] if path else []
            if self.settings.binder_address and role.name != "binder":
                role.arguments += ["--binder", self.settings.binder_address]
            role.ready_url = role.ready_url if self.settings.ready_urls else ""
            role.arguments += self.settings.flags.get(kind.partition("-")[0], ())
            if kind == "binder" and self.settings.ledger_login is not None:
                role.arguments += self.settings.ledger_login(self.server.url)
        return roles

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """After a test that has not failed the whole history is held against the invariants."""
        if kind is not None:
            await self._stop(failed=True)
            return
        try:
            await self.recorder.caught_up()
        finally:
            await self._stop(failed=False)
        findings = check(read_history(self.folder), at_rest=self.settings.at_rest)
        assert findings.verdict == "held", findings.text()

    async def _stop(self, *, failed: bool) -> None:
        await self._recording.aclose()
        await self.supervisor.stop()
        await self.server.__aexit__(None, None, None)
        for name in self.supervisor.roles if failed else ():
            sys.stdout.write(f"--- {name}\n{self.log_of(name)}\n")

    def _with_standbys(self, roles: list[Role]) -> list[Role]:
        """The same roles, and another of the two that have a leader; all know all addresses."""
        own, other = self.ports, self.settings.standby_ports
        peers = [
            f"--binder=127.0.0.1:{own.binder},127.0.0.1:{other.binder}",
            f"--dispatcher=127.0.0.1:{own.dispatcher},127.0.0.1:{other.dispatcher}",
        ]
        listens = {
            "binder": (other.binder, other.binder_http),
            "dispatcher": (other.dispatcher, other.dispatcher_http),
        }
        more = []
        for role in roles:
            role.arguments += {"binder": [], "dispatcher": peers[:1]}.get(role.name, peers)
            if role.name in listens:
                port, http = listens[role.name]
                flags = [f"--listen=127.0.0.1:{port}", f"--telemetry-listen=127.0.0.1:{http}"]
                name = f"{role.name}-2"
                ready = f"http://127.0.0.1:{http}/readyz"
                log = self.folder / "logs" / f"{name}.log"
                more.append(Role(name, [*role.arguments, *flags], ready, log))
        return [*roles, *more]

    async def leader(self, role: str) -> str:
        """Name of the process that has a role's Lease, by the address in it."""
        config = await KubeConfig.from_file(self.kubeconfig)
        async with KubeClient(config) as client:
            answer = await client.get(
                "/apis/coordination.k8s.io/v1/namespaces/"
                f"{self.settings.lease_namespace}/leases/stretto-{role}"
            )
        address = msgspec.json.decode(answer.body)["metadata"]["annotations"].get(ADDRESS, "")
        names = [n for n, r in self.supervisor.roles.items() if r.process and n.startswith(role)]
        found = [n for n in names if address and address in self._listens(n)]
        return found[0] if found else ""

    def _listens(self, name: str) -> str:
        """The address in the last --listen of a role's arguments."""
        words = self.supervisor.roles[name].arguments
        at = max(i for i, word in enumerate(words) if word.startswith("--listen"))
        return words[at].partition("=")[2] or words[at + 1]

    async def add_shard(self, number: int) -> str:
        """Start one more shard and wait until it is ready; its name."""
        grown = dataclasses.replace(self.run, shards=number)
        role = shard_role(grown, number=number, run="e2e", ports=self.ports)
        self.supervisor.roles[role.name] = role
        await self.supervisor.start(role.name)
        await self.supervisor.wait_ready(timeout_s=READY_S, names=(role.name,))
        return role.name

    async def kill(self, name: str) -> None:
        """SIGKILL a role and wait until it is gone; its keeper starts another."""
        role = self.supervisor.roles[name]
        process = role.process
        assert process is not None, f"{name} does not run"
        process.kill()
        await process.wait()

    def pause(self, name: str, *, on: bool) -> None:
        """SIGSTOP or SIGCONT a role."""
        os.kill(self.pid(name), signal.SIGSTOP if on else signal.SIGCONT)

    async def ready_again(self, *names: str) -> None:
        """Wait until the named roles (all by default) answer ready."""
        await self.supervisor.wait_ready(timeout_s=READY_S, names=names)

    def log_of(self, name: str, *, lines: int = LOG_LINES) -> str:
        """The end of a role's log."""
        path = self.folder / "logs" / f"{name}.log"
        return "\n".join(path.read_text().splitlines()[-lines:]) if path.exists() else ""

    def pid(self, name: str) -> int:
        """The process of a role that runs."""
        process = self.supervisor.roles[name].process
        assert process is not None, f"{name} does not run"
        return process.pid

    async def metrics(self, *roles: str) -> Reading:
        """What the named roles count at the moment."""
        urls = [
            self.supervisor.roles[name].ready_url.replace("/readyz", "/metrics") for name in roles
        ]
        return Reading([await asyncio.to_thread(read_text, url) for url in urls])

    async def flush_ledger(self) -> None:
        """FLUSHALL, behind everybody's back."""
        await self._tell_ledger(b"FLUSHALL")

    async def _tell_ledger(self, command: bytes) -> None:
        path = self.server.url.removeprefix("unix://")
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(command + b"\r\n")
        assert await reader.readline() == b"+OK\r\n"
        writer.close()
        await writer.wait_closed()

    async def restart_ledger(self, *, empty: bool) -> None:
        """SIGKILL the ledger's server and start it again on its file, or without one."""
        await self.server.kill()
        if empty:  # kept aside for the history
            self._kept += 1
            data = self.folder / "ledger" / "appendonlydir"
            data.rename(data.with_suffix(f".{self._kept:03}"))
        await self.server.start()
        await self._tell_ledger(KEEP_WHOLE)

    async def ledger_difference(self) -> str:
        """What the ledger and the API disagree on, "" for nothing."""
        config = await KubeConfig.from_file(self.kubeconfig)
        async with KubeClient(config) as client:
            ledger = await Ledger.open(self.server.url, owner=await self._owner(client))
            try:
                return await difference(client, ledger)
            finally:
                await ledger.close()

    async def _owner(self, client: KubeClient) -> str:
        uid = (await ledger_owner(client)).partition(":")[0]
        return f"{uid}:{self.settings.lease_namespace}/stretto-binder"

    async def settle(self, *, timeout_s: float = 30.0) -> None:
        """Wait until the ledger is the projection of the API."""
        last = ""

        async def equal() -> bool:
            nonlocal last
            last = await self.ledger_difference()
            return not last

        with contextlib.suppress(TimeoutError):
            await until(equal, timeout_s=timeout_s, what="ledger equals projection")
            return
        raise AssertionError(f"after {timeout_s:.0f} s ledger and API differ: {last}")


def read_text(url: str) -> str:
    """GET of one of our own loopback URLs."""
    with urllib.request.urlopen(url, timeout=5) as reply:
        return str(reply.read().decode())


async def until(
    condition: Callable[[], Awaitable[bool] | bool], *, timeout_s: float, what: str
) -> None:
    """Wait for a condition.

    Raises:
        TimeoutError: it did not come true; says what.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        got = condition()
        if got if isinstance(got, bool) else await got:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s:.0f} s")
        await asyncio.sleep(0.1)
