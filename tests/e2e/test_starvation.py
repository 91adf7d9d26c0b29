"""A large pod among small ones on a real kube-apiserver: what comes free is kept for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.api import Api, node_of
from tests.e2e.stack import Stack, StackSettings, until
from tests.e2e.waits import told

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(240)]

HASTY = StackSettings(shards=4, flags={"dispatcher": ["--stake-after-s=1"]})


@pytest.fixture
async def stack(tmp_path: Path, api: Api) -> AsyncIterator[Stack]:
    await api.create_node("n0", cpu="4")
    async with Stack(tmp_path, api.plane.kubeconfig, HASTY) as stack:
        yield stack


async def test_a_large_pod_gets_the_room_of_the_small_ones_that_end(api: Api, stack: Stack) -> None:
    first = [f"first-{number}" for number in range(4)]
    await api.all(api.create_pod(name, cpu="1") for name in first)

    async def full() -> bool:
        return await api.bound() == 4

    await until(full, timeout_s=60, what="the node is full")
    await api.create_pod("large", cpu="4")
    await told(api, "large", "Insufficient cpu")

    async def kept(nodes: int) -> bool:
        return (await stack.metrics("binder")).total("stretto_stake_nodes") == nodes

    await until(lambda: kept(1), timeout_s=60, what="room is kept for the large pod")
    await api.create_pod("small", cpu="1")
    for name in first:
        await api.delete_pod(name)

    async def large_is_bound() -> bool:
        return bool(node_of(await api.pod("large")))

    await until(large_is_bound, timeout_s=60, what="the large pod is bound")
    assert not node_of(await api.pod("small")), "the small pod has taken what was kept"
    await told(api, "small", "Insufficient cpu")
    await api.delete_pod("large")

    async def small_is_bound() -> bool:
        return bool(node_of(await api.pod("small")))

    await until(small_is_bound, timeout_s=60, what="the room is everybody's again")
    await until(lambda: kept(0), timeout_s=60, what="nothing is kept any more")
