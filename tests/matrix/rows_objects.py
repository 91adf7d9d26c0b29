"""Rows 30–35, 43, 45: nodes and pods change in flight; others bind too; hostile pods."""

from __future__ import annotations

import asyncio
import copy

from tests.e2e.api import AT_ONCE, MERGE, PODS, node_of, pod_manifest, scheduled_condition
from tests.e2e.test_hostile_pods import PLACED, TOLD
from tests.matrix.cluster import NODE_PODS, NODES
from tests.matrix.field import Field, until
from tests.matrix.http_link import Act
from tests.matrix.load import MOST
from tests.matrix.row import row

NODE = "/api/v1/nodes"
FEW = 3


def some_nodes(field: Field, count: int = FEW) -> list[str]:
    """Names."""
    return field.rng.sample([f"n-{number}" for number in range(NODES)], count)


async def held_before_bind(field: Field) -> str:
    """The leading Binder, with pods reserved and not bound, the check of their node still to
    come."""
    binder = await field.leader("binder")
    field.arm(binder, "binder.before_post", "hold")
    await field.struck(at_least=20)
    return binder


@row(30, "Node deleted between reserve and bind", "entry void, pod re-placed; no bind to a ghost")
async def node_deleted(field: Field) -> None:
    await field.load.start()
    field.load.fault_begins()
    await held_before_bind(field)
    names = some_nodes(field)
    for name in names:
        await field.cluster.insist("DELETE", f"{NODE}/{name}")
    field.saw("node deleted", len(names))
    await asyncio.sleep(0.5)
    before = on(field, names)
    field.heal()
    await asyncio.sleep(1.0)
    assert on(field, names) == before, "bound to a node that is gone"
    for name in names:
        await field.cluster.create_node(name, pods=str(NODE_PODS))
    await field.load.finish()


def on(field: Field, nodes: list[str]) -> int:
    """Pods on these nodes."""
    return sum(node in nodes for node in field.cluster.nodes.values())


@row(31, "Node recreated, same name", "new uid: old proposals NACK")
async def node_recreated(field: Field) -> None:
    await field.load.start()
    field.load.fault_begins()
    await held_before_bind(field)
    for name in some_nodes(field):
        await field.cluster.insist("DELETE", f"{NODE}/{name}")
        await field.cluster.create_node(name, pods=str(NODE_PODS))
        field.saw("node recreated")
    await asyncio.sleep(field.rng.uniform(0, 1))
    field.heal()
    await field.load.finish()


@row(32, "Allocatable shrink, cordon, NoSchedule taint", "commit-time re-check; others go on")
async def nodes_change(field: Field) -> None:
    await field.load.start()
    field.load.fault_begins()
    shrunk, cordoned, tainted = some_nodes(field)
    taint = {"key": "matrix", "value": "x", "effect": "NoSchedule"}
    off = {"spec": {"unschedulable": True}}
    on_again = {"spec": {"unschedulable": None, "taints": None}}
    for name in (cordoned, shrunk):
        await field.cluster.insist("PATCH", f"{NODE}/{name}", off, kind=MERGE)
    # A bind that was reserved before a shrink and lands after it is the race that case k accepts,
    # and would be told as one pod too many: so this node has none on its way when it shrinks.
    await asyncio.sleep(2.0)
    room = {"status": {"allocatable": {"pods": "1"}}}
    await field.cluster.insist("PATCH", f"{NODE}/{shrunk}/status", room, kind=MERGE)
    await field.cluster.insist("PATCH", f"{NODE}/{shrunk}", on_again, kind=MERGE)
    taints = {"spec": {"taints": [taint]}}
    await field.cluster.insist("PATCH", f"{NODE}/{tainted}", taints, kind=MERGE)
    field.saw("node changed", 3)
    await asyncio.sleep(2.0)  # what was reserved before the change was seen is bound by now
    before = on(field, [shrunk, cordoned, tainted])
    await field.load.enough()
    assert on(field, [shrunk, cordoned, tainted]) == before, "bound to a node that takes no pods"
    room = {"status": {"allocatable": {"pods": str(NODE_PODS)}}}
    await field.cluster.insist("PATCH", f"{NODE}/{shrunk}/status", room, kind=MERGE)
    for name in (cordoned, tainted):
        await field.cluster.insist("PATCH", f"{NODE}/{name}", on_again, kind=MERGE)
    await field.load.finish()


