"""A run from beginning to end: nodes, pods, watching, waiting for the last, the result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from stretto.kube.client import KubeClient
from stretto.workload.generator import Deleter, Generator
from stretto.workload.manifests import node_manifest
from stretto.workload.measures import Percentiles, per_second, percentiles
from stretto.workload.nodes import create_nodes, nodes_of
from stretto.workload.observations import Counts, Observations
from stretto.workload.observer import Observer
from stretto.workload.records import ScheduledPod
from stretto.workload.schedules import new_run_name, schedule_of
from stretto.workload.settings import LoadSettings

TICK_S = 0.25
MAX_REASONS = 50
LAST_WORD_S = 1.0
ROOM_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is."""

    elapsed_s: float
    total: int
    """Pods that will have been created; 0 if it is not known."""
    sent: int
    created: int
    bound: int
    waiting: int
    """Created, not bound, not gone."""
    told: int
    """Waiting and told why."""
    ended: int
    failed: int
    """Could not be created."""
    bound_per_s: float
    """In the last second or so."""
    problem: str = ""
    """What keeps the watch from working."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """What was found; times in seconds from the start of the run."""

    run: str
    settings: LoadSettings
    counts: Counts
    unfinished: int
    """Pods that are neither bound nor gone at the end."""
    reasons: dict[str, int]
    """Why they wait, the most frequent first."""
    finished: bool
    """False if it was stopped before its end."""
    created_span_s: float
    """From the first to the last creation."""
    bound_span_s: float
    """From the first creation to the last bind."""
    elapsed_s: float
    pods_per_s: float
    """Binds from the first to the last, over that time."""
    lag_s: float
    """The longest that a pod was created after it was due."""
    created_to_decided_ms: Percentiles
    """To the scheduler's first visible word: the node, or why there is none."""
    decided_to_bound_ms: Percentiles
    """Of pods whose first word was not a node: from there to the bind. What passes between a
    decision and its bind inside the scheduler is known to the scheduler only."""
    created_to_bound_ms: Percentiles
    bound_ms: list[float] = field(repr=False, default_factory=list)
    """created→bound of every bound pod, ascending."""
    created_per_s: list[int] = field(repr=False, default_factory=list)
    bound_per_s: list[int] = field(repr=False, default_factory=list)
    waiting_each_s: list[int] = field(repr=False, default_factory=list)
    nodes_used: int = 0
    deleted: int = 0
    api_calls: dict[str, int] = field(default_factory=dict)
    """The generator's own requests, "verb resource" → count."""
    notes: tuple[str, ...] = ()


