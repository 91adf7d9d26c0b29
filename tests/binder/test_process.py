"""The Binder's process: its orderly end."""

from __future__ import annotations

import asyncio
import pathlib

import pytest

from stretto.simulator.faults import Effect
from tests.binder.shells import create
from tests.binder.whole import Whole, eventually, whole

pytestmark = pytest.mark.asyncio(loop_scope="session")

PODS = 30


async def bind_all(world: Whole) -> None:
    """Every pod bound, while events hang."""
    await asyncio.gather(*(create(world.client, f"p{i}") for i in range(PODS)))

    async def all_bound() -> bool:
        return await world.bound() == PODS

    await eventually(all_bound, "all pods bound")


async def test_events_of_the_last_binds_are_written_before_the_end(tmp_path: pathlib.Path) -> None:
    async with whole(tmp_path) as world:
        world.cluster.faults.add(Effect.DELAY, method="POST", resource="events", delay_s=1.0)
        binder = world.binder()
        world.dispatcher()
        world.shard()
        await bind_all(world)
        await binder.stop()
        assert await world.events() == PODS


async def test_events_that_cannot_be_written_in_time_are_counted_and_named_in_the_log(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("binder.process.STOP_S", 0.3)
    async with whole(tmp_path) as world:
        world.cluster.faults.add(Effect.DELAY, method="POST", resource="events", delay_s=60.0)
        binder = world.binder()
        world.dispatcher()
        world.shard()
        await bind_all(world)
        await binder.stop()
        assert f"{PODS} events of stretto were not written before the end" in caplog.messages
        lease = await world.client.get(
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/stretto-binder"
        )
        assert b'"holderIdentity":""' in lease.body
