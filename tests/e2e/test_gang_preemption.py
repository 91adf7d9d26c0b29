"""Gangs that preempt and gangs that are preempted, on a real kube-apiserver."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.api import Api, node_of, scheduled_condition
from tests.e2e.nemesis import Mode, Nemesis
from tests.e2e.stack import Stack, StackSettings, plain_kubeconfig, until
from tests.e2e.test_gangs import GROUPS, WORKLOADS, bound
from tests.e2e.test_preemption import CLASSES
from tests.kube_env.control_plane import ControlPlane

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(240)]


@pytest.fixture
async def cluster(new_control_plane: Callable[..., ControlPlane]) -> AsyncIterator[Api]:
    """An API server that serves groups, and two priorities."""
    async with Api(new_control_plane(apiserver_flags=WORKLOADS)) as api:
        await classes(api)
        yield api


async def classes(api: Api) -> None:
    for name, value in ("low", 1), ("high", 1000):
        await api.call("POST", CLASSES, {"metadata": {"name": name}, "value": value})


async def create_group(
    api: Api, name: str, minimum: int, *, priority: str, whole: bool = False
) -> None:
    spec: dict[str, Any] = {
        "schedulingPolicy": {"gang": {"minCount": minimum}},
        "priorityClassName": priority,
    }
    if whole:
        spec["disruptionMode"] = {"all": {}}
    await api.call("POST", GROUPS, {"metadata": {"name": name}, "spec": spec})


async def create_gang(
    api: Api,
    name: str,
    count: int,
    *,
    cpu: str,
    priority: str,
    whole: bool = False,
    grace_s: int = 0,
) -> None:
    await create_group(api, name, count, priority=priority, whole=whole)
    await api.all(
        api.create_pod(
            f"{name}-{i}", cpu=cpu, priorityClassName=priority,
            schedulingGroup={"podGroupName": name}, terminationGracePeriodSeconds=grace_s,
        )
        for i in range(count)
    )  # fmt: skip


async def runs(api: Api, name: str, count: int, *, timeout_s: float = 60) -> None:
    async def all_bound() -> bool:
        return await bound(api, name) == count

    await until(all_bound, timeout_s=timeout_s, what=f"{count} of {name} run")


async def names(api: Api) -> set[str]:
    return {pod["metadata"]["name"] for pod in await api.pods()}


async def single(api: Api, name: str, *, cpu: str, priority: str = "low", node: str = "") -> None:
    placed = {"nodeName": node} if node else {}
    await api.create_pod(
        name, cpu=cpu, priorityClassName=priority, terminationGracePeriodSeconds=0, **placed
    )


async def test_a_gang_takes_the_room_of_another_that_goes_as_a_whole(
    cluster: Api, tmp_path: Path
) -> None:
    """Although two of its three members would have been enough."""
    await cluster.create_nodes(3, cpu="2")
    async with Stack(tmp_path, cluster.plane.kubeconfig) as stack:
        await create_gang(cluster, "old", 3, cpu="2", priority="low", whole=True)
        await runs(cluster, "old", 3)
        await create_gang(cluster, "new", 2, cpu="2", priority="high")
        await runs(cluster, "new", 2)
        assert await names(cluster) == {"new-0", "new-1"}

        async def told() -> bool:
            return len(await cluster.events("Preempted")) == 3

        await until(told, timeout_s=20, what="events about all victims")
        uid = (await cluster.call("GET", f"{GROUPS}/new"))["metadata"]["uid"]
        notes = set((await cluster.events("Preempted")).values())
        assert notes == {f"Preempted by podgroup {uid} on node cluster"}
        assert await cluster.overcommitted() == []
        await stack.settle()


async def test_nobody_is_evicted_for_a_gang_that_would_not_fit_then_either(
    cluster: Api, tmp_path: Path
) -> None:
    await cluster.create_nodes(2, cpu="2")
    async with Stack(tmp_path, cluster.plane.kubeconfig) as stack:
        await create_gang(cluster, "old", 2, cpu="2", priority="low", whole=True)
        await runs(cluster, "old", 2)
        await create_gang(cluster, "new", 3, cpu="2", priority="high")

        async def told() -> bool:
            group = await cluster.call("GET", f"{GROUPS}/new")
            texts = [c["message"] for c in group.get("status", {}).get("conditions", [])]
            return any("pod group preemption: minCount (3) cannot be" in text for text in texts)

        await until(told, timeout_s=40, what="the group is told that preemption does not help")
        assert await bound(cluster, "old") == 2
        assert not any(p["status"].get("nominatedNodeName") for p in await cluster.pods())
        assert await cluster.events("Preempted") == {}
        await stack.settle()


@pytest.mark.parametrize("whole", [True, False])
async def test_a_small_pod_takes_a_single_victim_rather_than_a_member_of_a_gang(
    cluster: Api, tmp_path: Path, whole: bool
) -> None:
    await cluster.create_nodes(3, cpu="2")
    async with Stack(tmp_path, cluster.plane.kubeconfig) as stack:
        for half in range(2):
            await single(cluster, f"single-{half}", cpu="1", node="n-0")
        await create_gang(cluster, "old", 2, cpu="2", priority="low", whole=whole)
        await runs(cluster, "old", 2)
        await single(cluster, "small", cpu="2", priority="high")

        async def placed() -> bool:
            return bool(node_of(await cluster.pod("small")))

        await until(placed, timeout_s=60, what="the small pod runs")
        assert await names(cluster) == {"small", "old-0", "old-1"}
        await stack.settle()


async def test_a_binder_that_dies_between_nomination_and_eviction_leaves_no_mark_on_a_gang(
    cluster: Api, tmp_path: Path
) -> None:
    await cluster.create_nodes(2, cpu="2")
    async with Nemesis(
        target=cluster.plane.url, token=cluster.plane.admin_token, subresource="eviction"
    ) as proxy:
        way = plain_kubeconfig(tmp_path, url=proxy.url, name="binder")
        settings = StackSettings(binder_kubeconfig=way)
        async with Stack(tmp_path, cluster.plane.kubeconfig, settings) as stack:
            await create_gang(cluster, "old", 2, cpu="2", priority="low", whole=True)
            await runs(cluster, "old", 2)
            proxy.mode = Mode.HOLD
            await create_gang(cluster, "new", 2, cpu="2", priority="high")
            await until(lambda: proxy.held == 2, timeout_s=60, what="evictions on their way")
            nominated = {
                pod["metadata"]["name"]: pod["status"].get("nominatedNodeName")
                for pod in await cluster.pods()
            }
            assert {nominated["new-0"], nominated["new-1"]} == {"n-0", "n-1"}
            proxy.hold_no_more()
            await stack.kill("binder")
            for name in ("old-0", "old-1"):
                pod = await cluster.pod(name)
                types = {c["type"] for c in pod["status"].get("conditions", [])}
                assert "deletionTimestamp" not in pod["metadata"]
                assert "DisruptionTarget" not in types
            await runs(cluster, "new", 2, timeout_s=90)
            assert await names(cluster) == {"new-0", "new-1"}
            proxy.release()
            await until(lambda: len(proxy.late) == 2, timeout_s=20, what="the late evictions")
            assert proxy.late == [404, 404]
            await stack.settle()


# ------------------------------------------------------------------- beside kube-scheduler itself

MINIMUM = re.compile(r"minCount \(2\) cannot be satisfied: . scheduled, . remaining")
"""Which member finds no room first is for the order in which they are looked at to say."""


async def create_rivals(api: Api) -> None:
    """Two low pods that stay for a while when they are asked to go, and a gang that needs both
    places; another gang that nothing can help."""
    await api.create_nodes(2, cpu="2")
    for node in range(2):
        await api.create_pod(f"low-{node}", cpu="2", priorityClassName="low", nodeName=f"n-{node}")
    await create_gang(api, "new", 2, cpu="2", priority="high")
    await create_gang(api, "huge", 2, cpu="4", priority="high")


async def outcome(api: Api) -> dict[str, Any]:
    """What became of everybody, once it stays so."""

    async def settled() -> bool:
        leaving = [p for p in await api.pods() if "deletionTimestamp" in p["metadata"]]
        texts = await told(api)
        return len(leaving) == 2 and texts.keys() == {"new", "huge"}

    await until(settled, timeout_s=60, what="victims on their way, and the gang told so")
    pods = {pod["metadata"]["name"]: pod for pod in await api.pods()}
    return {
        "told": await told(api),
        "leaving": sorted(n for n, pod in pods.items() if "deletionTimestamp" in pod["metadata"]),
        "nodes": sorted(pods[f"new-{i}"]["status"].get("nominatedNodeName", "") for i in range(2)),
        "reasons": {
            (c["reason"], c["message"])
            for name in ("low-0", "low-1")
            for c in pods[name]["status"]["conditions"]
            if c["type"] == "DisruptionTarget"
        },
    }


async def told(api: Api) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in ("new", "huge"):
        group = await api.call("GET", f"{GROUPS}/{name}")
        texts = [c["message"] for c in group.get("status", {}).get("conditions", [])]
        if texts:
            found[name] = sorted(MINIMUM.sub("minCount", text) for text in texts)
    return found


async def test_victims_nominations_and_conditions_are_those_of_kube_scheduler(
    new_control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    async with Api(new_control_plane(apiserver_flags=WORKLOADS)) as api:
        await classes(api)
        gate = "--feature-gates=GenericWorkload=true"
        api.plane.start_scheduler({"profiles": [{"schedulerName": "stretto"}]}, gate)
        await create_rivals(api)
        expected = await outcome(api)
        api.plane.stop()
    assert expected["leaving"] == ["low-0", "low-1"]
    async with Api(new_control_plane(apiserver_flags=WORKLOADS)) as api:
        await classes(api)
        settings = StackSettings(at_rest=False)
        async with Stack(tmp_path, api.plane.kubeconfig, settings):
            await create_rivals(api)
            assert await outcome(api) == expected
            assert not any(
                node_of(pod) for pod in await api.pods() if pod["metadata"]["name"][0] == "n"
            )
            assert scheduled_condition(await api.pod("new-0"))["reason"] == "Unschedulable"
