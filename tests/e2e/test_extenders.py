"""HTTP extenders of a configuration file, on a real API server: one filters, ranks and binds, one
hangs; pods that nobody is asked about go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.api import PODS, Api, node_of, scheduled_condition
from tests.e2e.commands import ready_line, running
from tests.e2e.stack import until
from tests.shard.fake_extender import FakeExtender

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(90)]

CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{{schedulerName: stretto}}]
extenders:
  - urlPrefix: {cards}
    filterVerb: filter
    prioritizeVerb: rank
    bindVerb: bind
    weight: 5
    nodeCacheCapable: true
    managedResources: [{{name: example.com/card, ignoredByScheduler: true}}]
  - urlPrefix: {hanging}
    filterVerb: filter
    httpTimeout: 1s
    managedResources: [{{name: example.com/tape, ignoredByScheduler: true}}]
"""


def asking_for(resource: str) -> dict[str, Any]:
    amounts = {"cpu": "100m", "memory": "64Mi", resource: "1"}
    resources = {"requests": amounts, "limits": {resource: "1"}}
    container = {"name": "c", "image": "registry.example/app:1", "resources": resources}
    return {"containers": [container]}


async def test_extenders_filter_rank_and_bind_their_pods_and_stall_no_others(
    api: Api, tmp_path: Path
) -> None:
    await api.create_nodes(4)

    async def bind(asked: dict[str, Any]) -> dict[str, str]:
        target = {"apiVersion": "v1", "kind": "Node", "name": asked["Node"]}
        metadata = {"name": asked["PodName"], "uid": asked["PodUID"]}
        await api.call(
            "POST", f"{PODS}/{asked['PodName']}/binding", {"metadata": metadata, "target": target}
        )
        return {"Error": ""}

    async with FakeExtender().serving() as cards, FakeExtender().serving() as hanging:
        cards.answers = {
            "filter": lambda asked: {"NodeNames": [n for n in asked["NodeNames"] if n != "n-0"]},
            "rank": [{"Host": "n-2", "Score": 10}],
            "bind": bind,
        }
        hanging.answers = {"filter": "hang"}
        path = tmp_path / "scheduler.yaml"
        path.write_text(CONFIGURATION.format(cards=cards.url, hanging=hanging.url))
        command = ("--kubeconfig", str(api.plane.kubeconfig), "--config", str(path))
        async with running(tmp_path, "run", *command) as process:
            await ready_line(process)
            await api.create_pod("stuck", **asking_for("example.com/tape"))
            await api.create_pod("carded", **asking_for("example.com/card"))
            await api.all(api.create_pod(f"plain-{i}") for i in range(10))

            async def bound() -> bool:
                return await api.bound() == 11

            await until(bound, timeout_s=40, what="all but one bound")
            assert node_of(await api.pod("carded")) == "n-2"
            assert "bind" in [verb for verb, _ in cards.asked]
            sent = cards.asked[0][1]["Pod"]
            assert sent["metadata"]["name"] == "carded"
            limits = sent["spec"]["containers"][0]["resources"]["limits"]
            assert limits == {"example.com/card": "1"}

            async def told() -> bool:
                return bool(scheduled_condition(await api.pod("stuck")))

            await until(told, timeout_s=30, what="a condition")
            condition = scheduled_condition(await api.pod("stuck"))
            assert condition["reason"] == "SchedulerError"
            expected = f"extender {hanging.url}: no answer to filter in 1 s"
            assert condition["message"] == expected
