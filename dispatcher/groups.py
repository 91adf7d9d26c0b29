"""Gangs in the queue: pods of a group that run together or not at all (KEP-4671).

Members of a gang wait in no line of their own (`Place.GROUPED`). When enough of them are there, one
is elected *lead* and stands in the line of a shape that belongs to the group alone; wherever the
lead goes, it stands for the unit: the members that are still missing, in one decision, reserved
whole or not at all. So parking, backoff, wake-ups and order work for a group as for a pod, and a
group that waits for members costs nothing.

A lead that comes back, for whatever reason, is a plain member again and the group is looked at
afresh (elections.py): it may have grown, shrunk, or have been placed. Once the Binder's
log shows as many members on nodes as the group asks for, the others follow one by one, also those
that replace a member that failed.

What the group's line is parked for is about these members under this definition; when either
changes, the line is a new one and has never been refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from dispatcher.group_conditions import GroupLane
from dispatcher.group_records import GroupRecord
from dispatcher.pods import OUT, Place, PodRecord, PodTable
from dispatcher.shape_records import ShapeRecord
from dispatcher.shapes import ShapeTable
from stretto.model.groups import GroupCondition, GroupRow


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
        self.depose(group, record)
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

    def keeps_members(self, group: GroupRecord) -> bool:
        """Members wait with the group rather than each in its own line."""
        return group.keeps(legacy_served=self._legacy_served is not False)

    def understood(self, group: GroupRecord) -> bool:
        """Whether what names the group is known to name one."""
        return group.row is not None or self._legacy_served is not None

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
        self.depose(group, record)
        if not self.keeps_members(group):
            return False
        assert group.members.get(record.uid) is record, f"{record!r} is no member of its group"
        self._pods.move(record, Place.GROUPED, now)
        group.front |= front
        if delay:
            group.not_before = max(group.not_before, now + delay)
        self._dirty[group.key] = group
        return True

    def depose(self, group: GroupRecord, record: PodRecord) -> None:
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
        return record.group is not None and self.keeps_members(record.group)

    def waits_for_patch(self, record: PodRecord) -> bool:
        """A condition patch of the pod, or of another of its unit, is in flight, so its
        resourceVersion is about to change."""
        if record.patching or record.group is None:
            return record.patching
        return any(member.patching for member in self.unit_of(record))

    def members_out(self, lead: PodRecord) -> list[PodRecord]:
        """The other members of the unit that is out under this lead."""
        group = lead.group
        return group.unit[1:] if group is not None and group.lead is lead else []

    def unit_lost(self, lead: PodRecord, now: float) -> None:
        """The Binder kept nothing of the unit: its members wait with the group again."""
        for record in self.members_out(lead):
            if record.place is Place.OWNED:
                self._pods.move(record, Place.GROUPED, now)

    def tell(self, group: GroupRecord, condition: GroupCondition) -> None:
        """The group's condition is to say this."""
        row = group.row
        if row is not None and row.uid:
            self.lane.tell(group.key, row, condition)

    # ------------------------------------------------------------------------ the elections' side
    def next_changed(self) -> GroupRecord | None:
        """A group that is to be looked at again; told once."""
        return self._dirty.popitem()[1] if self._dirty else None

    def lead_by(self, group: GroupRecord, record: PodRecord) -> None:
        """A member is the lead from now on, in the group's line for this definition."""
        line = self._shapes.line_of(f"{group.key}#{group.serial}", record.shape)
        if line is not group.line:
            self._shapes.hold(line)
            self.drop_line(group)
            group.line = line
        assert group.lead is None, f"{group!r} has two leads"
        assert group.members.get(record.uid) is record, f"{group!r} is led by a stranger"
        self._give_shape(record, line)
        group.lead = record
        group.elected = group.serial

    def drop_line(self, group: GroupRecord) -> None:
        """The group needs no line."""
        if group.line is not None:
            self._shapes.release(group.line)
            group.line = None

    def forget_idle(self, group: GroupRecord) -> None:
        """Forget a group that nobody names, that has no object and nobody on nodes."""
        if not group.members and group.row is None and not group.assigned:
            self.drop_line(group)
            self._by_key.pop(group.key, None)

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
