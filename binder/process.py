"""One Binder process: the parts, the order in which they start, and how it ends.

Start: serve at once (as a standby it answers "not leader"), wait for the Lease, then under its
epoch: take the ledger, list nodes and pods, resolve what was in flight, open (reliability I13). A
standby watches while it waits, and instead of listing compares what it has seen with a list.
End: on ``stop`` no more proposals are taken, binds in flight end, and the Lease is given up as
clean; when the Lease is lost the process exits on the spot, because another may be acting already.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from typing import Any

import msgspec

from binder.bindings import Binding
from binder.committer import CommitLoop
from binder.doubts import Doubts
from binder.evictor import Evictor
from binder.executor import Executor
from binder.extender_binds import ExtenderBinds
from binder.gauges import Gauges
from binder.machine import Machine
from binder.prebinder import PreBinder, limit_s
from binder.publisher import Publisher
from binder.recovery import Opening, Repair
from binder.rejections import Rejections
from binder.server import BinderServer, Parts
from binder.watches import Watches
from stretto.config.binder import BinderSettings
from stretto.config.scheduler_file import configuration_of_role
from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.kube.errors import KubeRefused
from stretto.kube.events import EventWriter
from stretto.kube.leadership import Leadership, beside, cancelled
from stretto.kube.lease import Tenure
from stretto.kube.reviews import Reviews
from stretto.ledger.access import Access
from stretto.ledger.client import Ledger
from stretto.placement.configuration import Configuration
from stretto.rpc.security import Security
from stretto.rpc.servers import RpcServer, add_follow, add_outcomes, add_propose
from stretto.telemetry.audit_log import AuditLog, AuditRecord
from stretto.telemetry.binder_metrics import BinderMetrics
from stretto.telemetry.guard import guard_of
from stretto.telemetry.http import TelemetryServer
from stretto.telemetry.metrics import LeaseMetrics, WatchLosses
from stretto.telemetry.story import StoryLog

logger = logging.getLogger(__name__)

STOP_S = 7.5
"""From the signal to the last event: a role has 10 s to be gone, ``stretto run`` waits for 8 s."""
BINDS_S = 5.0
"""Of these, at most so many for binds in flight."""
SETTLE_S = 2.0
"""After the last answer: for the watch to show the binds, and for the ledger to hear of it."""
METRICS_EVERY_S = 1.0
STANDBY_AFTER_S = 1.0
"""Without the Lease for so long, there is a leader, and this is a standby."""


class ClusterName(msgspec.Struct):
    """As much of namespace kube-system as naming the cluster needs."""

    metadata: dict[str, Any]


class BinderProcess:
    """The parts of a running Binder."""

    def __init__(
        self,
        settings: BinderSettings,
        *,
        client: KubeClient,
        ledger: Ledger,
        configuration: Configuration,
    ) -> None:
        self._settings = settings
        self._client = client
        self._ledger = ledger
        self._leadership = Leadership(client, settings)
        lease = LeaseMetrics(settings.lease_name, self._leadership.left_s)
        losses = WatchLosses(lambda: self._watches.losses)
        self._metrics = BinderMetrics(api=client.usage, also=(lease, losses))
        self._stories = StoryLog(max(settings.stories, 0), clock=time.monotonic)
        self._rpc = RpcServer(settings.listen, security=Security.of(settings))
        self._configuration = configuration
        binders = [each for each in configuration.extenders if each.bind_verb]
        self._binds_elsewhere = ExtenderBinds(binders) if binders else None
        self._server = BinderServer(
            leader=self._leadership.leader,
            metrics=self._metrics,
            profiles=self._configuration.digest,
        )
        add_follow(self._rpc, self._server.follow)
        add_propose(self._rpc, self._server.propose)
        add_outcomes(self._rpc, self._server.outcomes)
        self._parts: Parts | None = None
        machine = self._machine = Machine(epoch=0, profiles=configuration.profiles)
        self._watches = Watches(
            machine, client, changed=lambda: standby_sees(machine), resolve=nothing_is_held
        )
        self._rejections = Rejections(client, self._metrics)
        self._watches.unstarted = self._rejections.left
        self._audit = AuditLog(None)

    async def run(self, *, stop: asyncio.Event, ready: asyncio.Event | None) -> None:
        """Serve until ``stop``."""
        listen = self._settings.telemetry_listen
        telemetry = TelemetryServer(
            listen,
            registry=self._metrics.registry,
            role="the binder",
            guard=guard_of(self._settings, listen, review=Reviews(self._client).verdict),
            ready=self.ready,
            stories=self._stories,
        )
        try:
            await self._rpc.start()
            watching = asyncio.create_task(self._watches.run())
            warming = asyncio.create_task(self._warm_up())
            failing = asyncio.create_task(self._rpc.failed())
            try:
                work = self._serve(watching, warming, stop=stop, ready=ready)
                await beside(work, watching, warming, failing)
            finally:
                await cancelled(warming, watching, failing)
        finally:
            telemetry.close()
            await self._rpc.stop(grace_s=0.2)

    async def _serve(
        self,
        watching: asyncio.Task[None],
        warming: asyncio.Task[None],
        *,
        stop: asyncio.Event,
        ready: asyncio.Event | None,
    ) -> None:
        tenure = await self._leadership.acquired_unless(stop)
        await cancelled(warming)
        if tenure is not None:
            await self._lead(tenure, watching, stop=stop, ready=ready)

    def ready(self) -> bool:
        """Open with a whole ledger and watches that speak, or a standby."""
        if self._leadership.standby:
            return True
        parts = self._parts
        return parts is not None and parts.commits.ledger_ok and self._watches.healthy

    async def _warm_up(self) -> None:
        """A standby watches too, so that it need not list everything when it takes over.

        Who gets the Lease at once lists after it has read what may be in flight, as :meth:`_open`
        does; that is the cheaper order.
        """
        await asyncio.sleep(STANDBY_AFTER_S)
        self._watches.begin.set()

    async def _lead(
        self,
        tenure: Tenure,
        watching: asyncio.Task[None],
        *,
        stop: asyncio.Event,
        ready: asyncio.Event | None,
    ) -> None:
        logger.info("leading with epoch %d", tenure.epoch)
        parts, events = self._make_parts(tenure.epoch)
        watches = self._watches
        watches.changed = parts.changed
        watches.resolve = lambda binding: parts.executor.put(binding, binding.withdraw())
        tasks = [asyncio.create_task(self._leadership.keep()), watching]
        opening = asyncio.create_task(self._open(parts, watches, tenure))
        stopping = asyncio.create_task(stop.wait())
        writing = asyncio.create_task(events.run()) if events is not None else None
        clean, stop_by = False, 0.0
        try:
            await first_of(opening, stopping, *tasks)
            if opening.done() and not stop.is_set():
                opening.result()
                tasks.append(asyncio.create_task(parts.executor.run()))
                if parts.commits.evictor is not None:
                    tasks.append(asyncio.create_task(parts.commits.evictor.run()))
                tasks.append(asyncio.create_task(parts.commits.run()))
                tasks.append(asyncio.create_task(parts.prebinder.run()))
                tasks.append(asyncio.create_task(self._count(parts, events)))
                tasks.append(asyncio.create_task(self._rejections.run()))
                self._server.open(parts)
                self._parts = parts
                logger.info("open: %d nodes, %d pods", *self._sizes(parts))
                if ready is not None:
                    ready.set()
                await first_of(stopping, *tasks, *([writing] if writing else []))
                stop_by = asyncio.get_running_loop().time() + STOP_S
                clean = await beside(self._drain(parts), *tasks)
        finally:
            self._server.close()
            await cancelled(opening, stopping, *tasks)
            await self._leadership.release(clean=clean)
            if events is not None and writing is not None:
                # Events are guarded by nothing: the successor need not wait for them.
                await events.finish(max(0.0, stop_by - asyncio.get_running_loop().time()))
                await cancelled(writing)

    def _make_parts(self, epoch: int) -> tuple[Parts, EventWriter | None]:
        settings = self._settings
        names = self._configuration.names
        machine = self._machine
        machine.begin(epoch)
        self._audit = AuditLog(settings.audit_log, epoch=epoch)
        publisher = Publisher(machine, log_bytes=settings.log_bytes)
        events = None
        if settings.events:
            events = EventWriter(self._client, reporter=names[0], capacity=settings.event_queue)
        commits = CommitLoop(
            machine,
            self._ledger,
            publisher=publisher,
            events=events,
            repair=Repair(machine, self._ledger),
            may_act=self._leadership.valid,
            fresh=lambda: self._watches.healthy,
            metrics=self._metrics,
            stories=self._stories,
            batch=settings.batch,
            linger_s=settings.linger_ms / 1000,
            reservations_waiting=settings.reservations_waiting,
            audit=self._audit,
        )
        executor = commits.executor = Executor(
            machine,
            self._client,
            workers=settings.binds_in_flight,
            may_act=self._leadership.valid,
            changed=commits.changed,
            rebase=commits.rebase,
            metrics=self._metrics,
            audit=self._audit,
            extenders=self._binds_elsewhere,
        )
        commits.evictor = Evictor(
            machine,
            self._client,
            may_act=self._leadership.valid,
            changed=commits.changed,
            events=events,
            metrics=self._metrics,
            audit=self._audit,
        )
        prebinder = commits.prebinder = self._make_prebinder(machine, commits, executor)
        parts = Parts(
            machine, publisher=publisher, commits=commits, executor=executor, prebinder=prebinder
        )
        return parts, events

    def _make_prebinder(
        self, machine: Machine, commits: CommitLoop, executor: Executor
    ) -> PreBinder:
        return PreBinder(
            machine,
            self._client,
            may_act=self._leadership.valid,
            changed=commits.changed,
            bind=executor.put,
            resolve=lambda binding: executor.put(binding, binding.withdraw()),
            rebase=executor.rebase,
            timeout_s=lambda reservation: limit_s(reservation, machine.kernel),
        )

    async def _open(self, parts: Parts, watches: Watches, tenure: Tenure) -> None:
        """Everything that must be true before the first commit."""
        found = await self._ledger.install(tenure.epoch)
        opening = Opening(
            parts.machine,
            self._ledger,
            self._client,
            executor=parts.executor,
            scheduler_names=self._configuration.names,
            audit=self._audit,
        )
        parts.commits.publish()
        await opening.prepare(found, tenure)
        if watches.begin.is_set():
            await watches.confirm()
        else:
            watches.begin.set()
            await watches.synced.wait()
        await self._leadership.announced()
        await opening.finish(watches.bound_names or {})
        watches.bound_names = None
        self._audit.note(AuditRecord("open"))
        parts.commits.publish()
        # What exists now lives long; the collector need not look at it again and again. Nor once: a
        # start leaves next to nothing in cycles (0 to 5 objects), and to find that takes 3 ms.
        gc.freeze()

    def _sizes(self, parts: Parts) -> tuple[int, int]:
        return len(parts.machine.cluster.nodes), len(parts.machine.cluster.pods)

    async def _drain(self, parts: Parts) -> bool:
        """Let binds in flight end; True if none is left."""
        self._parts = None
        parts.commits.close()
        await parts.executor.drain(BINDS_S)
        parts.commits.changed()
        deadline = asyncio.get_running_loop().time() + SETTLE_S
        while parts.machine.open or not parts.commits.idle:
            if asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(0.02)
        return not parts.machine.open and not parts.executor.waiting

    async def _count(self, parts: Parts, events: EventWriter | None) -> None:
        """Refresh the gauges, and look after what nobody answers for."""
        doubts, gauges = Doubts(), Gauges(parts.machine, self._metrics)
        dropped = 0
        while True:
            gauges.look(
                now=time.monotonic(),
                silence_s=self._watches.silence_s(),
                generations=self._ledger.generations,
            )
            if events is not None:
                self._metrics.events_dropped.inc(events.dropped - dropped)
                dropped = events.dropped
            if doubts.beat(lists=self._watches.pods_listed):
                for binding in parts.machine.endings.doubtful():
                    parts.executor.put(binding, binding.doubt())
            parts.machine.committer.stakes.tick(asyncio.get_running_loop().time())
            parts.commits.changed()  # a commit that waits for the watches looks again
            await asyncio.sleep(METRICS_EVERY_S)


def standby_sees(machine: Machine) -> None:
    """Nobody follows a standby: its picture moves on, the steps are dropped."""
    machine.cluster.quota.tick(int(time.time()))
    machine.effects()


def nothing_is_held(_binding: Binding) -> None:
    """A standby has no reservations that could be resolved."""
    raise AssertionError("a standby holds a reservation")


async def first_of(*tasks: asyncio.Task[Any]) -> None:
    """Wait for the first task to end; raise what it raised."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


