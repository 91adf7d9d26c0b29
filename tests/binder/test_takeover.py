"""A standby Binder or dispatcher takes over after an orderly stop; nothing else is restarted."""

from __future__ import annotations

import asyncio
import pathlib

import pytest

from stretto.audit.checker import check, read_history
from stretto.simulator.faults import Effect
from tests.binder.shells import create
from tests.binder.whole import Role, Whole, eventually, whole

pytestmark = pytest.mark.asyncio(loop_scope="session")

PODS = 30


async def bind_more(world: Whole, *, first: int) -> None:
    names = [f"p{number}" for number in range(first, first + PODS)]
    await asyncio.gather(*(create(world.client, name) for name in names))

    async def all_bound() -> bool:
        return await world.bound() == first + PODS

    await eventually(all_bound, "all pods bound", timeout_s=15)


async def with_standbys(world: Whole) -> dict[str, Role]:
    """Two of each role that has a leader, the first ones lead; one shard."""
    roles = {"binder": world.binder()}
    await world.leads("binder")
    world.binder()
    roles["dispatcher"] = world.dispatcher()
    await world.leads("dispatcher")
    world.dispatcher()
    world.shard()
    await asyncio.sleep(1.5)  # the standbys have warmed up
    return roles


@pytest.mark.parametrize("role", ["binder", "dispatcher"])
async def test_a_standby_takes_over_what_was_left_in_order(
    tmp_path: pathlib.Path, role: str
) -> None:
    async with whole(tmp_path) as world:
        leaders = await with_standbys(world)
        await bind_more(world, first=0)
        before = await world.leads(role)
        await leaders[role].stop()
        await bind_more(world, first=PODS)
        assert await world.leads(role) != before
        assert not [r for r in world.roles if r.task.done() and r is not leaders[role]]
        await world.recorder.caught_up()
        for running in reversed(world.roles):
            await running.stop()
    findings = check(read_history(tmp_path))
    assert findings.verdict == "held", findings.text()


async def test_a_standby_whose_watch_lags_does_not_open_before_it_has_caught_up(
    tmp_path: pathlib.Path,
) -> None:
    """What it does not know to be bound it would take for free room."""
    async with whole(tmp_path) as world:
        leader = (await with_standbys(world))["binder"]
        standby = world.roles[1]
        faults = world.cluster.faults
        rule = faults.add(Effect.THROTTLE, method="POST", resource="pods/binding", retry_after_s=1)
        binding = asyncio.create_task(bind_more(world, first=0))

        async def put_off() -> bool:
            return rule.struck >= PODS

        await eventually(put_off, "every bind was put off")
        faults.hold("pods")
        faults.remove(rule)
        await binding
        before = await world.leads("binder")
        stopping = asyncio.create_task(leader.stop())

        async def succeeded() -> bool:
            return await world.leads("binder") != before

        await eventually(succeeded, "the standby has the Lease", timeout_s=15)
        await asyncio.sleep(1.0)
        assert not standby.ready.is_set()
        world.cluster.release_watches()
        async with asyncio.timeout(15):
            await standby.ready.wait()
            await stopping
        await bind_more(world, first=PODS)
        await world.recorder.caught_up()
        for running in reversed(world.roles):
            if not running.task.done():
                await running.stop()
    findings = check(read_history(tmp_path))
    assert findings.verdict == "held", findings.text()
