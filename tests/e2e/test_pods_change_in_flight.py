"""Pods that change, vanish or come back under their name while their bind is on its way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.api import MERGE, PODS, Api, Oracle, node_of
from tests.e2e.nemesis import Mode, Nemesis
from tests.e2e.stack import Stack, StackSettings, plain_kubeconfig, until

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(90)]

COUNT = 6


def through(proxy: Nemesis, folder: Path) -> StackSettings:
    """The Binder's way to the API server leads through the proxy."""
    return StackSettings(binder_kubeconfig=plain_kubeconfig(folder, url=proxy.url, name="binder"))


@pytest.mark.parametrize("part", ["annotations", "labels"])
async def test_a_pod_written_to_in_flight_is_bound_under_its_new_version(
    api: Api, tmp_path: Path, part: str
) -> None:
    await api.create_nodes(COUNT, pods="1")
    async with (
        Nemesis(target=api.plane.url, token=api.plane.admin_token) as proxy,
        Stack(tmp_path, api.plane.kubeconfig, through(proxy, tmp_path)) as stack,
        Oracle(api, pods=1) as oracle,
    ):
        proxy.mode = Mode.HOLD
        await api.all(api.create_pod(f"p-{i}") for i in range(COUNT))
        await until(lambda: proxy.held == COUNT, timeout_s=30, what="binds on their way")
        change = {"metadata": {part: {"touched": "yes"}}}
        await api.all(api.call("PATCH", f"{PODS}/p-{i}", change, kind=MERGE) for i in range(COUNT))
        proxy.release()
        await until(lambda: len(proxy.late) == COUNT, timeout_s=20, what="binds answered")
        assert set(proxy.late) == {409}

        async def bound() -> bool:
            return await api.bound() == COUNT

        await until(bound, timeout_s=30, what="bound under the new version")
        assert all(pod["metadata"][part]["touched"] == "yes" for pod in await api.pods())
        await stack.settle()
        await oracle.caught_up()
        assert len(oracle.nodes) == COUNT


async def test_a_pod_recreated_in_flight_is_bound_by_its_own_uid(api: Api, tmp_path: Path) -> None:
    # The new pods fit only the large node: a bind meant for the old ones would be plain to see.
    await api.create_nodes(COUNT, pods="1", cpu="1")
    async with (
        Nemesis(target=api.plane.url, token=api.plane.admin_token) as proxy,
        Stack(tmp_path, api.plane.kubeconfig, through(proxy, tmp_path)) as stack,
        Oracle(api, pods=COUNT) as oracle,
    ):
        proxy.mode = Mode.HOLD
        await api.all(api.create_pod(f"p-{i}", cpu="500m") for i in range(COUNT))
        await until(lambda: proxy.held == COUNT, timeout_s=30, what="binds on their way")
        old = {pod["metadata"]["uid"] for pod in await api.pods()}
        proxy.hold_no_more()
        await api.create_node("large", cpu="16")
        await api.all(api.delete_pod(f"p-{i}") for i in range(COUNT))
        await api.all(api.create_pod(f"p-{i}", cpu="2") for i in range(COUNT))

        async def bound() -> bool:
            return await api.bound() == COUNT

        await until(bound, timeout_s=30, what="the new pods bound")
        proxy.release()
        await until(lambda: len(proxy.late) == COUNT, timeout_s=20, what="late binds answered")
        assert all(status >= 400 for status in proxy.late), proxy.late
        pods = await api.pods()
        assert {node_of(pod) for pod in pods} == {"large"}
        await oracle.caught_up()
        assert oracle.nodes.keys() == {pod["metadata"]["uid"] for pod in pods}
        assert not oracle.nodes.keys() & old
        await stack.settle()


async def test_a_late_bind_before_the_new_pod_is_decided_misses_it_too(
    api: Api, tmp_path: Path
) -> None:
    """The recreated pod is still pending when the old pod's bind arrives."""
    await api.create_nodes(COUNT, pods="1")
    async with (
        Nemesis(target=api.plane.url, token=api.plane.admin_token) as proxy,
        Stack(tmp_path, api.plane.kubeconfig, through(proxy, tmp_path)) as stack,
        Oracle(api, pods=1) as oracle,
    ):
        proxy.mode = Mode.HOLD
        await api.all(api.create_pod(f"p-{i}") for i in range(COUNT))
        await until(lambda: proxy.held == COUNT, timeout_s=30, what="binds on their way")
        await api.all(api.delete_pod(f"p-{i}") for i in range(COUNT))
        gates = {"schedulingGates": [{"name": "example.com/wait"}]}
        await api.all(api.create_pod(f"p-{i}", **gates) for i in range(COUNT))
        proxy.release()
        await until(lambda: len(proxy.late) == COUNT, timeout_s=20, what="late binds answered")
        assert await api.bound() == 0
        open_gates = {"spec": {"schedulingGates": []}}
        await api.all(
            api.call("PATCH", f"{PODS}/p-{i}", open_gates, kind=MERGE) for i in range(COUNT)
        )

        async def bound() -> bool:
            return await api.bound() == COUNT

        await until(bound, timeout_s=30, what="bound once their gates are gone")
        await stack.settle()
        await oracle.caught_up()
        assert len(oracle.nodes) == COUNT
