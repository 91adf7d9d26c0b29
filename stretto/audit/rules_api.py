"""Invariants of the API's history alone: capacity, one bind a pod, leadership.

Amounts are summed by the simulated kubelet's own code, not by the scheduler's.

Where a part of the history was not watched (:class:`~stretto.audit.api_log.Unseen`), what is judged
is what can be known all the same. What was there before and is not listed afterwards ended
somewhere within: it takes no room from the beginning of the gap on. A node's room is judged when
the gap has ended, by what is listed then, against the most room that the node had in the gap: the
last of the hidden binds met at least that. A bind within replaced some version between the last
one seen and its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from stretto.audit.api_log import ApiLog, Change, Edge, Object, Unseen, live, node_name_of
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
    since: int
    """The earliest version that it can have replaced; 0 if it was created bound."""
    before: int
    """The latest that it can have replaced: the same, unless a part of the history is missing."""
    at_ns: int
    scheduler: str
    node_uid: str
    """Of the node of that name then; "" if there was none."""
    node_known: bool = True
    """Nothing is missing that could have told of another node of that name."""
    outside: bool = False
    """It happened before the recording began."""


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
        self._lease: dict[str, tuple[str, int, int]] = {}
        """Uid of a Lease → (holder, epoch, version from which on the holder has it)."""
        self._log = ApiLog([], [])
        self._node_since: dict[str, int] = {}
        """Name of a node → the version from which on it is known to be this one's."""
        self._bound_version: dict[str, int] = {}
        """Uid of a pod → the version from which on it is known to be bound."""
        self._hidden_binds: dict[str, Change] = {}
        """Uid of a pod that came to its node in the gap that is open → what showed it."""
        self._most_room: dict[str, Amounts] = {}
        """Node that changed in the gap of pods that is open → the most it had of each resource."""

    def run(self, log: ApiLog) -> None:
        """Check every change."""
        self._log = log
        for step in log.timeline():
            if isinstance(step, Edge):
                self._edge(step)
            elif step.kind == "pods":
                self._pod(step)
            elif step.kind == "nodes":
                self._node(step)
            elif step.kind == "leases":
                self._lease_changed(step)

    # ---------------------------------------------------------------------------------------- gaps
    def _edge(self, edge: Edge) -> None:
        unseen = edge.unseen
        if unseen.kind == "pods":
            if edge.opens:
                for uid in unseen.gone:
                    self._pod_gone(uid)
            else:
                self._room_after(unseen)
                self._most_room.clear()
        elif unseen.kind == "nodes" and not edge.opens:
            for name, node in list(self.nodes.items()):
                if node["metadata"]["uid"] in unseen.gone:
                    self._node_gone(name, unseen.at_ns)
        elif unseen.kind == "leases" and edge.opens:
            for uid in unseen.gone:
                self._lease.pop(uid, None)

    def _room_after(self, unseen: Unseen) -> None:
        """I1b for the binds that a gap hid, once it is known who is there after the last."""
        hidden, self._hidden_binds = self._hidden_binds, {}
        if unseen.first:
            return  # who bound those, and what the nodes had then, is before the history
        gap = (unseen.after + 1, unseen.until)
        others = [u for u in self._log.unseen if u is not unseen and u.kind in ("pods", "nodes")]
        known = not any(u.meets(*gap) for u in others)
        for change in hidden.values():
            pod = self.pods.get(change.uid)
            if pod is not None and live(pod):
                self._capacity(change, node_name_of(pod), known=known)

    def _pod_gone(self, uid: str) -> None:
        self._count(self.pods.pop(uid, None), -1)
        self._bound_version.pop(uid, None)
        self._hidden_binds.pop(uid, None)

    def _node_gone(self, name: str, at_ns: int) -> None:
        del self.nodes[name]
        self.node_gone_ns[name] = at_ns

    # ------------------------------------------------------------------------------------- changes
    def _node(self, change: Change) -> None:
        name = change.name
        before = self.nodes.get(name)
        if change.gone:
            if before is not None and before["metadata"]["uid"] == change.uid:
                self._node_gone(name, change.at_ns)
            return
        if self._log.hidden("pods", change.version) is not None:
            most = self._most_room.setdefault(name, room_of(before))
            for resource, amount in room_of(change.object).items():
                most[resource] = max(amount, most.get(resource, 0))
        if before is None or before["metadata"]["uid"] != change.uid:
            self._node_since[name] = change.version
        self.nodes[name] = change.object
        self.node_gone_ns.pop(name, None)

    def _pod(self, change: Change) -> None:
        uid, pod = change.uid, change.object
        before = self.pods.get(uid)
        if change.gone:
            self._pod_gone(uid)
            return
        self._count(before, -1)
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
        hidden = self._log.hidden("pods", change.version)
        self.binds.append(self._bind(change, before, hidden))
        self._bound_version[change.uid] = change.version
        if scheduler not in self._schedulers:
            self._foreign.add(node)
        elif before is not None or hidden is not None:
            leaving = before is not None and bool(before["metadata"].get("deletionTimestamp"))
            leaves = bool(change.object["metadata"].get("deletionTimestamp"))
            self._findings.check(
                "I19", holds=not (leaving or (hidden is not None and leaves)),
                known=leaving, where=f"revision {change.version}",
                what=f"pod {change.name} was bound while it was being deleted",
            )  # fmt: skip
        if hidden is None:
            self._capacity(change, node)
        else:
            self._hidden_binds[change.uid] = change

    def _bind(self, change: Change, before: Object | None, hidden: Unseen | None) -> Bind:
        node, pod = node_name_of(change.object), change.object
        there = self.nodes.get(node, {}).get("metadata", {}).get("uid", "")
        since = int(before["metadata"]["resourceVersion"]) if before is not None else 0
        if before is None and hidden is not None:
            since = hidden.after + 1  # it was created within
        return Bind(
            change.uid, change.name, node, change.version,
            since=since, before=since if hidden is None else change.version - 1,
            at_ns=change.at_ns, scheduler=str(pod["spec"].get("schedulerName", "")),
            node_uid=there,
            node_known=self._node_known(
                node, there, since if hidden is not None else change.version, change.version
            ),
            outside=hidden is not None and hidden.first,
        )  # fmt: skip

    def _node_known(self, name: str, there: str, first: int, last: int) -> bool:
        """From ``first`` to ``last`` the name was that of this node, or nobody's."""
        gaps = [u for u in self._log.unseen if u.kind == "nodes" and u.meets(first, last)]
        if there:
            stood = self._node_since[name] <= first
            return stood and not any(there in u.gone for u in gaps)
        return first == last and not gaps

    def _count(self, pod: Object | None, sign: int) -> None:
        node = node_name_of(pod) if pod is not None and live(pod) else ""
        if not node or pod is None:
            return
        used = self._used.setdefault(node, {})
        for resource, amount in pod_amounts(pod["spec"]).items():
            used[resource] = used.get(resource, 0) + sign * amount

    def _capacity(self, change: Change, node: str, *, known: bool = True) -> None:
        """Room may only be exceeded by a shrink, which is no bind: so binds are what is judged."""
        if node not in self.nodes or node in self._foreign:
            return
        room = self._most_room.get(node) or room_of(self.nodes[node])
        taken = pod_amounts(change.object["spec"])
        met = met_by_devices(change.object)
        for resource, used in self._used[node].items():
            if taken.get(resource) and resource not in met:
                self._findings.check(
                    "I1b", holds=used <= room.get(resource, 0), known=known,
                    where=f"revision {change.version}",
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
        # Somebody else's pod that came and went unseen may have had the room.
        bound = self._bound_version.get(change.uid, 0)
        known = not self._log.missed("pods", bound, change.version)
        self._findings.check(
            "R16", holds=not reason.startswith(KUBELET_SAYS_FULL), known=known,
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
        old_holder, old, since = known or ("", epoch, 0)
        taken = change.version if holder != old_holder else since
        self._lease[change.uid] = (holder, epoch, taken)
        if known is None:
            return
        self._findings.check(
            "I9", holds=epoch >= old, where=f"revision {change.version}",
            what=f"the epoch in lease {change.name} fell from {old} to {epoch}",
        )  # fmt: skip
        if epoch != old:
            # A holder that ends before its first renewal announces its epoch with the release.
            renews, releases = holder == old_holder, not holder and epoch == since
            missed = any(self._log.hidden("leases", each) for each in (change.version, since))
            self._findings.check(
                "I9", holds=bool(old_holder) and (renews or releases), known=not missed,
                where=f"revision {change.version}",
                what=f"lease {change.name}: epoch {epoch} was announced by {holder or 'nobody'}, "
                f"who did not hold it before",
            )  # fmt: skip


def room_of(node: Object | None) -> Amounts:
    """What a node has to give; nothing if it does not exist."""
    return amounts((node or {}).get("status", {}).get("allocatable"))
