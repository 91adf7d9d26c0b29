"""Pods in, bindings out: dispatcher, two shards, binder and ledger on a real kube-apiserver."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.api import Api, Oracle, node_of, scheduled_condition
from tests.e2e.stack import Stack, until

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(120)]

PODS = 200
SHAPES = ("100m", "150m", "200m", "250m", "300m")

DEVICE_CLAIM = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}


async def test_every_pod_is_bound_once_with_condition_and_event(api: Api, tmp_path: Path) -> None:
    await api.create_nodes(20, cpu="4")
    async with (
        Stack(tmp_path, api.plane.kubeconfig) as stack,
        Oracle(api, cpu=4000, pods=110) as oracle,
    ):
        await api.all(api.create_pod(f"p-{i}", cpu=SHAPES[i % 5]) for i in range(PODS))

        async def all_bound() -> bool:
            return await api.bound() == PODS

        await until(all_bound, timeout_s=60, what="all pods bound")
        pods = await api.pods()
        assert {scheduled_condition(pod).get("status") for pod in pods} == {"True"}

        async def all_told() -> bool:
            return len(await api.events("Scheduled")) == PODS

        await until(all_told, timeout_s=30, what="a Scheduled event for each pod")
        told = await api.events("Scheduled")
        for pod in pods:
            name = pod["metadata"]["name"]
            assert told[name] == f"Successfully assigned default/{name} to {node_of(pod)}"
        await oracle.caught_up()
        assert len(oracle.nodes) == PODS
        await stack.settle()


async def test_a_pod_that_fits_nowhere_says_so_and_wakes_up_with_a_new_node(
    api: Api, tmp_path: Path
) -> None:
    await api.create_nodes(3, cpu="1")
    async with Stack(tmp_path, api.plane.kubeconfig) as stack:
        await api.create_pod("big", cpu="2")

        async def told() -> bool:
            return bool(scheduled_condition(await api.pod("big")))

        await until(told, timeout_s=30, what="a condition")
        condition = scheduled_condition(await api.pod("big"))
        assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
        expected = "0/3 nodes are available: 3 Insufficient cpu."
        assert condition["message"].startswith(expected)

        async def event() -> bool:
            return "big" in await api.events("FailedScheduling")

        await until(event, timeout_s=30, what="a FailedScheduling event")
        assert (await api.events("FailedScheduling"))["big"].startswith(expected)
        await api.create_node("large", cpu="8")

        async def bound() -> bool:
            return node_of(await api.pod("big")) == "large"

        await until(bound, timeout_s=30, what="bound to the new node")
        await stack.settle()


async def test_a_pod_whose_claim_to_devices_is_not_there_is_told_so(
    api: Api, tmp_path: Path
) -> None:
    await api.create_nodes(2)
    async with Stack(tmp_path, api.plane.kubeconfig):
        await api.create_pod("strict", **DEVICE_CLAIM)
        await api.create_pod("plain")

        async def told() -> bool:
            return bool(scheduled_condition(await api.pod("strict")))

        async def bound() -> bool:
            return bool(node_of(await api.pod("plain")))

        await until(told, timeout_s=30, what="a condition")
        await until(bound, timeout_s=30, what="the other pod bound")
        strict = await api.pod("strict")
        condition = scheduled_condition(strict)
        assert condition["status"] == "False"
        assert 'could not find resourceclaim "default/gpu"' in condition["message"].lower()
        assert not node_of(strict)
