"""What nobody expects ends the role in which it happens, wherever it does: in its loops, in the
conversations with other roles, in timers, and while it stands by. A part that has died beside
others that live would be waited for for ever."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Any, NoReturn

import pytest

import binder.committer
import binder.executor
import binder.gauges
import binder.machine
import binder.process
import binder.publisher
import binder.server
import dispatcher.condition_writer
import dispatcher.conditions
import dispatcher.follow
import dispatcher.machine
import dispatcher.outcomes_client
import dispatcher.work_server
import scheduler_shard.metrics
import scheduler_shard.worker
from stretto.kube.client import KubeClient
from tests.binder.shells import PODS, create, pod_manifest
from tests.binder.whole import Whole, eventually, whole

pytestmark = pytest.mark.asyncio(loop_scope="session")

ENDS_S = 15.0

Place = tuple[Any, str]
BINDER: list[Place] = [
    (binder.committer.CommitLoop, "round"),
    (binder.executor.Executor, "_perform"),
    (binder.machine.Machine, "pod_seen"),
    (binder.gauges.Gauges, "look"),
    (binder.server.BinderServer, "_take"),
    (binder.server.BinderServer, "_asked"),
    (binder.server, "VerdictBatch"),
    (binder.server, "OutcomeBatch"),
]
DISPATCHER: list[Place] = [
    (dispatcher.machine.Machine, "dispatch"),
    (dispatcher.machine.Machine, "tick"),
    (dispatcher.follow.FollowClient, "take"),
    (dispatcher.outcomes_client.OutcomesClient, "take"),
    (dispatcher.outcomes_client.OutcomesClient, "_request"),
    (dispatcher.work_server.WorkServer, "_take"),
    (dispatcher.condition_writer, "condition_patch"),
]
SHARD: list[Place] = [
    (scheduler_shard.worker.Shard, "followed"),
    (scheduler_shard.worker.Shard, "work"),
    (scheduler_shard.worker.Shard, "decide"),
    (scheduler_shard.worker.Shard, "take_proposals"),
    (scheduler_shard.worker.Shard, "verdicts"),
    (scheduler_shard.worker.Shard, "take_answers"),
    (scheduler_shard.metrics.MetricsBridge, "update"),
]
PLACES = [
    pytest.param(role, owner, name, id=f"{kind}: {name}")
    for role, (kind, places) in enumerate(
        {"binder": BINDER, "dispatcher": DISPATCHER, "shard": SHARD}.items()
    )
    for owner, name in places
]


def broken(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError("planted")


def planted(error: BaseException | None) -> bool:
    """Whether the role ended with what was planted, inside task groups or not."""
    if isinstance(error, BaseExceptionGroup):
        return any(planted(inner) for inner in error.exceptions)
    return isinstance(error, AssertionError) and str(error) == "planted"


async def create_too_large(client: KubeClient) -> None:
    """A pod that finds no room, and is told so."""
    pod = pod_manifest("too-large")
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "64"
    assert (await client.post(PODS, pod)).ok


async def started(world: Whole) -> None:
    """One of each role, ready."""
    world.binder()
    world.dispatcher()
    world.shard(drain_s=0.1)
    await asyncio.gather(*(role.ready.wait() for role in world.roles))


@pytest.mark.parametrize(("role", "owner", "name"), PLACES)
async def test_a_defect_ends_the_role(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, role: int, owner: Any, name: str
) -> None:
    async with whole(tmp_path) as world:
        await started(world)
        monkeypatch.setattr(owner, name, broken)
        await create(world.client, "fits")
        await create_too_large(world.client)
        ended = world.roles[role].task
        await asyncio.wait([ended], timeout=ENDS_S)
        assert ended.done(), "the role goes on"
        assert planted(ended.exception())
        monkeypatch.undo()


async def test_a_defect_ends_a_binder_that_stands_by(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with whole(tmp_path) as world:
        await started(world)
        standby = world.binder()
        await asyncio.sleep(1.5)  # it has begun to watch
        monkeypatch.setattr(binder.process, "standby_sees", broken)
        await create(world.client, "fits")
        await asyncio.wait([standby.task], timeout=ENDS_S)
        assert standby.task.done(), "the standby goes on, and would fail when it takes over"
        assert planted(standby.task.exception())

        async def bound() -> bool:
            return await world.bound() == 1

        await eventually(bound, "the leader binds")


async def test_a_defect_ends_a_dispatcher_that_stands_by(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with whole(tmp_path) as world:
        world.binder()
        world.dispatcher()
        await world.roles[1].ready.wait()
        standby = world.dispatcher()
        await world.leads("dispatcher")
        await asyncio.sleep(0.5)
        assert not standby.ready.is_set()
        monkeypatch.setattr(dispatcher.machine.Machine, "tick", broken)
        both = [world.roles[1].task, standby.task]
        await asyncio.wait(both, timeout=ENDS_S)
        assert all(task.done() and planted(task.exception()) for task in both)


async def test_a_defect_while_a_binder_ends_is_told(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asked to stop, and has to write what became of its last binds."""
    async with whole(tmp_path) as world:
        await started(world)
        monkeypatch.setattr(binder.process.BinderProcess, "_drain", slowly)
        world.roles[0].stopping.set()
        await asyncio.sleep(0.2)
        monkeypatch.setattr(binder.gauges.Gauges, "look", broken)
        await asyncio.wait([world.roles[0].task], timeout=ENDS_S)
        assert planted(world.roles[0].task.exception())


async def slowly(*_: Any) -> bool:
    await asyncio.sleep(10)
    return True
