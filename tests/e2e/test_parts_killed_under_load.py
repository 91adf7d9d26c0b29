"""A shard, the ledger, the API server die while pods pour in: everything ends bound, once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.api import Api, Oracle
from tests.e2e.stack import Stack, until
from tests.kube_env.control_plane import ControlPlane

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(180)]

NODES = 20
PODS = 300
SHAPES = ("100m", "130m", "170m", "210m", "250m")


async def pour(api: Api, *, first: int, count: int) -> None:
    """Create pods, a few at a time."""
    for start in range(first, first + count, 20):
        await api.all(api.create_pod(f"p-{i}", cpu=SHAPES[i % 5]) for i in range(start, start + 20))
        await asyncio.sleep(0.05)


async def all_bound(api: Api, count: int, *, timeout_s: float = 90) -> None:
    """Wait for the last bind; afterwards no node holds too much."""

    async def check() -> bool:
        return await api.bound() == count

    await until(check, timeout_s=timeout_s, what=f"{count} pods bound")
    assert not await api.overcommitted()


async def test_a_killed_shard_loses_no_unit_and_a_new_one_joins(api: Api, tmp_path: Path) -> None:
    await api.create_nodes(NODES)
    async with (
        Stack(tmp_path, api.plane.kubeconfig) as stack,
        Oracle(api, cpu=4000, pods=110) as oracle,
    ):
        # A shard that stands still holds units for certain when it is killed.
        stack.pause("shard-1", on=True)
        await pour(api, first=0, count=40)
        await stack.kill("shard-1")
        await pour(api, first=40, count=100)
        await all_bound(api, 140)
        name = await stack.add_shard(3)
        decided = (await stack.metrics(name)).total("stretto_decisions_total")
        await pour(api, first=140, count=PODS - 140)
        await all_bound(api, PODS)

        async def took_part() -> bool:
            return (await stack.metrics(name)).total("stretto_decisions_total") > decided

        # A shard brings its metrics up to date once a second.
        await until(took_part, timeout_s=5, what="a decision of the new shard")
        await stack.settle()
        await oracle.caught_up()
        assert len(oracle.nodes) == PODS


@pytest.mark.parametrize("how", ["flushed", "emptied", "crashed"])
async def test_a_ledger_that_lost_entries_is_made_whole_while_pods_arrive(
    api: Api, tmp_path: Path, how: str
) -> None:
    await api.create_nodes(NODES)
    async with (
        Stack(tmp_path, api.plane.kubeconfig) as stack,
        Oracle(api, cpu=4000, pods=110) as oracle,
    ):
        await pour(api, first=0, count=100)
        load = asyncio.create_task(pour(api, first=100, count=PODS - 100))
        await asyncio.sleep(0.2)
        if how == "flushed":
            await stack.flush_ledger()
        else:
            await stack.restart_ledger(empty=how == "emptied")
        await load
        await all_bound(api, PODS)
        await stack.settle()
        await oracle.caught_up()
        assert len(oracle.nodes) == PODS


async def test_a_killed_api_server_comes_back_and_all_pods_end_bound(
    new_control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    plane = new_control_plane()
    async with Api(plane) as api:
        await api.create_nodes(NODES)
        async with Stack(tmp_path, plane.kubeconfig) as stack:
            await pour(api, first=0, count=200)
            plane.kill("kube-apiserver")
            await asyncio.sleep(4)
            plane.start_apiserver()
            await pour(api, first=200, count=PODS - 200)
            await all_bound(api, PODS)
            await stack.settle()
