"""The kubelets of the simulated nodes: one plain class that judges and adds up for all of them.

They are the overcommit oracle. What they know comes from the API server's objects alone, and what a
pod takes is reckoned in :mod:`stretto.simulator.amounts`, not by the scheduler's code. A pod that
does not fit beside those admitted before it is rejected as a real kubelet rejects it, and its node
counts as overcommitted.

One difference is meant: a real kubelet does not look at extended resources that its node lacks
altogether; here they are missed like any other (``OutOf<name>``), since it is the scheduler that is
on trial.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stretto.simulator.amounts import AmountError, Amounts, amounts, pod_amounts
from stretto.simulator.node_choice import chooses
from stretto.simulator.pods import ENDED
from stretto.simulator.records import NodeRecord, PodRecord, decode
from stretto.simulator.store import Change

DURATION = "stretto.io/duration-ms"
"""Annotation: how long a pod runs before it succeeds, in milliseconds; without it, for ever."""
KNOWN_SPECS = 10_000
"""Specs whose amounts are remembered."""
_ORDER = ("pods", "cpu", "memory", "ephemeral-storage")


class Start(NamedTuple):
    """Write that the pod runs."""

    pod: PodRecord


class Reject(NamedTuple):
    """Write that the pod has failed."""

    pod: PodRecord
    reason: str
    message: str


class End(NamedTuple):
    """Remove a deleted pod, when it has ended."""

    pod: PodRecord


Action = Start | Reject | End


class _Wish(NamedTuple):
    """What a spec asks of a node."""

    amounts: Amounts
    chooser: Mapping[str, Any] | None
    """The spec, if it chooses among nodes."""
    problem: str = ""
    """Why the amounts cannot be read."""


@dataclass
class _Node:
    """A node as its kubelet sees it."""

    allocatable: Amounts
    labels: dict[str, str]
    used: Amounts = field(default_factory=dict)
    admitted: dict[str, Amounts] = field(default_factory=dict)
    """By pod uid."""

    def lacks(self, wanted: Amounts) -> list[str]:
        """What there is too little of, in the kubelet's order."""
        short = [
            name
            for name, value in wanted.items()
            if value and self.used.get(name, 0) + value > self.allocatable.get(name, 0)
        ]
        return sorted(short, key=lambda name: (_rank(name), name))

    def admit(self, uid: str, wanted: Amounts) -> None:
        self.admitted[uid] = wanted
        for name, value in wanted.items():
            self.used[name] = self.used.get(name, 0) + value

    def release(self, uid: str) -> None:
        for name, value in self.admitted.pop(uid, {}).items():
            self.used[name] -= value


