"""What hostile pods do to others (R23): bursts of plain pods by turns alone, beside a stream of
hostile pods that are somebody else's, and beside the same stream of our own.

The second tells what the API server (a simulated one, in Python) loses by such pods, so that the
third says what Stretto adds. Roles, ledger and API server are processes; a round ends when its
plain pods are bound, and all its pods are deleted before the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from bench.machine import CpuMeter, conditions
from bench.pipeline import Options, simulator
from bench.roles import Roles
from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.kube.reflections import EventKind
from stretto.kube.reflector import Reflector
from stretto.model.objects import Pod
from tests.reliability.hostile import PODS

STREAM = (
    "1,000 containers",
    "10,000 containers",
    "100 node terms of 100 values",
    "5,000 node terms of two",
    "100 anti-affinity terms of 100",
    "900 anti-affinity terms of 10",
    "900 preferred affinity terms",
    "1,000 spread constraints",
    "10,000 tolerations",
)
"""Kinds of the stream, in turn. With the largest of all kinds only, it would be the API server, in
Python, that holds everybody up."""
PATH = "/api/v1/namespaces/default/pods"
PLAIN = 400
HOSTILE_EVERY_S = 0.25
HEAD_START_S = 1.0
PATIENCE_S = 120.0
KINDS = ("alone", "others'", "ours")
TARGET = 0.10


class Field:
    """The API server, and when it showed pods bound."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._numbers = itertools.count()
        self.bound_s: dict[str, float] = {}
        self._changed = asyncio.Event()

    async def watch(self) -> None:
        """Note binds until cancelled."""
        reflector = Reflector(self._client, "/api/v1/pods", kind=Pod)
        async for batch in reflector.run():
            now = time.monotonic()
            for event in batch:
                pod = event.new
                if event.kind is not EventKind.DELETED and pod is not None and pod.spec.node_name:
                    self.bound_s.setdefault(pod.metadata.name, now)
            self._changed.set()

    async def create(self, document: dict[str, Any], *, prefix: str, scheduler: str) -> str:
        """A pod, by its name."""
        name = f"{prefix}-{next(self._numbers)}"
        body = {"apiVersion": "v1", "kind": "Pod", **document}
        body["metadata"] = {**document["metadata"], "name": name}
        body["metadata"].pop("uid", None)
        body["spec"] = {**document["spec"], "schedulerName": scheduler}
        answer = await self._client.post(PATH, json.dumps(body).encode())
        assert answer.ok, answer.text
        return name

    async def all_bound(self, names: list[str]) -> None:
        """Wait until they are."""
        async with asyncio.timeout(PATIENCE_S):
            while not all(name in self.bound_s for name in names):
                self._changed.clear()
                await self._changed.wait()

    async def clear(self, names: list[str]) -> None:
        """Delete pods."""
        for name in names:
            await self._client.delete(f"{PATH}/{name}")
        await asyncio.sleep(1.0)

    @contextlib.asynccontextmanager
    async def hostile(self, scheduler: str) -> AsyncIterator[list[str]]:
        """A stream of hostile pods of the kinds of STREAM, in turn; their names."""
        names: list[str] = []

        async def send() -> None:
            for document in itertools.cycle([PODS[name] for name in STREAM]):
                names.append(await self.create(document, prefix="hostile", scheduler=scheduler))
                await asyncio.sleep(HOSTILE_EVERY_S)

        task = asyncio.create_task(send())
        await asyncio.sleep(HEAD_START_S)
        try:
            yield names
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


class Round:
    """What a round of plain pods came to."""

    def __init__(self, *, seconds: float, waits_s: list[float], hostile: int, placed: int,
                 cpu_s: dict[str, float]) -> None:  # fmt: skip
        self.rate = len(waits_s) / seconds
        self.p99_s = sorted(waits_s)[int(len(waits_s) * 0.99)]
        self.hostile = hostile
        self.placed = placed
        self.cpu_s = {group: cpu_s[group] for group in ("dispatcher", "shards", "binder")}


async def play(field: Field, kind: str, roles: Roles) -> Round:
    """A burst of plain pods beside what ``kind`` says."""
    meter = CpuMeter(roles.pids())
    document = {
        "metadata": {"namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i",
                                 "resources": {"requests": {"cpu": "100m"}}}]},
    }  # fmt: skip
    async with contextlib.AsyncExitStack() as stack:
        hostile: list[str] = []
        if kind != "alone":
            scheduler = "stretto" if kind == "ours" else "somebody-else"
            hostile = await stack.enter_async_context(field.hostile(scheduler))
        began = time.monotonic()
        created: dict[str, float] = {}
        for _ in range(PLAIN):
            at = time.monotonic()
            created[await field.create(document, prefix="plain", scheduler="stretto")] = at
        await field.all_bound(list(created))
        ended = max(field.bound_s[name] for name in created)
    result = Round(
        seconds=ended - began,
        waits_s=[field.bound_s[name] - at for name, at in created.items()],
        hostile=len(hostile),
        placed=sum(name in field.bound_s for name in hostile),
        cpu_s=meter.used(roles.pids()),
    )
    await field.clear([*created, *hostile])
    return result


async def run(*, nodes: int, rounds: int) -> int:
    """Print the rounds, and what came of them in the middle; nothing of it is a fault."""
    options = Options(pods=0, nodes=nodes, shapes=1, shards=2, kubelet="off", bind_ms=0.0)
    print(f"{conditions()}\n{PLAIN} plain pods a round, {nodes:,} nodes, 2 shards")
    found: dict[str, list[Round]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory(prefix="stretto-others-") as text:
        folder = Path(text)
        async with (
            simulator(folder, options) as (_, url, kubeconfig),
            KubeClient(KubeConfig.from_url(url), list_timeout_s=120, timeout_s=60) as client,
            Roles(folder, kubeconfig, shards=2, events=False) as roles,
        ):
            await roles.begin()
            field = Field(client)
            watching = asyncio.create_task(field.watch())
            await play(field, "alone", roles)
            for number in range(rounds):
                for kind in KINDS[number % 3 :] + KINDS[: number % 3]:
                    result = await play(field, kind, roles)
                    found[kind].append(result)
                    print(
                        f"{kind:8} {result.rate:8.0f} pods/s  p99 {result.p99_s * 1e3:6.0f} ms  "
                        f"{result.hostile} hostile beside, {result.placed} of them bound; CPU "
                        + ", ".join(f"{g} {s:.2f} s" for g, s in result.cpu_s.items())
                    )
            watching.cancel()
            assert not roles.restarts(), roles.last_words()
    return tell(found)


def tell(found: dict[str, list[Round]]) -> int:
    """Medians, and ours against others' round by round."""
    for kind, rounds in found.items():
        rate = statistics.median(each.rate for each in rounds)
        p99 = statistics.median(each.p99_s for each in rounds)
        print(f"median {kind:8} {rate:8.0f} pods/s  p99 {p99 * 1e3:6.0f} ms")
    pairs = list(zip(found["ours"], found["others'"], strict=True))
    rate = statistics.median(ours.rate / others.rate for ours, others in pairs)
    p99 = statistics.median(ours.p99_s / others.p99_s for ours, others in pairs)
    print(
        f"ours against somebody else's: {rate:.2f} of the rate, {p99:.2f} of the p99 "
        f"(target: ± {TARGET:.0%})"
    )
    return 0
