"""Gangs in the queue: pods of a group that run together or not at all (KEP-4671).

Members of a gang wait in no line of their own (`Place.GROUPED`). When enough of them are there, one
is elected *lead* and stands in the line of a shape that belongs to the group alone; wherever the
lead goes, it stands for the unit: the members that are still missing, in one decision, reserved
whole or not at all. So parking, backoff, wake-ups and order work for a group as for a pod, and a
group that waits for members costs nothing.

A lead that comes back, for whatever reason, is a plain member again and the group is looked at
afresh (:meth:`Groups.refresh`): it may have grown, shrunk, or have been placed. Once the Binder's
log shows as many members on nodes as the group asks for, the others follow one by one, also those
that replace a member that failed.

What the group's line is parked for is about these members under this definition; when either
changes, the line is a new one and has never been refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dispatcher.group_conditions import GroupLane
from dispatcher.pods import WAITS, Condition, Place, PodRecord, PodTable
from dispatcher.shapes import Mode, ShapeRecord, ShapeTable
from stretto.model.groups import LEGACY_GROUPS, PLACED, GroupCondition, GroupRow, group_name_of
from stretto.model.unit import PodUid

if TYPE_CHECKING:
    from dispatcher.conditions import ConditionLane
    from dispatcher.queue import Queue

OUT = (Place.DISPATCHED, Place.OWNED)
QUORUM = "waiting for minCount pods from a gang to appear in scheduling queue"


class GroupRecord:
    """A group that pods name, whether its object is there or not."""

    __slots__ = (
        "assigned", "elected", "front", "key", "lead", "line", "members", "not_before", "row",
        "serial", "unit",
    )  # fmt: skip

    def __init__(self, key: str) -> None:
        self.key = key
        self.row: GroupRow | None = None
        self.members: dict[PodUid, PodRecord] = {}
        """Those that are ours and have no node, oldest first."""
        self.assigned = 0
        """Members that the Binder's log shows on nodes, reserved ones included."""
        self.lead: PodRecord | None = None
        self.unit: list[PodRecord] = []
        """The members of the unit that is out, lead first."""
        self.line: ShapeRecord | None = None
        """Where the lead stands; held as long as the group lasts."""
        self.serial = 0
        """Grows when members or definition change."""
        self.elected = 0
        """The serial that the lead was elected at."""
        self.front = False
        """The next lead goes to the head of its priority."""
        self.not_before = 0.0
        """Monotonic time before which the group is not decided again."""

    def __repr__(self) -> str:
        return f"<group {self.key} {len(self.members)} waiting {self.assigned} placed>"

    @property
    def missing(self) -> int:
        """Members to place before the group runs."""
        return max(0, self.row.min_count - self.assigned) if self.row is not None else 0

    def keeps(self, *, legacy_served: bool) -> bool:
        """Members wait with the group rather than each in its own line."""
        if self.row is None:
            return legacy_served or not self.key.endswith(LEGACY_GROUPS)
        if self.row.problem:
            return True
        return self.missing > 0

    def waiting(self) -> list[PodRecord]:
        """Members that could be in the next unit, highest priority and oldest first."""
        ready = [r for r in self.members.values() if r is self.lead or r.place is Place.GROUPED]
        return sorted(ready, key=lambda record: -record.shape.priority)


