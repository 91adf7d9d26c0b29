"""Throughput that is kept while something is wrong (R15): a shard is dead, every twentieth packet
is lost, or three in ten requests are answered 429.

Real processes on the field of the fault matrix (:mod:`tests.matrix.field`): two shards, links
between every two of them, the simulated API server. Pods are created and deleted in the API
server's own process, so that a constant number of them waits and room never runs out; what is
counted is binds in a time. Every faulty time lies between two without a fault and is compared with
their mean. In the end everything must come to rest, and the whole history holds the invariants.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import pathlib
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from stretto.simulator.pods import PODS as PODS_KIND
from stretto.simulator.request import Request
from stretto.simulator.store import Change
from tests.e2e.api import AT_ONCE, PODS, pod_manifest
from tests.matrix.field import BINDERS, DISPATCHERS, SHARDS, Field
from tests.matrix.http_link import Act

WAITING = 600
"""Pods that are not bound, at any time. One that is refused waits for 0.43 s on average, as it is
asked to: so few as 150 would leave the way to the API server idle, and be bound at most 350 times a
second whatever is done."""
LIFE_S = 0.5
"""From a pod's bind to its end."""
NODES, NODE_PODS = 30, 64
"""More than the field has: a bind that is put off keeps its room, and room must not be what
limits."""
SETTLE_S = 4.0
"""After a fault begins or ends, before binds are counted."""
LOSS, REFUSED = 0.05, 0.3
WITHOUT = "without a fault"


class Stream:
    """Keeps a number of pods waiting; counts binds."""

    def __init__(self, field: Field, *, waiting: int) -> None:
        assert field.simulated is not None
        self._api = field.simulated.api
        self._numbers = itertools.count()
        self._on = True
        self._waiting = waiting
        self.binds = 0

    def begin(self) -> None:
        """Create the first pods."""
        self._api.store(PODS_KIND).observe(self._changed)
        for _ in range(self._waiting):
            self._create()

    def end(self) -> None:
        """No new pods, and those that are there go."""
        self._on = False
        for pod in self._api.store(PODS_KIND).records(namespace="default"):
            self._delete(pod.name)

    def _changed(self, change: Change) -> None:
        old: Any = change.old
        new: Any = change.new
        if new is not None and new.node_name and not (old is not None and old.node_name):
            self.binds += 1
            loop = asyncio.get_running_loop()
            loop.call_soon(self._create)  # not within the change of another object
            loop.call_later(LIFE_S, self._delete, new.name)

    def _create(self) -> None:
        if self._on:
            pod = json.dumps(pod_manifest(f"d-{next(self._numbers)}")).encode()
            self._api.handle(Request("POST", PODS, {}, pod, "application/json"))

    def _delete(self, name: str) -> None:
        at_once = json.dumps(AT_ONCE).encode()
        self._api.handle(Request("DELETE", f"{PODS}/{name}", {}, at_once, "application/json"))


def shard_dead(field: Field) -> None:
    """Nobody reaches the shard and it reaches nobody; its process may live."""
    for link in field.between(ours=SHARDS[1]):
        link.refuse = True
        link.cut()


def packets_lost(field: Field) -> None:
    """On every way, ledger and API server included: sent again after 200 ms, as TCP does, while
    all that follows on the connection waits."""
    for link in field.links.values():
        link.stall_chance = LOSS


def refused(field: Field) -> None:
    """Three in ten of the requests that a pod costs; Retry-After says 1 s."""
    for role in (*BINDERS, *DISPATCHERS):
        for method, ends in (("POST", "/binding"), ("POST", "/events"), ("PATCH", "/status")):
            field.api_link(role).on(Act.REFUSE, method=method, ends=ends, chance=REFUSED)


FAULTS: dict[str, tuple[Callable[[Field], None], float, str]] = {
    "one of two shards dead": (shard_dead, 0.8, "reset"),
    "5 % of packets lost": (packets_lost, 0.5, "lost and sent again"),
    "429 at 30 %": (refused, 0.6, Act.REFUSE),
}
"""What happens, how much of the throughput is to be kept, and the links' own count of it."""


async def rate_of(field: Field, stream: Stream, *, seconds: float) -> float:
    """Binds a second."""
    await asyncio.sleep(SETTLE_S)
    before, began = stream.binds, time.monotonic()
    await asyncio.sleep(seconds)
    return (stream.binds - before) / (time.monotonic() - began)


def counted(field: Field, what: str) -> int:
    """How often the links did something."""
    sums: Counter[str] = Counter()
    for link in field.links.values():
        sums.update(link.counts)
    return sums[what]


async def measured(
    field: Field, *, rounds: int, seconds: float, waiting: int
) -> dict[str, list[float]]:
    """Ratios, fault by fault; prints every time."""
    stream = Stream(field, waiting=waiting)
    stream.begin()
    ratios: dict[str, list[float]] = {name: [] for name in FAULTS}
    before = await rate_of(field, stream, seconds=seconds)
    print(f"{before:7.1f} binds/s {WITHOUT}", flush=True)
    for _ in range(rounds):
        for name, (begin, _, proof) in FAULTS.items():
            fired = counted(field, proof)
            begin(field)
            during = await rate_of(field, stream, seconds=seconds)
            fired = counted(field, proof) - fired
            field.heal()
            after = await rate_of(field, stream, seconds=seconds)
            assert fired, f"{name}: the fault did not happen"
            ratios[name].append(during / ((before + after) / 2))
            print(f"{during:7.1f} binds/s {name} ({fired} times)", flush=True)
            print(f"{after:7.1f} binds/s {WITHOUT}", flush=True)
            before = after
    stream.end()
    return ratios


async def run(*, rounds: int, seconds: float, seed: int, waiting: int = WAITING) -> int:
    """Print the ratios beside their goals; 1 if one is missed or the history does not hold."""
    with tempfile.TemporaryDirectory(prefix="stretto-degraded-") as text:
        async with Field(pathlib.Path(text) / "field", seed=seed) as field:
            for number in range(NODES):
                await field.cluster.create_node(f"more-{number}", pods=str(NODE_PODS))
            field.begin("degraded")
            ratios = await measured(field, rounds=rounds, seconds=seconds, waiting=waiting)
            await field.rest()
            findings = await field.history(ledger=True)
    missed = len(findings.violations)
    for violation in findings.violations:
        print(violation)
    for name, (_, goal, _) in FAULTS.items():
        kept = statistics.median(ratios[name])
        missed += kept < goal
        least, most = min(ratios[name]), max(ratios[name])
        print(f"{name}: {kept:.0%} kept ({least:.0%}–{most:.0%}), goal {goal:.0%}")
    print(f"{len(findings.violations)} violations in the history")
    return 1 if missed else 0