@row(33, "Pod deleted / recreated, same name, in flight", "404/409; I3")
async def pods_recreated(field: Field) -> None:
    await field.load.start()
    field.load.fault_begins()
    link = field.api_link(await field.leader("binder"))
    if field.rng.random() < 0.5:  # the POST is on its way
        link.on(Act.HOLD)
        await until(lambda: link.held >= 10, timeout_s=20, what="binds on their way")
        link.hold_no_more()
    else:  # or is about to be sent
        await held_before_bind(field)
    waiting = [name for name in field.load.created if name not in field.cluster.nodes][:10]
    for name in waiting:
        await field.cluster.insist("DELETE", f"{PODS}/{name}", AT_ONCE)
        field.saw("pod deleted in flight")
        if field.rng.random() < 0.7:
            await field.cluster.insist("POST", PODS, pod_manifest(name, cpu="300m"))
        else:
            field.load.created.remove(name)
    field.heal()
    await field.load.finish()


@row(34, "Pod labels changed in flight", "RV 409 → re-plan")
async def pods_change(field: Field) -> None:
    await field.load.start()
    field.load.fault_begins()
    link = field.api_link(await field.leader("binder"))
    link.on(Act.HOLD)
    await until(lambda: link.held >= 10, timeout_s=20, what="binds on their way")
    link.hold_no_more()
    waiting = [name for name in field.load.created if name not in field.cluster.nodes][:20]
    change = {"metadata": {"labels": {"touched": "yes"}}}
    for name in waiting:
        await field.cluster.insist("PATCH", f"{PODS}/{name}", change, kind=MERGE)
    link.release()
    await until(lambda: len(link.late) >= 10, timeout_s=20, what="held binds answered")
    field.saw("bind refused for an old version", sum(s == 409 for s in link.late))
    await field.load.finish()


RIVALS = NODES * NODE_PODS - MOST
"""Pods of another scheduler, which sit on no more than the slots that the load leaves free."""


@row(35, "Rival scheduler binding at 100/s on the same nodes", "I1c; collisions counted; no crash")
async def rival(field: Field) -> None:
    await field.load.start()
    field.load.fault_begins()
    names = [f"rival-{field.load.began:.0f}-{number}" for number in range(RIVALS)]
    for name in names:
        pod = pod_manifest(name, cpu="100m")
        pod["spec"]["schedulerName"] = "rival"
        await field.cluster.insist("POST", PODS, pod)
        node = f"n-{field.rng.randrange(NODES)}"
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"metadata": {"name": name}, "target": target}
        await field.cluster.insist("POST", f"{PODS}/{name}/binding", body)
        field.saw("bind by the rival")
        await asyncio.sleep(0.01)
    await field.load.finish()
    for name in names:
        await field.cluster.insist("DELETE", f"{PODS}/{name}", AT_ONCE)
    starts = {name: role.starts for name, role in field.stack.supervisor.roles.items()}
    await asyncio.sleep(0.5)
    assert starts == {n: r.starts for n, r in field.stack.supervisor.roles.items()}, "a role died"


@row(43, "Kubelet rejects 5 %", "Failed counted, owner's new pod scheduled")
async def kubelet_rejects(field: Field) -> None:
    await field.load.start()
    field.load.fault_begins()
    for number in range(20):
        await until(lambda: len(field.cluster.nodes) > 20, timeout_s=20, what="bound pods")
        name = field.rng.choice(sorted(field.cluster.nodes))
        status = {"phase": "Failed", "reason": "TopologyAffinityError", "message": "the test's"}
        await field.cluster.insist("PATCH", f"{PODS}/{name}/status", {"status": status}, kind=MERGE)
        again = f"{field.load.created[0]}-again-{number}"
        await field.cluster.insist("POST", PODS, pod_manifest(again))
        field.load.created.append(again)
        field.saw("kubelet rejects")
        await asyncio.sleep(0.1)
    await field.load.finish()


@row(45, "Hostile objects", "bounded time, told why, others unaffected")
async def hostile(field: Field) -> None:
    await field.load.start()
    field.load.fault_begins()
    for pod in (*PLACED, *TOLD):
        status, _ = await field.cluster.answer("POST", PODS, copy.deepcopy(pod))
        field.saw("hostile pod", int(status == 201))
    await field.load.finish()
    for pod in TOLD:
        name = pod["metadata"]["name"]
        status, seen = await field.cluster.answer("GET", f"{PODS}/{name}")
        if status == 200:  # the API server may have refused it before
            await until(lambda n=name: told(field, n), timeout_s=30, what=f"{name} is told why")
            assert not node_of(seen)


async def told(field: Field, name: str) -> bool:
    """Whether a pod has a PodScheduled condition."""
    return bool(scheduled_condition(await field.cluster.pod(name)))