class LoadRun:
    """One run; see :func:`run_load`."""

    def __init__(
        self, settings: LoadSettings, *, client: KubeClient, clock: Callable[[], float] | None
    ) -> None:
        self.settings = settings
        self.run = settings.run or new_run_name()
        self._client = client
        self._now = clock or time.monotonic
        self._start = self._now()
        self._before = client.usage.snapshot()
        self.nodes_made: list[str] = []
        self.observations = Observations()
        self._waiting: list[int] = []
        self._rate_mark = (0.0, 0)
        self._rate = 0.0
        self._generator = Generator(
            client,
            self.observations,
            namespace=settings.namespace,
            concurrency=settings.concurrency,
            clock=self.clock,
        )
        self._deleter = Deleter(
            client, self.observations, namespace=settings.namespace, clock=self.clock
        )
        self._observer = Observer(
            client,
            self.observations,
            run=self.run,
            namespace=settings.namespace,
            clock=self.clock,
            on_bound=self._deleter.bound if settings.delete else None,
        )

    def clock(self) -> float:
        """Seconds since the start of the creations."""
        return self._now() - self._start

    def progress(self, total: int) -> Progress:
        """How far it is."""
        counts = self.observations.counts
        now = self.clock()
        since, bound = self._rate_mark
        if now - since >= 1.0:
            self._rate = (counts.bound - bound) / (now - since)
            self._rate_mark = (now, counts.bound)
        return Progress(
            elapsed_s=now,
            total=total,
            sent=self._generator.sent,
            created=counts.created,
            bound=counts.bound,
            waiting=counts.waiting,
            told=counts.told,
            ended=counts.ended,
            failed=counts.create_failed,
            bound_per_s=self._rate,
            problem=self._observer.problem,
        )

    async def execute(
        self,
        schedule: Iterable[ScheduledPod],
        *,
        total: int,
        report: Callable[[Progress], None],
        stop: asyncio.Event,
    ) -> bool:
        """Create and watch; True if it came to its end."""
        async with asyncio.TaskGroup() as group:
            watching = [group.create_task(self._observer.run())]
            if self.settings.delete:
                watching.append(group.create_task(self._deleter.run()))
            await self._observer.listed.wait()
            self._start = self._now()
            creating = group.create_task(self._generator.run(schedule, stop))
            while not creating.done() or not self._settled(stop):
                report(self.progress(total))
                if self.clock() >= len(self._waiting):
                    self._waiting.append(self.observations.counts.waiting)
                await asyncio.sleep(TICK_S)
            finished = not stop.is_set()
            report(self.progress(total))
            for task in watching:
                task.cancel()
        return finished

    def _settled(self, stop: asyncio.Event) -> bool:
        """Nothing more is to be expected: all pods are bound or told why, or silence."""
        seen = self.observations
        quiet = self.clock() - seen.last_news
        if stop.is_set() or quiet >= self.settings.settle_s:
            return True
        if not seen.counts.waiting:
            # The kubelets' word on the last pods is still to come.
            return self.clock() - seen.last_bound >= min(LAST_WORD_S, self.settings.settle_s)
        # Pods that were told why may still find room when others end: give them a moment.
        all_told = seen.counts.told == seen.counts.waiting
        return all_told and quiet >= min(ROOM_S, self.settings.settle_s)

    async def clean_up(self) -> None:
        """Delete the pods of the run, and the nodes that it made."""
        waiting = [name for name, sight in self.observations.pods.items() if not sight.gone]
        source = iter(waiting)

        async def worker() -> None:
            for name in source:
                await self._deleter.delete(name)

        async with asyncio.TaskGroup() as group:
            for _ in range(self.settings.concurrency):
                group.create_task(worker())
        for name in self.nodes_made:
            await self._client.delete(f"/api/v1/nodes/{name}")

    def result(self, *, finished: bool, notes: tuple[str, ...] = ()) -> LoadResult:
        """What was found."""
        sights = [s for s in self.observations.pods.values() if s.created >= 0]
        bound = [s for s in sights if s.bound >= 0]
        decided = [s for s in sights if s.decided >= 0]
        times = sorted(s.bound for s in bound)
        created = sorted(s.created for s in sights)
        span = times[-1] - times[0] if len(times) > 1 else 0.0
        seconds = int(self.clock()) + 1
        latencies = sorted(max(s.bound - s.created, 0.0) * 1000 for s in bound)
        reasons = self.observations.waiting_reasons()
        return LoadResult(
            run=self.run,
            settings=self.settings,
            counts=self.observations.counts,
            unfinished=self.observations.counts.waiting,
            reasons=dict(reasons.most_common(MAX_REASONS)),
            finished=finished,
            created_span_s=created[-1] - created[0] if created else 0.0,
            bound_span_s=times[-1] - created[0] if times else 0.0,
            elapsed_s=self.clock(),
            pods_per_s=(len(times) - 1) / span if span > 0 else 0.0,
            lag_s=self._generator.lag_s,
            created_to_decided_ms=percentiles(
                [max(s.decided - s.created, 0.0) * 1000 for s in decided]
            ),
            decided_to_bound_ms=percentiles(
                [(s.bound - s.decided) * 1000 for s in bound if s.decided < s.bound]
            ),
            created_to_bound_ms=percentiles(latencies),
            bound_ms=latencies,
            created_per_s=per_second(created, seconds),
            bound_per_s=per_second(times, seconds),
            waiting_each_s=self._waiting,
            nodes_used=len({s.node for s in bound}),
            deleted=self._deleter.deleted,
            api_calls=self._calls(),
            notes=notes,
        )

    def _calls(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for call, count in self._client.usage.snapshot().items():
            new = count - self._before.get(call, 0)
            if new:
                key = f"{call.verb} {call.resource}"
                found[key] = found.get(key, 0) + new
        return found


async def run_load(
    settings: LoadSettings,
    *,
    client: KubeClient,
    progress: Callable[[Progress], None] = lambda _: None,
    stop: asyncio.Event | None = None,
    schedule: Iterable[ScheduledPod] | None = None,
    total: int = 0,
    notes: tuple[str, ...] = (),
    clock: Callable[[], float] | None = None,
) -> LoadResult:
    """Create the pods that the settings (or ``schedule``) describe, watch them, wait for the end.

    Ends when every pod is bound, gone, or has been told why it waits and nothing has changed for
    three seconds; at the latest after ``settle_s`` seconds without news. ``stop`` ends it early.
    With ``schedule`` the caller's pods are created, which must carry the run's label (see
    ``settings.run``); ``total`` is how many they are, for progress.

    Raises:
        TraceError: a trace or node list that cannot be read, or a node that was refused.
        KubeUnreachable: there is no API server.
        KubeRefused: it does not let us in.
    """
    await client.check()
    run = LoadRun(settings, client=client, clock=clock)
    if schedule is None:
        total, schedule = schedule_of(settings, run=run.run)
    else:
        assert settings.run, "a schedule of the caller's own needs settings.run"
    nodes = nodes_of(settings)
    manifests = (node_manifest(node, run=run.run) for node in nodes)
    run.nodes_made = await create_nodes(client, manifests)
    stop = stop or asyncio.Event()
    finished = await run.execute(schedule, total=total, report=progress, stop=stop)
    result = run.result(finished=finished, notes=notes)
    if settings.cleanup:
        await run.clean_up()
    return result
