"""Groups that have changed are looked at afresh: leads are elected, members go, all hear why.

A lead that is out is left alone: its answer brings the group here again. One that waits under
members or a definition that have changed is deposed, and so is one that is not needed any more.
"""

from __future__ import annotations

from dispatcher.conditions import ConditionLane
from dispatcher.group_hindrance import hindrance_of
from dispatcher.group_records import GroupRecord
from dispatcher.groups import Groups
from dispatcher.pods import OUT, WAITS, Place, PodRecord, PodTable
from dispatcher.queue import Queue
from stretto.model.groups import PLACED, GroupCondition


class Elections:
    """See the module docstring."""

    def __init__(
        self, *, pods: PodTable, groups: Groups, queue: Queue, lane: ConditionLane
    ) -> None:
        self._pods = pods
        self._groups = groups
        self._queue = queue
        self._lane = lane

    def refresh(self, now: float) -> None:
        """Look at the groups that changed."""
        while (group := self._groups.next_changed()) is not None:
            self._refresh(group, now)
            row = group.row
            if row is not None and group.assigned >= max(1, row.min_count):
                self._groups.tell(group, PLACED)
            self._groups.forget_idle(group)

    def _refresh(self, group: GroupRecord, now: float) -> None:
        if not self._lead_may_change(group, now):
            return
        if not self._groups.keeps_members(group):
            self._release(group, now)
            return
        if group.lead is not None or not self._groups.understood(group):
            return
        ready = group.waiting()
        hindrance = hindrance_of(group, ready)
        if hindrance is None:
            self._elect(group, ready[0], now)
            return
        for record in ready:
            self._lane.tell(record, hindrance)
        if hindrance.reason != WAITS:
            self._groups.tell(group, GroupCondition("False", hindrance.reason, hindrance.message))

    def _lead_may_change(self, group: GroupRecord, now: float) -> bool:
        """Depose a lead that stands for a group as it was; False: the lead is as it should be."""
        lead = group.lead
        if lead is None or lead.place in OUT:
            return True
        if lead.place is Place.SETTLED:
            self._groups.depose(group, lead)
            return True
        if group.elected == group.serial and self._groups.keeps_members(group) and not group.short:
            return False
        self._queue.discard(lead)
        self._groups.depose(group, lead)
        self._pods.move(lead, Place.GROUPED, now)
        return True

    def _release(self, group: GroupRecord, now: float) -> None:
        """Members wait each in its own line from now on."""
        self._groups.drop_line(group)
        for record in [r for r in group.members.values() if r.place is Place.GROUPED]:
            self._queue.add(record, now)

    def _elect(self, group: GroupRecord, record: PodRecord, now: float) -> None:
        self._groups.lead_by(group, record)
        front, group.front = group.front, False
        if group.not_before > now:
            self._queue.back_off_lead(record, now=now, delay=group.not_before - now)
        elif front:
            self._queue.front_lead(record, now=now)
        else:
            self._queue.add_lead(record, now=now)
