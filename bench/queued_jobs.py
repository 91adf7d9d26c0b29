"""Jobs that wait before their pods exist: what a hundred thousand queued members cost.

Jobs of equal size stand in one queue that has room for one of them. No pod is made: the simulator
has no Job controller. Then Jobs are deleted one by one, and each time the next is resumed.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from typing import Any

from bench.queue import Cluster, cluster
from stretto.model.errors import OperatorError
from stretto.model.jobs import ADMISSION, ADMISSION_LABEL
from stretto.model.shape import QUEUE_LABEL
from stretto.quota.rows import QUOTA_API
from stretto.workload.processes import process_use

JOBS = "/apis/batch/v1/namespaces/default/jobs"
DEFINITION = {
    "metadata": {"name": "queues.scheduling.stretto.io"},
    "spec": {
        "group": "scheduling.stretto.io",
        "names": {"plural": "queues"},
        "versions": [{"name": "v1alpha1", "served": True}],
    },
}
PATIENCE_S = 300.0
ENDS = 20
"""Jobs that end, one after the other."""


def job(name: str, *, members: int) -> dict[str, Any]:
    """A suspended Job that asks for admission."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": {"name": name, "labels": {ADMISSION_LABEL: ADMISSION}, "generation": 1},
        "spec": {
            "suspend": True,
            "parallelism": members,
            "completions": members,
            "template": {
                "metadata": {"labels": {QUEUE_LABEL: "a"}},
                "spec": {"schedulerName": "stretto", "containers": [container]},
            },
        },
    }


class Field:
    """A deployment with Jobs in its queue."""

    def __init__(self, here: Cluster) -> None:
        self._here = here
        self.running: list[str] = []

    async def told(self) -> tuple[int, int]:
        """(Jobs that run, Jobs that have been told what they wait for), by the API server."""
        items = json.loads((await self._here.client.get(JOBS)).body)["items"]
        self.running = [each["metadata"]["name"] for each in items if not each["spec"]["suspend"]]
        told = sum(bool((each.get("status") or {}).get("conditions")) for each in items)
        return len(self.running), told

    async def until(self, *, runs: int, told: int, every_s: float = 0.25) -> None:
        """Wait until so many Jobs run and so many have been told."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := await self.told()) != (runs, told):
            if time.monotonic() > deadline:
                raise OperatorError(
                    f"{found} Jobs run and were told in {PATIENCE_S:g} s, and not {(runs, told)}; "
                    f"the ends of the logs:\n{self._here.roles.last_words()}"
                )
            await asyncio.sleep(every_s)

    def shards_mib(self) -> float:
        """Resident memory of the largest shard."""
        uses = [process_use("shard", pid) for pid in self._here.roles.pids()["shards"]]
        return max(use.resident_mib for use in uses if use is not None)


async def queued_jobs(options: Any) -> None:
    """The row."""
    count = options.jobs
    members = options.queued // count
    async with cluster(nodes=1, node_cpu="8", shards=options.shards) as here:
        field = Field(here)
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        await here.create(definitions, [DEFINITION])
        queue = {"metadata": {"name": "a"}, "spec": {"limit": {"cpu": str(members)}}}
        await here.create(f"/apis/{QUOTA_API}/queues", [queue])
        # A definition that comes later is looked for every 30 s.
        deadline = time.monotonic() + PATIENCE_S
        while "stretto_queue_waiting{" not in await here.roles.dispatcher_page():
            if time.monotonic() > deadline:
                raise OperatorError(f"the queue is not known after {PATIENCE_S:g} s")
            await asyncio.sleep(0.5)
        before_cpu, before_mib = here.dispatcher()
        shard_mib = field.shards_mib()
        began = time.monotonic()
        await here.create(JOBS, (job(f"j{number:03}", members=members) for number in range(count)))
        await field.until(runs=1, told=count)
        told_s = time.monotonic() - began
        cpu_s, mib = here.dispatcher()
        waits = []
        for number in range(min(ENDS, count - 1)):
            ended = time.monotonic()
            assert (await here.client.delete(f"{JOBS}/{field.running[0]}")).ok
            await field.until(runs=1, told=count - number - 1, every_s=0.05)
            waits.append(time.monotonic() - ended)
        pods = len(json.loads((await here.client.get("/api/v1/pods")).body)["items"])
        print(
            f"{count * members:,} queued members of {count} Jobs, room for one: {pods} pods, all "
            f"told after {told_s:.1f} s; dispatcher {mib:.0f} MiB (+{mib - before_mib:.1f}), "
            f"{cpu_s - before_cpu:.2f} s of CPU; shard +{field.shards_mib() - shard_mib:.1f} MiB; "
            f"from the end of a Job to the next one resumed {statistics.median(waits):.2f} s "
            f"(P50 of {len(waits)}, largest {max(waits):.2f})",
            flush=True,
        )
