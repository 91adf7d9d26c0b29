"""A server that puts requests off (429, Retry-After): each waits as long as it was asked to, and
holds up nobody."""

from __future__ import annotations

import asyncio
import itertools
import random
import types
from typing import Any

import pytest

from binder.bindings import ActionKind, Binding, Read, Stage
from binder.executor import Executor
from binder.recovery import FENCES_IN_FLIGHT
from stretto.kube.answers import BindAnswer, BindKind
from stretto.kube.backoff import SPREAD
from stretto.simulator.faults import Effect
from stretto.telemetry.audit_log import AuditLog
from stretto.telemetry.binder_metrics import BinderMetrics
from tests.binder.shells import Rig, create, pod_of, simulated, until
from tests.binder.test_opening import fence_of
from tests.simulation.loop import VirtualLoop

TOOK_S = 0.03
ASKED_S = 1.0


class Server:
    """Takes :data:`TOOK_S` for each request; puts off what it is told to, once."""

    def __init__(self, put_off: set[str]) -> None:
        self.put_off = set(put_off)
        self.sent: list[tuple[float, str]] = []
        """When, and which pod's bind."""

    async def bind(self, *, name: str, **_: Any) -> BindAnswer:
        self.sent.append((asyncio.get_running_loop().time(), name))
        await asyncio.sleep(TOOK_S)
        if name in self.put_off:
            self.put_off.discard(name)
            return BindAnswer(kind=BindKind.THROTTLED, status=429, text="", retry_after=ASKED_S)
        return BindAnswer(kind=BindKind.BOUND, status=201, text="")

    def times(self, name: str) -> list[float]:
        return [at for at, sent in self.sent if sent == name]


def binding_of(name: str) -> Binding:
    member = types.SimpleNamespace(uid=name, namespace="d", name=name, resource_version=1)
    reservation: Any = types.SimpleNamespace(
        member=member, node_uid="u", node_name="n", shape=None, unit_id=name
    )
    return Binding(reservation)


def sent(names: list[str], *, put_off: set[str], workers: int = 1) -> Server:
    """All pods through the executor, in virtual time."""
    server, loop = Server(put_off), VirtualLoop()
    machine: Any = types.SimpleNamespace(
        cluster=types.SimpleNamespace(nodes={"u": None}, epoch=1),
        endings=types.SimpleNamespace(stepped=lambda _: None),
    )

    async def work() -> None:
        executor = Executor(
            machine, server, workers=workers, may_act=lambda: True, changed=lambda: None,
            rebase=lambda *_: None, metrics=BinderMetrics(), audit=AuditLog(None),
            rng=random.Random(1),
        )  # type: ignore[arg-type]  # fmt: skip
        for name in names:
            executor.put(binding_of(name))
        task = asyncio.get_running_loop().create_task(executor.run())
        while executor.waiting:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(work())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    return server


def test_a_bind_that_is_put_off_holds_up_nobody_and_is_next_when_its_time_has_come() -> None:
    others = [f"p{number}" for number in range(100)]
    server = sent(["late", *others], put_off={"late"})
    first, second = server.times("late")
    times = [at for at, _ in server.sent]
    pauses = [later - at for at, later in itertools.pairwise(times)]
    assert max(pauses) == pytest.approx(TOOK_S), "the worker stood still"
    due = first + TOOK_S + ASKED_S
    assert second >= due, "earlier than the server asked"
    assert second <= due + SPREAD * ASKED_S + TOOK_S, "others that came later went first"


def test_binds_that_are_put_off_together_do_not_come_back_together() -> None:
    names = [f"p{number}" for number in range(20)]
    server = sent(names, put_off=set(names), workers=len(names))
    waits = [second - first - TOOK_S for first, second in map(server.times, names)]
    assert min(waits) >= ASKED_S
    assert len({round(wait, 6) for wait in waits}) > 10


@pytest.mark.parametrize("what", ["read", "fence"])
def test_a_bind_that_is_resolved_waits_as_long_as_it_was_asked_to(what: str) -> None:
    binding = binding_of("p")
    binding.send()
    binding.unknown()
    if what == "read":
        action = binding.read(None, retry_after_s=5.0)
    else:
        binding.read(Read(found=True, uid="p", resource_version=1))
        assert binding.stage is Stage.FENCING
        action = binding.fence_failed(gone=False, retry_after_s=5.0)
    assert action.kind is ActionKind.READ
    assert action.delay_s == 5.0


async def test_fences_that_are_put_off_at_a_start_hold_up_no_others() -> None:
    """As many as may be in flight are put off again and again, and the rest is fenced."""
    put_off = [f"a{number}" for number in range(FENCES_IN_FLIGHT)]
    async with simulated() as (cluster, client):
        for name in (*put_off, "z1", "z2"):
            await create(client, name)
        rules = [
            cluster.faults.add(
                Effect.THROTTLE, method="PATCH", resource="pods/status", name=name, retry_after_s=1
            )
            for name in put_off
        ]
        rig = Rig(client, epoch=11)
        opening = asyncio.create_task(rig.open())
        await until(lambda: all(rule.struck for rule in rules), "they are put off")
        async with asyncio.timeout(8):
            while not all([fence_of(await pod_of(client, name)) for name in ("z1", "z2")]):
                await asyncio.sleep(0.01)
        assert not opening.done()
        struck = [rule.struck for rule in rules]
        for rule in rules:
            cluster.faults.remove(rule)
        await opening
        assert max(struck) <= 2, "sent again before its time"
        assert rig.opening.fenced == len(put_off) + 2
        await rig.stop()
