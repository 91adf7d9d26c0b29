"""Row 42: the API server does not let victims go."""

from __future__ import annotations

from tests.e2e.api import PODS, pod_manifest
from tests.matrix.field import BINDERS, Field, until
from tests.matrix.http_link import Act
from tests.matrix.row import row

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
PREEMPTORS = 3


@row(42, "PDB spent (429), two PDBs (500) on eviction", "no DELETE; other victims or wait")
async def evictions_refused(field: Field) -> None:
    body = {"metadata": {"name": "matrix-high"}, "value": 1000}
    await field.cluster.insist("POST", CLASSES, body)
    await field.load.start()
    field.load.fault_begins()
    await field.load.enough()
    rules = []
    for binder in BINDERS:
        link = field.api_link(binder)
        rules.append(link.on(Act.REFUSE, ends="/eviction", status=429, times=4))
        rules.append(link.on(Act.REFUSE, ends="/eviction", status=500, times=2))
    names = [f"{field.load.created[0]}-high-{number}" for number in range(PREEMPTORS)]
    for name in names:  # more than any node has left beside the load
        pod = pod_manifest(name, cpu="3500m", priorityClassName="matrix-high")
        await field.cluster.insist("POST", PODS, pod)
    await until(
        lambda: all(name in field.cluster.nodes for name in names),
        timeout_s=80,
        what="the preemptors bound",
    )
    assert sum(rule.struck for rule in rules), "no eviction was refused"
    deleted = sum(field.api_link(binder).methods["DELETE"] for binder in BINDERS)
    assert not deleted, f"{deleted} victims were deleted instead of evicted"
    left = {pod["metadata"]["name"] for pod in (await field.cluster.call("GET", PODS))["items"]}
    field.saw("victims", sum(name not in left for name in field.load.created))
    field.load.created = [name for name in field.load.created if name in left]
    await field.load.finish()
