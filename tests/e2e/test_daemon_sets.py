"""A DaemonSet of kube-controller-manager: each pod asks for one node by name and goes there, also
where it is tainted or cordoned, and nowhere else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.e2e.api import AT_ONCE, MERGE, PODS, Api, node_of, pod_manifest, scheduled_condition
from tests.e2e.stack import Stack, until
from tests.kube_env.control_plane import ControlPlane

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(180)]

DAEMON_SETS = "/apis/apps/v1/namespaces/default/daemonsets"
NODES = 4


@pytest.fixture(scope="module")
def plane(kube_binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that runs DaemonSets."""
    with ControlPlane(tmp_path_factory.mktemp("daemons"), kube_binaries) as plane:
        plane.start_controller_manager("daemonset-controller")
        yield plane


@pytest.fixture
async def api(plane: ControlPlane) -> AsyncIterator[Api]:
    """Access to a cluster with four nodes, of which n-0 is cordoned."""
    async with Api(plane) as made:
        await made.clear()
        await made.create_nodes(NODES, cpu="1")
        cordon = {"spec": {"unschedulable": True}}
        await made.call("PATCH", "/api/v1/nodes/n-0", cordon, kind=MERGE)
        yield made
        await made.clear()


async def test_each_pod_of_a_daemon_set_goes_to_its_node(api: Api, tmp_path: Path) -> None:
    async with Stack(tmp_path, api.plane.kubeconfig) as stack:
        await api.create_pod("filler", cpu="1", nodeSelector={"kubernetes.io/hostname": "n-3"})

        async def filled() -> bool:
            return node_of(await api.pod("filler")) == "n-3"

        await until(filled, timeout_s=30, what="n-3 is full")
        template = pod_manifest("agent", cpu="500m")
        labels = {"matchLabels": {"app": "agent"}}
        spec = {
            "selector": labels,
            "template": {"metadata": {"labels": labels["matchLabels"]}, "spec": template["spec"]},
        }
        await api.call("POST", DAEMON_SETS, {"metadata": {"name": "agent"}, "spec": spec})

        async def three_run_and_one_waits() -> bool:
            pods = [p for p in await api.pods() if p["metadata"]["name"] != "filler"]
            waiting = [p for p in pods if not node_of(p)]
            nodes = sorted(node_of(p) for p in pods if node_of(p))
            told = [scheduled_condition(p).get("message", "") for p in waiting]
            return nodes == ["n-0", "n-1", "n-2"] and len(told) == 1 and "cpu" in told[0]

        await until(three_run_and_one_waits, timeout_s=60, what="three agents run, one is told why")
        await api.delete_pod("filler")

        async def all_run() -> bool:
            pods = await api.pods()
            return sorted(map(node_of, pods)) == [f"n-{number}" for number in range(NODES)]

        await until(all_run, timeout_s=60, what="the last agent runs on the node that got room")
        await api.call("DELETE", f"{DAEMON_SETS}/agent", {"propagationPolicy": "Orphan"})
        await api.call("DELETE", PODS, AT_ONCE)
        await stack.settle()