class Kubelets:
    """All kubelets. Feed it every change of nodes and pods; carry out what it answers."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._waiting: dict[str, dict[str, PodRecord]] = {}
        """Pods on nodes that do not exist, by node and uid."""
        self._specs: OrderedDict[bytes, _Wish] = OrderedDict()
        self.admitted = 0
        """Pods admitted so far."""
        self.rejected: dict[str, int] = {}
        """Pods rejected so far, by reason."""
        self.overcommitted: dict[str, float] = {}
        """Nodes that were given more than they have: the highest ratio seen, by name."""
        self.highest_ratio = 0.0
        """Of any resource on any node: what was put there over what there is."""

    # --- nodes ---------------------------------------------------------------------------------

    def observe_node(self, change: Change) -> list[Action]:
        """A node came, changed or went."""
        node = change.new
        if node is None:
            assert change.old is not None, "a change of nothing"
            self._nodes.pop(change.old.name, None)
            return []
        assert isinstance(node, NodeRecord), "not a node"
        status = node.body().get("status") or {}
        try:
            allocatable = amounts(status.get("allocatable") or status.get("capacity"))
        except AmountError:
            allocatable = {}
        known = self._nodes.get(node.name)
        if known is not None:
            known.allocatable, known.labels = allocatable, node.labels
            return []
        self._nodes[node.name] = _Node(allocatable, node.labels)
        waiting = self._waiting.pop(node.name, {})
        return [self._judge(pod) for pod in waiting.values()]

    # --- pods ----------------------------------------------------------------------------------

    def observe_pod(self, change: Change) -> list[Action]:
        """A pod came, changed or went."""
        old, new = change.old, change.new
        assert old is None or isinstance(old, PodRecord), "not a pod"
        assert new is None or isinstance(new, PodRecord), "not a pod"
        was_bound = old is not None and bool(old.node_name)
        if new is None or new.phase in ENDED:
            if was_bound and old is not None:
                self._release(old)
            deleted = new is not None and new.deleting and bool(new.node_name)
            return [End(new)] if deleted and new is not None else []
        if not new.node_name:
            return []
        if not was_bound:
            if new.node_name in self._nodes:
                return [self._judge(new)]
            self._waiting.setdefault(new.node_name, {})[new.uid] = new
        elif new.deleting and new.node_name in self._nodes:
            assert old is not None, "bound before"
            return [] if old.deleting else [End(new)]
        return []

    def _release(self, pod: PodRecord) -> None:
        node = self._nodes.get(pod.node_name)
        if node is not None:
            node.release(pod.uid)
        elif pod.node_name in self._waiting:
            self._waiting[pod.node_name].pop(pod.uid, None)

    def _judge(self, pod: PodRecord) -> Action:
        node = self._nodes[pod.node_name]
        wanted, chooser, problem = self._wish(pod)
        if problem:
            return self._reject(pod, "UnexpectedAdmissionError", problem)
        self._note_ratios(pod.node_name, node, wanted)
        if lacking := node.lacks(wanted):
            name = lacking[0]
            text = (
                f"Node didn't have enough resource: {name}, requested: {wanted[name]}, "
                f"used: {node.used.get(name, 0)}, capacity: {node.allocatable.get(name, 0)}"
            )
            return self._reject(pod, f"OutOf{name}", text)
        if chooser and not chooses(chooser, labels=node.labels, name=pod.node_name):
            text = (
                "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
            )
            return self._reject(pod, "NodeAffinity", text)
        node.admit(pod.uid, wanted)
        self.admitted += 1
        return Start(pod)

    def _reject(self, pod: PodRecord, reason: str, text: str) -> Reject:
        self.rejected[reason] = self.rejected.get(reason, 0) + 1
        return Reject(pod, reason, f"Pod was rejected: {text}")

    def _note_ratios(self, name: str, node: _Node, wanted: Amounts) -> None:
        for resource, value in wanted.items():
            there = node.allocatable.get(resource, 0)
            total = node.used.get(resource, 0) + value
            if not value:
                continue
            ratio = total / there if there else float("inf")
            self.highest_ratio = max(self.highest_ratio, ratio)
            if total > there:
                self.overcommitted[name] = max(ratio, self.overcommitted.get(name, 0.0))

    def _wish(self, pod: PodRecord) -> _Wish:
        """Remembered by spec: replicas share one."""
        found = self._specs.get(pod.spec)
        if found is None:
            found = self._specs[pod.spec] = _wish_of(decode(pod.spec))
            if len(self._specs) > KNOWN_SPECS:
                self._specs.popitem(last=False)
        return found

    # --- what it knows -------------------------------------------------------------------------

    def sums(self) -> dict[str, tuple[Amounts, Amounts]]:
        """(used, allocatable) by node, as they are now."""
        return {name: (dict(node.used), node.allocatable) for name, node in self._nodes.items()}

    def has_node(self, name: str) -> bool:
        """Whether there is a kubelet of that name."""
        return name in self._nodes

    def running(self) -> int:
        """Pods that hold room now."""
        return sum(len(node.admitted) for node in self._nodes.values())

    def statistics(self) -> dict[str, Any]:
        """Counts and totals for reports."""
        used: Amounts = {}
        there: Amounts = {}
        for node in self._nodes.values():
            _add(used, node.used)
            _add(there, node.allocatable)
        return {
            "nodes": len(self._nodes),
            "admitted": self.admitted,
            "rejected": dict(self.rejected),
            "holding_room": self.running(),
            "waiting_for_node": sum(map(len, self._waiting.values())),
            "overcommitted_nodes": len(self.overcommitted),
            "highest_ratio": self.highest_ratio if self.highest_ratio != float("inf") else -1.0,
            "used": used,
            "allocatable": there,
        }

    def validate(self) -> None:
        """Sums equal to their parts, and within what there is when a node was judged."""
        for name, node in self._nodes.items():
            again: Amounts = {}
            for wanted in node.admitted.values():
                _add(again, wanted)
            assert again == {k: v for k, v in node.used.items() if v or k in again}, name


def _wish_of(spec: Mapping[str, Any]) -> _Wish:
    try:
        wanted, problem = pod_amounts(spec), ""
    except AmountError as error:
        wanted, problem = {}, str(error)
    chooses_itself = spec.get("nodeSelector") or spec.get("affinity")
    return _Wish(wanted, spec if chooses_itself else None, problem)


def _add(total: Amounts, part: Amounts) -> None:
    for name, value in part.items():
        total[name] = total.get(name, 0) + value


def _rank(name: str) -> int:
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)
