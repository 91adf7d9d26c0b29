"""Who would have to leave one node for a pod, exactly as upstream's SelectVictimsOnNode decides.

All lots of lower priority (see :mod:`stretto.placement.lots`) are taken off in thought; if the pod
fits then, they come back one by one, those whose budget would be violated first, the most important
first among each, as long as the pod still fits. What cannot come back is a victim, whole. Source:
kube-scheduler 1.37, framework/plugins/defaultpreemption.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from stretto.model.shape import Shape
from stretto.placement.framework import Code, Filter, Status
from stretto.placement.lots import Lot, Lots, Victim, pods_of, touching
from stretto.placement.nominated import Claims, claims_on, rejecting, status_of, that_look
from stretto.placement.seats import Seats, let_back
from stretto.snapshot.budgets import BudgetRow
from stretto.snapshot.columns import Snapshot

NOBODY = Status(Code.UNRESOLVABLE, "", ("No preemption victims found for incoming pod",))
PROTECTED = Status(
    Code.UNRESOLVABLE, "", ("node(s) whose pods are protected by a disruption budget",)
)
_PRIORITY_SHIFT = 1 << 31


class Victims(msgspec.Struct, frozen=True):
    """A node on which preemption works."""

    row: int
    lots: tuple[Lot, ...]
    """Most important first."""
    violating: frozenset[str]
    """Uids of pods whose leaving violates a budget."""

    @property
    def pods(self) -> tuple[Victim, ...]:
        """Lot by lot, the most important first."""
        return pods_of(self.lots)

    @property
    def rank(self) -> tuple[int, int, int, int, int, int]:
        """Smaller is better: upstream's pickOneNodeForPreemption as one key, but that of victims of
        one priority those are taken that no group misses."""
        pods = self.pods
        highest = pods[0].priority
        first = min(pod.start_s for pod in pods if pod.priority == highest)
        total = sum(pod.priority + _PRIORITY_SHIFT for pod in pods)
        groups = sum(lot.group for lot in self.lots)
        return len(self.violating), highest, groups, total, len(pods), -first


class Ground(msgspec.Struct, frozen=True):
    """What a question about victims is asked on."""

    snapshot: Snapshot
    lots: Lots
    budgets: Sequence[BudgetRow] = ()
    strict: bool = False
    """Nobody leaves who would violate a budget, or is under several, as the Eviction API takes no
    such pods."""


def select_victims(
    filters: Sequence[Filter], shape: Shape, row: int, *, ground: Ground
) -> Victims | Status:
    """The fewest, least important lots whose leaving lets the shape fit on a row; a status if no
    leaving does."""
    ground.lots.refresh()
    lower = _lower(shape, row, ground.lots)
    if not lower:
        return NOBODY
    if ground.strict and ground.budgets:
        safe = protected(lower, ground.budgets)
        if safe:
            return _select_unprotected(filters, shape, row, lower, ground=ground, safe=safe)
    return _select(filters, shape, row, lower, ground=ground, budgets=ground.budgets)


def protected(lots: Sequence[Lot], budgets: Sequence[BudgetRow]) -> set[str]:
    """Uids of pods that strict budgets keep, if the lots are to go in this order."""
    found = violations(pods_of(lots), budgets)
    for pod in pods_of(lots):
        if sum(budget.covers(pod.shape) for budget in budgets) > 1:
            found.add(pod.record.uid)
    return found


def _select_unprotected(
    filters: Sequence[Filter],
    shape: Shape,
    row: int,
    lower: list[Lot],
    *,
    ground: Ground,
    safe: Collection[str],
) -> Victims | Status:
    """As :func:`select_victims`, but without those who are protected; says so if it depends on
    them."""
    free = [lot for lot in lower if lot.uids.isdisjoint(safe)]
    found = _select(filters, shape, row, free, ground=ground, budgets=())
    if isinstance(found, Victims):
        return found
    whole = _select(filters, shape, row, lower, ground=ground, budgets=ground.budgets)
    return PROTECTED if isinstance(whole, Victims) else found


def _select(
    filters: Sequence[Filter],
    shape: Shape,
    row: int,
    lower: list[Lot],
    *,
    ground: Ground,
    budgets: Sequence[BudgetRow],
) -> Victims | Status:
    snapshot = ground.snapshot
    claims = claims_on(shape, row, snapshot=snapshot)
    if claims:
        filters = that_look(filters)
    absent: list[Lot] = []
    try:
        for lot in lower:
            lot.suppose(snapshot, -1)
            absent.append(lot)
        if rejecting(filters, row, claims, snapshot=snapshot) is not None:
            status = status_of(filters, row, claims, snapshot=snapshot)
            assert status is not None, "a filter's two forms disagree"
            return status
        return _reprieve(
            filters, lower, row, claims=claims, snapshot=snapshot, budgets=budgets, absent=absent
        )
    finally:
        for each in absent:
            each.suppose(snapshot, 1)


def needed_of(
    seats: Seats, uids: Mapping[str, int], *, leaving: Collection[str], ground: Ground
) -> list[Lot] | None:
    """Which lots of these pods (uid → row) still have to leave for all seats to hold, ``leaving``
    being on their way out already, and with them their lots; None: even without all of them the
    seats do not hold."""
    ground.lots.refresh()
    lots = touching(ground.lots.on(set(uids.values()), unit=seats.first), uids)
    lots.sort(key=lambda lot: lot.importance)
    going = touching(lots, leaving)
    chosen = [lot for lot in lots if lot not in going]
    staying = [lot.unchosen(ground.snapshot, 1) for lot in chosen]
    absent = going + staying
    try:
        for lot in absent:
            lot.suppose(ground.snapshot, -1)
        if not seats.hold():
            return None
        absent = going + let_back(staying, seats)
        return sorted(absent, key=lambda lot: lot.importance)
    finally:
        for lot in absent:
            lot.suppose(ground.snapshot, 1)
        for lot in chosen:
            lot.unchosen(ground.snapshot, -1)


def _lower(shape: Shape, row: int, lots: Lots) -> list[Lot]:
    """Most important first."""
    if shape.priority <= lots.lowest_priority() and lots.standing(shape).queue is None:
        return []
    return sorted(lots.on((row,), unit=shape), key=lambda lot: lot.importance)


def _reprieve(
    filters: Sequence[Filter],
    lower: list[Lot],
    row: int,
    *,
    claims: Claims,
    snapshot: Snapshot,
    budgets: Sequence[BudgetRow],
    absent: list[Lot],
) -> Victims | Status:
    """Let lots come back (they leave ``absent``); what cannot is a victim."""
    violating = violations(pods_of(lower), budgets)
    victims = []
    for lot in sorted(lower, key=lambda lot: lot.uids.isdisjoint(violating)):
        lot.suppose(snapshot, 1)
        if rejecting(filters, row, claims, snapshot=snapshot) is None:
            absent.remove(lot)
        else:
            lot.suppose(snapshot, -1)
            victims.append(lot)
    if not victims:
        reason = f'expected at least one victim pod on node "{snapshot.name[row]}"'
        return Status(Code.ERROR, "", (reason,))
    victims.sort(key=lambda lot: lot.importance)
    gone = {uid for lot in victims for uid in lot.uids}
    return Victims(row, tuple(victims), frozenset(violating & gone))


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
