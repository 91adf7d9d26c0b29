"""Topology spread and inter-pod affinity on a real control plane, through all roles."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.api import MERGE, PODS, Api, node_of, scheduled_condition
from tests.e2e.stack import Stack, until
from tests.e2e.waits import and_seen

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(180)]

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


async def zoned_nodes(api: Api, zones: str) -> dict[str, str]:
    """One node a letter, in the zone that it names; zones by node."""
    await api.all(
        api.create_node(f"n-{number}", labels={ZONE: zone}) for number, zone in enumerate(zones)
    )
    return {f"n-{number}": zone for number, zone in enumerate(zones)}


def selecting(**labels: str) -> dict[str, Any]:
    return {"matchLabels": labels}


async def all_bound(api: Api, count: int) -> list[str]:
    """Wait until as many pods sit on nodes; their nodes."""

    async def there() -> bool:
        return await api.bound() >= count

    await until(there, timeout_s=60, what=f"{count} pods bound")
    return [node_of(pod) for pod in await api.pods() if node_of(pod)]


async def condition_of(api: Api, name: str, words: str) -> str:
    """Wait until a pod's condition has these words; its message."""

    async def told() -> bool:
        return words in scheduled_condition(await api.pod(name)).get("message", "")

    await until(told, timeout_s=60, what=f"{name} is told: {words}")
    return scheduled_condition(await api.pod(name))["message"]


async def test_a_deployments_pods_are_spread_over_zones(api: Api, tmp_path: Path) -> None:
    zone_of = await zoned_nodes(api, "aaaabc")
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selecting(app="web"),
        "matchLabelKeys": ["pod-template-hash"],
    }
    async with Stack(tmp_path, api.plane.kubeconfig) as stack:
        for generation in ("old", "new"):
            labels = {"app": "web", "pod-template-hash": generation}
            await api.all(
                api.create_pod(
                    f"web-{generation}-{n}", labels=labels, topologySpreadConstraints=[constraint]
                )
                for n in range(20)
            )
        await all_bound(api, 40)
        for generation in ("old", "new"):
            pods = [p for p in await api.pods() if generation in p["metadata"]["name"]]
            zones = Counter(zone_of[node_of(pod)] for pod in pods)
            assert max(zones.values()) - min(zones.values()) <= 1, zones
            assert len(zones) == 3
        await stack.settle()


async def test_required_anti_affinity_gives_each_pod_a_host_of_its_own(
    api: Api, tmp_path: Path
) -> None:
    await zoned_nodes(api, "abcab")
    term = {"topologyKey": HOST, "labelSelector": selecting(app="db")}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    async with Stack(tmp_path, api.plane.kubeconfig) as stack:
        await api.all(
            api.create_pod(f"db-{n}", labels={"app": "db"}, affinity=apart) for n in range(6)
        )
        nodes = await all_bound(api, 5)
        assert len(set(nodes)) == 5
        waiting = next(p["metadata"]["name"] for p in await api.pods() if not node_of(p))
        message = await condition_of(api, waiting, "anti-affinity")
        assert message.startswith(
            "0/5 nodes are available: 5 node(s) didn't match pod anti-affinity rules."
        )
        # A pod without terms of its own is kept off, too.
        await api.create_pod("guest", labels={"app": "db"})
        message = await condition_of(api, "guest", "anti-affinity")
        assert "5 node(s) didn't satisfy existing pods anti-affinity rules" in message
        await api.delete_pod(next(p["metadata"]["name"] for p in await api.pods() if node_of(p)))
        assert len(set(await all_bound(api, 5))) == 5
        await stack.settle()


async def test_required_affinity_follows_a_pod_that_is_placed_later(
    api: Api, tmp_path: Path
) -> None:
    await zoned_nodes(api, "ab")
    term = {"topologyKey": ZONE, "labelSelector": selecting(role="cache")}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    async with Stack(tmp_path, api.plane.kubeconfig):
        await api.create_pod("front", labels={"app": "front"}, affinity=near)
        await condition_of(api, "front", "2 node(s) didn't match pod affinity rules")
        await api.create_pod(
            "cache", nodeName="n-1", schedulerName="somebody", labels={"role": "cache"}
        )
        await all_bound(api, 2)
        assert node_of(await api.pod("front")) == "n-1"
        # A label that comes late counts as well.
        await api.create_pod("late", affinity={
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": HOST, "labelSelector": selecting(tier="gold")}
                ]
            }
        })  # fmt: skip
        await condition_of(api, "late", "2 node(s) didn't match pod affinity rules")
        patch = {"metadata": {"labels": {"tier": "gold"}}}
        await api.call("PATCH", f"{PODS}/front", patch, kind=MERGE)
        await all_bound(api, 3)
        assert node_of(await api.pod("late")) == "n-1"


async def test_a_pod_that_is_being_deleted_no_longer_counts_for_the_spread(
    api: Api, tmp_path: Path
) -> None:
    zone_of = await zoned_nodes(api, "aabb")
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selecting(app="web"),
    }
    web = {"labels": {"app": "web"}, "topologySpreadConstraints": [constraint]}
    async with Stack(tmp_path, api.plane.kubeconfig) as stack:
        for number in range(6):
            await api.create_pod(f"w-{number}", **web)
        await all_bound(api, 6)
        # Three in each zone; two of one zone begin to leave, and no kubelet lets them go.
        leaving = [p for p in await api.pods() if zone_of[node_of(p)] == "a"][:2]
        for pod in leaving:
            name = pod["metadata"]["name"]
            await and_seen(stack, api.call("DELETE", f"{PODS}/{name}"), what="a deletion")
        await api.all(api.create_pod(f"x-{number}", **web) for number in range(2))
        await all_bound(api, 8)
        new = [p for p in await api.pods() if p["metadata"]["name"].startswith("x-")]
        assert [zone_of[node_of(pod)] for pod in new] == ["a", "a"]


async def test_a_services_pods_are_spread_over_zones_by_default(api: Api, tmp_path: Path) -> None:
    zone_of = await zoned_nodes(api, "aaaaaab")
    service = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    }
    services = "/api/v1/namespaces/default/services"

    async def placed(prefix: str, labels: dict[str, str]) -> Counter[str]:
        """Pods a zone. One after the other: shards that place at the same time each spread what
        they see, and a soft rule promises nothing of the sum."""
        before = await api.bound()
        for number in range(12):
            await api.create_pod(f"{prefix}-{number}", labels=labels)
            await all_bound(api, before + number + 1)
        pods = [pod for pod in await api.pods() if pod["metadata"]["name"].startswith(prefix)]
        return Counter(zone_of[node_of(pod)] for pod in pods)

    async with Stack(tmp_path, api.plane.kubeconfig) as stack:
        alone = await placed("alone", {"app": "other"})
        await and_seen(stack, api.call("POST", services, service), what="a service")
        try:
            served = await placed("served", {"app": "web"})
        finally:
            await api.call("DELETE", f"{services}/web")
    assert alone["b"] <= 2, (served, alone)
    assert served["b"] >= 4, (served, alone)
