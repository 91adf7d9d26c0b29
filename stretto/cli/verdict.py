"""Invariants that can be checked from outside, from the API's final state and the ledger's.

The simulated kubelet's sums are the oracle of overcommitment: it adds up what it admits with code
of its own. The ledger must be the projection of the API at rest (reliability I24).
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from stretto.kube.client import KubeClient
from stretto.kube.listing import read_all
from stretto.ledger.client import Ledger
from stretto.ledger.types import sums_of_entries
from stretto.model.device_claims import met_by_devices
from stretto.model.objects import Node, Pod
from stretto.model.shaping import ShapeMaker
from stretto.snapshot.node_rows import node_row_of
from stretto.workload.load import LoadResult
from stretto.workload.report import Check

QUIET_S = 15.0
"""Seconds that ledger and API are given to come to rest after the last event."""


@dataclasses.dataclass(frozen=True)
class FinalState:
    """The cluster after the run."""

    pods: list[Pod]
    kubelet: dict[str, Any]
    """The simulated kubelets' own sums and counts."""


async def final_state(
    client: KubeClient, stats: Callable[[], Awaitable[dict[str, Any]]]
) -> FinalState:
    """Read all pods, and what the kubelets counted."""
    pods = await read_all(client, "/api/v1/pods", kind=Pod)
    return FinalState(pods, dict((await stats())["kubelet"]))


def unscheduled_reason(pod: Pod) -> str:
    """Why a pod waits, "" if nobody said."""
    condition = pod.condition("PodScheduled")
    return "" if condition is None else condition.message or condition.reason or ""


def load_checks(result: LoadResult, state: FinalState, *, restarts: dict[str, int]) -> list[Check]:
    """Nothing lost, nothing twice, nothing overcommitted, nobody restarted."""
    waiting = [pod for pod in state.pods if not pod.spec.node_name and not pod.ended]
    mute = [pod.metadata.name for pod in waiting if not unscheduled_reason(pod)]
    kubelet = state.kubelet
    rejected = {str(k): v for k, v in dict(kubelet.get("rejected", {})).items() if v}
    over = int(kubelet.get("overcommitted_nodes", 0))
    counts = result.counts
    return [
        Check(
            "every pod is bound or waits with its reason",
            counts.created == counts.bound + len(waiting) and not mute,
            f"{counts.created} created, {counts.bound} bound, {len(waiting)} waiting, "
            f"{len(mute)} of them without a reason",
        ),
        Check(
            "no pod was bound twice",
            counts.rebound == 0,
            f"{counts.rebound} pods were seen on two nodes",
        ),
        Check(
            "no node is overcommitted, by the simulated kubelet's own sums",
            over == 0,
            f"{over} overcommitted, {kubelet.get('admitted', 0)} pods admitted",
        ),
        Check(
            "no kubelet rejected a pod",
            not rejected,
            ", ".join(f"{reason}: {count}" for reason, count in rejected.items()) or "0 rejected",
        ),
        Check("no role died", not restarts, str(restarts) if restarts else "0 restarts"),
    ]


async def ledger_checks(client: KubeClient, url: str, state: FinalState) -> list[Check]:
    """At rest the ledger's entries are exactly the pods on nodes, and its sums their sums."""
    owner = await ledger_owner(client)
    ledger = await Ledger.open(url, owner=owner)
    try:
        detail = "never came to rest"
        for _ in range(int(QUIET_S * 2)):
            detail = await difference(client, ledger)
            if not detail:
                break
            await asyncio.sleep(0.5)
    finally:
        await ledger.close()
    shown = detail or "entries and sums are equal to those of the API"
    return [Check("the ledger is the projection of the API", not detail, shown)]


async def ledger_owner(client: KubeClient) -> str:
    """The owner that the Binder of this cluster uses with default Lease names."""
    answer = await client.get("/api/v1/namespaces/kube-system")
    uid = msgspec.json.decode(answer.body)["metadata"]["uid"]
    return f"{uid}:kube-system/stretto-binder"


async def difference(client: KubeClient, ledger: Ledger) -> str:
    """What ledger and API disagree on, "" for nothing."""
    await ledger.load_names()
    maker = ShapeMaker()
    live = {}
    nodes = {n.metadata.name: n for n in await read_all(client, "/api/v1/nodes", kind=Node)}
    for pod in await read_all(client, "/api/v1/pods", kind=Pod):
        if pod.spec.node_name and not pod.ended:
            shape = maker.shape_of(pod, placed=True)
            node = nodes.get(pod.spec.node_name)
            met = () if node is None else met_by_devices(shape, node_row_of(node).allocatable)
            lines = (*shape.requests, ("pods", 1))
            live[pod.metadata.uid] = {name: n for name, n in lines if name not in met}
    entries = {entry.pod_uid: entry for entry in await ledger.entries()}
    if entries.keys() != live.keys():
        extra, missing = len(entries.keys() - live.keys()), len(live.keys() - entries.keys())
        return f"{extra} entries too many, {missing} missing"
    for uid, entry in entries.items():
        if dict(entry.lines) != live[uid]:
            return f"the entry of pod {uid} says {dict(entry.lines)}, the pod {live[uid]}"
    expected = sums_of_entries(entries.values())
    for uid, found in (await ledger.sums()).items():
        wanted = expected.get(uid, {})
        if found != wanted:
            return f"account {uid}: sums {found}, entries {wanted}"
    return ""
