"""Preemption beside kube-controller-manager: its disruption controller says what a budget allows,
its replica sets make new pods of those that went."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.e2e.api import MERGE, PODS, Api, node_of, pod_manifest
from tests.e2e.stack import Stack, until
from tests.e2e.test_preemption import BUDGETS, CLASSES, bound, preemptor
from tests.kube_env.control_plane import ControlPlane

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(180)]

SETS = "/apis/apps/v1/namespaces/default/replicasets"


@pytest.fixture(scope="module")
def managed(
    kube_binaries: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A control plane with the controllers of budgets and replica sets."""
    with ControlPlane(tmp_path_factory.mktemp("budgets"), kube_binaries) as plane:
        plane.start_controller_manager("disruption-controller", "replicaset-controller")
        yield plane


@pytest.fixture
async def api(managed: ControlPlane) -> AsyncIterator[Api]:
    """An empty cluster with priorities low and high."""
    async with Api(managed) as made:
        await made.clear()
        for name, value in ("low", 1), ("high", 1000):
            status, _ = await made.answer(
                "POST", CLASSES, {"metadata": {"name": name}, "value": value}
            )
            assert status in (201, 409)
        yield made
        await made.call("DELETE", SETS)
        await made.call("DELETE", BUDGETS)
        await made.clear()


def template(app: str) -> dict[str, object]:
    """Pods of one CPU and low priority that go at once."""
    made = pod_manifest("", cpu="1", priorityClassName="low", terminationGracePeriodSeconds=0)
    return {"metadata": {"labels": {"app": app}}, "spec": made["spec"]}


async def replicas(api: Api, app: str, count: int) -> None:
    selector = {"matchLabels": {"app": app}}
    spec = {"replicas": count, "selector": selector, "template": template(app)}
    await api.call("POST", SETS, {"metadata": {"name": app}, "spec": spec})


async def play_kubelet(api: Api) -> None:
    """Report bound pods as running and ready, as their kubelet would."""
    for pod in await api.pods():
        if node_of(pod) and pod["status"].get("phase") != "Running":
            status = {
                "phase": "Running",
                "startTime": pod["metadata"]["creationTimestamp"],
                "conditions": [{"type": "Ready", "status": "True"}],
            }
            path = f"{PODS}/{pod['metadata']['name']}/status"
            await api.answer("PATCH", path, {"status": status}, kind=MERGE)


async def test_a_budget_of_one_disruption_is_spent_once(api: Api, tmp_path: Path) -> None:
    await api.create_node("n-0", cpu="3")
    async with Stack(tmp_path, api.plane.kubeconfig) as stack:
        await replicas(api, "web", 1)
        await bound_count(api, 1)
        await asyncio.sleep(1.1)  # start times are whole seconds: web is the more important
        await replicas(api, "db", 2)
        await bound_count(api, 3)
        await play_kubelet(api)
        selector = {"matchLabels": {"app": "db"}}
        spec = {"selector": selector, "minAvailable": 1}
        await api.call("POST", BUDGETS, {"metadata": {"name": "db"}, "spec": spec})

        async def allows_one() -> bool:
            found = await api.call("GET", f"{BUDGETS}/db")
            return bool(found.get("status", {}).get("disruptionsAllowed") == 1)

        await until(allows_one, timeout_s=30, what="the controller allows a disruption")
        before = {uid for uid, app in (await running(api)).items() if app == "db"}
        await api.all(preemptor(api, name) for name in ("p1", "p2"))
        for name in ("p1", "p2"):
            await bound(api, name)
        left = await running(api)
        assert len(before & left.keys()) == 1, "one of the two guarded pods, and the other stays"
        assert "web" not in left.values()
        assert await api.overcommitted() == []
        await stack.settle()


async def running(api: Api) -> dict[str, str]:
    """Uid → app of the pods on nodes."""
    return {
        pod["metadata"]["uid"]: pod["metadata"].get("labels", {}).get("app", "")
        for pod in await api.pods()
        if node_of(pod)
    }


async def bound_count(api: Api, count: int) -> None:
    async def so_many() -> bool:
        return len(await running(api)) == count

    await until(so_many, timeout_s=40, what=f"{count} pods bound")
