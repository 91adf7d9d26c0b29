"""Invariants of the API's history alone: capacity, one bind a pod, leadership.

Amounts are summed by the simulated kubelet's own code, not by the scheduler's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from stretto.audit.api_log import ApiLog, Change, Object, live, node_name_of
from stretto.audit.findings import Findings
from stretto.kube.lease import EPOCH
from stretto.simulator.amounts import Amounts, amounts, met_by_devices, pod_amounts

KUBELET_SAYS_FULL = ("OutOf", "UnexpectedAdmissionError", "NodeAffinity")
"""Reasons of Failed pods that a correct scheduler does not cause."""
NAME_LEASES = "stretto-serves-"
"""Their holder is a deployment, of which several processes hold and renew them, each with what it
was granted: they lead nobody, guard no effect, and have no epoch that counts."""


@dataclasses.dataclass(frozen=True, slots=True)
class Bind:
    """A pod's way from no node to a node."""

    uid: str
    name: str
    node: str
    version: int
    """Of the pod after it."""
    before: int
    """Of the pod before it; 0 if it was created bound."""
    at_ns: int
    scheduler: str
    node_uid: str
    """Of the node of that name then; "" if there was none."""


class ApiRules:
    """Goes through the changes once; afterwards :attr:`binds` and the final pods are known."""

    def __init__(self, findings: Findings, *, schedulers: Iterable[str] = ("stretto",)) -> None:
        self.binds: list[Bind] = []
        self.pods: dict[str, Object] = {}
        """Existing pods by uid, as they are at the end."""
        self.nodes: dict[str, Object] = {}
        """Existing nodes by name, likewise."""
        self.node_gone_ns: dict[str, int] = {}
        """Name → when its node was seen deleted, until it came back."""
        self._findings = findings
        self._schedulers = frozenset(schedulers)
        self._used: dict[str, Amounts] = {}
        self._foreign: set[str] = set()
        """Nodes that carry pods of other schedulers: not ours alone (I1c)."""
        self._lease: dict[str, tuple[str, int]] = {}
        """Uid of a Lease → (holder, epoch)."""

    def run(self, log: ApiLog) -> None:
        """Check every change."""
        for change in log.changes:
            if change.kind == "pods":
                self._pod(change)
            elif change.kind == "nodes":
                self._node(change)
            elif change.kind == "leases":
                self._lease_changed(change)

    # ------------------------------------------------------------------------------------- changes
    def _node(self, change: Change) -> None:
        name = change.name
        if change.gone:
            if self.nodes.get(name, {}).get("metadata", {}).get("uid") == change.uid:
                del self.nodes[name]
                self.node_gone_ns[name] = change.at_ns
            return
        self.nodes[name] = change.object
        self.node_gone_ns.pop(name, None)

    def _pod(self, change: Change) -> None:
        uid, pod = change.uid, change.object
        before = self.pods.get(uid)
        self._count(before, -1)
        if change.gone:
            self.pods.pop(uid, None)
            return
        self.pods[uid] = pod
        self._count(pod, 1)
        node = node_name_of(pod)
        old = node_name_of(before) if before is not None else ""
        where = f"revision {change.version}"
        if before is not None and old:
            self._findings.check(
                "I2", holds=node == old, where=where,
                what=f"pod {change.name} moved from {old} to {node or 'no node'}",
            )  # fmt: skip
        if node and not old:
            self._bound(change, before, node)
        self._refused_by_kubelet(change, before)

    def _bound(self, change: Change, before: Object | None, node: str) -> None:
        scheduler = str(change.object["spec"].get("schedulerName", ""))
        there = self.nodes.get(node, {}).get("metadata", {}).get("uid", "")
        version = int(before["metadata"]["resourceVersion"]) if before is not None else 0
        self.binds.append(
            Bind(
                change.uid, change.name, node, change.version, version, change.at_ns, scheduler,
                there,
            )
        )  # fmt: skip
        if scheduler not in self._schedulers:
            self._foreign.add(node)
        elif before is not None:
            self._findings.check(
                "I19", holds=not before["metadata"].get("deletionTimestamp"),
                where=f"revision {change.version}",
                what=f"pod {change.name} was bound while it was being deleted",
            )  # fmt: skip
        self._capacity(change, node)

    def _count(self, pod: Object | None, sign: int) -> None:
        node = node_name_of(pod) if pod is not None and live(pod) else ""
        if not node or pod is None:
            return
        used = self._used.setdefault(node, {})
        for resource, amount in pod_amounts(pod["spec"]).items():
            used[resource] = used.get(resource, 0) + sign * amount

    def _capacity(self, change: Change, node: str) -> None:
        """Room may only be exceeded by a shrink, which is no bind: so binds are what is judged."""
        if node not in self.nodes or node in self._foreign:
            return
        room = amounts(self.nodes[node].get("status", {}).get("allocatable"))
        taken = pod_amounts(change.object["spec"])
        met = met_by_devices(change.object)
        for resource, used in self._used[node].items():
            if taken.get(resource) and resource not in met:
                self._findings.check(
                    "I1b", holds=used <= room.get(resource, 0), where=f"revision {change.version}",
                    what=f"node {node} holds {used} of {room.get(resource, 0)} {resource} after "
                    f"pod {change.name} was bound",
                )  # fmt: skip

    def _refused_by_kubelet(self, change: Change, before: Object | None) -> None:
        status = change.object.get("status", {})
        node = node_name_of(change.object)
        ended_before = before is not None and not live(before)
        if not node or ended_before or live(change.object) or node in self._foreign:
            return
        reason = str(status.get("reason", ""))
        self._findings.check(
            "R16", holds=not reason.startswith(KUBELET_SAYS_FULL),
            where=f"revision {change.version}",
            what=f"the kubelet of {node} refused pod {change.name}: {reason}",
        )  # fmt: skip

    def _lease_changed(self, change: Change) -> None:
        if change.name.startswith(NAME_LEASES):
            return
        known = self._lease.pop(change.uid, None)
        if change.gone:
            return
        annotations = change.object["metadata"].get("annotations") or {}
        epoch = int(annotations.get(EPOCH) or 0)
        holder = str(change.object.get("spec", {}).get("holderIdentity") or "")
        self._lease[change.uid] = (holder, epoch)
        if known is None:
            return
        old_holder, old = known
        self._findings.check(
            "I9", holds=epoch >= old, where=f"revision {change.version}",
            what=f"the epoch in lease {change.name} fell from {old} to {epoch}",
        )  # fmt: skip
        if epoch != old:
            self._findings.check(
                "I9", holds=bool(holder) and holder == old_holder,
                where=f"revision {change.version}",
                what=f"lease {change.name}: epoch {epoch} was announced by {holder or 'nobody'}, "
                f"who did not hold it before",
            )  # fmt: skip
