"""Which pod group is told next how it fares (PodGroupInitiallyScheduled), and what came of it.

Upstream: schedule_one_podgroup.go updatePodGroupCondition. A condition that is True stays, one that
says the same is not written again. What a group was told travels in the Binder's log with its
object, so that a dispatcher that starts does not repeat it.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from dispatcher.patching import PATCH_TRIES, PatchResult
from stretto.model.groups import GroupCondition, GroupRow

IN_FLIGHT = 4


class GroupOrder(msgspec.Struct, frozen=True, gc=False):
    """A condition to write."""

    key: str
    uid: str
    generation: int
    condition: GroupCondition
    transition: bool
    """The status changes; otherwise the time of the last transition is kept."""


class GroupLane:
    """What is to be written, once a group, and what is in flight."""

    def __init__(self) -> None:
        self._wanted: OrderedDict[str, GroupOrder] = OrderedDict()
        self._in_flight: dict[str, GroupOrder] = {}
        self._told: dict[str, GroupCondition] = {}
        """By uid, what was written and may not have come back in the log yet."""
        self._failures: dict[str, int] = {}
        self._not_before = 0.0

    def tell(self, key: str, row: GroupRow, condition: GroupCondition) -> None:
        """A group's condition is to say this."""
        flying = self._in_flight.get(row.uid)
        told = flying.condition if flying is not None else self._told.get(row.uid, row.told)
        if told == condition or (told.status == "True" and condition.status != "True"):
            self._wanted.pop(row.uid, None)
            return
        self._wanted[row.uid] = GroupOrder(
            key=key,
            uid=row.uid,
            generation=row.generation,
            condition=condition,
            transition=told.status != condition.status,
        )

    def take(self, now: float) -> list[GroupOrder]:
        """The patches that may be sent now; in flight until :meth:`reply`."""
        orders: list[GroupOrder] = []
        if now < self._not_before:
            return orders
        for uid in list(self._wanted):
            if len(self._in_flight) >= IN_FLIGHT:
                break
            if uid not in self._in_flight:
                order = self._in_flight[uid] = self._wanted.pop(uid)
                orders.append(order)
        return orders

    def reply(self, uid: str, result: PatchResult, *, now: float, pause_s: float = 0.0) -> None:
        """A patch is answered. One that failed is tried again a few times, unless there is news."""
        order = self._in_flight.pop(uid)
        if result is PatchResult.WRITTEN:
            self._told[uid] = order.condition
        failures = self._failures.pop(uid, 0) + 1
        if result is PatchResult.FAILED and failures < PATCH_TRIES:
            self._failures[uid] = failures
            self._wanted.setdefault(uid, order)
            self._not_before = max(self._not_before, now + pause_s)

    def seen(self, row: GroupRow) -> None:
        """The log shows what the group was told last."""
        if self._told.get(row.uid) == row.told:
            del self._told[row.uid]

    def forget(self, uid: str) -> None:
        """The group is gone."""
        for table in (self._wanted, self._told, self._failures):
            table.pop(uid, None)

    def idle(self) -> bool:
        """True if nothing is to be written."""
        return not (self._wanted or self._in_flight)
