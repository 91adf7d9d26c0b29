"""What became of each pod of a run, from what its watch shows. No I/O, no clock.

Three moments are kept for a pod: *created* (its POST was answered), *decided* (the first word of
the scheduler that anyone can see: a node, or PodScheduled=False), and *bound* (spec.nodeName was
seen). All are seconds on the generator's clock, at the time of seeing, so they include the watch's
own delay; they never rest on the clocks of others. A watch event may arrive before the answer to
the POST that caused it; then the pod counts as created when it was seen.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import msgspec

from stretto.model.objects import ObjectMeta, PodCondition

KUBELET_REFUSALS = (
    "OutOf",
    "UnexpectedAdmissionError",
    "AdmissionDenied",
    "NodeAffinity",
    "NodeName",
    "NodePorts",
    "TaintToleration",
    "TopologyAffinityError",
)
"""Beginnings of the reasons with which a kubelet turns away a pod that was bound to it."""


class WatchedSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Where the pod is."""

    node_name: str = ""


class WatchedStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What has become of it."""

    phase: str = ""
    reason: str | None = None
    conditions: list[PodCondition] | None = None


class WatchedPod(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A pod as the observer reads it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WatchedSpec = WatchedSpec()
    status: WatchedStatus = WatchedStatus()


class Sight:
    """One pod of the run."""

    __slots__ = ("bound", "created", "decided", "ended", "gone", "lifetime", "node", "reason")

    def __init__(self) -> None:
        self.created = -1.0
        self.decided = -1.0
        self.bound = -1.0
        self.ended = ""
        """"Succeeded", "Failed", or "Refused" by its kubelet."""
        self.gone = False
        self.lifetime: float | None = None
        self.node = ""
        self.reason = ""
        """The last PodScheduled=False message."""


@dataclass(slots=True)
class Counts:
    """Totals; every pod that was created is bound, gone unbound, or waiting."""

    created: int = 0
    bound: int = 0
    ended: int = 0
    """Bound pods that have run to their end."""
    refused: int = 0
    """Bound pods that the kubelet turned away: a scheduler's error."""
    rebound: int = 0
    """Pods that were seen on two nodes: must never happen."""
    gone_unbound: int = 0
    """Deleted before they were bound."""
    waiting: int = 0
    told: int = 0
    """Waiting pods whose reason is known."""
    create_failed: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    """Why creations failed, by message."""


class Observations:
    """The pods of a run, by name."""

    def __init__(self) -> None:
        self.pods: dict[str, Sight] = {}
        self.counts = Counts()
        self.last_news = 0.0
        """When something about a pod last changed."""
        self.last_bound = 0.0
        """When a pod was last seen bound."""

    def _sight(self, name: str) -> Sight:
        found = self.pods.get(name)
        if found is None:
            found = self.pods[name] = Sight()
        return found

    def _created(self, sight: Sight, now: float) -> None:
        if sight.created < 0:
            sight.created = now
            self.counts.created += 1
            self.counts.waiting += 1
            self.last_news = now

    def created(self, name: str, *, lifetime_s: float | None, now: float) -> None:
        """The API server has taken a pod."""
        sight = self._sight(name)
        sight.lifetime = lifetime_s
        self._created(sight, now)

    def create_failed(self, why: str) -> None:
        """A pod could not be created."""
        self.counts.create_failed += 1
        if why in self.counts.failures or len(self.counts.failures) < 20:
            self.counts.failures[why] += 1

    def seen(self, pod: WatchedPod, *, now: float) -> bool:
        """A pod was listed, added or changed; True if it has just been seen bound."""
        sight = self._sight(pod.metadata.name)
        if sight.gone:
            return False  # names are used once in a run
        self._created(sight, now)
        bound_now = False
        if pod.spec.node_name:
            bound_now = self._on_node(sight, pod, now)
        elif sight.bound < 0:
            self._not_scheduled(sight, pod.status.conditions or [], now)
        if pod.status.phase in ("Succeeded", "Failed") and not sight.ended:
            self._ended(sight, pod.status, now)
        return bound_now

    def _on_node(self, sight: Sight, pod: WatchedPod, now: float) -> bool:
        node = pod.spec.node_name
        if sight.bound >= 0:
            if sight.node != node:
                self.counts.rebound += 1
                sight.node = node
            return False
        sight.bound = now
        sight.node = node
        if sight.decided < 0:
            sight.decided = now
        self._no_longer_waiting(sight)
        self.counts.bound += 1
        self.last_news = self.last_bound = now
        return True

    def _not_scheduled(self, sight: Sight, conditions: list[PodCondition], now: float) -> None:
        for condition in conditions:
            if condition.type == "PodScheduled" and condition.status == "False":
                text = f"{condition.reason or 'Unschedulable'}: {condition.message or ''}"
                if sight.decided < 0:
                    sight.decided = now
                if text != sight.reason:
                    self.counts.told += not sight.reason
                    sight.reason = text
                    self.last_news = now

    def _no_longer_waiting(self, sight: Sight) -> None:
        self.counts.waiting -= 1
        self.counts.told -= bool(sight.reason)

    def _ended(self, sight: Sight, status: WatchedStatus, now: float) -> None:
        self.last_news = now
        if sight.bound < 0:
            return
        reason = status.reason or ""
        if status.phase == "Failed" and reason.startswith(KUBELET_REFUSALS):
            sight.ended = "Refused"
            sight.reason = reason
            self.counts.refused += 1
        else:
            sight.ended = status.phase
            self.counts.ended += 1

    def deleted(self, name: str, *, now: float) -> None:
        """A pod is no more."""
        sight = self.pods.get(name)
        if sight is None or sight.gone:
            return
        sight.gone = True
        self.last_news = now
        if sight.bound < 0 and sight.created >= 0:
            self._no_longer_waiting(sight)
            self.counts.gone_unbound += 1

    def waiting_reasons(self) -> Counter[str]:
        """Why pods wait that are neither bound nor gone, by message."""
        return Counter(
            sight.reason or "no word from the scheduler yet"
            for sight in self.pods.values()
            if sight.bound < 0 and not sight.gone and sight.created >= 0
        )

    def validate(self) -> None:
        """Check the totals against the pods."""
        pods = [sight for sight in self.pods.values() if sight.created >= 0]
        waiting = [sight for sight in pods if sight.bound < 0 and not sight.gone]
        assert self.counts.created == len(pods)
        assert self.counts.bound == sum(sight.bound >= 0 for sight in pods)
        assert self.counts.waiting == len(waiting)
        assert self.counts.told == sum(bool(sight.reason) for sight in waiting)
        assert self.counts.created == (
            self.counts.bound + self.counts.waiting + self.counts.gone_unbound
        )