class Groups:
    """All groups; see the module docstring."""

    def __init__(self, *, pods: PodTable, shapes: ShapeTable) -> None:
        self._pods = pods
        self.lane = GroupLane()
        self._shapes = shapes
        self._by_key: dict[str, GroupRecord] = {}
        self._dirty: dict[str, GroupRecord] = {}
        self._legacy_served: bool | None = None
        """None until the Binder's log was read: a label may name a group then."""

    def __iter__(self) -> Iterator[GroupRecord]:
        return iter(self._by_key.values())

    # ------------------------------------------------------------------------- what is known
    def join(self, record: PodRecord, key: str) -> None:
        """A pod names a group (or, '' , none any more)."""
        known = record.group.key if record.group is not None else ""
        if key == known:
            return
        self.leave(record)
        if key:
            group = record.group = self._group(key)
            assert record.uid not in group.members, f"{record!r} joins twice"
            group.members[record.uid] = record
            self._changed(group)

    def leave(self, record: PodRecord) -> None:
        """A pod is gone, or names its group no longer."""
        group = record.group
        if group is None:
            return
        self._depose(group, record)
        record.group = None
        assert group.lead is not record, f"{record!r} leads a group that it leaves"
        del group.members[record.uid]
        group.unit = [member for member in group.unit if member is not record]
        self._changed(group)

    def define(self, key: str, row: GroupRow | None) -> None:
        """The group's object came, changed, or went (None)."""
        group = self._by_key.get(key) or (self._group(key) if row is not None else None)
        if group is None or group.row == row:
            return
        before, group.row = group.row, row
        if row is not None:
            self.lane.seen(row)
        if before is not None and (row is None or row.uid != before.uid):
            self.lane.forget(before.uid)
        if before is None or row is None or before.asks != row.asks:
            self._changed(group)

    def count(self, key: str, assigned: int) -> None:
        """The Binder's log shows so many members on nodes."""
        group = self._by_key.get(key) or (self._group(key) if assigned else None)
        assert assigned >= 0, f"fewer than no members of {key} are on nodes"
        if group is not None and group.assigned != assigned:
            group.assigned = assigned
            self._dirty[key] = group

    def legacy_served(self, served: bool) -> None:
        """Whether the API server serves scheduler-plugins' groups; if not, a label names none."""
        if served != self._legacy_served:
            self._legacy_served = served
            self._dirty.update(self._by_key)

    def _keeps(self, group: GroupRecord) -> bool:
        return group.keeps(legacy_served=self._legacy_served is not False)

    def forget_others(self, keys: frozenset[str]) -> None:
        """The log was read anew: groups it does not show have no object and nobody on nodes."""
        for group in list(self._by_key.values()):
            if group.key not in keys:
                self.define(group.key, None)
                self.count(group.key, 0)

    def touch(self, record: PodRecord) -> None:
        """A pod has come to another place: its group is to be looked at again."""
        if record.group is not None:
            self._dirty[record.group.key] = record.group

    def _group(self, key: str) -> GroupRecord:
        group = self._by_key.get(key)
        if group is None:
            group = self._by_key[key] = GroupRecord(key)
        return group

    def _changed(self, group: GroupRecord) -> None:
        group.serial += 1
        self._dirty[group.key] = group

    # ------------------------------------------------------------------------ the queue's side
    def takes(
        self, record: PodRecord, now: float, *, front: bool = False, delay: float = 0
    ) -> bool:
        """Whether a pod that comes back to the queue stays with its group instead."""
        group = record.group
        if group is None:
            return False
        self._depose(group, record)
        if not self._keeps(group):
            return False
        assert group.members.get(record.uid) is record, f"{record!r} is no member of its group"
        self._pods.move(record, Place.GROUPED, now)
        group.front |= front
        if delay:
            group.not_before = max(group.not_before, now + delay)
        self._dirty[group.key] = group
        return True

    def _depose(self, group: GroupRecord, record: PodRecord) -> None:
        """The lead is a member like the others again, of its own shape."""
        if group.lead is not record:
            return
        group.lead = None
        group.unit = [member for member in group.unit if member.place in OUT]
        self._give_shape(record, self._shapes.own_of(record.shape))

    def _give_shape(self, record: PodRecord, shape: ShapeRecord) -> None:
        record.shape.discard(record)
        record.shape.probes.discard(record.uid)
        self._shapes.hold(shape)
        self._shapes.release(record.shape)
        record.shape = shape

    def unit_of(self, lead: PodRecord) -> list[PodRecord]:
        """The members of the unit that a pod stands for, itself first; chosen now."""
        group = lead.group
        if group is None or group.lead is not lead:
            return [lead]
        if lead.place in OUT:
            return group.unit
        others = [record for record in group.waiting() if record is not lead]
        group.unit = [lead, *others[: max(1, group.missing) - 1]]
        assert all(member.place not in OUT for member in group.unit), f"{group!r} is out already"
        return group.unit

    def leads(self, record: PodRecord) -> bool:
        """Whether a pod stands for its group."""
        return record.group is not None and record.group.lead is record

    def keeps(self, record: PodRecord) -> bool:
        """Whether a pod waits with its group rather than by itself."""
        return record.group is not None and self._keeps(record.group)

    def busy(self, lead: PodRecord) -> bool:
        """A member's own condition patch is in flight, so its resourceVersion is about to
        change."""
        return any(record.patching for record in self.unit_of(lead))

    def members_out(self, lead: PodRecord) -> list[PodRecord]:
        """The other members of the unit that is out under this lead."""
        group = lead.group
        return group.unit[1:] if group is not None and group.lead is lead else []

    def unit_lost(self, lead: PodRecord, now: float) -> None:
        """The Binder kept nothing of the unit: its members wait with the group again."""
        for record in self.members_out(lead):
            if record.place is Place.OWNED:
                self._pods.move(record, Place.GROUPED, now)

    # ------------------------------------------------------------------------------- refreshing
    def refresh(self, *, queue: Queue, lane: ConditionLane, now: float) -> None:
        """Look at the groups that changed: elect leads, let members go, tell what is missing."""
        while self._dirty:
            _, group = self._dirty.popitem()
            self._refresh(group, queue=queue, lane=lane, now=now)
            self._tell_placed(group)
            if not group.members and group.row is None and not group.assigned:
                self._drop_line(group)
                self._by_key.pop(group.key, None)

    def _refresh(
        self, group: GroupRecord, *, queue: Queue, lane: ConditionLane, now: float
    ) -> None:
        lead = group.lead
        if lead is not None and lead.place is Place.SETTLED:
            self._depose(group, lead)
        elif lead is not None and lead.place not in OUT:
            if group.elected == group.serial and self._keeps(group) and not self._short(group):
                return
            queue.discard(lead)
            self._depose(group, lead)
            self._pods.move(lead, Place.GROUPED, now)
        if not self._keeps(group):
            self._drop_line(group)
            for record in [r for r in group.members.values() if r.place is Place.GROUPED]:
                queue.add(record, now)
            return
        if group.lead is not None:
            return
        ready = group.waiting()
        if group.row is None and self._legacy_served is None:
            return
        hindrance = self._hindrance(group, ready)
        if hindrance is not None:
            for record in ready:
                lane.tell(record, hindrance)
            if hindrance.reason != WAITS:
                self.tell(group, GroupCondition("False", *hindrance[:2]))
            return
        self._elect(group, ready[0], queue=queue, now=now)

    @staticmethod
    def _short(group: GroupRecord) -> bool:
        """Fewer members wait than the group needs."""
        return len(group.waiting()) < group.missing

    def _hindrance(self, group: GroupRecord, ready: list[PodRecord]) -> Condition | None:
        """Why the group cannot be decided now, in upstream's words where it has some; None if it
        can.

        Upstream holds back members of groups that are not there or not complete without a word. We
        say it, under a reason that no autoscaler takes for a pod that wants a node.
        """
        row = group.row
        if row is None:
            name = group_name_of(group.key)
            text = f'waiting for pods\'s pod group "{name}" to appear in scheduling queue'
            return Condition(WAITS, text)
        if row.problem:
            return Condition("SchedulerError", row.problem)
        if self._short(group):
            return Condition(WAITS, QUORUM)
        text = _disagreement(ready, row)
        return Condition("SchedulerError", text) if text else None

    def tell(self, group: GroupRecord, condition: GroupCondition) -> None:
        """The group's condition is to say this."""
        row = group.row
        if row is not None and row.uid:
            self.lane.tell(group.key, row, condition)

    def _tell_placed(self, group: GroupRecord) -> None:
        row = group.row
        if row is not None and group.assigned >= max(1, row.min_count):
            self.tell(group, PLACED)

    def _elect(self, group: GroupRecord, record: PodRecord, *, queue: Queue, now: float) -> None:
        line = self._shapes.line_of(f"{group.key}#{group.serial}", record.shape)
        if line is not group.line:
            self._shapes.hold(line)
            self._drop_line(group)
            group.line = line
        assert group.lead is None, f"{group!r} has two leads"
        assert group.members.get(record.uid) is record, f"{group!r} is led by a stranger"
        self._give_shape(record, line)
        group.lead = record
        group.elected = group.serial
        front, group.front = group.front, False
        if group.not_before > now:
            queue.back_off_lead(record, now=now, delay=group.not_before - now)
        elif front:
            queue.front_lead(record, now=now)
        else:
            queue.add_lead(record, now=now)

    def _drop_line(self, group: GroupRecord) -> None:
        if group.line is not None:
            self._shapes.release(group.line)
            group.line = None

    def lines(self) -> dict[int, int]:
        """Shape number → references that groups hold, for checking."""
        return {g.line.number: 1 for g in self._by_key.values() if g.line is not None}

    def validate(self) -> None:
        """Check that members, leads and places agree."""
        for group in self._by_key.values():
            for uid, record in group.members.items():
                assert self._pods.get(uid) is record, f"{record!r} of {group!r} is gone"
                assert record.group is group
            lead = group.lead
            if lead is not None:
                assert group.members.get(lead.uid) is lead, f"{group!r} is led by a stranger"
                if lead.place is Place.WAITING:
                    assert lead.shape is group.line, f"{lead!r} stands in the wrong line"
                    anew = group.elected != group.serial
                    assert not anew or group.key in self._dirty, f"{group!r} is decided as it was"
                assert lead.place is not Place.GROUPED, f"{lead!r} leads and stays behind"
        for record in self._pods.records.values():
            if record.place is Place.GROUPED:
                assert record.group is not None, f"{record!r} waits with nobody"


