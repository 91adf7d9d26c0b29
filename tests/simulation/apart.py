"""Pods that keep apart, under faults: no host ever holds two of a set.

Each set has as many pods as there are hosts, with required anti-affinity over host names; half of
the sets have the terms on one pod in two only, which keeps the others off all the same. What is
bound is looked at at every revision of the API server.
"""

from __future__ import annotations

from typing import Any

from stretto.simulator.store import Change
from tests.simulation.cluster import NODES, PODS, Settings, Simulation, Violation

HOST = "kubernetes.io/hostname"
SETS = Settings(shards=3, nodes=4, node_cpu=4, singles=12, rivals=0, gangs=0, deletes=14)
"""Three sets of four; room is not what is scarce."""


class Apart(Simulation):
    """One run; see the module docstring."""

    def __init__(self, seed: int, settings: Settings = SETS) -> None:
        super().__init__(seed, settings)
        self._on: dict[tuple[str, str], dict[str, bool]] = {}
        """(set, node) → name of a bound pod → whether it has terms."""

    def _create_cluster(self) -> None:
        super()._create_cluster()
        for number in range(self.settings.nodes):
            patch = {"metadata": {"labels": {HOST: f"n{number}"}}}
            self.kube.call("PATCH", f"{NODES}/n{number}", patch)
        self.kube.api.store(self.pods_kind).observe(self._changed)

    def create_pod(self, name: str, *, cpu: str = "500m", group: str = "") -> None:
        """A pod of a set; the last pod of a run is of none."""
        if not name.startswith("p"):
            super().create_pod(name, cpu=cpu, group=group)
            return
        own, terms = set_of(name)
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
        spec: dict[str, Any] = {"schedulerName": "stretto", "containers": [container]}
        if terms:
            required = {"requiredDuringSchedulingIgnoredDuringExecution": self.terms(name, own)}
            spec["affinity"] = {"podAntiAffinity": required}
        metadata = {"name": name, "labels": {own: "yes"}}
        self.kube.call("POST", PODS, {"metadata": metadata, "spec": spec})
        self.world.note(f"created {name}")

    def terms(self, name: str, own: str) -> list[dict[str, Any]]:
        """What keeps a pod apart from its set."""
        return [term_about(own)]

    def _changed(self, change: Change) -> None:
        old, new = change.old, change.new
        for pod in (old, new):
            if pod is not None and pod.name.startswith("p") and getattr(pod, "node_name", ""):
                here = self._on.setdefault((set_of(pod.name)[0], pod.node_name), {})  # type: ignore[attr-defined]
                here.pop(pod.name, None)
                if pod is new:
                    here[pod.name] = set_of(pod.name)[1]
        for (own, node), pods in self._on.items():
            if len(pods) > 1 and any(pods.values()):
                text = f"{' and '.join(sorted(pods))} of {own} are both on {node}"
                raise Violation(f"seed {self.world.seed} at {self.world.now:.3f}: {text}")


def term_about(key: str, *, over: str = HOST) -> dict[str, Any]:
    """A term about pods with a label."""
    return {"topologyKey": over, "labelSelector": {"matchLabels": {key: "yes"}}}


def set_of(name: str) -> tuple[str, bool]:
    """(label key of the pod's set, whether it has terms). Each set reads a key of its own, so that
    keys come while pods are on their way."""
    number = int(name[1:])
    return f"set-{number % 3}", number % 3 == 0 or number % 2 == 0
