"""Pods of ten thousand parts beside others, on a real kube-apiserver: all are bound, the large ones
one by one, and the page says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.api import PODS, Api, node_of, pod_manifest
from tests.e2e.stack import Stack, until

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(180)]


def with_terms(name: str) -> dict[str, Any]:
    pod = pod_manifest(name)
    terms = [
        {
            "topologyKey": f"example.com/t{i}",
            "labelSelector": {"matchLabels": {f"example.com/k{i % 300}": "v"}},
        }
        for i in range(600)
    ]
    rules = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    pod["spec"]["affinity"] = {"podAntiAffinity": rules}
    return pod


def with_containers(name: str) -> dict[str, Any]:
    pod = pod_manifest(name)
    one = {"image": "image", "resources": {"requests": {"memory": "1Ki"}}}
    pod["spec"]["containers"] += [{"name": f"c{i}", **one} for i in range(3_000)]
    return pod


LARGE = [
    *(with_terms(f"terms-{i}") for i in range(3)),
    *(with_containers(f"containers-{i}") for i in range(2)),
]


async def test_large_pods_are_bound_in_the_slow_lane_beside_others(
    api: Api, tmp_path: Path
) -> None:
    await api.create_nodes(5)
    async with Stack(tmp_path, api.plane.kubeconfig) as stack:
        await api.all(api.call("POST", PODS, pod) for pod in LARGE)
        await api.all(api.create_pod(f"p-{i}") for i in range(20))

        async def bound() -> bool:
            return await api.bound() == len(LARGE) + 20

        await until(bound, timeout_s=90, what="bound")
        for pod in LARGE:
            assert node_of(await api.pod(pod["metadata"]["name"]))

        async def empty() -> bool:
            page = await stack.metrics("dispatcher")
            assert page.total("stretto_dispatcher_slow_lane_units_total") >= len(LARGE)
            return page.total("stretto_dispatcher_slow_lane_pods") == 0

        await until(empty, timeout_s=30, what="out of the slow lane")
        await stack.settle()
        for name, role in stack.supervisor.roles.items():
            assert role.starts == 1, name
            assert "Traceback" not in stack.log_of(name, lines=10_000), name
