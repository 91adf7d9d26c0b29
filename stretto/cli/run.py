"""`stretto run`: dispatcher, binder and K shards as processes of this machine, for an existing
cluster.

The ledger is the Redis or Valkey of ``--redis-url`` (or REDIS_URL), otherwise an embedded server
whose append-only file lives in a folder per cluster, named after the uid of kube-system (design
§12.8).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import pathlib
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from stretto.cli.fork_server import serve_ahead
from stretto.cli.forks import Ahead, Forks, fork_ahead
from stretto.cli.kept_ledger import KeptLedger
from stretto.cli.leads import until_ours
from stretto.cli.runner import run_role
from stretto.cli.supervisor import Role, Supervisor, free_port, own_age_s
from stretto.config.common import ConfigError, check_logs, check_name
from stretto.config.ledger import LedgerSettings
from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.kube.leadership import beside, cancelled, unless
from stretto.model.errors import OperatorError
from stretto.telemetry.logs import setup_logging

READY_TIMEOUT_S = 60.0
STANDBY_S = 15.0
"""Who is ready sooner leads: a standby says that it is one when a Lease could have run out."""
BINDER = "binder"
DISPATCHER = "dispatcher"
T = TypeVar("T")
Excuse = Callable[[], bool]


class RunError(OperatorError):
    """`stretto run` cannot start."""


def shards_for(cpus: int) -> int:
    """How many shards a machine with so many CPUs is best served by.

    The API server binds a thousand or two pods a second, and a shard decides 20,000 of few shapes,
    2,000 of all different ones. What a second one costs (its start, and following the log) is only
    made up for where it has a CPU of its own beside the other roles and the ledger.
    """
    return 1 if cpus < 4 else 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSettings(LedgerSettings):
    """Flags of `stretto run`."""

    kubeconfig: pathlib.Path | None = dataclasses.field(
        default=None,
        metadata={
            "help": "kubeconfig of the cluster; without it the in-cluster account",
            "env": "KUBECONFIG",
        },
    )
    shards: int = dataclasses.field(
        default_factory=lambda: shards_for(len(os.sched_getaffinity(0))),
        metadata={
            "help": "scheduler shard processes to start (default: 2, and 1 on a machine with fewer "
            "than 4 CPUs)"
        },
    )
    scheduler_name: tuple[str, ...] = dataclasses.field(
        default=("stretto",), metadata={"help": "schedulerName to serve; repeatable"}
    )
    config: pathlib.Path | None = dataclasses.field(
        default=None,
        metadata={
            "help": "KubeSchedulerConfiguration file (YAML or JSON) with the profiles; without it "
            "the defaults of kube-scheduler"
        },
    )
    feature_gates: tuple[str, ...] = dataclasses.field(
        default=(), metadata={"help": "Name=true or Name=false, joined by commas"}
    )
    redis_url: str = dataclasses.field(
        default="",
        metadata={
            "help": "Redis or Valkey that holds the ledger; embedded when absent",
            "env": "REDIS_URL",
        },
    )
    state_dir: pathlib.Path = dataclasses.field(
        default=pathlib.Path(os.environ.get("XDG_STATE_HOME", "~/.local/state")).expanduser()
        / "stretto",
        metadata={"help": "folder of the embedded ledger, one below it per cluster"},
    )
    lease_namespace: str = dataclasses.field(
        default="kube-system", metadata={"help": "namespace of the two leader Leases"}
    )
    audit_log: pathlib.Path | None = dataclasses.field(
        default=None,
        metadata={
            "help": "file to which the Binder's acts are appended, for `stretto check-history`"
        },
    )
    log_format: str = dataclasses.field(default="text", metadata={"help": "json or text"})
    log_level: str = dataclasses.field(
        default="warning", metadata={"help": "debug, info, warning or error"}
    )
    log_dir: pathlib.Path | None = dataclasses.field(
        default=None,
        metadata={"help": "folder for a log file per process instead of this terminal"},
    )
    log_ready: bool = dataclasses.field(
        default=True, metadata={"help": "print a line when all roles are ready"}
    )

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not 1 <= self.shards <= 64:
            raise ConfigError(f"--shards {self.shards}: take 1 to 64")
        if not all(self.scheduler_name):
            raise ConfigError("--scheduler-name is empty; name at least one")
        check_logs(format=self.log_format, level=self.log_level)
        check_name(self.lease_namespace, flag="--lease-namespace")


class Ports(msgspec.Struct):
    """Loopback ports of the roles of one machine."""

    dispatcher: int = msgspec.field(default_factory=free_port)
    binder: int = msgspec.field(default_factory=free_port)
    dispatcher_http: int = msgspec.field(default_factory=free_port)
    binder_http: int = msgspec.field(default_factory=free_port)


def common_flags(settings: RunSettings) -> list[str]:
    """Flags that every role takes."""
    flags = ["--log-format", settings.log_format, "--log-level", settings.log_level]
    flags += [f"--feature-gates={gates}" for gates in settings.feature_gates]
    return flags if settings.config is None else [*flags, "--config", str(settings.config)]


def control_flags(settings: RunSettings) -> list[str]:
    """Flags of the two roles that speak to the API server."""
    flags = [f"--scheduler-name={name}" for name in settings.scheduler_name]
    flags += ["--lease-namespace", settings.lease_namespace]
    if settings.kubeconfig:
        flags += ["--kubeconfig", str(settings.kubeconfig)]
    return flags


def log_of(settings: RunSettings, name: str) -> pathlib.Path | None:
    """The log file of a role, None for this terminal.

    Raises:
        RunError: the file cannot be written.
    """
    if settings.log_dir is None:
        return None
    log = settings.log_dir / f"{name}.log"
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.open("ab").close()
    except OSError as error:
        raise RunError(
            f"--log-dir {settings.log_dir}: {log.name}: {error.strerror}; name a folder that can "
            "be written"
        ) from None
    return log


def shard_role(settings: RunSettings, *, number: int, run: str, ports: Ports) -> Role:
    """A shard process, the ``number``-th of a run.

    A dispatcher takes the shard that comes last under a name for the others' successor, so each run
    has names of its own: its shards may come to another run's dispatcher before it is refused.
    """
    http = free_port()
    name = f"shard-{number}"
    flags = [
        "--name",
        f"{name}-{run}",
        "--dispatcher",
        f"127.0.0.1:{ports.dispatcher}",
        "--binder",
        f"127.0.0.1:{ports.binder}",
        "--partition-index",
        str(number - 1),
        "--partition-count",
        str(settings.shards),
    ]
    return Role(
        name=name,
        arguments=[
            "shard",
            *common_flags(settings),
            *flags,
            "--telemetry-listen",
            f"127.0.0.1:{http}",
        ],
        ready_url=f"http://127.0.0.1:{http}/readyz",
        log=log_of(settings, name),
    )


def ledger_flags(settings: RunSettings, redis_url: str) -> list[str]:
    """The way to the ledger's server, for the Binder."""
    files = ("password_file", "authority", "certificate", "key")
    given = {name: getattr(settings, f"redis_{name}") for name in files}
    flags = [f"--redis-{n.replace('_', '-')}={path}" for n, path in given.items() if path]
    flags += ["--redis-insecure"] if settings.redis_insecure else []
    return ["--redis-url", redis_url, *flags]


