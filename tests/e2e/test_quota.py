"""Quota on a real kube-apiserver: the definition in deploy/, races for the last of a limit,
reclaim."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from stretto.model.shape import QUEUE_LABEL
from tests.e2e.api import Api, Oracle, Pod, cpu_of, node_of, scheduled_condition
from tests.e2e.stack import Stack, StackSettings, until
from tests.kube_env.control_plane import ControlPlane

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(180)]

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
QUEUES = "/apis/scheduling.stretto.io/v1alpha1/queues"
CRD = yaml.safe_load(
    (Path(__file__).parents[2] / "deploy" / "base" / "queues-crd.yaml").read_text()
)


@pytest.fixture
async def cluster(new_control_plane: Callable[..., ControlPlane]) -> AsyncIterator[Api]:
    """An API server with the definition of queues."""
    async with Api(new_control_plane()) as api:
        await serve_queues(api)
        yield api


async def serve_queues(api: Api) -> None:
    """Define queues, and wait until they are served."""
    await api.call("POST", CRDS, CRD)

    async def served() -> bool:
        try:
            return (await api.answer("GET", QUEUES))[0] == 200
        except ValueError:
            return False  # "404 page not found", which is no JSON

    await until(served, timeout_s=30, what="queues are served")


def queue_manifest(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.stretto.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }


async def create_queue(api: Api, name: str, **spec: Any) -> None:
    await api.call("POST", QUEUES, queue_manifest(name, **spec))


async def create_pods(
    api: Api, queue: str, count: int, *, prefix: str = "", **options: Any
) -> None:
    labels = {QUEUE_LABEL: queue}
    name = prefix or queue
    await api.all(api.create_pod(f"{name}-{i}", labels=labels, **options) for i in range(count))


async def bound(api: Api, prefix: str) -> int:
    pods = await api.pods()
    return sum(bool(node_of(p)) for p in pods if p["metadata"]["name"].startswith(f"{prefix}-"))


async def says(api: Api, name: str, **fields: Any) -> dict[str, Any]:
    """Wait until the status of a queue says this; the whole status."""
    status: dict[str, Any] = {}

    async def so() -> bool:
        nonlocal status
        status = (await api.call("GET", f"{QUEUES}/{name}")).get("status", {})
        return bool(status) and all(status.get(f, type(v)()) == v for f, v in fields.items())

    try:
        await until(so, timeout_s=40, what=f"queue {name} says {fields}")
    except TimeoutError as error:
        raise AssertionError(f"{error}; it says {status}") from None
    return status


class QuotaOracle(Oracle):
    """At no revision do the pods of a queue that have a node ask for more than its limit."""

    def __init__(self, api: Api, **limits: int) -> None:
        super().__init__(api)
        self._limits = limits

    def _take(self, kind: str, pod: Pod) -> None:
        super()._take(kind, pod)
        uid, queue = pod["metadata"]["uid"], pod["metadata"]["labels"].get(QUEUE_LABEL, "")
        here = self._on.setdefault(f"queue {queue}", {})
        here.pop(uid, None)
        if node_of(pod) and kind != "DELETED":
            here[uid] = cpu_of(pod)
        for name, limit in self._limits.items():
            used = sum(self._on.get(f"queue {name}", {}).values())
            if used > limit:
                self.wrong.append(f"queue {name} has {used}m of {limit}m CPU")


SENSELESS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"limit": {"cpu": "-1"}}, "spec.limit.cpu"),
    ({"limit": {"cpu": -1}}, "spec.limit.cpu"),
    ({"guaranteed": {"memory": "-1Gi"}}, "spec.guaranteed.memory"),
    ({"weight": -1}, "spec.weight"),
    ({"minRuntimeSeconds": -5}, "spec.minRuntimeSeconds"),
    ({"parent": ["a", "b"]}, "spec.parent"),
)


async def test_the_definition_refuses_what_makes_no_sense(cluster: Api) -> None:
    for spec, field in SENSELESS:
        status, answer = await cluster.answer("POST", QUEUES, queue_manifest("q", **spec))
        assert (status, field in answer["message"]) == (422, True), answer


FULL = {"cpu": "6", "memory": str(12 * (64 << 20)), "pods": "12"}


async def test_four_shards_race_for_the_last_of_a_quota(cluster: Api, tmp_path: Path) -> None:
    """More than two shards' worth of pods, again and again: never one too many at any revision."""
    await cluster.create_nodes(4, cpu="16")
    await create_queue(cluster, "org", limit={"cpu": "6"})
    for name in ("a", "b", "c"):
        await create_queue(cluster, name, parent="org", limit={"cpu": "3"})
    settings = StackSettings(shards=4)
    async with Stack(tmp_path, cluster.plane.kubeconfig, settings) as stack:
        async with QuotaOracle(cluster, a=3000, b=3000, c=3000) as oracle:
            for round_ in range(4):
                names = [f"{name}{round_}" for name in ("a", "b", "c")]
                await cluster.all(
                    create_pods(cluster, name[0], 12, prefix=name, cpu="500m") for name in names
                )

                async def full() -> bool:
                    return await cluster.bound() == 12

                await until(full, timeout_s=40, what="the limit above is used up")

                async def told(names: list[str] = names) -> bool:
                    waiting = [p for p in await cluster.pods() if not node_of(p)]
                    texts = {scheduled_condition(p).get("message", "") for p in waiting}
                    return len(waiting) == 24 and all("at its limit of cpu" in t for t in texts)

                await until(told, timeout_s=40, what="everybody else is told why")
                await says(cluster, "org", waiting=24, used=FULL)
                assert await cluster.bound() == 12
                for name in names:
                    for number in range(12):
                        await cluster.delete_pod(f"{name}-{number}")
            await oracle.caught_up()
            peaks = [len(pods) for key, pods in oracle._on.items() if key.startswith("queue ")]
            assert len(peaks) == 3
        await stack.settle()


