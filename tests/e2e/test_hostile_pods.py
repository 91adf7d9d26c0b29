"""Pods made to hurt: each is bound or told why in a sentence, and others are bound beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.api import PODS, Api, node_of, pod_manifest, scheduled_condition
from tests.e2e.stack import Stack, until

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(120)]

LONG = "n" * 253
LABELS = 10_000


def labelled(name: str) -> dict[str, Any]:
    """A pod with very many label keys."""
    pod = pod_manifest(name)
    pod["metadata"]["labels"] = {f"example.com/key-{i}": str(i) for i in range(LABELS)}
    return pod


PLACED = [
    pod_manifest("a"),
    pod_manifest(LONG),
    labelled("labels"),
    pod_manifest("parts", cpu="0.0000001", memory="1e-9"),
]
TOLD = [
    pod_manifest("exponent", cpu="1e200000"),
    pod_manifest("digits", memory="9" * 5_000),
    pod_manifest("both", cpu="9" * 5_000, memory="1E200000"),
]


async def test_each_is_bound_or_told_why_and_others_are_bound(api: Api, tmp_path: Path) -> None:
    await api.create_nodes(5)
    async with Stack(tmp_path, api.plane.kubeconfig) as stack:
        await api.all(api.call("POST", PODS, pod) for pod in [*PLACED, *TOLD])
        await api.all(api.create_pod(f"p-{i}") for i in range(20))

        async def bound() -> bool:
            return await api.bound() == len(PLACED) + 20

        async def told() -> bool:
            names = [pod["metadata"]["name"] for pod in TOLD]
            return all([scheduled_condition(await api.pod(name)) for name in names])

        await until(bound, timeout_s=40, what="bound")
        await until(told, timeout_s=20, what="told why")
        for pod in TOLD:
            seen = await api.pod(pod["metadata"]["name"])
            condition = scheduled_condition(seen)
            assert not node_of(seen)
            assert condition["reason"] == "Unschedulable"
            # What no node could ever hold is not read to its end; the field is named instead.
            assert "spec.containers[0].resources.requests[" in condition["message"], condition
            assert "quantity" in condition["message"], condition
            assert len(condition["message"]) < 400

        async def written() -> bool:
            events = await api.events("Scheduled")
            return all(pod["metadata"]["name"] in events for pod in PLACED)

        await until(written, timeout_s=20, what="events")
        await stack.settle()
        for name, role in stack.supervisor.roles.items():
            assert role.starts == 1, name
            assert "Traceback" not in stack.log_of(name, lines=10_000), name
