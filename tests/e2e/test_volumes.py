"""Claims on a real kube-apiserver with kube-controller-manager; only the provisioner is played."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.api import Api, node_of
from tests.e2e.stack import Stack, until
from tests.e2e.storage import (
    CLAIMS,
    CONTROLLERS,
    DRIVER,
    SELECTED,
    STATEFUL_SETS,
    VOLUMES,
    Provisioner,
    claim_spec,
    create_claim,
    storage_on,
    volume,
    with_claim,
)
from tests.e2e.waits import told
from tests.kube_env.control_plane import ControlPlane

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(150)]


@pytest.fixture(scope="module")
def managed(kube_binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A control plane with the controllers that bind claims and make the pods of stateful sets."""
    with ControlPlane(tmp_path_factory.mktemp("volumes"), kube_binaries) as plane:
        plane.start_controller_manager(*CONTROLLERS)
        yield plane


@pytest.fixture
async def api(managed: ControlPlane) -> AsyncIterator[Api]:
    """An empty cluster with classes ``local`` and ``fast``."""
    async with Api(managed) as made:
        await made.clear()
        async with storage_on(made):
            yield made
        await made.clear()


async def bound_to(api: Api, name: str, *, what: str = "") -> str:
    """Wait until a pod is bound; where."""

    async def bound() -> bool:
        return bool(node_of(await api.pod(name)))

    await until(bound, timeout_s=40, what=what or f"pod {name} bound")
    return node_of(await api.pod(name))


async def test_a_stateful_set_gets_its_claims_provisioned_where_its_pods_run(
    api: Api, tmp_path: Path
) -> None:
    await api.create_nodes(3)
    pod = {"metadata": {"labels": {"app": "db"}}, "spec": {}}
    pod["spec"] = {
        "schedulerName": "stretto",
        "containers": [
            {
                "name": "c", "image": "registry.example/app:1",
                "resources": {"requests": {"cpu": "3"}},
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }
        ],
    }  # fmt: skip
    body = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 3, "serviceName": "db", "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "db"}}, "template": pod,
            "volumeClaimTemplates": [
                {"metadata": {"name": "data"}, "spec": claim_spec(cls="fast")}
            ],
        },
    }  # fmt: skip
    async with Stack(tmp_path, api.plane.kubeconfig) as stack, Provisioner(api) as provisioner:
        await api.call("POST", STATEFUL_SETS, body)

        async def all_there() -> bool:
            return len(await api.pods()) == 3 and await api.bound() == 3

        await until(all_there, timeout_s=60, what="three pods bound")
        nodes = {p["metadata"]["name"]: node_of(p) for p in await api.pods()}
        assert sorted(nodes.values()) == ["n-0", "n-1", "n-2"]
        for name, node in nodes.items():
            claim = await api.call("GET", f"{CLAIMS}/data-{name}")
            assert claim["metadata"]["annotations"][SELECTED] == node
            assert claim["status"]["phase"] == "Bound"
            assert provisioner.made[f"data-{name}"] == node
        await stack.settle()


async def test_local_volumes_take_their_pods_to_their_nodes_and_a_new_one_wakes_who_waits(
    api: Api, tmp_path: Path
) -> None:
    await api.create_nodes(3)
    for number in range(2):
        await api.call("POST", VOLUMES, volume(f"v{number}", node=f"n-{number}"))
    async with Stack(tmp_path, api.plane.kubeconfig) as stack:
        for name in "abc":
            await create_claim(api, f"data-{name}")
            await api.create_pod(name, **with_claim(f"data-{name}"))

        async def two() -> bool:
            return await api.bound() == 2

        await until(two, timeout_s=40, what="two pods bound")
        pods = {p["metadata"]["name"]: node_of(p) for p in await api.pods()}
        assert sorted(pods.values()) == ["", "n-0", "n-1"]
        waiting = next(name for name, node in pods.items() if not node)
        await told(
            api,
            waiting,
            "0/3 nodes are available: 3 node(s) didn't find available persistent volumes to bind.",
        )
        await api.call("POST", VOLUMES, volume("v2", node="n-2"))
        assert await bound_to(api, waiting) == "n-2"
        await stack.settle()


async def test_a_claim_for_one_pod_is_used_by_one_pod_at_a_time(api: Api, tmp_path: Path) -> None:
    await api.create_nodes(2)
    async with Stack(tmp_path, api.plane.kubeconfig) as stack, Provisioner(api):
        await create_claim(api, "one", cls="fast", mode="ReadWriteOncePod")
        await api.create_pod("first", **with_claim("one"))
        await bound_to(api, "first")
        await api.create_pod("second", **with_claim("one"))
        await told(api, "second", "ReadWriteOncePod access mode already in-use by another pod")
        await api.delete_pod("first")
        await bound_to(api, "second")
        await stack.settle()


