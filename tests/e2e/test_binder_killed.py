"""The Binder dies at its two worst moments: a bind sent and not executed, and one executed and
unanswered."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.e2e.api import Api, Oracle, node_of
from tests.e2e.nemesis import Mode, Nemesis
from tests.e2e.stack import Stack, StackSettings, plain_kubeconfig, until

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(120)]

PODS = 8


def through(proxy: Nemesis, folder: Path) -> StackSettings:
    """The Binder's way to the API server leads through the proxy."""
    return StackSettings(binder_kubeconfig=plain_kubeconfig(folder, url=proxy.url, name="binder"))


async def test_a_bind_that_arrives_after_its_binder_died_finds_its_pod_fenced(
    api: Api, tmp_path: Path
) -> None:
    # One slot a node: a late bind next to a new one would be double capacity.
    await api.create_nodes(PODS, pods="1")
    async with (
        Nemesis(target=api.plane.url, token=api.plane.admin_token) as proxy,
        Stack(tmp_path, api.plane.kubeconfig, through(proxy, tmp_path)) as stack,
        Oracle(api, pods=1) as oracle,
    ):
        proxy.mode = Mode.HOLD
        await api.all(api.create_pod(f"p-{i}") for i in range(PODS))
        await until(lambda: proxy.held == PODS, timeout_s=30, what="binds on their way")
        proxy.hold_no_more()
        await stack.kill("binder")

        async def all_bound() -> bool:
            return await api.bound() == PODS

        await until(all_bound, timeout_s=60, what="bound by the next binder")
        before = {pod["metadata"]["uid"]: node_of(pod) for pod in await api.pods()}
        proxy.release()
        await until(lambda: len(proxy.late) == PODS, timeout_s=20, what="late binds answered")
        assert set(proxy.late) == {409}
        assert before == {pod["metadata"]["uid"]: node_of(pod) for pod in await api.pods()}
        await oracle.caught_up()
        assert oracle.nodes == before
        await stack.settle()


async def test_late_binds_land_on_nobody_when_released_before_the_next_binder_opens(
    api: Api, tmp_path: Path
) -> None:
    """The same race the other way round: some late binds land while the next Binder recovers."""
    await api.create_nodes(PODS, pods="1")
    async with (
        Nemesis(target=api.plane.url, token=api.plane.admin_token) as proxy,
        Stack(tmp_path, api.plane.kubeconfig, through(proxy, tmp_path)) as stack,
        Oracle(api, pods=1) as oracle,
    ):
        proxy.mode = Mode.HOLD
        await api.all(api.create_pod(f"p-{i}") for i in range(PODS))
        await until(lambda: proxy.held == PODS, timeout_s=30, what="binds on their way")
        await stack.kill("binder")
        await asyncio.sleep(1.0)
        proxy.release()
        await until(lambda: len(proxy.late) == PODS, timeout_s=20, what="late binds answered")

        async def all_bound() -> bool:
            return await api.bound() == PODS

        await until(all_bound, timeout_s=60, what="all bound")
        await stack.ready_again("binder")
        await stack.settle()
        await oracle.caught_up()
        assert len(oracle.nodes) == PODS


async def test_a_bind_executed_before_its_binder_died_counts_once(api: Api, tmp_path: Path) -> None:
    await api.create_nodes(PODS, pods="1")
    async with (
        Nemesis(target=api.plane.url, token=api.plane.admin_token) as proxy,
        Stack(tmp_path, api.plane.kubeconfig, through(proxy, tmp_path)) as stack,
        Oracle(api, pods=1) as oracle,
    ):
        proxy.mode = Mode.SWALLOW
        await api.all(api.create_pod(f"p-{i}") for i in range(PODS))
        await until(lambda: proxy.swallowed == PODS, timeout_s=30, what="binds executed")
        await stack.kill("binder")
        proxy.mode = Mode.PASS
        before = {pod["metadata"]["uid"]: node_of(pod) for pod in await api.pods()}
        await stack.ready_again("binder")
        await stack.settle()
        await oracle.caught_up()
        assert oracle.nodes == before
        # The next pods find exactly the room that is left: none.
        await api.create_pod("one-too-many")
        await api.create_node("spare", pods="1")

        async def placed() -> bool:
            return node_of(await api.pod("one-too-many")) == "spare"

        await until(placed, timeout_s=30, what="the next pod on the spare node")
        await stack.settle()


async def test_an_answer_that_never_comes_is_resolved_by_the_binder_itself(
    api: Api, tmp_path: Path
) -> None:
    await api.create_nodes(PODS, pods="1")
    async with (
        Nemesis(target=api.plane.url, token=api.plane.admin_token) as proxy,
        Stack(tmp_path, api.plane.kubeconfig, through(proxy, tmp_path)) as stack,
        Oracle(api, pods=1) as oracle,
    ):
        proxy.mode = Mode.SWALLOW
        await api.all(api.create_pod(f"p-{i}") for i in range(PODS))
        await until(lambda: proxy.swallowed == PODS, timeout_s=30, what="binds executed")
        proxy.mode = Mode.PASS
        await stack.settle(timeout_s=60)
        await oracle.caught_up()
        assert len(oracle.nodes) == PODS
        assert stack.supervisor.roles["binder"].starts == 1
