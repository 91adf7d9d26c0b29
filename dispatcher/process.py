"""One dispatcher process: the parts, the order in which they start, and how it ends.

Start: serve at once (as a standby it answers "not leader"), watch the pods and follow the Binder,
claim the schedulerNames for the deployment, wait for the Lease, then begin under its epoch:
subscribe to the Binder's outcomes and owned set, and dispatch when all are there. End: on ``stop``
the Lease is given up after the last effect; when the Lease is lost the process exits on the spot,
because another may be acting already.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections.abc import Coroutine
from typing import Any

from dispatcher.admission import AdmissionLimits
from dispatcher.condition_writer import ConditionWriter
from dispatcher.conditions import LaneLimits
from dispatcher.core import Core, Sinks
from dispatcher.follow import FollowClient
from dispatcher.group_conditions import IN_FLIGHT
from dispatcher.group_writer import GroupWriter
from dispatcher.job_watch import JobWatch
from dispatcher.job_writer import JobWriter
from dispatcher.ladder import LadderLimits
from dispatcher.machine import Machine, MachineLimits
from dispatcher.metrics import DispatcherCollector
from dispatcher.names import ServedNames
from dispatcher.outcomes_client import OutcomesClient
from dispatcher.queue_limits import QueueLimits
from dispatcher.queue_writer import QueueWriter
from dispatcher.shard_side import ShardLimits
from dispatcher.telemetry import Telemetry
from dispatcher.watch import PodWatch
from dispatcher.work_server import WorkServer
from stretto.config.dispatcher import DispatcherSettings
from stretto.config.scheduler_file import configuration_of_role
from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.kube.events import EventWriter
from stretto.kube.leadership import Leadership, beside, cancelled
from stretto.placement.configuration import Configuration
from stretto.rpc.security import Security
from stretto.rpc.servers import RpcServer, add_work
from stretto.telemetry.metrics import LeaseMetrics

log = logging.getLogger(__name__)

EVENT_QUEUE = 8192
QUEUE_WORKERS, JOB_WORKERS = 2, 4
"""Writes to queues and to Jobs at a time."""
EVENT_WORKERS = 2
EVENTS_S = 5.0
"""Seconds for events that wait at the end; a role has 10 s to be gone."""


def machine_limits(settings: DispatcherSettings, configuration: Configuration) -> MachineLimits:
    """The brain's limits from the settings; the backoff of --config prevails."""
    initial, highest = configuration.initial_backoff_s, configuration.max_backoff_s
    return MachineLimits(
        queue=QueueLimits(
            initial_backoff_s=settings.initial_backoff_s if initial is None else initial,
            max_backoff_s=settings.max_backoff_s if highest is None else highest,
            leftover_s=settings.unschedulable_flush_s,
        ),
        lane=LaneLimits(
            per_second=settings.conditions_per_second, in_flight=settings.conditions_in_flight
        ),
        shards=ShardLimits(deadline_s=settings.shard_deadline_s),
        ladder=LadderLimits(stake_after_s=settings.stake_after_s),
        admission=AdmissionLimits(promise_s=settings.promise_s),
    )


