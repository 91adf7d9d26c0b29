"""The Binder's shells around a ledger twin and the simulated API server over real HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from typing import Any

import msgspec

from binder.committer import CommitLoop
from binder.executor import Executor
from binder.machine import Machine
from binder.prebinder import PreBinder
from binder.proposals import Incoming
from binder.publisher import Publisher
from binder.recovery import Opening, Repair
from binder.watches import Watches
from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.kube.lease import Tenure
from stretto.ledger.twin import LedgerTwin
from stretto.ledger.twin_store import TwinStore
from stretto.ledger.types import (
    Account,
    Holdings,
    InstallReply,
    LedgerEntry,
    LedgerOp,
    LedgerUnit,
    ReserveReply,
)
from stretto.model.objects import decode_pod
from stretto.model.shaping import ShapeMaker
from stretto.model.unit import Attempt, Member, PodUid, Proposal, Unit, UnitId, Verdict
from stretto.placement.profiles import Profiles
from stretto.simulator.cluster import SimulatedCluster
from stretto.simulator.settings import KubeletMode, SimulatorSettings
from stretto.telemetry.audit_log import AuditLog
from stretto.telemetry.binder_metrics import BinderMetrics
from stretto.telemetry.story import StoryLog

PODS = "/api/v1/namespaces/default/pods"


def node_manifest(name: str) -> dict[str, Any]:
    """A node of four cpus."""
    room = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"capacity": room, "allocatable": room},
    }


def pod_manifest(name: str, *, scheduler: str = "stretto") -> dict[str, Any]:
    """A pod that asks for a little."""
    requests = {"cpu": "100m", "memory": "64Mi"}
    image = "registry.example/app:1"
    container = {"name": "c", "image": image, "resources": {"requests": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulerName": scheduler, "containers": [container]},
    }


class TwinLedger:
    """The twin with the client's manners; ``fail`` holds errors that the next calls raise."""

    def __init__(self, store: TwinStore | None = None) -> None:
        self.twin = LedgerTwin(store=store)
        self.fail: list[Exception] = []
        self.calls: list[str] = []

    async def _enter(self, name: str) -> None:
        await asyncio.sleep(0)
        self.calls.append(name)
        if self.fail:
            raise self.fail.pop(0)

    async def install(self, epoch: int, *, force_rebuild: bool = False) -> InstallReply:
        await self._enter("install")
        return self.twin.install(epoch, force_rebuild=force_rebuild)

    async def reserve(self, units: Sequence[LedgerUnit]) -> list[ReserveReply]:
        await self._enter("reserve")
        return self.twin.reserve(units)

    async def transition(self, ops: Sequence[LedgerOp]) -> list[bool]:
        await self._enter("transition")
        return self.twin.transition(ops)

    async def set_accounts(self, changes: Sequence[Account], removed: Iterable[str] = ()) -> None:
        await self._enter("accounts")
        self.twin.set_accounts(changes, removed)

    async def opened(self) -> None:
        await self._enter("opened")
        self.twin.opened()

    async def rebuild(self, *, accounts: Sequence[Account], entries: Iterable[LedgerEntry]) -> None:
        await self._enter("rebuild")
        self.twin.install(self.twin.store.meta["epoch"], force_rebuild=True)
        self.twin.set_accounts(accounts)
        self.twin.transition([LedgerOp.adopting(entry) for entry in entries])
        self.twin.opened()

    async def entries(self, *, open_only: bool = False) -> list[LedgerEntry]:
        return self.twin.entries(open_only=open_only)

    async def holdings(self, *, accounts: Sequence[str], pods: Sequence[str]) -> Holdings:
        await self._enter("holdings")
        return self.twin.holdings(accounts=accounts, pods=pods)

    async def sums(self) -> dict[str, dict[str, int]]:
        return self.twin.sums()


LOOPS: set[asyncio.Task[None]] = set()
"""The loops of every :class:`Rig` that runs."""


