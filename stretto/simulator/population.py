"""Nodes and pods that a simulated cluster holds at the start."""

from __future__ import annotations

from collections.abc import Iterator

from stretto.simulator.api import ApiServer
from stretto.simulator.kinds import kind_of
from stretto.simulator.records import Body
from stretto.simulator.settings import SimulatorSettings


def populate(api: ApiServer, settings: SimulatorSettings) -> None:
    """Create what the settings ask for."""
    nodes, pods = kind_of("", "v1", "nodes"), kind_of("", "v1", "pods")
    for node in node_bodies(settings):
        api.create(nodes, node)
    for pod in pod_bodies(settings):
        api.create(pods, pod, namespace="default")


def node_bodies(settings: SimulatorSettings) -> Iterator[Body]:
    """Ready nodes of one size, spread over zones."""
    room = {"cpu": settings.node_cpu, "memory": settings.node_memory, "pods": settings.node_pods}
    for number in range(settings.nodes):
        name = f"node-{number:05}"
        yield {
            "metadata": {
                "name": name,
                "labels": {
                    "kubernetes.io/arch": "amd64",
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/os": "linux",
                    "topology.kubernetes.io/zone": f"zone-{number % settings.node_zones}",
                },
            },
            "spec": {},
            "status": {
                "capacity": room,
                "allocatable": room,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            },
        }


def pod_bodies(settings: SimulatorSettings) -> Iterator[Body]:
    """Pending pods; shape k asks for (k + 1) * 10m cpu and (k + 1) * 16Mi memory."""
    for number in range(settings.pods):
        shape = number % settings.pod_shapes
        requests = {"cpu": f"{(shape + 1) * 10}m", "memory": f"{(shape + 1) * 16}Mi"}
        yield {
            "metadata": {"name": f"pod-{number:06}", "labels": {"app": f"app-{shape}"}},
            "spec": {
                "schedulerName": settings.pod_scheduler_name,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example/app:1",
                        "resources": {"requests": requests},
                    }
                ],
            },
        }
