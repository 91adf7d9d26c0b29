"""Who would have to leave one node for a pod, exactly as upstream's SelectVictimsOnNode decides.

All pods of lower priority are taken off in thought; if the pod fits then, they come back one by
one, those whose budget would be violated first, the most important first among each, as long as the
pod still fits. Who cannot come back is a victim. Source: kube-scheduler 1.37,
framework/plugins/defaultpreemption.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stretto.model.shape import Shape
from stretto.placement.framework import Code, Filter, Status
from stretto.placement.nominated import Claims, claims_on, rejecting, status_of, that_look
from stretto.snapshot.budgets import BudgetRow
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.pod_records import PodRecord, uid_key

NOBODY = Status(Code.UNRESOLVABLE, "", ("No preemption victims found for incoming pod",))
PROTECTED = Status(
    Code.UNRESOLVABLE, "", ("node(s) whose pods are protected by a disruption budget",)
)
NEVER_STARTED = (1 << 32) - 1
"""A pod without a start time counts as started just now: later than all others."""
_PRIORITY_SHIFT = 1 << 31


class Victim(NamedTuple):
    """A pod that may have to leave."""

    record: PodRecord
    shape: Shape

    @property
    def start_s(self) -> int:
        """Its start, for comparing."""
        return self.record.start_s or NEVER_STARTED

    @property
    def importance(self) -> tuple[int, int, bytes]:
        """Sorts the most important first: priority, then who runs for longer; then the uid, where
        upstream leaves the order to chance."""
        return -self.shape.priority, self.start_s, uid_key(self.record.uid)


@dataclass(frozen=True, slots=True)
class Victims:
    """A node on which preemption works."""

    row: int
    pods: tuple[Victim, ...]
    """Most important first."""
    violating: frozenset[str]
    """Uids of those whose leaving violates a budget."""

    @property
    def rank(self) -> tuple[int, int, int, int, int]:
        """Smaller is better: upstream's pickOneNodeForPreemption as one key."""
        highest = self.pods[0].shape.priority
        first = min(pod.start_s for pod in self.pods if pod.shape.priority == highest)
        total = sum(pod.shape.priority + _PRIORITY_SHIFT for pod in self.pods)
        return len(self.violating), highest, total, len(self.pods), -first


def select_victims(
    filters: Sequence[Filter],
    shape: Shape,
    row: int,
    *,
    snapshot: Snapshot,
    budgets: Sequence[BudgetRow],
    strict: bool = False,
) -> Victims | Status:
    """The fewest, least important pods whose leaving lets the shape fit on a row; a status if no
    leaving does. ``strict``: nobody leaves who would violate a budget, or is under several, as the
    Eviction API takes no such pods."""
    lower = sorted(_lower(shape, row, snapshot), key=lambda pod: pod.importance)
    if not lower:
        return NOBODY
    if strict and budgets:
        protected = violations(lower, budgets)
        protected.update(
            pod.record.uid
            for pod in lower
            if sum(budget.covers(pod.shape) for budget in budgets) > 1
        )
        if protected:
            return _select_unprotected(
                filters, shape, row, snapshot=snapshot, budgets=budgets, protected=protected
            )
    return _select(filters, shape, row, lower, snapshot=snapshot, budgets=budgets)


def _select_unprotected(
    filters: Sequence[Filter],
    shape: Shape,
    row: int,
    *,
    snapshot: Snapshot,
    budgets: Sequence[BudgetRow],
    protected: Collection[str],
) -> Victims | Status:
    """As :func:`select_victims`, but without those who are protected; says so if it depends on
    them."""
    everybody = sorted(_lower(shape, row, snapshot), key=lambda pod: pod.importance)
    free = [pod for pod in everybody if pod.record.uid not in protected]
    found = _select(filters, shape, row, free, snapshot=snapshot, budgets=())
    if isinstance(found, Victims):
        return found
    whole = _select(filters, shape, row, everybody, snapshot=snapshot, budgets=budgets)
    return PROTECTED if isinstance(whole, Victims) else found