def roles_of(settings: RunSettings, *, redis_url: str, ports: Ports) -> list[Role]:
    """All role processes of one machine."""
    run = uuid.uuid4().hex[:8]
    control = [*common_flags(settings), *control_flags(settings)]
    binder = [
        "--listen",
        f"127.0.0.1:{ports.binder}",
        "--telemetry-listen",
        f"127.0.0.1:{ports.binder_http}",
    ]
    binder += ["--audit-log", str(settings.audit_log)] if settings.audit_log else []
    dispatcher = [
        "--listen", f"127.0.0.1:{ports.dispatcher}", "--binder", f"127.0.0.1:{ports.binder}",
        "--telemetry-listen", f"127.0.0.1:{ports.dispatcher_http}",
    ]  # fmt: skip
    return [
        Role(
            name=BINDER,
            arguments=["binder", *control, *binder, *ledger_flags(settings, redis_url)],
            ready_url=f"http://127.0.0.1:{ports.binder_http}/readyz",
            log=log_of(settings, BINDER),
        ),
        Role(
            name=DISPATCHER,
            arguments=["dispatcher", *control, *dispatcher],
            ready_url=f"http://127.0.0.1:{ports.dispatcher_http}/readyz",
            log=log_of(settings, DISPATCHER),
        ),
        *(
            shard_role(settings, number=number, run=run, ports=ports)
            for number in range(1, settings.shards + 1)
        ),
    ]


class NamespaceHead(msgspec.Struct):
    """As much of a Namespace as naming the ledger folder needs."""

    metadata: dict[str, object]


async def cluster_of(settings: RunSettings) -> KubeConfig:
    """Where the API server is, and as whom we go there."""
    path = settings.kubeconfig
    return await KubeConfig.from_file(path) if path else KubeConfig.in_cluster()


async def cluster_uid(config: KubeConfig) -> str:
    """The uid of kube-system, which names the cluster.

    Raises:
        RunError: the API server does not answer, or refuses.
    """
    async with KubeClient(config) as client:
        await client.check()
        reply = await client.get("/api/v1/namespaces/kube-system")
    if reply.status != 200:
        raise RunError(
            f"the API server at {config.url} answered {reply.status} to reading namespace "
            "kube-system; check the credentials in --kubeconfig"
        )
    return str(msgspec.json.decode(reply.body, type=NamespaceHead).metadata["uid"])


