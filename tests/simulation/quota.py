"""A deployment under faults with a quota that is smaller than the cluster: never overspent.

All pods are in one queue, by their namespace. Its limit is what the pods that are left at the end
ask for, less than the nodes have; while faults fire, rivals ask for more.
"""

from __future__ import annotations

from typing import Any

from stretto.model.shape import QUEUE_LABEL
from stretto.simulator.store import Change
from tests.simulation.cluster import Settings, Simulation, Violation, cpu_of

QUEUES = "/apis/scheduling.stretto.io/v1alpha1/queues"
LIMIT = 5000
"""Milli-CPU of six single pods, a gang of three and the last one."""
FEWER = Settings(singles=6)


class QuotaRun(Simulation):
    """One run; see the module docstring."""

    def __init__(self, seed: int, settings: Settings = FEWER) -> None:
        super().__init__(seed, settings)
        self.kube.queues = True
        self.used: dict[str, int] = {}
        """Uid → milli-CPU of pods that have a node."""
        self.peak = 0

    def _create_cluster(self) -> None:
        super()._create_cluster()
        for name, spec in (
            ("org", {"limit": {"cpu": f"{LIMIT}m"}}),
            ("team", {"parent": "org", "guaranteed": {"cpu": "1"}}),
        ):
            self.kube.call("POST", QUEUES, {"metadata": {"name": name}, "spec": spec})
        labels = {"metadata": {"labels": {QUEUE_LABEL: "team"}}}
        self.kube.call("PATCH", "/api/v1/namespaces/default", labels)
        self.kube.api.store(self.pods_kind).observe(self._counted)

    def _counted(self, change: Change) -> None:
        old, new = change.old, change.new
        if old is not None and (new is None or old.uid != new.uid):
            self.used.pop(old.uid, None)
        pod: Any = new
        if pod is not None and getattr(pod, "node_name", ""):
            self.used[pod.uid] = cpu_of(pod.body())
        total = sum(self.used.values())
        self.peak = max(self.peak, total)
        if total > LIMIT:
            raise Violation(f"seed {self.world.seed}: {total}m of a quota of {LIMIT}m")

    def _check_at_rest(self) -> None:
        super()._check_at_rest()
        quota = self._parts().machine.cluster.snapshot.quota
        told = dict(quota.usage_of("org").used).get("cpu", 0)
        if told != sum(self.used.values()):
            raise Violation(f"seed {self.world.seed}: the log says {told}m are used")
