"""Preemption for a gang: which lots have to leave the cluster so that all of its members fit.

Source: kube-scheduler 1.37, framework/preemption (PodGroupEvaluator), and KEP-5710. All lots of
less priority are supposed away and the gang is placed; if it does not fit even then, nobody leaves.
Otherwise lots come back, those first whose budget would be violated, the most important first, as
long as every member still fits where it was placed. What cannot come back is a victim, whole.

Naively the gang is placed on the empty cluster, so that it may take the places of important lots
where unimportant ones would do. As the KEP has it, the least *tier* is sought first, by halves: a
tier is (guarded by an exhausted budget, priority, of a group), and no lot above it goes. So a gang
breaks another only if pods of no group do not suffice.

Lots are many and gangs are few: what is supposed away is counted per node and shape, and only the
lots on the gang's nodes are looked at one by one, unless a filter looks at other nodes.

Messages are upstream's, without the prefix ``pod group preemption:`` of the plugin.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from stretto.model.groups import GANG_UNSCHEDULABLE
from stretto.model.shape import Shape
from stretto.placement.framework import Bools, Int64s
from stretto.placement.lots import Lot, pods_of
from stretto.placement.preemption import NEVER, Preemption
from stretto.placement.seats import Seats, let_back
from stretto.placement.victims import Ground, protected, violations
from stretto.snapshot.pod_records import PodRecord

ONGOING = "ongoing preemption on nominated nodes"
NOBODY_LOWER = "No preemption victims found for incoming preemptor"
DEVICES_DONE = "deallocation and deletion of ResourceClaims completed"
GUARDED = "the pods that would have to leave are protected by disruption budgets"

Place = Callable[[], Sequence[int]]
"""Rows for all members as things are, none of them counted afterwards; empty: they do not fit."""
Seated = Callable[[Sequence[int]], Seats]
Tier = tuple[bool, int, bool]


class GangDecision(msgspec.Struct, frozen=True):
    """What preemption can do for a gang."""

    message: str
    rows: tuple[int, ...] = ()
    """One a member; empty: preemption does not help."""
    victims: tuple[str, ...] = ()
    """Uids of pods that have to leave, most important first; empty with rows: the gang fits as it
    is, only its members had been tried in another way."""
    clears: bool = True
    """Nominations that members have are to be cleared."""
    waits: bool = False
    """Victims of an earlier decision have yet to leave."""


class GangPreemption:
    """One question: whom a gang of these shapes may preempt now. Leaves no trace."""

    def __init__(
        self, preemption: Preemption, shapes: Sequence[Shape], *, ground: Ground, devices: bool
    ) -> None:
        self._preemption = preemption
        self._devices = devices
        """DynamicResources is asked before, and says what it always says."""
        self._shapes = shapes
        self._ground = ground
        self._snapshot = ground.snapshot
        self._away: Counter[tuple[int, int]] = Counter()
        """(row, shape number) → pods that are supposed away."""
        self._found = _Lower(ground, unit=shapes[0])

    def decide(self, place: Place, *, seated: Seated, refused: Callable[[], str]) -> GangDecision:
        """Where all members can go and who has to leave for that. ``refused``: why the gang was not
        placed when it was tried last."""
        if any(shape.preemption_policy == "Never" for shape in self._shapes):
            return GangDecision(NEVER)
        if self._ongoing():
            return GangDecision(ONGOING, clears=False, waits=True)
        tiers = self._found.tiers
        if not tiers:
            return GangDecision(NOBODY_LOWER)
        try:
            rows = self._place_without(len(tiers), place)
            if not rows:
                return GangDecision(refused())
            tier, rows = self._least(len(tiers), rows, place)
            return self._fewest(tier, seated(rows), rows)
        finally:
            self._let_go(Counter())

    def told(self, found: GangDecision) -> str:
        """What all plugins say together. DynamicResources' word stands beside that of a plugin that
        might help another time, whatever it has done (kube-scheduler 1.37.2)."""
        text = f"pod group preemption: {found.message}"
        last = found.rows or found.waits or found.message == NOBODY_LOWER
        return text if last or not self._devices else f"{DEVICES_DONE}, {text}"

    def _ongoing(self) -> bool:
        """Victims of an earlier decision have yet to leave."""
        names = {shape.nominated_node for shape in self._shapes} - {""}
        rows = (self._snapshot.row_of_name(name) for name in names)
        unit = self._shapes[0]
        return any(self._preemption.terminating(row, unit=unit) for row in rows if row is not None)

    def _least(self, tier: int, rows: Sequence[int], place: Place) -> tuple[int, Sequence[int]]:
        """The least tier (as a number of tiers) at which the gang fits, and where; it does at
        ``tier``, on ``rows``."""
        low = 0
        while tier - low > 1:
            middle = (low + tier) // 2
            found = self._place_without(middle, place)
            if found:
                tier, rows = middle, found
            else:
                low = middle
        return tier, rows

    def _place_without(self, tier: int, place: Place) -> Sequence[int]:
        self._let_go(self._found.up_to(tier))
        return place()

    def _let_go(self, wanted: Counter[tuple[int, int]]) -> None:
        """Suppose exactly these away."""
        for (row, number), count in self._away.items():
            if wanted[row, number] < count:
                by = count - wanted[row, number]
                self._snapshot.suppose(self._snapshot.shape(number), row, by, noted=True)
        for (row, number), count in wanted.items():
            if self._away[row, number] < count:
                by = self._away[row, number] - count
                self._snapshot.suppose(self._snapshot.shape(number), row, by, noted=True)
        self._away = wanted

    def _fewest(self, tier: int, seats: Seats, rows: Sequence[int]) -> GangDecision:
        """Who of the lots up to a tier cannot come back."""
        self._let_go(Counter())  # members that are supposed away are found nowhere
        lots = self._found.lots(seats.rows if seats.local else None, tier=tier)
        lots.sort(key=lambda lot: lot.importance)
        away = list(lots)
        try:
            for lot in lots:
                lot.suppose(self._snapshot, -1)
            if not seats.hold():
                return GangDecision(GANG_UNSCHEDULABLE)
            violating = violations(pods_of(lots), self._ground.budgets)
            order = sorted(lots, key=lambda lot: lot.uids.isdisjoint(violating))
            away = let_back(order, seats)
        finally:
            for lot in away:
                lot.suppose(self._snapshot, 1)
        victims = sorted(away, key=lambda lot: lot.importance)
        if self._ground.strict and protected(victims, self._ground.budgets):
            return GangDecision(GUARDED)
        uids = tuple(pod.record.uid for pod in pods_of(victims))
        text = f"found a placement for podgroup, preempting {len(uids)} victims"
        return GangDecision(text, tuple(rows), uids, clears=False)


class _Lower:
    """The pods that may have to leave in the whole cluster, by tier."""

    def __init__(self, ground: Ground, *, unit: Shape) -> None:
        self._ground = ground
        self._unit = unit
        ground.lots.refresh()
        snapshot = ground.snapshot
        rows = np.flatnonzero(snapshot.live[: snapshot.rows]).tolist()
        on, records = snapshot.records.columns(rows)
        numbers, which = np.unique(records["shape"], return_inverse=True)
        stays = self._stays(*(records[name].astype(np.int64) for name in ("shape", "flags")))
        movable = set(records["shape"][~stays].tolist())
        self._tier_of = self._tiers_of(sorted(movable))
        self.tiers = sorted(set(self._tier_of.values()))
        """Distinct tiers, the least first."""
        ranks = np.array([self._rank(number) for number in numbers.tolist()] or [0], dtype=np.int64)
        self._rows: Int64s = on
        self._numbers: Int64s = records["shape"].astype(np.int64)
        self._ranks: Int64s = np.where(stays, len(self.tiers), ranks[which])

    def _stays(self, numbers: Int64s, flags: Int64s) -> Bools:
        """bool[pods]: who may not be made to leave; pods of one shape with the same flags are
        alike."""
        lots = self._ground.lots
        standing = lots.standing(self._unit)
        kinds, which = np.unique(numbers << 32 | flags, return_inverse=True)
        stay = [
            not lots.may_leave(
                PodRecord("", kind >> 32, 0, kind & 0xFFFFFFFF), unit=self._unit, standing=standing
            )
            for kind in kinds.tolist()
        ]
        return np.array(stay, dtype=np.bool_)[which]

    def _rank(self, number: int) -> int:
        tier = self._tier_of.get(number)
        return len(self.tiers) if tier is None else self.tiers.index(tier)

    def _tiers_of(self, numbers: list[int]) -> dict[int, Tier]:
        """Tier by shape number, of those that may go; a group that goes as a whole has one."""
        lots, snapshot, strict = self._ground.lots, self._ground.snapshot, self._ground.strict
        guarded = {number for number in numbers if self._guarded(snapshot.shape(number))}
        whole = lots.whole()
        keys = {key for number in guarded if (key := snapshot.group_of(number)) in whole}
        found: dict[int, Tier] = {}
        for number in numbers:
            held = number in guarded or snapshot.group_of(number) in keys
            if not (held and strict):
                found[number] = held, lots.priority_of(number), lots.grouped(number)
        return found

    def _guarded(self, shape: Shape) -> bool:
        over = [budget for budget in self._ground.budgets if budget.covers(shape)]
        return any(b.allowed <= 0 for b in over) or (self._ground.strict and len(over) > 1)

    def up_to(self, tier: int) -> Counter[tuple[int, int]]:
        """(row, shape number) → pods of the first tiers."""
        chosen: Bools = self._ranks < tier
        rows, numbers = self._rows[chosen].tolist(), self._numbers[chosen].tolist()
        return Counter(zip(rows, numbers, strict=True))

    def lots(self, rows: set[int] | None, *, tier: int) -> list[Lot]:
        """The lots of the first tiers that have pods on some rows; None: on any."""
        chosen: Bools = self._ranks < tier
        where = set(self._rows[chosen].tolist())
        found = self._ground.lots.on(where if rows is None else where & rows, unit=self._unit)
        allowed = set(self.tiers[:tier])
        return [lot for lot in found if self._of_tiers(lot, allowed)]

    def _of_tiers(self, lot: Lot, allowed: set[Tier]) -> bool:
        return all(self._tier_of.get(pod.record.shape_id) in allowed for pod in lot.pods)
