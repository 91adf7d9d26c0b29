"""A whole deployment on a simulated cluster, its faults, and the judge.

A run: roles start, pods are created (single ones and a gang, some are deleted again), faults fire
for a while, then they stop, dead roles are started again, and everything must come to rest
bound. The judge looks at every change of the API server's objects, not at what Stretto believes.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import binder.process
import dispatcher.process
from scheduler_shard.process import make_shard
from scheduler_shard.streams import ShardStreams
from stretto.config.binder import BinderSettings
from stretto.config.dispatcher import DispatcherSettings
from stretto.config.scheduler_file import configuration_of_role
from stretto.config.shard import ShardSettings
from stretto.kube.client import KubeClient
from stretto.placement.configuration import Configuration
from stretto.rpc.messages import ShardHello
from stretto.simulator.pods import PODS as PODS_KIND
from stretto.simulator.store import Change
from tests.simulation.history import Recorder
from tests.simulation.kube import KubeNetwork
from tests.simulation.ledger import Ledger, LedgerServer
from tests.simulation.loop import VirtualLoop
from tests.simulation.patches import simulated
from tests.simulation.rpc import Dialer, RpcNetwork
from tests.simulation.world import HOST, Host, World

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a run does. The cluster is exactly full when all its pods run, 500m each; while faults
    fire, rivals ask for more, so that room that is freed is taken at once."""

    shards: int = 2
    nodes: int = 3
    node_cpu: int = 2
    singles: int = 8
    rivals: int = 5
    urgent: int = 0
    """Pods of higher priority: whoever is in their way has to go, and does not come back."""
    gangs: int = 1
    gang_size: int = 3
    deletes: int = 10
    faults: int = 6
    fault_s: float = 12.0
    """Faults fire in this time."""
    pause_s: float = 1.0
    """Between two pods, at most."""
    stake_after_s: float = 5.0
    lease_s: float = 3.0
    lease_retry_s: float = 0.5
    list_s: float = 60.0
    """How long an answer to a list is waited for."""
    restart_s: float = 2.0
    """From the end of a process to its next start, at most."""
    redial_s: float = 0.2
    patience_s: float = 150.0
    """By then everything must be at rest."""

    @property
    def lease(self) -> dict[str, Any]:
        """The settings of a role's Lease."""
        return {
            "lease_duration_s": self.lease_s,
            "lease_renew_deadline_s": self.lease_s * 2 / 3,
            "lease_retry_s": self.lease_retry_s,
        }


SHORT = Settings(singles=5, rivals=3, deletes=3, faults=3, fault_s=4.0)
"""A third of the work of a whole run: more seeds in the same time."""


class Violation(AssertionError):  # noqa: N818
    """An invariant does not hold."""


class Judge:
    """Looks at every change of a pod (I1, I2 of reliability.md, as the API server sees them)."""

    def __init__(self, world: World, *, node_cpu: int) -> None:
        self._world = world
        self._room = node_cpu * 1000
        self.nodes: dict[str, str] = {}
        """Uid → node of pods that are bound."""
        self._used: dict[str, int] = {}

    def changed(self, change: Change) -> None:
        """A pod came, changed or went."""
        old, new = change.old, change.new
        if new is None:
            assert old is not None
            node = self.nodes.pop(old.uid, "")
            if node:
                self._used[node] -= cpu_of(old.body())
            return
        node = getattr(new, "node_name", "")
        if not node:
            return
        before = self.nodes.get(new.uid)
        if before is not None:
            self._require(before == node, f"{new.name} moved from {before} to {node}")
            return
        self.nodes[new.uid] = node
        self._used[node] = self._used.get(node, 0) + cpu_of(new.body())
        self._world.note(f"bound {new.name} to {node}")
        self._require(self._used[node] <= self._room, f"{node} is overcommitted by {new.name}")

    def _require(self, holds: bool, text: str) -> None:
        if not holds:
            raise Violation(f"seed {self._world.seed} at {self._world.now:.3f}: {text}")