class Rig:
    """One Binder incarnation, by hand: :meth:`open`, then :meth:`start` its loops."""

    def __init__(
        self,
        client: KubeClient,
        *,
        epoch: int,
        store: TwinStore | None = None,
        ledger: Any = None,
        audit: AuditLog = AuditLog(None),  # noqa: B008 (it does nothing)
        audit_period_s: float = 30.0,
    ) -> None:
        self.client = client
        self.epoch = epoch
        ledger = ledger or TwinLedger(store)
        self.ledger: Any = ledger
        self.machine = Machine(epoch=epoch, profiles=Profiles.default(("stretto",)))
        self.publisher = Publisher(self.machine, log_bytes=1 << 20)
        self.repair = Repair(self.machine, ledger)
        self.may_act = True
        self.prebind_timeout_s = 600.0
        self.fresh = True
        self.verdicts: list[Verdict] = []
        self.published_at: list[int] = []
        """The log's sequence when each batch of verdicts was sent."""
        metrics = self.metrics = BinderMetrics()
        self.commits = CommitLoop(
            self.machine,
            ledger,
            publisher=self.publisher,
            events=None,
            repair=self.repair,
            may_act=lambda: self.may_act,
            fresh=lambda: self.fresh,
            metrics=metrics,
            stories=StoryLog(100),
            batch=64,
            linger_s=0.0,
            reservations_waiting=4,
            audit=audit,
            audit_period_s=audit_period_s,
        )
        self.commits.send_verdicts = self._verdicts
        self.executor = self.commits.executor = Executor(
            self.machine,
            client,
            workers=4,
            may_act=lambda: self.may_act,
            changed=self.commits.changed,
            rebase=self.commits.rebase,
            metrics=metrics,
            audit=audit,
        )
        self.prebinder = self.commits.prebinder = PreBinder(
            self.machine,
            client,
            may_act=lambda: self.may_act,
            changed=self.commits.changed,
            bind=self.executor.put,
            resolve=lambda binding: self.executor.put(binding, binding.withdraw()),
            rebase=self.executor.rebase,
            timeout_s=lambda _profile: self.prebind_timeout_s,
        )
        self.watches = Watches(
            self.machine,
            client,
            changed=self._changed,
            resolve=lambda binding: self.executor.put(binding, binding.withdraw()),
        )
        self.opening = Opening(
            self.machine,
            ledger,
            client,
            executor=self.executor,
            scheduler_names=("stretto",),
            audit=audit,
        )
        self.tasks: list[asyncio.Task[None]] = []
        self._maker = ShapeMaker()
        self._attempts = 0

    def _changed(self) -> None:
        self.commits.changed()
        self.prebinder.seen()

    def _verdicts(self, stream: int, verdicts: list[Verdict]) -> None:
        self.verdicts += verdicts
        self.published_at.append(self.publisher.log.sequence)

    async def open(self, *, clean: bool = False, previous_epoch: int = 0) -> InstallReply:
        """Everything up to "open"; the rest is what the Lease says."""
        found = await self.prepare(clean=clean, previous_epoch=previous_epoch)
        await self.lists()
        await self.opening.finish(self.watches.bound_names or {})
        self.commits.publish()
        return found

    async def prepare(self, *, clean: bool = False, previous_epoch: int = 0) -> InstallReply:
        found = await self.ledger.install(self.epoch)
        await self.opening.prepare(found, Tenure(self.epoch, clean, False, previous_epoch))
        return found

    async def lists(self) -> None:
        """Begin to watch; wait for the lists."""
        self._begin(self.watches.run())
        self.watches.begin.set()
        await self.watches.synced.wait()

    def start(self) -> None:
        """Commit and bind."""
        self._begin(self.commits.run())
        self._begin(self.executor.run())
        self._begin(self.prebinder.run())

    def _begin(self, loop: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(loop)
        self.tasks.append(task)
        LOOPS.add(task)

    async def stop(self) -> None:
        """As a crash would: nothing is finished."""
        LOOPS.difference_update(self.tasks)
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def proposal(self, name: str, node: str) -> Incoming:
        """A shard's proposal for a pod as it is now."""
        pod = decode_pod((await self.client.get_pod("default", name)).body)
        meta, cluster = pod.metadata, self.machine.cluster
        self._attempts += 1
        version = int(meta.resource_version)
        member = Member(PodUid(meta.uid), meta.namespace, meta.name, version, 1)
        unit = Unit(UnitId(meta.uid), Attempt(1, self._attempts), (member,))
        node_id = cluster.nodes[cluster.node_uid_of(node)].node_id
        shape = self._maker.shape_of(pod, label_keys=cluster.label_keys)
        return Incoming("shard-1", 1, self.epoch, Proposal(unit, (node_id,)), (shape,))

    async def reserve(self, name: str, node: str) -> None:
        """Commit without binding, as if the crash came before the POST."""
        incoming = await self.proposal(name, node)
        accounts, removed = self.machine.book.accounts()
        await self.ledger.set_accounts(accounts, removed)
        batch = self.machine.take([incoming])
        settled = self.machine.settle(batch, await self.ledger.reserve(batch.units))
        assert settled.reservations, settled.verdicts
        self.commits.publish()


@contextlib.asynccontextmanager
async def simulated(nodes: int = 2) -> AsyncIterator[tuple[SimulatedCluster, KubeClient]]:
    """A simulated API server with nodes n1 … of four cpus, and a client."""
    async with (
        SimulatedCluster(SimulatorSettings(kubelet=KubeletMode.OFF)) as cluster,
        KubeClient(KubeConfig.from_url(cluster.url)) as client,
    ):
        for number in range(1, nodes + 1):
            answer = await client.post("/api/v1/nodes", node_manifest(f"n{number}"))
            assert answer.ok, answer.text
        yield cluster, client


async def create(client: KubeClient, name: str, *, scheduler: str = "stretto") -> dict[str, Any]:
    """A pending pod."""
    answer = await client.post(PODS, pod_manifest(name, scheduler=scheduler))
    assert answer.ok, answer.text
    return msgspec.json.decode(answer.body, type=dict[str, Any])


async def delete(client: KubeClient, name: str) -> None:
    """Remove a pod at once; no kubelet is there to end it."""
    answer = await client.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})
    assert answer.ok, answer.text


async def pod_of(client: KubeClient, name: str) -> dict[str, Any]:
    """A pod as it is."""
    answer = await client.get_pod("default", name)
    assert answer.ok, answer.text
    return msgspec.json.decode(answer.body, type=dict[str, Any])


async def until(condition: Callable[[], Any], what: str, *, timeout_s: float = 8.0) -> None:
    """Wait for a condition; fail with ``what`` when the time is over, and at once with what a loop
    of a Binder has ended with."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        for task in LOOPS:
            if task.done() and not task.cancelled():
                task.result()
        assert asyncio.get_running_loop().time() < deadline, f"never: {what}"
        await asyncio.sleep(0.01)