async def owner_of(client: KubeClient, settings: BinderSettings) -> str:
    """The ledger's owner: this cluster and this deployment (design §12.9).

    Raises:
        KubeRefused: the namespace kube-system cannot be read.
    """
    answer = await client.get("/api/v1/namespaces/kube-system")
    if not answer.ok:
        raise KubeRefused(
            f"the API server at {client.url} answered {answer.status} to reading namespace "
            "kube-system; the binder's role must allow get on namespaces",
            status=answer.status,
        )
    uid = msgspec.json.decode(answer.body, type=ClusterName).metadata["uid"]
    return f"{uid}:{settings.lease_namespace}/{settings.lease_name}"


async def run(
    settings: BinderSettings, *, stop: asyncio.Event, ready: asyncio.Event | None = None
) -> None:
    """Run a Binder until ``stop``; ``ready`` is set when it commits.

    Raises:
        OperatorError: it cannot start: credentials, API server, ledger, port.
    """
    configuration = configuration_of_role(settings, names=settings.scheduler_name)
    path = settings.kubeconfig
    config = await KubeConfig.from_file(path) if path else KubeConfig.in_cluster()
    async with KubeClient(config) as client:
        await client.check()
        owner = await owner_of(client, settings)
        ledger = await Ledger.open(settings.redis_url, owner=owner, access=Access.of(settings))
        try:
            process = BinderProcess(
                settings, client=client, ledger=ledger, configuration=configuration
            )
            await process.run(stop=stop, ready=ready)
        finally:
            await ledger.close()
