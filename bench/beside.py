"""What pods that cannot run cost those that can, in pairs.

Naive form: a run without them, then a run with them. Its fault: on a machine that others use too,
two runs of the same kind differ by more than what is looked for. The form chosen: a deployment for
each case (nothing beside; the same again, which shows the noise; 9,000 hopeless pods of ten shapes;
as many gated ones) lives through the whole measurement, and they get the same short rounds in turn,
forth and back. What is reported is the median over the rounds of the ratio to the round of the
first case beside it, by the clock and by the CPU time of all our processes.

A round: a stream of pods, each ended a while after its bind, so that room comes free all the time
and wakes whoever waits for it; then a burst; then the room of a full node is released, again and
again, for a pod that waits for it. Waits are from the answer to the creation (or deletion) until
the bind is seen in a watch. Attempts count every decision of the dispatcher in the rounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.machine import CpuMeter
from bench.queue import PATIENCE_S, PODS, Cluster, cluster, pod
from stretto.model.errors import OperatorError

LIFE_S = 1.0
"""A pod of the stream ends so long after its bind."""
SETTLE_S = 4.0
RELEASES = 10
"""Releases of room in a round."""
PAUSE_S = 0.2
GOALS = (
    "goals beside others: burst >= 0.9, P99 wait <= 1.2, attempts a bound pod <= 1.2, "
    "release to bind P99 <= 1,000 ms"
)


@dataclass
class Round:
    """What one round gave."""

    waits_s: list[float]
    burst_rate: float
    """Pods a second."""
    cpu_us: float
    """Of all our processes, a pod."""


@dataclass
class Side:
    """A case and its deployment."""

    name: str
    before: list[dict[str, Any]]
    here: Cluster | None = None
    rounds: list[Round] = field(default_factory=list)
    releases_s: list[float] = field(default_factory=list)
    pods: int = 0
    tried: float = 0.0
    """Decisions before the first round."""
    attempts: float = 0.0


def percentile(values: Sequence[float], percent: float) -> float:
    """A percentile."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * percent / 100))]


async def stream(here: Cluster, names: Sequence[str], *, rate: int) -> list[float]:
    """Pods at a steady rate; their waits in seconds."""
    created: dict[str, float] = {}

    async def one(name: str) -> None:
        await here.create(PODS, [pod(name, cpu="500m")])
        created[name] = time.monotonic()
        await here.bound([name])
        await asyncio.sleep(LIFE_S)
        await here.client.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        began = time.monotonic()
        for number, each in enumerate(names):
            group.create_task(one(each))
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
    return [max(0.0, here.watch.bound_s[each] - created[each]) for each in names]


async def releases(here: Cluster, tag: str) -> list[float]:
    """Seconds from the end of a pod to the bind of the one that waited for its room: a pod takes
    the one unit of a resource, the next one waits."""
    waits = []
    names = [f"{tag}-{number}" for number in range(RELEASES + 1)]
    await _mark_a_node(here)
    bodies = [pod(name, cpu="1") for name in names]
    for body in bodies:
        resources = body["spec"]["containers"][0]["resources"]
        resources["limits"] = {"example.com/one": "1"}
        resources["requests"]["example.com/one"] = "1"
    await here.create(PODS, bodies[:1])
    await here.bound(names[:1])
    for before, name, body in zip(names, names[1:], bodies[1:], strict=False):
        await here.create(PODS, [body])
        await asyncio.sleep(PAUSE_S)
        if name in here.watch.bound_s:
            raise OperatorError(f"{name} was to wait for room and did not")
        await here.client.delete(f"{PODS}/{before}", {"gracePeriodSeconds": 0})
        released = time.monotonic()
        await here.bound([name])
        waits.append(max(0.0, here.watch.bound_s[name] - released))
    await here.client.delete(f"{PODS}/{names[-1]}", {"gracePeriodSeconds": 0})
    return waits


async def _mark_a_node(here: Cluster) -> None:
    """One node gets one unit of a resource that no other node has."""
    answer = await here.client.get("/api/v1/nodes", {"limit": "1"})
    item = json.loads(answer.body)["items"][0]
    name: str = item["metadata"]["name"]
    if "example.com/one" not in item["status"]["allocatable"]:
        status = {"status": {k: item["status"][k] | {"example.com/one": "1"} for k in AMOUNTS}}
        reply = await here.client.patch(f"/api/v1/nodes/{name}/status", status)
        assert reply.ok, reply.text
        await asyncio.sleep(1.0)