async def test_what_a_queue_is_guaranteed_it_gets_back_from_those_who_borrow(
    cluster: Api, tmp_path: Path
) -> None:
    await cluster.create_nodes(2, cpu="4")
    value = {"metadata": {"name": "high"}, "value": 1000}
    await cluster.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", value)
    await create_queue(cluster, "mine", guaranteed={"cpu": "4"})
    await create_queue(cluster, "yours", guaranteed={"cpu": "4"})
    labels = {"metadata": {"labels": {QUEUE_LABEL: "yours"}}}
    await cluster.call(
        "PATCH", "/api/v1/namespaces/default", labels, kind="application/merge-patch+json"
    )
    async with Stack(tmp_path, cluster.plane.kubeconfig) as stack:
        options = {"cpu": "1", "priorityClassName": "high", "terminationGracePeriodSeconds": 0}
        await cluster.all(cluster.create_pod(f"yours-{i}", **options) for i in range(8))

        async def borrowed() -> bool:
            return await bound(cluster, "yours") == 8

        await until(borrowed, timeout_s=40, what="what is idle is borrowed")
        # The namespace confines its pods: none of them is let into another's queue.
        await create_pods(cluster, "mine", 1, prefix="thief")

        async def refused() -> bool:
            text = scheduled_condition(await cluster.pod("thief-0")).get("message", "")
            return 'queue "mine" is not below queue "yours" of namespace "default"' in text

        await until(refused, timeout_s=40, what="a pod is kept out of a queue not its own")
        await cluster.delete_pod("thief-0")
        none = {"metadata": {"labels": {QUEUE_LABEL: None}}}
        for i in range(8):
            path = f"/api/v1/namespaces/default/pods/yours-{i}"
            await cluster.call("PATCH", path, labels, kind="application/merge-patch+json")
        await cluster.call(
            "PATCH", "/api/v1/namespaces/default", none, kind="application/merge-patch+json"
        )
        await create_pods(cluster, "mine", 4, cpu="1")

        async def back() -> bool:
            return await bound(cluster, "mine") == 4

        await until(back, timeout_s=60, what="the guarantee is kept")
        assert await bound(cluster, "yours") == 4
        await says(cluster, "mine", borrowed={}, why="")
        await create_queue(cluster, "x", parent="y")
        await create_queue(cluster, "y", parent="x")
        await create_pods(cluster, "x", 1, cpu="1")

        async def named() -> bool:
            text = scheduled_condition(await cluster.pod("x-0")).get("message", "")
            return 'queue "x" cannot be used: its parents are a cycle' in text

        await until(named, timeout_s=40, what="the pod is told of the cycle")
        ready = (await says(cluster, "x", waiting=0))["conditions"][0]
        assert (ready["status"], ready["reason"]) == ("False", "Invalid"), ready
        assert "cycle" in ready["message"]
        await stack.settle()