class DispatcherProcess:
    """The parts of a running dispatcher."""

    def __init__(
        self, settings: DispatcherSettings, *, client: KubeClient, configuration: Configuration
    ) -> None:
        self._settings = settings
        self._security = Security.of(settings)
        self._leadership = Leadership(client, settings)
        self._client = client
        self.telemetry = Telemetry(settings, leadership=self._leadership, client=client)
        self._configuration = configuration
        self._names = ServedNames(client, settings, names=configuration.names)
        limits = machine_limits(settings, self._configuration)
        machine = Machine(limits=limits, note=self.telemetry.note)
        lease = LeaseMetrics(settings.lease_name, self._leadership.left_s)
        self._collector = DispatcherCollector(machine, client=client, lease=lease)
        self.core = Core(machine, linger_s=settings.linger_ms / 1000)
        self._server = RpcServer(settings.listen, security=self._security)
        self._work = WorkServer(
            self.core, leader=self._leadership.leader, profiles=self._configuration.digest
        )
        add_work(self._server, self._work.handle)

    @property
    def port(self) -> int:
        """The port that shards dial."""
        return self._server.port

    async def run(self, *, stop: asyncio.Event, ready: asyncio.Event | None) -> None:
        """Serve until ``stop``."""
        await self._server.start()
        try:
            async with self.telemetry.serving(self.core, self._collector):
                warm = [asyncio.create_task(work) for work in self._warm()]
                failing = asyncio.create_task(self._server.failed())
                try:
                    await beside(self._serve(warm, stop=stop, ready=ready), *warm, failing)
                finally:
                    await cancelled(*warm, failing)
        finally:
            await self._server.stop(grace_s=0.5)

    async def _serve(
        self, warm: list[asyncio.Task[None]], *, stop: asyncio.Event, ready: asyncio.Event | None
    ) -> None:
        claimed = await self._names.claimed_unless(stop)
        tenure = await self._leadership.acquired_unless(stop) if claimed else None
        if tenure is not None:
            await self._lead(tenure.epoch, warm, stop=stop, ready=ready)

    async def _lead(
        self,
        epoch: int,
        warm: list[asyncio.Task[None]],
        *,
        stop: asyncio.Event,
        ready: asyncio.Event | None,
    ) -> None:
        self.core.machine.begin(epoch, sources=len(self._configuration.names) + 1)  # Jobs too
        log.info("leading with epoch %d", epoch)
        tasks = [asyncio.create_task(work) for work in self._parts()]
        writing = [asyncio.create_task(events.run()) for events in self._collector.events]
        opening = asyncio.create_task(self._announce(ready))
        stopping = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait(
                [*tasks, *warm, *writing, stopping], return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()
        finally:
            await cancelled(*tasks, *warm, opening, stopping)
            self._work.close()
            await self._leadership.release(clean=True)
            finishing = (e.finish(EVENTS_S if stop.is_set() else 0) for e in self._collector.events)
            await asyncio.gather(*finishing)
            await cancelled(*writing)

    def _warm(self) -> list[Coroutine[Any, Any, None]]:
        """What a standby does too, so that it knows the pods and the cluster when it takes over.

        None of it has an effect: nothing is dispatched or written before the Lease is held and
        the Binder has said what it owns. What has changed unseen fails at the API server by its
        resourceVersion.
        """
        core, client, names = self.core, self._client, self._configuration.names
        peer = {"target": self._settings.binder, "name": self._leadership.identity}
        follow = FollowClient(core, security=self._security, rng=random.Random(), **peer)
        extenders = self._configuration.extenders
        watches = [
            PodWatch(client, core=core, scheduler_name=name, extenders=extenders) for name in names
        ]
        self._collector.unread = tuple(watch.unread for watch in watches)
        watching = [work for watch in watches for work in (watch.run(), watch.read_slowly())]
        self._collector.reflectors = tuple(watch.reflector for watch in watches)
        watching += [watch.reflector.recheck() for watch in watches]
        jobs = JobWatch(client, core=core, schedulers=names)
        return [follow.run(), *watching, jobs.run(), core.run()]

    def _parts(self) -> list[Coroutine[Any, Any, None]]:
        """What runs while we lead only, besides the writers of events."""
        settings, core, client = self._settings, self.core, self._client
        rng = random.Random()
        peer = {"target": settings.binder, "name": self._leadership.identity}
        profiles = self._configuration.digest
        outcomes = OutcomesClient(core, security=self._security, rng=rng, profiles=profiles, **peer)
        events = {
            name: EventWriter(
                client, reporter=name, capacity=EVENT_QUEUE, workers=EVENT_WORKERS, rng=rng
            )
            for name in self._configuration.names
        }
        writer = ConditionWriter(
            client, core=core, events=events, workers=settings.conditions_in_flight
        )
        core.may_act = self._leadership.valid
        groups = GroupWriter(client, core=core, workers=IN_FLIGHT)
        queues = QueueWriter(client, core=core, workers=QUEUE_WORKERS)
        jobs = JobWriter(client, core=core, workers=JOB_WORKERS)
        core.sinks = Sinks(
            to_shard=self._work.to_shard,
            to_binder=outcomes.to_binder,
            conditions=writer.write,
            groups=groups.write,
            queues=queues.write,
            jobs=jobs.write,
        )
        self._collector.events = tuple(events.values())
        return [
            self._leadership.keep(),
            self._names.keep(),
            outcomes.run(),
            writer.run(),
            groups.run(),
            queues.run(),
            jobs.run(),
        ]

    async def _announce(self, ready: asyncio.Event | None) -> None:
        await self.core.opened.wait()
        # What exists now lives long; the collector need not look at it again and again. Nor once: a
        # start leaves next to nothing in cycles, and to find that takes 2 µs a pod.
        gc.freeze()
        log.info("open: %d pods are ours", len(self.core.machine.pods))
        if ready is not None:
            ready.set()


async def run(
    settings: DispatcherSettings, *, stop: asyncio.Event, ready: asyncio.Event | None = None
) -> None:
    """Run a dispatcher until ``stop``; ``ready`` is set when it dispatches.

    Raises:
        OperatorError: it cannot start: credentials, API server, port.
    """
    configuration = configuration_of_role(settings, names=settings.scheduler_name)
    path = settings.kubeconfig
    config = await KubeConfig.from_file(path) if path else KubeConfig.in_cluster()
    async with KubeClient(config) as client:
        await client.check()
        process = DispatcherProcess(settings, client=client, configuration=configuration)
        await process.run(stop=stop, ready=ready)