def cpu_of(body: Any) -> int:
    """Milli-CPU of a pod of these runs."""
    text = body["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    return int(text.removesuffix("m")) if text.endswith("m") else int(text) * 1000


@functools.cache
def _configuration() -> Configuration:
    return configuration_of_role(DispatcherSettings(), names=("stretto",))


class Simulation:
    """One run; see the module docstring."""

    pods_kind = PODS_KIND
    said = ""
    """What a run has to tell besides."""
    problem = ""
    """The violation it ended with, kept by who runs many."""
    make_loop: Callable[[], VirtualLoop] = VirtualLoop
    ends_at_rest = True
    """Nothing is under way when it ends."""

    def __init__(self, seed: int, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.world = World(seed, self.make_loop())
        self.kube = KubeNetwork(self.world)
        self.rpc = RpcNetwork(self.world, redial_s=self.settings.redial_s)
        self.ledger = LedgerServer(self.world)
        self.judge = Judge(self.world, node_cpu=self.settings.node_cpu)
        self.hosts: dict[str, Host] = {}
        self.configuration = _configuration()
        self.incarnations = 0
        self.processes: dict[str, Any] = {}
        self.stops: dict[str, asyncio.Event] = {}
        """What SIGTERM sets, by role."""
        self.recorder: Recorder | None = None
        self._keeping = True

    def record(self) -> None:
        """Keep the run's history; it is held against all rules at the end."""
        self.recorder = Recorder(self.world, self.kube.api, self.ledger.store)
        self.ledger.recorder = self.recorder

    def run(self) -> None:
        """Run to the end. Raises Violation."""
        loop, seed = self.world.loop, self.world.seed
        asyncio.set_event_loop(loop)
        try:
            with simulated(self.world, self.kube, self.rpc, recorder=self.recorder):
                self._until_it_ends(loop.create_task(self._run()))
        except Violation:
            raise
        except Exception as error:
            raise Violation(f"seed {seed} at {self.world.now:.3f}: {error!r}") from error
        finally:
            asyncio.set_event_loop(None)
            loop.close()
        self._check_history()

    def _check_history(self) -> None:
        if self.recorder is not None:
            findings = self.recorder.findings(at_rest=self.ends_at_rest)
            if findings.verdict != "held":
                told = "; ".join([*findings.gaps, *map(str, findings.violations)])
                raise Violation(
                    f"seed {self.world.seed}: its history is {findings.verdict}: {told}"
                )

    def _until_it_ends(self, work: asyncio.Task[None]) -> None:
        """Run it; if anything beside it raises, end it first, so that no task is left behind."""
        try:
            self.world.loop.run_until_complete(work)
        except BaseException:
            while not work.done():
                work.cancel()
                with contextlib.suppress(Exception, asyncio.CancelledError):
                    self.world.loop.run_until_complete(work)
            raise

    async def _run(self) -> None:
        try:
            self._create_cluster()
            self._start_all()
            work = asyncio.create_task(self._workload())
            await self._faults()
            await work
            self._heal()
            await self._rest()
        finally:
            self._keeping = False
            for host in self.hosts.values():
                host.kill()
                self.rpc.cut(host)
            await self.world.loop.end_others()  # also what dead hosts started

    # ---------------------------------------------------------------------------------- the cluster
    def _create_cluster(self) -> None:
        kube, room = self.kube, str(self.settings.node_cpu)
        for number in range(self.settings.nodes):
            kube.call("POST", NODES, {"metadata": {"name": f"n{number}"}})
            amounts = {"cpu": room, "memory": "8Gi", "pods": "110"}
            status = {"status": {"capacity": amounts, "allocatable": amounts}}
            kube.call("PATCH", f"{NODES}/n{number}/status", status)
        pods = kube.api.store(PODS_KIND)
        pods.observe(self.judge.changed)

    def create_pod(self, name: str, *, cpu: str = "500m", group: str = "") -> None:
        """A pod for Stretto; it goes at once when it is asked to."""
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
        spec: dict[str, Any] = {"schedulerName": "stretto", "containers": [container]}
        if self.settings.urgent:
            spec["terminationGracePeriodSeconds"] = 0
        if name.startswith("u"):
            spec["priorityClassName"] = "system-cluster-critical"
        if group:
            spec["schedulingGroup"] = {"podGroupName": group}
        self.kube.call("POST", PODS, {"metadata": {"name": name}, "spec": spec})
        self.world.note(f"created {name}")

    def _delete(self, name: str) -> None:
        """Delete a pod, unless somebody has made it leave."""
        if self.kube.api.store(PODS_KIND).get("default", name) is not None:
            self.kube.call("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})

    def _pods(self) -> list[Any]:
        return [pod.body() for pod in self._records()]

    def _records(self) -> list[Any]:
        return self.kube.api.store(PODS_KIND).records(namespace="default")

    async def _workload(self) -> None:
        """Pods come in bursts, and are deleted and made again while faults fire."""
        world, settings = self.world, self.settings
        names = await self._create_all()
        for _ in range(settings.deletes):
            await asyncio.sleep(world.rng.random() * 2 * settings.fault_s / settings.deletes)
            self._renew(names)

    async def _create_all(self) -> list[tuple[str, str]]:
        """Groups, and pods in any order; the names of pods and of their groups."""
        world, settings = self.world, self.settings
        for gang in range(settings.gangs):
            policy = {"schedulingPolicy": {"gang": {"minCount": settings.gang_size}}}
            self.kube.call("POST", GROUPS, {"metadata": {"name": f"g{gang}"}, "spec": policy})
        names = [(f"p{number}", "") for number in range(settings.singles)]
        for gang in range(settings.gangs):
            names += [(f"g{gang}-{number}", f"g{gang}") for number in range(settings.gang_size)]
        names += [(f"r{number}", "") for number in range(settings.rivals)]
        names += [(f"u{number}", "") for number in range(settings.urgent)]
        world.rng.shuffle(names)
        for name, group in names:
            self.create_pod(name, group=group)
            if world.chance(0.3):
                await asyncio.sleep(world.rng.random() * settings.pause_s)
        return names

    def _renew(self, names: list[tuple[str, str]]) -> None:
        """Some pods go, and others of their names come."""
        for name, group in self.world.rng.sample(names, self.world.rng.randint(1, 4)):
            self._delete(name)
            self.world.note(f"deleted {name}")
            self.create_pod(name, group=group)

    # ----------------------------------------------------------------------------------- the roles
    def _start_all(self) -> None:
        self.start("binder")
        self.start("dispatcher")
        for number in range(self.settings.shards):
            self.start(f"shard-{number}")

    def start(self, role: str) -> None:
        """Start a role on a fresh host."""
        self.incarnations += 1
        host = Host(self.world, f"{role}.{self.incarnations}")
        self.hosts[role] = host
        token = HOST.set(host)
        try:
            if role.startswith("binder"):
                ended = host.start(self._binder(host, role))
            elif role.startswith("dispatcher"):
                ended = host.start(self._dispatcher(host, role))
            else:
                ended = host.start(self._shard(host, role))
            ended.add_done_callback(lambda _: self._ended(host, role))
        finally:
            HOST.reset(token)

    async def _binder(self, host: Host, role: str) -> None:
        settings = BinderSettings(
            listen="127.0.0.1:7071",
            events=False,
            redis_url="redis://x",
            binds_in_flight=4,
            **self.settings.lease,
        )
        async with self._client(host) as client:
            ledger: Any = Ledger(self.ledger, host)
            process = binder.process.BinderProcess(
                settings, client=client, ledger=ledger, configuration=self.configuration
            )
            self.processes[role] = process
            await process.run(stop=self._stop(role), ready=None)

    async def _dispatcher(self, host: Host, role: str) -> None:
        settings = DispatcherSettings(
            conditions_in_flight=2, stake_after_s=self.settings.stake_after_s, **self.settings.lease
        )
        async with self._client(host) as client:
            process = dispatcher.process.DispatcherProcess(
                settings, client=client, configuration=self.configuration
            )
            self.processes[role] = process
            await process.run(stop=self._stop(role), ready=None)

    def _stop(self, role: str) -> asyncio.Event:
        self.stops[role] = asyncio.Event()
        return self.stops[role]

    def _client(self, host: Host) -> KubeClient:
        return KubeClient(host, list_timeout_s=self.settings.list_s)  # type: ignore[arg-type]

    def _ended(self, host: Host, role: str) -> None:
        """Whatever keeps roles alive starts it again."""
        self.rpc.cut(host)
        host.dead = True
        if self._keeping and host.failure is None:
            pause_s = self.world.rng.random() * self.settings.restart_s
            self.world.loop.call_later(pause_s, self._again, host, role)

    async def _shard(self, host: Host, role: str) -> None:
        settings = ShardSettings(name=role)
        shard = make_shard(settings, stories=None, configuration=self.configuration)
        self.processes[role] = shard
        streams = ShardStreams(
            shard,
            hello=ShardHello(
                role, f"incarnation-{self.incarnations}", profiles=self.configuration.digest
            ),
            dispatcher=Dialer(self.rpc, host, "127.0.0.1:7070"),  # type: ignore[arg-type]
            binder=Dialer(self.rpc, host, "127.0.0.1:7071"),  # type: ignore[arg-type]
            rng=self.world.rng,
        )
        await streams.run()

    def kill(self, role: str) -> None:
        """SIGKILL."""
        host = self.hosts[role]
        host.kill()
        self.rpc.cut(host)

    # ---------------------------------------------------------------------------------- the faults
    async def _faults(self) -> None:
        world, settings = self.world, self.settings
        moments = sorted(world.rng.random() * settings.fault_s for _ in range(settings.faults))
        for moment in moments:
            await asyncio.sleep(max(0.0, moment - world.now))
            self._some_fault()
        await asyncio.sleep(max(0.0, settings.fault_s - world.now))

    def _some_fault(self) -> None:
        kinds: list[Callable[[], None]] = [
            self._kill_some, self._kill_some, self._cut_stream, self._lossy, self._lossy,
            self._api_away,
            self._stall, self._cut_watches, self._compact, self._ledger_lost, self._ledger_crash,
        ]  # fmt: skip
        self.world.rng.choice(kinds)()

    def _kill_some(self) -> None:
        role = self.world.rng.choice(sorted(self.hosts))
        self.world.fault(f"kill {role}")
        self.kill(role)

    def _again(self, dead: Host, role: str) -> None:
        if self._keeping and self.hosts[role] is dead:
            self.start(role)

    def _cut_stream(self) -> None:
        self.world.fault(f"cut {self.rpc.cut_one()}")

    def _lossy(self) -> None:
        self.world.fault("the way to the API server loses")
        self.kube.loss = 0.1
        self.world.loop.call_later(3.0, setattr, self.kube, "loss", 0.0)

    def _api_away(self) -> None:
        self.world.fault("the API server is away")
        self.kube.down_until = self.world.now + self.world.rng.random() * 3
        self.kube.cut_watches()

    def _stall(self) -> None:
        self.world.fault("watches stall")
        self.kube.stalled_until = self.world.now + self.world.rng.random() * 4

    def _cut_watches(self) -> None:
        self.world.fault("watches break")
        self.kube.cut_watches()

    def _compact(self) -> None:
        self.world.fault("the past is compacted")
        self.kube.api.compact()
        self.kube.cut_watches()

    def _ledger_lost(self) -> None:
        self.world.fault("the ledger is emptied")
        self.ledger.store.flush()

    def _ledger_crash(self) -> None:
        self.world.fault("the ledger's server crashes")
        self.ledger.crash(away_s=self.world.rng.random() * 2)

    def _heal(self) -> None:
        """Faults stop and rivals go; a last pod makes everybody notice what was lost meanwhile."""
        self.world.note("faults stop")
        self.kube.loss = 0.0
        for number in range(self.settings.rivals):
            self._delete(f"r{number}")
        self.create_pod("last")

    # ------------------------------------------------------------------------------------ the end
    async def _rest(self) -> None:
        """Wait until everything that exists is bound and nothing is open."""
        deadline = self.world.now + self.settings.patience_s
        while not self._at_rest():
            for host in self.hosts.values():
                self._failed(host)
            if self.world.now > deadline:
                waiting = [p["metadata"]["name"] for p in self._pods() if not node_of(p)]
                raise Violation(f"seed {self.world.seed}: never at rest; waiting: {waiting}")
            await asyncio.sleep(0.1)
        self._check_at_rest()

    def _failed(self, host: Host) -> None:
        if host.failure is not None:
            raise Violation(f"seed {self.world.seed}: {host.name} failed") from host.failure

    def _parts(self) -> Any:
        process = self.processes.get("binder")
        return None if process is None else process._parts

    def _at_rest(self) -> bool:
        parts = self._parts()
        if parts is None or not all(pod.node_name for pod in self._records()):
            return False
        if parts.machine.open or parts.machine.preemptions.claims:
            return False
        return parts.commits.idle and bool(parts.commits.ledger_ok)

    def _check_at_rest(self) -> None:
        """Ledger = memory = API (I24), each part by its own self-check besides."""
        machine = self._parts().machine
        machine.validate()
        waiting = [uid for uid in machine.cluster.nominated if not machine.cluster.knows(uid)]
        left = waiting, machine.preemptions.asked_to_go
        if any(left):
            raise Violation(f"seed {self.world.seed}: nominations or victims are left: {left}")
        api = {pod.uid: pod.node_name for pod in self._records()}
        rows = machine.cluster.pods
        memory = {uid: machine.cluster.nodes[row.node_uid].row.name for uid, row in rows.items()}
        nodes = {uid: entry.row.name for uid, entry in machine.cluster.nodes.items()}
        twin = Ledger(self.ledger, Host(self.world, "judge"))._twin
        ledger = {entry.pod_uid: nodes[entry.node_uid] for entry in twin.entries()}
        if not api == memory == ledger:
            raise Violation(f"seed {self.world.seed}: API {api}, memory {memory}, ledger {ledger}")
        self.processes["dispatcher"].core.machine.validate()
        for role, process in self.processes.items():
            if role.startswith("shard"):
                process.validate()


def node_of(pod: Any) -> str:
    """Where a pod is."""
    return str(pod["spec"].get("nodeName", ""))