async def test_a_provisioner_that_gives_up_on_a_node_does_not_strand_the_pod(
    api: Api, tmp_path: Path
) -> None:
    await api.create_nodes(2)
    async with (
        Stack(tmp_path, api.plane.kubeconfig) as stack,
        Provisioner(api, full=("n-0", "n-1")) as provisioner,
    ):
        await create_claim(api, "data", cls="fast")
        await api.create_pod("p", **with_claim("data"))

        async def tried() -> bool:
            return bool(provisioner.gave_up)

        await until(tried, timeout_s=30, what="the provisioner has given up once")
        await told(api, "p", "provisioning on")
        provisioner.full.clear()
        await bound_to(api, "p")
        await stack.settle()


async def test_a_binder_that_is_killed_while_a_claim_waits_is_succeeded_by_one_that_goes_on(
    api: Api, tmp_path: Path
) -> None:
    await api.create_nodes(3)
    async with Stack(tmp_path, api.plane.kubeconfig) as stack, Provisioner(api) as provisioner:
        provisioner.paused = True
        await create_claim(api, "data", cls="fast")
        await api.create_pod("p", **with_claim("data"))
        chosen = ""

        async def selected() -> bool:
            nonlocal chosen
            meta = (await api.call("GET", f"{CLAIMS}/data"))["metadata"]
            chosen = (meta.get("annotations") or {}).get(SELECTED, "")
            return bool(chosen)

        await until(selected, timeout_s=30, what="a node is selected")
        # Written before the annotation, for whoever counts nodes meanwhile.
        assert (await api.pod("p"))["status"]["nominatedNodeName"] == chosen
        await stack.kill("binder")
        await stack.ready_again("binder")
        assert not node_of(await api.pod("p"))
        provisioner.paused = False
        assert await bound_to(api, "p") == chosen
        assert "nominatedNodeName" not in (await api.pod("p"))["status"]
        await stack.settle()


async def test_ephemeral_volumes_are_claimed_and_provisioned_for_their_pod(
    api: Api, tmp_path: Path
) -> None:
    await api.create_nodes(2)
    template = {"volumeClaimTemplate": {"spec": claim_spec(cls="fast")}}
    async with Stack(tmp_path, api.plane.kubeconfig) as stack, Provisioner(api) as provisioner:
        await create_claim(api, "q-scratch", cls="fast")  # somebody else's claim of that name
        for name in "pq":
            await api.create_pod(name, volumes=[{"name": "scratch", "ephemeral": template}])
        node = await bound_to(api, "p")
        assert provisioner.made == {"p-scratch": node}
        await told(api, "q", "PVC default/q-scratch was not created for pod default/q")
        await stack.settle()


async def test_missing_claims_and_classes_are_named_and_their_creation_wakes_the_pod(
    api: Api, tmp_path: Path
) -> None:
    await api.create_nodes(1)
    async with Stack(tmp_path, api.plane.kubeconfig), Provisioner(api):
        await api.create_pod("p", **with_claim("data"))
        await create_claim(api, "odd", cls="no-such-class")
        await api.create_pod("q", **with_claim("odd"))
        await api.create_pod("plain")
        await told(api, "p", 'persistentvolumeclaim "data" not found')
        await told(api, "q", "pod has unbound immediate PersistentVolumeClaims")
        assert await bound_to(api, "plain") == "n-0"
        await create_claim(api, "data", cls="fast")
        assert await bound_to(api, "p") == "n-0"


async def test_nodes_take_as_many_volumes_as_their_drivers_say(api: Api, tmp_path: Path) -> None:
    await api.create_nodes(1)
    await api.call(
        "POST",
        "/apis/storage.k8s.io/v1/csinodes",
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": "n-0"},
            "spec": {"drivers": [{"name": DRIVER, "nodeID": "n-0", "allocatable": {"count": 2}}]},
        },
    )
    async with Stack(tmp_path, api.plane.kubeconfig) as stack, Provisioner(api):
        for name in "abc":
            await create_claim(api, f"data-{name}", cls="fast")
            await api.create_pod(name, **with_claim(f"data-{name}"))

        async def two() -> bool:
            return await api.bound() == 2

        await until(two, timeout_s=40, what="two pods bound")
        pods = {p["metadata"]["name"]: node_of(p) for p in await api.pods()}
        waiting = next(name for name, node in pods.items() if not node)
        await told(api, waiting, "1 node(s) exceed max volume count")
        gone = next(name for name, node in pods.items() if node)
        await api.delete_pod(gone)
        await bound_to(api, waiting)
        await stack.settle()