def _disagreement(members: list[PodRecord], row: GroupRow) -> str:
    """What members of one group must have in common (upstream validatePodGroup)."""
    first = members[0]
    priority = first.shape.priority if row.priority is None else row.priority
    for record in members:
        if record.profile != first.profile:
            return (
                "all pods in a single pod group should have the same .spec.schedulerName set, "
                f'got: "{record.profile}" and "{first.profile}"'
            )
        if record.shape.priority != priority:
            return (
                "all pods in a single pod group should have the same priority as the pod group's "
                f"priority, got {record.shape.priority} and {priority}"
            )
        if _policy(record) != _policy(first):
            return (
                "all pods in a single pod group should have the same preemption policy, got "
                f"{_policy(first)} and {_policy(record)}"
            )
        if (record.shape.shape and record.shape.shape.queue) != (
            first.shape.shape and first.shape.shape.queue
        ):
            return f"members of a pod group must be in one queue; {record.name} is in another"
        if record.shape.mode is Mode.REFUSED:
            why = record.shape.condition.message if record.shape.condition else "it is refused"
            return f"member {record.name} of the pod group cannot be placed: {why}"
    return ""


def _policy(record: PodRecord) -> str:
    return (record.shape.shape and record.shape.shape.preemption_policy) or "PreemptLowerPriority"
