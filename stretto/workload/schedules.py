"""Which pods a run creates, and when: from settings to a schedule."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path

from stretto.workload import arrivals, synthetic
from stretto.workload.manifests import pod_manifest
from stretto.workload.openb import NAME as OPENB
from stretto.workload.openb import pod_records, replay
from stretto.workload.records import ScheduledPod
from stretto.workload.settings import Arrival, LoadSettings
from stretto.workload.traces import read_pods


def new_run_name(seed: int | None = None) -> str:
    """A name that no earlier run has had (or always the same for a seed)."""
    rng = random.Random(seed) if seed is not None else random.SystemRandom()
    return "run-" + "".join(rng.choice("bcdfghjklmnpqrstvwxz2456789") for _ in range(5))


def schedule_of(settings: LoadSettings, *, run: str) -> tuple[int, Iterable[ScheduledPod]]:
    """How many pods, and the schedule.

    Raises:
        TraceError: a trace that cannot be read.
    """
    if settings.trace:
        if settings.trace == OPENB:
            records = pod_records()
        else:
            records = read_pods(Path(settings.trace), format_name=settings.trace_format)
        if settings.pods:
            records = records[: settings.pods]
        schedule = replay(
            records,
            run=run,
            namespace=settings.namespace,
            scheduler_name=settings.scheduler_name,
            span_s=settings.span_s,
            max_gap_s=settings.max_gap_s,
        )
        if settings.arrival is Arrival.TRACE:
            return len(records), schedule
        times = times_of(settings, len(records))
        return len(records), (
            pod._replace(at_s=at) for at, pod in zip(times, schedule, strict=True)
        )
    return settings.pods, _synthetic(settings, run)


def times_of(settings: LoadSettings, count: int) -> Iterator[float]:
    """When so many pods come."""
    match settings.arrival:
        case Arrival.STEADY:
            return arrivals.steady(count, settings.rate)
        case Arrival.RAMP:
            return arrivals.ramp(count, settings.rate_from, settings.rate)
        case Arrival.BURST | Arrival.TRACE:
            return arrivals.burst(count)


def _synthetic(settings: LoadSettings, run: str) -> Iterator[ScheduledPod]:
    records = synthetic.pods(settings.pods, shape_count=settings.shapes, replicas=settings.replicas)
    lives = synthetic.lifetimes(settings.lifetime_s, seed=settings.seed)
    for at, record, lifetime in zip(
        times_of(settings, settings.pods), records, lives, strict=False
    ):
        manifest = pod_manifest(
            record,
            run=run,
            namespace=settings.namespace,
            scheduler_name=settings.scheduler_name,
            lifetime_s=None if settings.delete else lifetime,
        )
        yield ScheduledPod(at, lifetime, manifest)
