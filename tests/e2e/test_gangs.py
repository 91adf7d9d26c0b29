"""Gangs on a real kube-apiserver: upstream's PodGroup and the scheduler-plugins' one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from dispatcher.group_hindrance import QUORUM
from stretto.model.groups import GROUP_LABEL
from tests.e2e.api import MERGE, PODS, Api, node_of, pod_manifest, scheduled_condition
from tests.e2e.stack import Stack, StackSettings, until
from tests.kube_env.control_plane import ControlPlane

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(180)]

WORKLOADS = (
    "--runtime-config=scheduling.k8s.io/v1beta1=true",
    "--feature-gates=GenericWorkload=true",
)
GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
LEGACY = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "podgroups.scheduling.x-k8s.io",
        "annotations": {"api-approved.kubernetes.io": "https://example.invalid/for-a-test"},
    },
    "spec": {
        "group": "scheduling.x-k8s.io",
        "scope": "Namespaced",
        "names": {"plural": "podgroups", "singular": "podgroup", "kind": "PodGroup"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {"minMember": {"type": "integer"}},
                            }
                        },
                    }
                },
            }
        ],
    },
}


@pytest.fixture
async def cluster(new_control_plane: Callable[..., ControlPlane]) -> AsyncIterator[Api]:
    """An API server that serves upstream's groups, and the scheduler-plugins' definition."""
    async with Api(new_control_plane(apiserver_flags=WORKLOADS)) as api:
        await api.call("POST", CRDS, CRD)
        yield api


async def create_group(api: Api, name: str, minimum: int) -> None:
    spec = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    await api.call("POST", GROUPS, {"metadata": {"name": name}, "spec": spec})


async def create_members(api: Api, group: str, count: int, **options: Any) -> None:
    link = {"schedulingGroup": {"podGroupName": group}}
    await api.all(api.create_pod(f"{group}-{i}", **link, **options) for i in range(count))


async def bound(api: Api, group: str) -> int:
    pods = await api.pods()
    return sum(bool(node_of(p)) for p in pods if p["metadata"]["name"].startswith(f"{group}-"))


async def test_a_gang_runs_whole_or_not_at_all_and_starts_when_there_is_room(
    cluster: Api, tmp_path: Path
) -> None:
    await cluster.create_nodes(2, cpu="4")
    async with Stack(tmp_path, cluster.plane.kubeconfig) as stack:
        await create_group(cluster, "fits", 3)
        await create_members(cluster, "fits", 3, cpu="2")

        async def runs() -> bool:
            return await bound(cluster, "fits") == 3

        await until(runs, timeout_s=30, what="a gang that fits runs")
        await create_group(cluster, "large", 3)
        await create_members(cluster, "large", 2, cpu="2")

        async def quorum_told() -> bool:
            condition = scheduled_condition(await cluster.pod("large-0"))
            return condition.get("message") == QUORUM

        await until(quorum_told, timeout_s=30, what="the members are told that one is missing")
        await cluster.create_pod("large-2", cpu="2", schedulingGroup={"podGroupName": "large"})

        async def told() -> bool:
            texts = [
                scheduled_condition(await cluster.pod(f"large-{i}")).get("message", "")
                for i in range(3)
            ]
            lead = [text for text in texts if text.startswith("0/2 nodes are available")]
            return (
                len(lead) == 1
                and sum("minCount (3) cannot be satisfied" in text for text in texts) == 2
            )

        await until(told, timeout_s=30, what="every member is told why the gang waits")
        assert await bound(cluster, "large") == 0
        await cluster.create_node("n-more", cpu="4")

        async def grown() -> bool:
            return await bound(cluster, "large") == 3

        await until(grown, timeout_s=30, what="the gang runs with the new node")
        await stack.settle()


async def test_nobody_is_placed_for_a_group_that_is_deleted_while_its_gang_waits(
    cluster: Api, tmp_path: Path
) -> None:
    await cluster.create_nodes(1, cpu="4")
    async with Stack(tmp_path, cluster.plane.kubeconfig) as stack:
        await create_group(cluster, "g", 3)
        await create_members(cluster, "g", 3, cpu="2")

        async def says(text: str, *, members: int) -> bool:
            pods = [await cluster.pod(f"g-{i}") for i in range(3)]
            return sum(text in scheduled_condition(p).get("message", "") for p in pods) == members

        short = "minCount (3)"
        await until(lambda: says(short, members=2), timeout_s=30, what="the gang does not fit")
        await cluster.call("DELETE", f"{GROUPS}/g")
        # The API server keeps a group that pods name, until its controller lets go of it.
        bare = {"metadata": {"finalizers": None}}
        await cluster.call("PATCH", f"{GROUPS}/g", bare, kind=MERGE)
        gone = 'pod group "g" to appear'
        await until(lambda: says(gone, members=3), timeout_s=30, what="the members are told")
        await cluster.create_node("n-more", cpu="4")
        await cluster.create_pod(
            "single", cpu="1", nodeSelector={"kubernetes.io/hostname": "n-more"}
        )

        async def single() -> bool:
            return bool(node_of(await cluster.pod("single")))

        await until(single, timeout_s=30, what="the new node is known, and others go on")
        assert await bound(cluster, "g") == 0
        await cluster.delete_pod("single")
        await create_group(cluster, "g", 3)

        async def runs() -> bool:
            return await bound(cluster, "g") == 3

        await until(runs, timeout_s=30, what="the gang runs when its group is back")
        await stack.settle()


async def test_of_four_gangs_on_one_gangs_room_one_runs(cluster: Api, tmp_path: Path) -> None:
    """The deadlock of two halves: never none, never parts."""
    await cluster.create_nodes(2, cpu="4")
    settings = StackSettings(shards=4)
    async with Stack(tmp_path, cluster.plane.kubeconfig, settings) as stack:
        for round_ in range(3):
            names = [f"g{round_}{i}" for i in range(4)]
            for name in names:
                await create_group(cluster, name, 8)
            await cluster.all(create_members(cluster, name, 8, cpu="1") for name in names)

            async def one_runs(names: list[str] = names) -> bool:
                return sorted([await bound(cluster, name) for name in names]) == [0, 0, 0, 8]

            await until(one_runs, timeout_s=30, what=f"one gang of round {round_} runs")
            await stack.settle()
            await cluster.call("DELETE", PODS, {"gracePeriodSeconds": 0})


async def test_groups_of_the_scheduler_plugins_by_label(cluster: Api, tmp_path: Path) -> None:
    await cluster.create_nodes(1, cpu="4")
    async with Stack(tmp_path, cluster.plane.kubeconfig) as stack:
        body = {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": "old"},
            "spec": {"minMember": 2},
        }
        manifests = [pod_manifest(f"old-{i}", cpu="1") for i in range(2)]
        for manifest in manifests:
            manifest["metadata"]["labels"] = {GROUP_LABEL: "old"}
        await cluster.call("POST", PODS, manifests[0])

        async def waits() -> bool:
            condition = scheduled_condition(await cluster.pod("old-0"))
            return 'pod group "old" to appear' in condition.get("message", "")

        await until(waits, timeout_s=45, what="a pod waits for its group")
        await cluster.call("POST", LEGACY, body)
        await cluster.call("POST", PODS, manifests[1])

        async def both() -> bool:
            return await bound(cluster, "old") == 2

        await until(both, timeout_s=30, what="both members run")
        await stack.settle()