AMOUNTS = ("capacity", "allocatable")


async def one_round(side: Side, number: int, options: Any) -> None:
    """A stream, a burst, and releases of room."""
    here = side.here
    assert here is not None
    meter = CpuMeter(here.roles.pids())
    waits = await stream(here, [f"s{number}-{n}" for n in range(options.stream)], rate=options.rate)
    burst = [f"b{number}-{n}" for n in range(options.burst)]
    await here.create(PODS, (pod(each, cpu="10m") for each in burst))
    await here.bound(burst)
    seen = sorted(here.watch.bound_s[each] for each in burst)
    used = sum(meter.used(here.roles.pids()).values())
    side.releases_s += await releases(here, f"r{number}")
    count = options.stream + options.burst
    side.pods += count + RELEASES + 1
    rate = len(burst) / max(seen[-1] - seen[0], 1e-3)
    side.rounds.append(Round(waits, rate, used / count * 1e6))


def show(side: Side, alone: Side) -> None:
    """A row of the table."""
    waits = [wait for each in side.rounds for wait in each.waits_s]
    pairs = list(zip(side.rounds, alone.rounds, strict=True))
    burst = statistics.median(mine.burst_rate / other.burst_rate for mine, other in pairs)
    cpu = statistics.median(mine.cpu_us / other.cpu_us for mine, other in pairs)
    p99 = statistics.median(
        percentile(mine.waits_s, 99) / percentile(other.waits_s, 99) for mine, other in pairs
    )
    rate = statistics.median(each.burst_rate for each in side.rounds)
    cpu_us = statistics.median(each.cpu_us for each in side.rounds)
    print(
        f"{side.name:<16}{percentile(waits, 50) * 1000:>8.0f}{percentile(waits, 99) * 1000:>8.0f}"
        f"{p99:>8.2f}{rate:>9,.0f}{burst:>8.2f}{cpu_us:>8.0f}{cpu:>8.2f}"
        f"{(side.attempts - side.tried) / side.pods:>10.2f}"
        f"{percentile(side.releases_s, 99) * 1000:>12.0f}",
        flush=True,
    )


async def beside(options: Any) -> None:
    """The table."""
    waiting = options.waiting
    sides = [
        Side("nothing", []),
        Side("nothing again", []),
        Side(
            f"{waiting:,} hopeless", [pod(f"h{n}", cpu=str(100 + n % 10)) for n in range(waiting)]
        ),
        Side(f"{waiting:,} gated", [pod(f"g{n}", cpu="1", gated=True) for n in range(waiting)]),
    ]
    print(
        f"{options.pairs} rounds in turn of {options.stream} pods at {options.rate}/s that live "
        f"{LIFE_S:g} s, {options.burst:,} at once, {RELEASES} releases; {options.nodes} nodes, "
        f"{options.shards} shards; ratios are medians over the rounds; {GOALS}"
    )
    async with contextlib.AsyncExitStack() as stack:
        for side in sides:
            made = cluster(nodes=options.nodes, node_cpu="16", shards=options.shards)
            side.here = await stack.enter_async_context(made)
            await side.here.create(PODS, side.before)
        await asyncio.sleep(SETTLE_S)
        for side in sides:  # what is made at first use is no part of a round
            await one_round(side, 0, options)
            side.rounds.clear()
            side.releases_s.clear()
            side.pods = 0
            assert side.here is not None
            side.tried = await side.here.attempts()
        for number, order in zip(
            range(1, options.pairs + 1), itertools.cycle((sides, sides[::-1])), strict=False
        ):
            for side in order:
                await one_round(side, number, options)
        for side in sides:
            assert side.here is not None
            side.attempts = await side.here.attempts()
    print(
        f"{'beside':<16}{'P50 ms':>8}{'P99 ms':>8}{'ratio':>8}{'burst/s':>9}{'ratio':>8}"
        f"{'CPU us':>8}{'ratio':>8}{'attempts':>10}{'release ms':>12}"
    )
    for side in sides:
        show(side, sides[0])
