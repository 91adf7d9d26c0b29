"""Jobs admitted before their pods exist, on a real kube-apiserver with kube-controller-manager."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from stretto.model.jobs import ADMISSION, ADMISSION_LABEL, ADMITTED
from stretto.model.shape import QUEUE_LABEL
from tests.e2e.api import MERGE, PODS, Api, Pod, node_of, pod_manifest
from tests.e2e.stack import Stack, StackSettings, until
from tests.e2e.test_quota import create_queue, says, serve_queues
from tests.kube_env.control_plane import ControlPlane

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(240)]
JOBS = "/apis/batch/v1/namespaces/default/jobs"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.fixture
async def cluster(new_control_plane: Callable[..., ControlPlane]) -> AsyncIterator[Api]:
    """An API server with the definition of queues, and a Job controller."""
    plane = new_control_plane()
    async with Api(plane) as api:
        await serve_queues(api)
        plane.start_controller_manager("job-controller")
        yield api


def job(
    name: str, queue: str, *, members: int, asks: bool = True, **template: Any
) -> dict[str, Any]:
    """A suspended Job of pods that ask for one CPU each."""
    pod = pod_manifest(name, cpu="1", labels={QUEUE_LABEL: queue}, **template)
    return {
        "metadata": {"name": name, "labels": {ADMISSION_LABEL: ADMISSION} if asks else {}},
        "spec": {
            "suspend": True,
            "parallelism": members,
            "completions": max(1, members),
            "template": {
                "metadata": {"labels": pod["metadata"]["labels"]},
                "spec": {**pod["spec"], "restartPolicy": "Never"},
            },
        },
    }


async def told(api: Api, name: str) -> dict[str, str]:
    """The condition of a Job that says whether it was admitted."""
    found = await api.call("GET", f"{JOBS}/{name}")
    for each in found.get("status", {}).get("conditions") or []:
        if each["type"] == ADMITTED:
            return dict(each)
    return {}


async def pods_of(api: Api, name: str) -> list[Pod]:
    pods = await api.pods()
    return [p for p in pods if p["metadata"]["labels"].get("job-name") == name]


async def runs(api: Api, name: str, members: int) -> None:
    async def so() -> bool:
        pods = await pods_of(api, name)
        return len(pods) == members and all(map(node_of, pods))

    await until(so, timeout_s=60, what=f"all members of {name} are on nodes")


async def waits(api: Api, name: str, text: str, *, reason: str = "WaitingForQuota") -> None:
    found: dict[str, str] = {}

    async def so() -> bool:
        nonlocal found
        found = await told(api, name)
        return found.get("reason") == reason and text in found.get("message", "")

    try:
        await until(so, timeout_s=60, what=f"{name} is told {text!r}")
    except TimeoutError as error:
        raise AssertionError(f"{error}; it is told {found}") from None


async def succeed(api: Api, name: str) -> None:
    """Its pods have done their work, as a kubelet would say."""
    for pod in await pods_of(api, name):
        path = f"{PODS}/{pod['metadata']['name']}/status"
        await api.call("PATCH", path, {"status": {"phase": "Succeeded"}}, kind=MERGE)


async def test_the_second_job_is_resumed_when_the_first_has_ended_and_has_no_pods_before(
    cluster: Api, tmp_path: Path
) -> None:
    await cluster.create_nodes(2, cpu="8")
    await create_queue(cluster, "a", limit={"cpu": "5"})
    async with Stack(tmp_path, cluster.plane.kubeconfig) as stack:
        await cluster.call("POST", JOBS, job("paused", "a", members=1, asks=False))
        await cluster.call("POST", JOBS, job("first", "a", members=4))
        await runs(cluster, "first", 4)
        await cluster.call("POST", JOBS, job("second", "a", members=4))
        await waits(cluster, "second", "queue a is at its limit of cpu")
        why = "waiting for quota: queue a is at its limit of cpu"
        used = {"cpu": "4", "memory": str(4 * 64 << 20), "pods": "4"}
        await says(cluster, "a", waiting=4, why=why, used=used, promised={})
        assert await pods_of(cluster, "second") == []
        # The dispatcher that comes next knows all that from the API.
        await stack.kill("dispatcher")
        await stack.ready_again("dispatcher")
        await cluster.call("POST", JOBS, job("third", "a", members=1))
        await waits(cluster, "third", "quota")
        assert await pods_of(cluster, "second") == await pods_of(cluster, "third") == []
        await succeed(cluster, "first")
        await runs(cluster, "second", 4)
        await runs(cluster, "third", 1)
        await waits(cluster, "second", "", reason="Admitted")
        paused = await cluster.call("GET", f"{JOBS}/paused")
        assert paused["spec"]["suspend"] is True, "nobody has asked for it"
        assert await pods_of(cluster, "paused") == []
        await succeed(cluster, "second")
        await succeed(cluster, "third")
        await says(cluster, "a", waiting=0, used={}, why="")
        await stack.settle()


async def test_what_cannot_be_admitted_says_why_and_holds_up_nobody(
    cluster: Api, tmp_path: Path
) -> None:
    await cluster.create_nodes(1, cpu="8")
    await create_queue(cluster, "a", limit={"cpu": "2"})
    await cluster.call("POST", CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    async with Stack(tmp_path, cluster.plane.kubeconfig) as stack:
        gates = [{"name": "example.com/hold"}]
        bodies = [
            (job("big", "a", members=3), "it asks for more cpu at once than the limit of queue a"),
            (job("gated", "a", members=1, schedulingGates=gates), "has schedulingGates"),
            (job("other", "a", members=1, schedulerName="x"), "schedulerName is x"),
            (job("none", "a", members=0), "spec.parallelism is 0"),
        ]
        for body, text in bodies:
            await cluster.call("POST", JOBS, body)
            await waits(cluster, body["metadata"]["name"], text, reason="Invalid")
        await create_queue(cluster, "b", limit={"cpu": "1"})
        eager = job("eager", "b", members=1)
        eager["spec"]["suspend"] = False
        await cluster.call("POST", JOBS, eager)
        await waits(cluster, "eager", "created without spec.suspend", reason="NotSuspended")
        await runs(cluster, "eager", 1)
        await cluster.call("POST", JOBS, job("lost", "gone", members=1))
        await waits(cluster, "lost", 'queue "gone", which the pod names, does not exist')
        await cluster.call("POST", JOBS, job("one", "a", members=2))
        await runs(cluster, "one", 2)
        await cluster.call("POST", JOBS, job("low", "a", members=2))
        await waits(cluster, "low", "quota")
        await cluster.call("POST", JOBS, job("urgent", "a", members=2, priorityClassName="high"))
        await waits(cluster, "urgent", "quota")
        await succeed(cluster, "one")
        await runs(cluster, "urgent", 2)
        assert await pods_of(cluster, "low") == []
        # Suspended by hand it gives its room back, and stands in the queue again.
        await cluster.call("PATCH", f"{JOBS}/big", {"spec": {"parallelism": 1}}, kind=MERGE)
        none = {"metadata": {"labels": {ADMISSION_LABEL: None}}, "spec": {"suspend": True}}
        await cluster.call("PATCH", f"{JOBS}/urgent", none, kind=MERGE)
        for pod in await pods_of(cluster, "urgent"):
            await cluster.delete_pod(pod["metadata"]["name"])
        await runs(cluster, "big", 1)
        await succeed(cluster, "big")
        await stack.settle()


async def test_room_goes_to_others_when_the_api_server_refuses_the_pods_of_a_job(
    cluster: Api, tmp_path: Path
) -> None:
    await cluster.create_nodes(1, cpu="8")
    await create_queue(cluster, "a", limit={"cpu": "2"})
    strict = {"pod-security.kubernetes.io/enforce": "restricted"}
    await cluster.call(
        "PATCH", "/api/v1/namespaces/default", {"metadata": {"labels": strict}}, kind=MERGE
    )
    settings = StackSettings(flags={"dispatcher": ("--promise-s", "15")})
    async with Stack(tmp_path, cluster.plane.kubeconfig, settings) as stack:
        await cluster.call("POST", JOBS, job("refused", "a", members=2))
        await waits(cluster, "refused", "", reason="Admitted")
        allowed = job("allowed", "a", members=2)
        allowed["spec"]["template"]["spec"]["containers"][0]["securityContext"] = {
            "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"},
        }  # fmt: skip
        await cluster.call("POST", JOBS, allowed)
        await waits(cluster, "allowed", "queue a is at its limit of cpu")
        await waits(cluster, "refused", "no pod of it appeared for 15 s", reason="PodsMissing")
        await runs(cluster, "allowed", 2)
        assert await pods_of(cluster, "refused") == []
        await succeed(cluster, "allowed")
        await stack.settle()
