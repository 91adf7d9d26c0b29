"""What pods that wait are told, beside what kube-scheduler 1.37.2 writes for the same objects: the
PodScheduled condition and the FailedScheduling event."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.api import PODS, Api, node_of, pod_manifest, scheduled_condition
from tests.e2e.stack import Stack, until
from tests.kube_env.control_plane import ControlPlane

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(240)]

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def apart(app: str) -> dict[str, Any]:
    selector = {"matchLabels": {"app": app}}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": selector, "topologyKey": HOST}
    ]}  # fmt: skip


def near_nodes(key: str, *values: str) -> dict[str, Any]:
    expressions = [{"key": key, "operator": "In", "values": list(values)}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": expressions}]
    }}}  # fmt: skip


WAITS: dict[str, dict[str, Any]] = {
    "cpu": {"cpu": "99"},
    "memory": {"memory": "999Gi"},
    "both": {"cpu": "99", "memory": "999Gi"},
    "nearly": {"cpu": "3500m"},
    "selector": {"nodeSelector": {"disk": "fast"}},
    "affinity": {"affinity": near_nodes(ZONE, "nowhere")},
    "mixed": {"cpu": "3500m", "affinity": near_nodes(ZONE, "a")},
    "apart": {"labels": {"app": "db"}, "affinity": {"podAntiAffinity": apart("db")}},
    "near": {"affinity": {"podAffinity": apart("missing")}},
    "spread": {
        "labels": {"app": "db"},
        "topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "db"}},
        }],
    },
    "claim": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]},
    "gated": {"schedulingGates": [{"name": "example.com/hold"}]},
}  # fmt: skip
"""Pods that wait, by what for."""
RUNS = 4
"""Nodes that take pods: n-0 … n-3; one is tainted and one cordoned beside."""


async def create_all(api: Api) -> None:
    for number in range(RUNS):
        labels = {ZONE: "ab"[number % 2]}
        await api.create_node(f"n-{number}", cpu="4", labels=labels)
        # Somebody of app db on each, so that whoever keeps apart from it waits.
        await api.call("POST", PODS, pod_manifest(
            f"there-{number}", cpu="1", labels={"app": "db"}, nodeName=f"n-{number}",
            schedulerName="somebody",
        ))  # fmt: skip
    await api.create_node("n-cordoned", cpu="4", cordoned=True)
    await api.create_node("n-tainted", cpu="4")
    taints = [{"key": "only", "value": "x", "effect": "NoSchedule"}]
    body = {"spec": {"taints": taints}}
    await api.call("PATCH", "/api/v1/nodes/n-tainted", body, kind="application/merge-patch+json")
    for name, options in WAITS.items():
        await api.create_pod(name, **options)
    await api.create_pod("runs")


async def told(api: Api) -> dict[str, tuple[str, ...]]:
    """By pod: status, reason and message of its condition, and the text of its event."""
    events = await api.events("FailedScheduling")
    found = {}
    for name in (*WAITS, "runs"):
        pod = await api.pod(name)
        condition = scheduled_condition(pod)
        words = [condition.get(field, "") for field in ("status", "reason", "message")]
        found[name] = (*words, events.get(name, ""), "bound" if node_of(pod) else "waits")
    return found


async def test_pods_are_told_what_kube_scheduler_tells_them(
    new_control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    async with Api(new_control_plane()) as api:
        api.plane.start_scheduler({"profiles": [{"schedulerName": "stretto"}]})
        await create_all(api)

        async def done() -> bool:
            seen = await told(api)
            waiting = [texts for name, texts in seen.items() if name not in ("gated", "runs")]
            return seen["runs"][-1] == "bound" and all(t[2] and t[3] for t in waiting)

        with contextlib.suppress(TimeoutError):
            await until(done, timeout_s=60, what="kube-scheduler has told every pod")
        expected = await told(api)
        assert await done(), expected
        api.plane.stop()
    assert expected["gated"][:2] == ("False", "SchedulingGated")
    assert {expected[name][1] for name in WAITS if name != "gated"} == {"Unschedulable"}

    async with Api(new_control_plane()) as api, Stack(tmp_path, api.plane.kubeconfig):
        await create_all(api)

        async def equal() -> bool:
            return await told(api) == expected

        with contextlib.suppress(TimeoutError):
            await until(equal, timeout_s=60, what="the same is told")
        assert await told(api) == expected
