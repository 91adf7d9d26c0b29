"""Suspended Jobs under faults: each is admitted in the end, and the quota holds.

Plain pods and Jobs share a queue that holds a part of them. The run plays the Job controller: it
makes the pods of Jobs that are not suspended, lets them end a while after they were bound, and
keeps the Jobs' status. Now and then it suspends a Job that runs. What is on nodes and what Jobs
that run are still owed is added up at each Job that is resumed, and never more than the limit.
"""

from __future__ import annotations

import asyncio
from typing import Any

from stretto.model.jobs import ADMISSION, ADMISSION_LABEL, JOBS_PATH
from stretto.model.shape import QUEUE_LABEL
from stretto.simulator.kinds import kind_of
from stretto.simulator.store import Change
from tests.simulation.cluster import PODS, Settings, Violation
from tests.simulation.quota import LIMIT, QuotaRun

JOBS = JOBS_PATH.replace("/jobs", "/namespaces/default/jobs")
KIND = kind_of("batch", "v1", "jobs")
FEW = Settings(singles=3, rivals=2, gangs=0, deletes=3)
COUNT = 6
EACH = 500
"""Milli-CPU of a member."""
LOOK_S = 0.3
RUNS_S = 1.5
"""A member runs for so long."""


class JobsRun(QuotaRun):
    """One run; see the module docstring."""

    def __init__(self, seed: int, settings: Settings = FEW) -> None:
        super().__init__(seed, settings)
        self.bound_at: dict[str, float] = {}
        self.suspensions = 2
        self.resumed = 0

    def _create_cluster(self) -> None:
        super()._create_cluster()
        self.kube.api.store(KIND).observe(self._job_changed)

    # ------------------------------------------------------------------------------------ the judge
    def _job_changed(self, change: Change) -> None:
        old, new = change.old, change.new
        if old is None or new is None:
            return
        if not old.body()["spec"]["suspend"] or new.body()["spec"]["suspend"]:
            return
        self.resumed += 1
        taken = sum(self.used.values())
        for job in self.kube.api.store(KIND):
            body = new.body() if job.name == new.name else job.body()
            if not body["spec"]["suspend"]:
                placed = sum(bool(pod.node_name) for pod in self.members(job.name))
                taken += EACH * max(0, self.left(body) - placed)
        if taken > LIMIT:
            raise Violation(
                f"seed {self.world.seed}: {new.name} was resumed with {taken}m of {LIMIT}m taken"
            )

    # --------------------------------------------------------------------------- the Job controller
    def members(self, name: str) -> list[Any]:
        """The pods of a Job."""
        return [pod for pod in self._records() if pod.name.startswith(f"{name}-")]

    @staticmethod
    def left(body: Any) -> int:
        """How many members of a Job run at once from now on."""
        spec, status = body["spec"], body.get("status") or {}
        return min(spec["parallelism"], spec["completions"] - status.get("succeeded", 0))

    def _create_job(self, number: int) -> None:
        rng = self.world.rng
        parallelism = rng.randint(1, 4)
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": f"{EACH}m"}}}
        body = {
            "metadata": {
                "name": f"j{number}", "labels": {ADMISSION_LABEL: ADMISSION}, "generation": 1,
            },
            "spec": {
                "suspend": True,
                "parallelism": parallelism,
                "completions": parallelism * rng.randint(1, 2),
                "template": {
                    "metadata": {"labels": {QUEUE_LABEL: "team"}},
                    "spec": {"schedulerName": "stretto", "containers": [container]},
                },
            },
        }  # fmt: skip
        self.kube.call("POST", JOBS, body)

    async def _workload(self) -> None:
        controller = asyncio.create_task(self._control())
        for number in range(COUNT):
            self._create_job(number)
        await super()._workload()
        await controller

    async def _control(self) -> None:
        """Look at the Jobs until all are complete."""
        deadline = self.world.now + self.settings.patience_s + self.settings.fault_s
        while self._sync_all() < COUNT:
            if self.world.now > self.settings.fault_s:
                self.kube.loss = 0.0
            if self.world.now > deadline:
                told = [job.body()["status"] for job in self.kube.api.store(KIND)]
                raise Violation(f"seed {self.world.seed}: Jobs never end: {told}")
            await asyncio.sleep(LOOK_S)

    def _sync_all(self) -> int:
        """Look at each Job; how many are complete."""
        return sum(self._sync(job) for job in list(self.kube.api.store(KIND)))

    def _sync(self, record: Any) -> bool:
        """Make and end the pods of a Job; whether it is complete."""
        body, name, now = record.body(), record.name, self.world.now
        status = body.get("status") or {}
        succeeded = status.get("succeeded", 0)
        conditions = status.get("conditions") or []
        if any(each["type"] == "Complete" for each in conditions):
            return True
        if body["spec"]["suspend"] and all(each["type"] != "Suspended" for each in conditions):
            conditions = [*conditions, {"type": "Suspended", "status": "True"}]
            self.kube.call("PATCH", f"{JOBS}/{name}/status", {"status": {"conditions": conditions}})
            return False
        for pod in self.members(name):
            since = self.bound_at.setdefault(pod.uid, now) if pod.node_name else now
            if body["spec"]["suspend"] or now - since > RUNS_S:
                succeeded += not body["spec"]["suspend"]
                self._write(name, body, succeeded, len(self.members(name)) - 1)
                self._delete(pod.name)
        pods = self.members(name)
        owed = min(body["spec"]["parallelism"], body["spec"]["completions"] - succeeded)
        if not body["spec"]["suspend"]:
            if self.suspensions and self.world.chance(0.03):
                self.suspensions -= 1
                self.kube.call("PATCH", f"{JOBS}/{name}", {"spec": {"suspend": True}})
                return False
            for _ in range(owed - len(pods)):
                self._make_pod(record)
        self._write(name, body, succeeded, len(self.members(name)))
        return False

    def _make_pod(self, record: Any) -> None:
        template = record.body()["spec"]["template"]
        owner = {
            "apiVersion": "batch/v1", "kind": "Job", "name": record.name, "uid": record.uid,
            "controller": True,
        }  # fmt: skip
        name = f"{record.name}-{self.world.rng.getrandbits(32):08x}"
        meta = {**template["metadata"], "name": name, "ownerReferences": [owner]}
        self.kube.call("POST", PODS, {"metadata": meta, "spec": template["spec"]})

    def _write(self, name: str, body: Any, succeeded: int, active: int) -> None:
        status = {"succeeded": succeeded, "active": active}
        before = body.get("status") or {}
        if succeeded >= body["spec"]["completions"]:
            told = [each for each in before.get("conditions") or () if each["type"] != "Complete"]
            body = {"conditions": [*told, {"type": "Complete", "status": "True"}]}
            self.kube.call("PATCH", f"{JOBS}/{name}/status", {"status": {**status, **body}})
        elif {key: before.get(key, 0) for key in status} != status:
            self.kube.call("PATCH", f"{JOBS}/{name}/status", {"status": status})

    # -------------------------------------------------------------------------------------- the end
    def _check_at_rest(self) -> None:
        super()._check_at_rest()
        if self.resumed < COUNT:
            raise Violation(f"seed {self.world.seed}: {self.resumed} of {COUNT} Jobs were resumed")
