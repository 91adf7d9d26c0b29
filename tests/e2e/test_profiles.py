"""Two profiles of one KubeSchedulerConfiguration file in one deployment, on a real API server."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.api import Api, node_of
from tests.e2e.commands import ended, is_one_clear_line, ready_line, running
from tests.e2e.stack import until

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(90)]

CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: packing
    pluginConfig:
      - name: NodeResourcesFit
        args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
    plugins: {score: {disabled: [{name: NodeResourcesBalancedAllocation}]}}
  - schedulerName: spreading
"""


async def test_each_schedulername_is_decided_by_its_own_profile(api: Api, tmp_path: Path) -> None:
    await api.create_nodes(4, cpu="4")
    path = tmp_path / "scheduler.yaml"
    path.write_text(CONFIGURATION)
    kubeconfig = str(api.plane.kubeconfig)
    command = ("run", "--kubeconfig", kubeconfig, "--config", str(path), "--shards=2")
    async with running(tmp_path, *command) as process:
        line = await ready_line(process)
        assert "schedulerName packing, spreading on 2 shards" in line
        for name in ("packing", "spreading"):
            for number in range(4):
                await api.create_pod(f"{name}-{number}", cpu="500m", schedulerName=name)

                async def bound(pod: str = f"{name}-{number}") -> bool:
                    return bool(node_of(await api.pod(pod)))

                await until(bound, timeout_s=30, what=f"{name}-{number} bound")
        nodes: dict[str, Counter[str]] = {"packing": Counter(), "spreading": Counter()}
        for pod in await api.pods():
            nodes[pod["spec"]["schedulerName"]][node_of(pod)] += 1
        assert sorted(nodes["packing"].values()) == [4]
        assert len(nodes["spreading"]) >= 3, "spreading avoids the full node and itself"

        async def told() -> bool:
            return len(await api.events("Scheduled")) == 8

        await until(told, timeout_s=30, what="the events")
        events = "/apis/events.k8s.io/v1/namespaces/default/events"
        reporters = {
            event["regarding"]["name"]: event["reportingController"]
            for event in (await api.call("GET", events))["items"]
            if event["reason"] == "Scheduled"
        }
        assert all(pod.startswith(reporter) for pod, reporter in reporters.items())


async def test_a_file_that_kube_scheduler_would_refuse_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.yaml"
    path.write_text(CONFIGURATION.replace("MostAllocated", "FullestFirst"))
    for role in ("run", "shard", "dispatcher", "binder"):
        flags = ["--redis-url", "redis://127.0.0.1:1"] if role == "binder" else []
        end = await ended(tmp_path, role, "--config", str(path), *flags)
        is_one_clear_line(end, str(path), "scoringStrategy.type: 'FullestFirst'")
