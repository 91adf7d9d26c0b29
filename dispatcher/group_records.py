"""What the dispatcher keeps of a pod group."""

from __future__ import annotations

from dispatcher.pods import Place, PodRecord
from dispatcher.shape_records import ShapeRecord
from stretto.model.groups import LEGACY_GROUPS, GroupRow
from stretto.model.unit import PodUid


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

    @property
    def short(self) -> bool:
        """Fewer members wait than the group needs."""
        return len(self.waiting()) < self.missing

    def waiting(self) -> list[PodRecord]:
        """Members that could be in the next unit, highest priority and oldest first."""
        ready = [r for r in self.members.values() if r is self.lead or r.place is Place.GROUPED]
        return sorted(ready, key=lambda record: -record.shape.priority)
