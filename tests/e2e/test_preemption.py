"""Preemption on a real kube-apiserver: nomination first, victims by uid, budgets held."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.api import MERGE, PODS, Api, Pod, node_of, pod_manifest, scheduled_condition
from tests.e2e.nemesis import Mode, Nemesis
from tests.e2e.stack import Stack, StackSettings, plain_kubeconfig, until

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(180)]

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


@pytest.fixture(autouse=True)
async def classes(api: Api) -> AsyncIterator[None]:
    """Priorities low, mid and high; no budgets are left over."""
    for name, value in ("low", 1), ("mid", 100), ("high", 1000):
        body = {"metadata": {"name": name}, "value": value}
        status, _ = await api.answer("POST", CLASSES, body)
        assert status in (201, 409)
    yield
    await api.call("DELETE", BUDGETS)


async def running(api: Api, name: str, *, node: str, since: int, **labels: str) -> Pod:
    """A pod of low priority that runs on a node since a minute of some hour."""
    body = pod_manifest(
        name, cpu="1", nodeName=node, priorityClassName="low", terminationGracePeriodSeconds=0
    )
    body["metadata"]["labels"] = labels
    await api.call("POST", PODS, body)
    status = {
        "phase": "Running",
        "startTime": f"2026-01-01T00:{since:02}:00Z",
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    reply: Pod = await api.call("PATCH", f"{PODS}/{name}/status", {"status": status}, kind=MERGE)
    return reply


async def preemptor(api: Api, name: str, *, cpu: str = "1", priority: str = "high") -> Pod:
    return await api.create_pod(name, cpu=cpu, priorityClassName=priority)


async def budget(api: Api, name: str, *, app: str, allowed: int) -> None:
    """A budget with the status that the disruption controller would give it."""
    spec = {"selector": {"matchLabels": {"app": app}}, "minAvailable": 1}
    made = await api.call("POST", BUDGETS, {"metadata": {"name": name}, "spec": spec})
    status = {
        "observedGeneration": made["metadata"]["generation"],
        "disruptionsAllowed": allowed,
        "currentHealthy": 1 + allowed, "desiredHealthy": 1, "expectedPods": 1 + allowed,
    }  # fmt: skip
    await api.call("PATCH", f"{BUDGETS}/{name}/status", {"status": status}, kind=MERGE)


async def names(api: Api) -> set[str]:
    return {pod["metadata"]["name"] for pod in await api.pods()}


async def bound(api: Api, name: str, timeout_s: float = 40) -> None:
    async def is_bound() -> bool:
        return bool(node_of(await api.pod(name)))

    await until(is_bound, timeout_s=timeout_s, what=f"{name} bound")


def message(count: int, node: str = "n-0", nodes: int = 1) -> str:
    return (
        f"0/{nodes} nodes are available: {nodes} Insufficient cpu. preemption: found a potential "
        f"placement for pod on node {node}, preempting {count} victims"
    )


async def test_a_pod_guarded_by_a_budget_stays_and_the_other_goes(api: Api, tmp_path: Path) -> None:
    await api.create_node("n-0", cpu="2")
    # The guarded pod is the less important one: without its budget it would go.
    await running(api, "plain", node="n-0", since=1, app="web")
    await running(api, "guarded", node="n-0", since=9, app="db")
    await budget(api, "db", app="db", allowed=0)
    async with Stack(tmp_path, api.plane.kubeconfig) as stack:
        made = await preemptor(api, "p")
        await bound(api, "p")
        assert await names(api) == {"p", "guarded"}

        async def told() -> bool:
            return "plain" in await api.events("Preempted")

        await until(told, timeout_s=20, what="the event about the victim")
        uid = made["metadata"]["uid"]
        told_of = await api.events("Preempted")
        assert told_of == {"plain": f"Preempted by pod {uid} on node n-0"}
        await stack.settle()


async def test_a_pod_under_two_budgets_that_allow_it_goes(api: Api, tmp_path: Path) -> None:
    """The Eviction API would not take it."""
    await api.create_node("n-0", cpu="1")
    await running(api, "victim", node="n-0", since=1, app="db")
    for name in ("one", "two"):
        await budget(api, name, app="db", allowed=1)
    async with Stack(tmp_path, api.plane.kubeconfig) as stack:
        await preemptor(api, "p")
        await bound(api, "p")
        assert await names(api) == {"p"}
        await stack.settle()


async def test_a_victim_with_grace_is_marked_and_waited_for_and_nobody_takes_its_room(
    api: Api, tmp_path: Path
) -> None:
    await api.create_node("n-0", cpu="1")
    body = pod_manifest("victim", cpu="1", nodeName="n-0", priorityClassName="low")
    await api.call("POST", PODS, body)
    async with Stack(tmp_path, api.plane.kubeconfig) as stack:
        await preemptor(api, "p")

        async def leaving() -> bool:
            return "deletionTimestamp" in (await api.pod("victim"))["metadata"]

        await until(leaving, timeout_s=40, what="the victim's deletion")

        async def waits() -> bool:
            pod = await api.pod("p")
            told = scheduled_condition(pod).get("message") == message(1)
            return told and pod["status"].get("nominatedNodeName") == "n-0"

        await until(waits, timeout_s=20, what="nomination and condition")
        conditions = {c["type"]: c for c in (await api.pod("victim"))["status"]["conditions"]}
        target = conditions["DisruptionTarget"]
        assert (target["status"], target["reason"]) == ("True", "PreemptionByScheduler")
        assert target["message"] == "stretto: preempting to accommodate a higher priority pod"
        await preemptor(api, "rival", priority="mid")

        async def rival_waits() -> bool:
            return bool(scheduled_condition(await api.pod("rival")))

        await until(rival_waits, timeout_s=20, what="the rival told why it waits")
        await api.delete_pod("victim")
        await bound(api, "p")
        assert not node_of(await api.pod("rival"))
        assert await api.events("Preempted") == {
            "victim": f"Preempted by pod {(await api.pod('p'))['metadata']['uid']} on node n-0"
        }
        await stack.settle()


async def test_of_two_preemptors_for_one_set_of_victims_one_wins_and_each_goes_once(
    api: Api, tmp_path: Path
) -> None:
    await api.create_node("n-0", cpu="2")
    for name in ("v1", "v2"):
        await running(api, name, node="n-0", since=1)
    async with Stack(tmp_path, api.plane.kubeconfig) as stack:
        await api.all(preemptor(api, name, cpu="2") for name in ("p1", "p2"))

        async def one_bound() -> bool:
            return await api.bound() == 1 and await names(api) == {"p1", "p2"}

        await until(one_bound, timeout_s=40, what="one of them bound")
        loser = next(pod for pod in await api.pods() if not node_of(pod))

        async def told() -> bool:
            pod = await api.pod(loser["metadata"]["name"])
            text = scheduled_condition(pod).get("message", "")
            return "No preemption victims found" in text

        await until(told, timeout_s=40, what="the loser told that nobody is left to preempt")
        pod = await api.pod(loser["metadata"]["name"])
        assert not pod["status"].get("nominatedNodeName")
        assert set(await api.events("Preempted")) == {"v1", "v2"}
        assert await api.overcommitted() == []
        await stack.settle()


async def test_nobody_else_goes_for_a_victim_that_was_deleted_meanwhile(
    api: Api, tmp_path: Path
) -> None:
    await api.create_node("n-0", cpu="2")
    await running(api, "stays", node="n-0", since=1)
    await running(api, "victim", node="n-0", since=9)
    async with Stack(tmp_path, api.plane.kubeconfig) as stack:
        await asyncio.gather(preemptor(api, "p"), api.delete_pod("victim"))
        await bound(api, "p")
        assert await names(api) == {"p", "stays"}
        await stack.settle()


async def test_a_binder_that_dies_between_nomination_and_eviction_leaves_no_mark(
    api: Api, tmp_path: Path
) -> None:
    await api.create_node("n-0", cpu="1")
    await running(api, "victim", node="n-0", since=1)
    async with Nemesis(
        target=api.plane.url, token=api.plane.admin_token, subresource="eviction"
    ) as proxy:
        way = plain_kubeconfig(tmp_path, url=proxy.url, name="binder")
        proxy.mode = Mode.HOLD
        settings = StackSettings(binder_kubeconfig=way)
        async with Stack(tmp_path, api.plane.kubeconfig, settings) as stack:
            await preemptor(api, "p")
            await until(lambda: proxy.held == 1, timeout_s=40, what="an eviction on its way")
            assert (await api.pod("p"))["status"]["nominatedNodeName"] == "n-0"
            proxy.hold_no_more()
            await stack.kill("binder")
            await bound(api, "p", timeout_s=90)
            assert await names(api) == {"p"}
            proxy.release()
            await until(lambda: len(proxy.late) == 1, timeout_s=20, what="the late eviction")
            assert proxy.late == [404], "the victim is gone; its uid protects all others"
            await stack.settle()
