"""The shard process: settings to streams, and its orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
import uuid

from scheduler_shard.extending import Extending
from scheduler_shard.metrics import MetricsBridge
from scheduler_shard.partitions import own_partitions
from scheduler_shard.profiles import AnyProfiles
from scheduler_shard.streams import ShardStreams
from scheduler_shard.worker import Shard
from stretto.config.scheduler_file import configuration_of_role, gates_of
from stretto.config.shard import ShardSettings
from stretto.placement.configuration import Configuration
from stretto.placement.profiles import Profiles
from stretto.rpc.channels import Dialer
from stretto.rpc.messages import ShardHello
from stretto.rpc.security import Security
from stretto.telemetry.guard import guard_of
from stretto.telemetry.http import TelemetryServer
from stretto.telemetry.shard_metrics import ShardMetrics
from stretto.telemetry.story import StoryLog

logger = logging.getLogger(__name__)
HOUSEKEEPING_S = 1.0


def profiles_of(settings: ShardSettings, configuration: Configuration) -> Profiles:
    """Those of --config or --scheduler-name, else the default under any name."""
    named = settings.config is not None or settings.scheduler_name
    return configuration.profiles if named else AnyProfiles(gates_of(settings.feature_gates))


def make_shard(
    settings: ShardSettings, *, stories: StoryLog | None, configuration: Configuration
) -> Shard:
    """The brain that the settings ask for."""
    return Shard(
        profiles=profiles_of(settings, configuration),
        own_partitions=own_partitions(
            settings.shard_name, index=settings.partition_index, count=settings.partition_count
        ),
        window=settings.window,
        spares=settings.spares,
        silence_s=settings.snapshot_silence_s,
        stories=stories,
        extenders=configuration.extenders,
    )


def make_streams(
    settings: ShardSettings, shard: Shard, *, bridge: MetricsBridge, configuration: Configuration
) -> ShardStreams:
    """The brain's streams; refuses addresses and certificates that cannot be used."""
    security = Security.of(settings)
    rng = random.Random()
    streams = ShardStreams(
        shard,
        hello=ShardHello(settings.shard_name, str(uuid.uuid4()), profiles=configuration.digest),
        dispatcher=Dialer(settings.dispatcher, security=security, rng=rng),
        binder=Dialer(settings.binder, security=security, rng=rng),
        rng=rng,
        linger_s=settings.linger_ms / 1000,
        on_round=bridge.round,
    )
    asked = (e.filter_verb or e.prioritize_verb or e.preempt_verb for e in configuration.extenders)
    if any(asked):
        streams.extending = Extending(configuration.extenders, streams.extended)
    return streams


async def run(
    settings: ShardSettings, *, stop: asyncio.Event, ready: asyncio.Event | None = None
) -> None:
    """Run a shard until ``stop``; then give back what is undecided and wait for open verdicts.

    Raises:
        OperatorError: an address, a certificate or a port that cannot be used.
    """
    stories = StoryLog(settings.stories, clock=time.monotonic) if settings.stories else None
    configuration = configuration_of_role(settings, names=settings.scheduler_name)
    shard = make_shard(settings, stories=stories, configuration=configuration)
    metrics = ShardMetrics()
    bridge = MetricsBridge(metrics)
    streams = make_streams(settings, shard, bridge=bridge, configuration=configuration)
    telemetry = TelemetryServer(
        settings.telemetry_listen,
        registry=metrics.registry,
        role=f"shard {settings.shard_name}",
        guard=guard_of(settings, settings.telemetry_listen),
        ready=lambda: streams.ready,
        stories=stories,
    )
    try:
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(streams.run())
            keeping = group.create_task(_keep_house(streams, bridge, settings, ready))
            await _first_of(serving, stop)
            if not serving.done():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(settings.drain_s):
                        await streams.drained()
            serving.cancel()
            keeping.cancel()
    finally:
        bridge.update(streams)
        telemetry.close()
        logger.info("shard %s has ended", settings.shard_name)


async def _first_of(serving: asyncio.Task[None], stop: asyncio.Event) -> None:
    waiting = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((serving, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


async def _keep_house(
    streams: ShardStreams,
    bridge: MetricsBridge,
    settings: ShardSettings,
    ready: asyncio.Event | None,
) -> None:
    """Metrics, the first readiness, and the self-check if it is asked for."""
    while ready is not None and not ready.is_set():
        await asyncio.sleep(0.05)
        if streams.ready:
            ready.set()
    while True:
        bridge.update(streams)
        if settings.validate:
            streams.shard.validate()
        await asyncio.sleep(HOUSEKEEPING_S)
