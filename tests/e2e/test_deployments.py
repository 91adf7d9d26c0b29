"""Deployments of kube-controller-manager: spread over zones by default and by constraint, through a
rollout; one pod to a host."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.api import AT_ONCE, MERGE, PODS, Api, node_of, pod_manifest
from tests.e2e.stack import Stack, StackSettings, until
from tests.e2e.waits import and_seen
from tests.kube_env.control_plane import ControlPlane

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(240)]

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
ZONES = "aaaabbcc"
"""One node a letter."""


@pytest.fixture(scope="module")
def plane(kube_binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that runs Deployments."""
    with ControlPlane(tmp_path_factory.mktemp("deployments"), kube_binaries) as plane:
        plane.start_controller_manager("deployment-controller", "replicaset-controller")
        yield plane


@pytest.fixture
async def api(plane: ControlPlane) -> AsyncIterator[Api]:
    """Access to a cluster with nodes in three zones."""
    async with Api(plane) as made:
        await made.clear()
        await made.all(
            made.create_node(f"n-{number}", labels={ZONE: zone})
            for number, zone in enumerate(ZONES)
        )
        yield made
        await made.clear()


def deployment(name: str, *, replicas: int, **spec: Any) -> dict[str, Any]:
    """A Deployment of small pods for Stretto."""
    template = pod_manifest(name, labels={"app": name}, **spec)
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": template["spec"]},
        },
    }


async def bound(api: Api, *, generation: str, count: int) -> list[dict[str, Any]]:
    """Wait for so many pods on nodes whose container says this."""
    found: list[dict[str, Any]] = []

    async def there() -> bool:
        pods = [p for p in await api.pods() if "deletionTimestamp" not in p["metadata"]]
        found[:] = [
            p
            for p in pods
            if node_of(p) and p["spec"]["containers"][0].get("image", "").endswith(generation)
        ]
        return len(found) >= count

    await until(there, timeout_s=90, what=f"{count} pods of {generation} bound")
    return found


def zones_of(pods: list[dict[str, Any]]) -> Counter[str]:
    return Counter(ZONES[int(node_of(pod)[2:])] for pod in pods)


async def remove(api: Api, name: str) -> None:
    """The Deployment, its ReplicaSets and its pods (no garbage collector runs)."""
    await api.call("DELETE", f"{DEPLOYMENTS}/{name}")
    await api.call("DELETE", "/apis/apps/v1/namespaces/default/replicasets")
    await api.call("DELETE", PODS, AT_ONCE)


async def test_a_rollout_stays_within_the_skew_of_its_own_pods(api: Api, tmp_path: Path) -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "matchLabelKeys": ["pod-template-hash"],
    }
    web = deployment("web", replicas=9, topologySpreadConstraints=[constraint])
    async with Stack(tmp_path, api.plane.kubeconfig) as stack:
        await api.call("POST", DEPLOYMENTS, web)
        assert set(zones_of(await bound(api, generation="app:1", count=9)).values()) == {3}
        # No kubelet makes pods ready, so the rollout is told not to wait for that.
        web["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example/app:2"
        rollout = {"rollingUpdate": {"maxSurge": "100%", "maxUnavailable": "100%"}}
        patch = {"spec": {"strategy": rollout, "template": web["spec"]["template"]}}
        await api.call("PATCH", f"{DEPLOYMENTS}/web", patch, kind=MERGE)
        new = zones_of(await bound(api, generation="app:2", count=9))
        assert max(new.values()) - min(new.values()) <= 1, new
        await remove(api, "web")
        await stack.settle()


async def test_a_deployment_without_constraints_is_spread_by_its_replica_set(
    api: Api, tmp_path: Path
) -> None:
    # One shard: several that place at the same time each spread what they see, and a soft rule
    # promises nothing of the sum. It knows the ReplicaSet before the first pod comes.
    async with Stack(tmp_path, api.plane.kubeconfig, StackSettings(shards=1)) as stack:
        empty = api.call("POST", DEPLOYMENTS, deployment("plain", replicas=0))
        await and_seen(stack, empty, what="a ReplicaSet")
        patch = {"spec": {"replicas": 12}}
        await api.call("PATCH", f"{DEPLOYMENTS}/plain", patch, kind=MERGE)
        zones = zones_of(await bound(api, generation="app:1", count=12))
        # By room alone half of them would be in zone a, which has half of the nodes.
        assert zones["a"] <= 5, zones
        await remove(api, "plain")


async def test_a_deployment_that_keeps_apart_has_one_pod_to_a_host(
    api: Api, tmp_path: Path
) -> None:
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "db"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    async with Stack(tmp_path, api.plane.kubeconfig) as stack:
        await api.call("POST", DEPLOYMENTS, deployment("db", replicas=len(ZONES), affinity=apart))
        pods = await bound(api, generation="app:1", count=len(ZONES))
        assert len({node_of(pod) for pod in pods}) == len(ZONES)
        await remove(api, "db")
        await stack.settle()
