"""Claims to devices on a real kube-apiserver with kube-controller-manager's claim controller; the
drivers' slices are written by the tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.api import MERGE, Api, node_of, pod_manifest, scheduled_condition
from tests.e2e.stack import Stack, StackSettings, until
from tests.e2e.waits import told
from tests.kube_env.control_plane import ControlPlane

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(150)]
API = "/apis/resource.k8s.io/v1"
CLAIMS = f"{API}/namespaces/default/resourceclaims"
TEMPLATES = f"{API}/namespaces/default/resourceclaimtemplates"
SLICES = f"{API}/resourceslices"
CLASSES = f"{API}/deviceclasses"
DRIVER = "gpu.example.com"


@pytest.fixture(scope="module")
def managed(kube_binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A control plane with the controller that makes claims from templates and frees them."""
    with ControlPlane(tmp_path_factory.mktemp("devices"), kube_binaries) as plane:
        plane.start_controller_manager("resourceclaim-controller")
        yield plane


@pytest.fixture
async def api(managed: ControlPlane) -> AsyncIterator[Api]:
    """An empty cluster with the class ``gpu``."""
    async with Api(managed) as made:
        await cleared(made)
        await made.call("POST", CLASSES, device_class("gpu"))
        yield made
        await cleared(made)


async def cleared(api: Api) -> None:
    await api.clear()
    for path in (CLAIMS, TEMPLATES, SLICES, CLASSES):
        for item in (await api.call("GET", path))["items"]:
            own = f"{path}/{item['metadata']['name']}"
            if item["metadata"].get("finalizers"):
                await api.answer("PATCH", own, {"metadata": {"finalizers": None}}, kind=MERGE)
            await api.answer("DELETE", own)


def device_class(name: str, **spec: Any) -> dict[str, Any]:
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    return {
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name},
        "spec": {"selectors": selectors, **spec},
    }  # fmt: skip


def slice_of(node: str, devices: int) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-gpus"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {"name": f"gpu-{i}", "attributes": {"model": {"string": "h100"}}}
                for i in range(devices)
            ],
        },
    }


def claim_spec(count: int = 1, selector: str = "") -> dict[str, Any]:
    exactly: dict[str, Any] = {"deviceClassName": "gpu", "count": count}
    if selector:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    return {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}


def claim(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
        "spec": claim_spec(**spec),
    }  # fmt: skip


def using(**source: str) -> dict[str, Any]:
    return {"resourceClaims": [{"name": "gpu", **source}]}


def devices_of(found: dict[str, Any]) -> list[str]:
    allocation = found.get("status", {}).get("allocation") or {}
    return [f"{r['pool']}/{r['device']}" for r in allocation.get("devices", {}).get("results", [])]


async def bound(api: Api, count: int) -> dict[str, str]:
    """Wait until so many pods are bound: name → node."""

    async def enough() -> bool:
        return await api.bound() >= count

    await until(enough, timeout_s=60, what=f"{count} pods bound")
    return {p["metadata"]["name"]: node_of(p) for p in await api.pods()}


async def test_pods_of_a_template_get_devices_of_their_own_where_there_are_any(
    api: Api, tmp_path: Path
) -> None:
    await api.create_nodes(3)
    for node in ("n-0", "n-1"):
        await api.call("POST", SLICES, slice_of(node, 2))
    template = {"metadata": {"name": "one-gpu"}, "spec": {"spec": claim_spec()}}
    await api.call("POST", TEMPLATES, template)
    async with Stack(tmp_path, api.plane.kubeconfig) as stack:
        for i in range(5):
            await api.create_pod(f"p{i}", **using(resourceClaimTemplateName="one-gpu"))
        nodes = await bound(api, 4)
        waiting = next(name for name, node in nodes.items() if not node)
        await told(api, waiting, "0/3 nodes are available: 3 cannot allocate all claims.")
        claims = (await api.call("GET", CLAIMS))["items"]
        held = [device for each in claims for device in devices_of(each)]
        assert sorted(held) == ["n-0/gpu-0", "n-0/gpu-1", "n-1/gpu-0", "n-1/gpu-1"]
        for each in claims:
            (result, *_) = devices_of(each) or [""]
            if not result:
                continue
            (user,) = each["status"]["reservedFor"]
            assert nodes[user["name"]] == result.partition("/")[0]
            assert "resource.kubernetes.io/delete-protection" in each["metadata"]["finalizers"]
        gone = next(name for name, node in nodes.items() if node)
        await api.delete_pod(gone)
        await bound(api, 4)
        assert node_of(await api.pod(waiting)) == nodes[gone]
        await stack.settle()