def _select(
    filters: Sequence[Filter],
    shape: Shape,
    row: int,
    lower: list[Victim],
    *,
    snapshot: Snapshot,
    budgets: Sequence[BudgetRow],
) -> Victims | Status:
    claims = claims_on(shape, row, snapshot=snapshot)
    if claims:
        filters = that_look(filters)
    absent: list[Victim] = []
    try:
        for pod in lower:
            snapshot.suppose(pod.shape, row, -1)
            absent.append(pod)
        if rejecting(filters, row, claims, snapshot=snapshot) is not None:
            status = status_of(filters, row, claims, snapshot=snapshot)
            assert status is not None, "a filter's two forms disagree"
            return status
        found = _reprieve(
            filters, lower, row, claims=claims, snapshot=snapshot, budgets=budgets, absent=absent
        )
    finally:
        for each in absent:
            snapshot.suppose(each.shape, row, 1)
    return found


def needed_of(
    filters: Sequence[Filter],
    shape: Shape,
    row: int,
    uids: Collection[str],
    *,
    leaving: Collection[str],
    snapshot: Snapshot,
) -> set[str] | None:
    """Who of these still has to leave a row for the shape to fit, ``leaving`` being on their way
    out already; None: even without all of them it does not fit."""
    pods = [pod for pod in _lower(shape, row, snapshot) if pod.record.uid in uids]
    pods.sort(key=lambda pod: pod.importance)
    claims = claims_on(shape, row, snapshot=snapshot)
    if claims:
        filters = that_look(filters)
    absent: list[Victim] = []
    try:
        for pod in pods:
            snapshot.suppose(pod.shape, row, -1)
            absent.append(pod)
        if rejecting(filters, row, claims, snapshot=snapshot) is not None:
            return None
        for pod in pods:
            if pod.record.uid in leaving:
                continue
            snapshot.suppose(pod.shape, row, 1)
            if rejecting(filters, row, claims, snapshot=snapshot) is None:
                absent.remove(pod)
            else:
                snapshot.suppose(pod.shape, row, -1)
        return {pod.record.uid for pod in absent}
    finally:
        for pod in absent:
            snapshot.suppose(pod.shape, row, 1)


def _lower(shape: Shape, row: int, snapshot: Snapshot) -> Iterable[Victim]:
    if shape.priority <= snapshot.lowest_priority:
        return
    for record in snapshot.records.of(row):
        if snapshot.priority_of(record.shape_id) < shape.priority:
            yield Victim(record, snapshot.shape(record.shape_id))


def _reprieve(
    filters: Sequence[Filter],
    lower: list[Victim],
    row: int,
    *,
    claims: Claims,
    snapshot: Snapshot,
    budgets: Sequence[BudgetRow],
    absent: list[Victim],
) -> Victims | Status:
    """Let pods come back (they leave ``absent``); who cannot is a victim."""
    violating = violations(lower, budgets)
    victims = []
    for pod in sorted(lower, key=lambda pod: pod.record.uid not in violating):
        snapshot.suppose(pod.shape, row, 1)
        if rejecting(filters, row, claims, snapshot=snapshot) is None:
            absent.remove(pod)
        else:
            snapshot.suppose(pod.shape, row, -1)
            victims.append(pod)
    if not victims:
        reason = f'expected at least one victim pod on node "{snapshot.name[row]}"'
        return Status(Code.ERROR, "", (reason,))
    victims.sort(key=lambda pod: pod.importance)
    uids = violating & {pod.record.uid for pod in victims}
    return Victims(row, tuple(victims), frozenset(uids))


def violations(pods: Iterable[Victim], budgets: Sequence[BudgetRow]) -> set[str]:
    """Uids of those that would violate a budget if all left in this order.

    A pod that violates one budget is not counted against those after it (kube-scheduler 1.37,
    FilterVictimsWithPDBViolation). Upstream takes budgets in the random order of a map; here they
    come in the order of their names.
    """
    left = [budget.allowed for budget in budgets]
    found = set()
    for pod in pods:
        for i, budget in enumerate(budgets):
            if budget.covers(pod.shape) and pod.record.uid not in budget.disrupted:
                left[i] -= 1
                if left[i] < 0:
                    found.add(pod.record.uid)
                    break
    return found