@contextlib.asynccontextmanager
async def ledger_of(settings: RunSettings, *, uid: str) -> AsyncIterator[tuple[str, Excuse]]:
    """The given ledger, or an embedded one that lives as long as the context: its URL, and whether
    it is to blame for a Binder that did not find it."""
    if settings.redis_url:
        # One line from here instead of one from the Binder after the other roles have started.
        from stretto.ledger.access import Access
        from stretto.ledger.client import Ledger

        access = Access.of(settings)
        await (await Ledger.open(settings.redis_url, owner=uid, access=access)).close()
        yield settings.redis_url, lambda: False
        return
    folder = settings.state_dir / "ledger" / uid
    async with KeptLedger(folder=folder) as ledger:
        yield ledger.url, lambda: ledger.died


def scheduler_names(settings: RunSettings) -> tuple[str, ...]:
    """The names that are served. A configuration is read here first, so that its fault is one line.

    Raises:
        ConfigError: the configuration cannot be used.
    """
    if settings.config is None and not settings.feature_gates:
        return settings.scheduler_name
    # It brings the plugins and NumPy with it; without it we are ready a quarter of a second sooner.
    from stretto.config.scheduler_file import configuration_of

    return configuration_of(
        settings.config, names=settings.scheduler_name, feature_gates=settings.feature_gates
    ).names


async def run_all(
    settings: RunSettings, *, stop: asyncio.Event, server: Ahead | None = None
) -> int:
    """Start everything (from a fork server that is there already, if it is given), stay until
    ``stop``, end everything."""
    names = ", ".join(scheduler_names(settings))
    config = await cluster_of(settings)
    uid = await unless(stop, cluster_uid(config))
    if uid is None:
        return 0
    async with ledger_of(settings, uid=uid) as (url, excuse):
        ports = Ports()
        roles = roles_of(settings, redis_url=url, ports=ports)
        supervisor = Supervisor(roles, forks=Forks(server))
        supervisor.roles[BINDER].excuse = excuse
        try:
            leases = settings.lease_namespace
            await unless(stop, start_leading(supervisor, config, leases=leases, ports=ports))
            if settings.log_ready and not stop.is_set():
                shards = "1 shard" if settings.shards == 1 else f"{settings.shards} shards"
                sys.stderr.write(
                    f"stretto: ready after {own_age_s():.1f} s; scheduling pods with "
                    f"schedulerName {names} on {shards}.\n"
                )
            await stopped_or_failed(stop, supervisor=supervisor)
        finally:
            await supervisor.stop()
    return 0


async def stopped_or_failed(stop: asyncio.Event, *, supervisor: Supervisor) -> None:
    """Stay until asked to stop.

    Raises:
        RoleError: a role ended for good.
    """
    stopped = asyncio.ensure_future(stop.wait())
    waiting: set[asyncio.Future[Any]] = {stopped, supervisor.failed}
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if supervisor.failed.done():
        raise supervisor.failed.result()


async def start_leading(
    supervisor: Supervisor, config: KubeConfig, *, leases: str, ports: Ports
) -> None:
    """Start all roles and wait until they are ready and lead; their Leases are in the namespace
    ``leases``.

    Raises:
        ServedError: another deployment does.
    """
    addresses = {BINDER: ports.binder, DISPATCHER: ports.dispatcher}

    async def leading(names: tuple[str, ...]) -> None:
        for role in addresses.keys() & set(names):
            address = f"127.0.0.1:{addresses[role]}"
            await until_ours(config, namespace=leases, role=role, address=address)

    await start(supervisor, leading=leading)


async def nobody_asks(names: tuple[str, ...]) -> None:
    """Whether roles lead."""


async def start(
    supervisor: Supervisor,
    *,
    leading: Callable[[tuple[str, ...]], Coroutine[Any, Any, None]] = nobody_asks,
) -> None:
    """Start all roles and wait until they are ready; ``leading`` runs meanwhile and ends when the
    named ones lead. Who is ready sooner than a standby would say so leads without asking.

    The Binder first: whoever dials it before it leads dials again and again, at a millisecond each
    time, and beside it nothing starts sooner where there are not many CPUs.
    """
    others = [name for name in supervisor.roles if name != BINDER]
    for names in ((BINDER,), tuple(others)):
        began = time.monotonic()
        await supervisor.start(*names)
        lead = asyncio.create_task(leading(names))
        try:
            await beside(supervisor.wait_ready(timeout_s=READY_TIMEOUT_S, names=names), lead)
            if time.monotonic() - began >= STANDBY_S:
                await lead
        finally:
            await cancelled(lead)


def run_command(settings: RunSettings) -> int:
    """Entry point of `stretto run`."""
    parent = os.getpid()
    server = fork_ahead()
    if not isinstance(server, Ahead):
        return serve_ahead(server, parent=parent)
    setup_logging(format=settings.log_format, level=settings.log_level)
    return run_role(lambda stop: run_all(settings, server=server, stop=stop))