async def test_two_pods_share_a_claim_and_both_run_on_its_node(api: Api, tmp_path: Path) -> None:
    await api.create_nodes(3)
    await api.call("POST", SLICES, slice_of("n-1", 2))
    async with Stack(tmp_path, api.plane.kubeconfig) as stack:
        for name in ("a", "b"):
            await api.create_pod(name, **using(resourceClaimName="shared"))
        await told(api, "a", 'could not find ResourceClaim "default/shared"')
        await api.call("POST", CLAIMS, claim("shared"))
        assert await bound(api, 2) == {"a": "n-1", "b": "n-1"}
        found = await api.call("GET", f"{CLAIMS}/shared")
        assert sorted(user["name"] for user in found["status"]["reservedFor"]) == ["a", "b"]
        assert devices_of(found) == ["n-1/gpu-0"]
        await stack.settle()


async def test_devices_where_a_pod_cannot_go_any_more_are_given_up_for_others(
    api: Api, tmp_path: Path
) -> None:
    """As a scheduler that died between its two writes leaves it."""
    await api.create_nodes(2)
    for node in ("n-0", "n-1"):
        await api.call("POST", SLICES, slice_of(node, 1))
    await api.call("POST", CLAIMS, claim("c"))
    pod = await api.create_pod("p", **using(resourceClaimName="c"))
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n-0"]}]}]
    result = {"request": "gpus", "driver": DRIVER, "pool": "n-0", "device": "gpu-0"}
    allocation = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": terms}}
    user = {"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}
    status = {"status": {"allocation": allocation, "reservedFor": [user]}}
    await api.call("PATCH", f"{CLAIMS}/c/status", status, kind=MERGE)
    cordon = {"spec": {"unschedulable": True}}
    await api.call("PATCH", "/api/v1/nodes/n-0", cordon, kind=MERGE)
    async with Stack(tmp_path, api.plane.kubeconfig) as stack:
        assert await bound(api, 1) == {"p": "n-1"}
        assert devices_of(await api.call("GET", f"{CLAIMS}/c")) == ["n-1/gpu-0"]
        await stack.settle()


async def test_four_shards_race_for_the_last_device(api: Api, tmp_path: Path) -> None:
    await api.create_nodes(4)
    for i in range(4):
        await api.call("POST", SLICES, slice_of(f"n-{i}", 1))
    async with Stack(tmp_path, api.plane.kubeconfig, StackSettings(shards=4)) as stack:
        await api.all(api.call("POST", CLAIMS, claim(f"c{i}")) for i in range(8))
        await api.all(api.create_pod(f"p{i}", **using(resourceClaimName=f"c{i}")) for i in range(8))
        await bound(api, 4)
        await asyncio.sleep(2)
        claims = (await api.call("GET", CLAIMS))["items"]
        held = [device for each in claims for device in devices_of(each)]
        assert sorted(held) == [f"n-{i}/gpu-0" for i in range(4)]
        assert await api.bound() == 4
        await stack.settle()


async def test_an_extended_resource_is_met_by_devices_of_its_class(
    api: Api, tmp_path: Path
) -> None:
    await api.create_nodes(2)
    await api.call("DELETE", f"{CLASSES}/gpu")
    backed = device_class("gpu", extendedResourceName="example.com/gpu")
    await api.call("POST", CLASSES, backed)
    await api.call("POST", SLICES, slice_of("n-1", 2))
    wants = {"cpu": "100m", "example.com/gpu": "2"}
    body = pod_manifest("p")
    body["spec"]["containers"][0]["resources"] = {"requests": wants, "limits": wants}
    async with Stack(tmp_path, api.plane.kubeconfig) as stack:
        await api.call("POST", "/api/v1/namespaces/default/pods", body)
        assert await bound(api, 1) == {"p": "n-1"}
        (found,) = (await api.call("GET", CLAIMS))["items"]
        assert devices_of(found) == ["n-1/gpu-0", "n-1/gpu-1"]
        status = (await api.pod("p"))["status"]["extendedResourceClaimStatus"]
        assert status == {
            "resourceClaimName": found["metadata"]["name"],
            "requestMappings": [
                {
                    "containerName": "c",
                    "resourceName": "example.com/gpu",
                    "requestName": "container-0-request-1",
                }
            ],
        }
        await stack.settle()


async def test_a_claim_for_extended_resources_that_was_left_behind_is_in_nobodys_way(
    api: Api, tmp_path: Path
) -> None:
    """As a scheduler leaves it that died between the claim and the bind."""
    await api.create_nodes(1)
    await api.call("DELETE", f"{CLASSES}/gpu")
    await api.call("POST", CLASSES, device_class("gpu", extendedResourceName="example.com/gpu"))
    await api.call("POST", SLICES, slice_of("n-0", 1))
    body = pod_manifest("p")
    wants = {"example.com/gpu": "1"}
    body["spec"]["containers"][0]["resources"] = {"requests": wants, "limits": wants}
    pod = await api.call("POST", "/api/v1/namespaces/default/pods", body)
    uid = pod["metadata"]["uid"]
    left = claim("left")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}
    left["metadata"] |= {
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [owner],
        "finalizers": ["resource.kubernetes.io/delete-protection"],
    }
    await api.call("POST", CLAIMS, left)
    result = {"request": "gpus", "driver": DRIVER, "pool": "n-0", "device": "gpu-0"}
    user = {"resource": "pods", "name": "p", "uid": uid}
    status = {"status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]}}
    await api.call("PATCH", f"{CLAIMS}/left/status", status, kind=MERGE)
    async with Stack(tmp_path, api.plane.kubeconfig) as stack:
        assert await bound(api, 1) == {"p": "n-0"}
        (found,) = (await api.call("GET", CLAIMS))["items"]
        assert found["metadata"]["name"] != "left"
        assert devices_of(found) == ["n-0/gpu-0"]
        await stack.settle()


async def test_what_is_wrong_with_a_claim_is_said_and_other_pods_go_on(
    api: Api, tmp_path: Path
) -> None:
    await api.create_nodes(1)
    await api.call("POST", SLICES, slice_of("n-0", 1))
    wrong = claim("wrong", selector=f'device.attributes["{DRIVER}"].missing == 1')
    await api.call("POST", CLAIMS, wrong)
    lost = claim("lost")
    lost["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "nothing"
    await api.call("POST", CLAIMS, lost)
    async with Stack(tmp_path, api.plane.kubeconfig, StackSettings(at_rest=False)):
        await api.create_pod("wrong", **using(resourceClaimName="wrong"))
        await api.create_pod("lost", **using(resourceClaimName="lost"))
        await api.create_pod("plain")
        await told(api, "lost", "request gpus: device class nothing does not exist")
        await told(api, "wrong", "CEL runtime error: no such key: missing")
        assert scheduled_condition(await api.pod("wrong"))["reason"] == "SchedulerError"
        assert (await bound(api, 1))["plain"] == "n-0"
