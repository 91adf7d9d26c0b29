"""The pods that are ours: one record each, in exactly one place at any time (reliability I4).

A record's *place* says who has to move next. Most pods wait in the line of their shape
(`Place.WAITING`); whether that means active, in backoff or unschedulable is a property of the
shape, not of the pod, which is what lets 9,000 hopeless pods of one shape be parked and woken as
one (see shape_cycle.py). `states.state_of` gives the public name.

Records are plain slotted objects held in one dict by uid, because a burst makes and drops one for
each pod and the budget of the whole process is 50 µs a pod.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from stretto.model.shape import Shape
from stretto.model.unit import PodUid, Version

if TYPE_CHECKING:
    from dispatcher.assignment import ShardRecord
    from dispatcher.group_records import GroupRecord
    from dispatcher.shape_records import ShapeRecord

NO_VERSION = Version(0, 0)
"""Before every version of every Binder."""


class Place(enum.IntEnum):
    """Where a pod is; exactly one at a time."""

    GATED = 0
    """Has scheduling gates; costs nothing until they vanish."""
    WAITING = 1
    """In the line of its shape, see :class:`dispatcher.shape_records.Mode`."""
    BACKOFF = 2
    """Waits on its own account, after a failed bind or too many conflicts."""
    REFUSED = 3
    """The Binder refused the pod as it is; waits for a change."""
    PATCHING = 4
    """Its turn has come, but its own condition patch is in flight and will change its
    resourceVersion.
    """
    DISPATCHED = 5
    """A shard holds it."""
    OWNED = 6
    """The Binder has given a verdict or owns it; its outcome decides."""
    SETTLED = 7
    """Bound or gone by the Binder's word; the watch has not said so yet."""
    GROUPED = 8
    """With its group: waits until enough members are there, or for the decision on the group."""
    FORGOTTEN = 9
    """No longer ours; only those who still hold a reference (a patch in flight) can see this."""


OUT = frozenset({Place.DISPATCHED, Place.OWNED})
"""Places in which somebody else works on the pod."""
AWAITING = frozenset({Place.OWNED, Place.SETTLED})
"""Places in which the next word is the Binder's."""


WAITS = "WaitingForPodGroup"
"""Reason of members whose group is not there, or not complete."""


class Condition(NamedTuple):
    """What PodScheduled=False says."""

    reason: str
    message: str
    clear: bool = False
    """The patch also clears status.nominatedNodeName."""


class PodSeen(msgspec.Struct, gc=False):
    """What the watch shows of a pod, as much as the dispatcher keeps."""

    uid: PodUid
    namespace: str
    name: str
    resource_version: int
    shape: Shape | None
    """None if the pod cannot be read or needs what is not built; then ``refusal`` says why."""
    refusal: str = ""
    profile: str = ""
    """schedulerName."""
    labels: tuple[tuple[str, str], ...] = ()
    """All labels; kept because the set of keys that count may grow later (design §12.10)."""
    generation: int = 0
    gated: bool = False
    leaving: bool = False
    """Being deleted, or in a terminal phase: no longer ours."""
    condition: Condition | None = None
    """PodScheduled=False as it stands in the object, so that a restart does not write it again."""
    group: str = ""
    """namespace/name of its pod group."""
    job: str = ""
    """namespace/uid of the Job that has made it."""
    document: bytes = b""
    """JSON of the object; kept only where an extender is asked about it."""


class PodRecord:
    """A pod that is ours. Fields are written by the brain modules of this package only."""

    __slots__ = (
        "asked_s",
        "attempt",
        "attempts",
        "backoff_token",
        "blamed",
        "condition",
        "conflicts",
        "dispatched_at",
        "dispatched_version",
        "document",
        "errors",
        "first_queued",
        "generation",
        "group",
        "labels",
        "min_version",
        "name",
        "namespace",
        "order",
        "patch_failures",
        "patching",
        "place",
        "profile",
        "refusals",
        "resource_version",
        "seen_version",
        "sent_to",
        "shape",
        "shard",
        "since",
        "uid",
        "wanted",
        "wants_stake",
    )

    def __init__(self, *, seen: PodSeen, shape: ShapeRecord, now: float) -> None:
        self.uid = seen.uid
        self.namespace = seen.namespace
        self.name = seen.name
        self.resource_version = seen.resource_version
        """The newest known; what a bind or a patch names as its precondition."""
        self.seen_version = seen.resource_version
        """The newest that the watch has shown; older sightings are dropped. Behind
        ``resource_version`` after the Binder fenced the pod, whose other changes the watch must
        still bring.
        """
        self.generation = seen.generation
        self.profile = seen.profile
        self.labels = seen.labels
        self.document = seen.document
        self.shape = shape
        self.place = Place.GATED
        self.since = now
        """Monotonic seconds at which the place was entered."""
        self.first_queued = now
        """Start of the scheduling latency; time behind gates does not count."""
        self.order = 0
        """Position in line: smaller is earlier; see Queue."""
        self.condition = seen.condition
        """PodScheduled=False as last seen or written; None if it is not False."""
        self._begin()

    def _begin(self) -> None:
        """Nothing has happened to the pod yet."""
        self.attempt = 0
        """Number of the current or last attempt, unique in the dispatcher's epoch; 0 for none
        yet.
        """
        self.attempts = 0
        """How many attempts were made."""
        self.conflicts = 0
        """In a row."""
        self.errors = 0
        """Failed binds in a row."""
        self.refusals = 0
        """By the Binder, in all."""
        self.blamed = 0
        """How many shards died with this pod in the oldest batch they held."""
        self.min_version = NO_VERSION
        """What a snapshot must have reached before the next decision."""
        self.dispatched_at = 0.0
        """When the current attempt was sent; 0 before the first."""
        self.dispatched_version = NO_VERSION
        """The minimum version that the current attempt was sent with."""
        self.shard: ShardRecord | None = None
        self.sent_to = ""
        """Name of the shard of the current or last attempt."""
        self.wants_stake = False
        """The next attempt asks for a stake."""
        self.asked_s = float("-inf")
        """When one last did."""
        self.group: GroupRecord | None = None
        self.backoff_token = 0
        self.patching = False
        """Its condition patch is in flight."""
        self.patch_failures = 0
        self.wanted: Condition | None = None
        """A condition of its own that waits to be written (others follow their shape's)."""

    def seconds_out(self, now: float) -> float | None:
        """How long ago it was sent to a shard last; None: a former dispatcher did that."""
        return now - self.dispatched_at if self.dispatched_at else None

    def __repr__(self) -> str:
        return f"<pod {self.namespace}/{self.name} {self.place.name} attempt {self.attempt}>"


class PodTable:
    """All records by uid, with a count per place."""

    def __init__(self) -> None:
        self.records: dict[PodUid, PodRecord] = {}
        self.counts = [0] * len(Place)
        self.came_back: Callable[[str], None] | None = None
        """Told of each pod that is neither with a shard nor with the Binder any more."""
        self.got_a_node: Callable[[str], None] | None = None
        """Told of each pod that was bound, or may have been, before it moves."""
        self.awaiting: dict[PodUid, PodRecord] = {}
        """OWNED and SETTLED pods, longest in that place first: whom to ask the Binder about."""

    def __len__(self) -> int:
        return len(self.records)

    def get(self, uid: str) -> PodRecord | None:
        """The record, or None if the pod is not ours (any more)."""
        return self.records.get(PodUid(uid))

    def insert(self, record: PodRecord) -> None:
        """Take in a new record."""
        assert record.uid not in self.records, f"{record!r} is already known"
        assert record.place is Place.GATED, f"{record!r} is new and has been somewhere"
        self.records[record.uid] = record
        self.counts[record.place] += 1

    def move(self, record: PodRecord, place: Place, now: float) -> None:
        """Change the place of a record; containers are the business of the caller."""
        old = record.place
        assert old is not Place.FORGOTTEN, f"{record!r} comes back from the dead"
        assert place is not Place.FORGOTTEN, f"{record!r} is removed, not moved"
        assert self.counts[old] > 0, f"nobody is {old.name}, and {record!r} leaves"
        self.counts[old] -= 1
        self.counts[place] += 1
        if old in AWAITING:
            self.awaiting.pop(record.uid, None)
        if place in AWAITING:
            self.awaiting[record.uid] = record
        record.place = place
        record.since = now
        if place is not Place.DISPATCHED:
            record.shard = None
        if self.came_back is not None and old in OUT and place not in OUT:
            self.came_back(record.uid)

    def bound(self, record: PodRecord, now: float) -> None:
        """A pod has a node."""
        self.perhaps_bound(record)
        self.move(record, Place.SETTLED, now)

    def perhaps_bound(self, record: PodRecord) -> None:
        """A pod that was with others may have a node."""
        if self.got_a_node is not None:
            self.got_a_node(record.uid)

    def remove(self, record: PodRecord) -> None:
        """Forget a record."""
        assert self.records.get(record.uid) is record, f"{record!r} is not the one that is known"
        del self.records[record.uid]
        self.counts[record.place] -= 1
        assert self.counts[record.place] >= 0, f"fewer than no pods are {record.place.name}"
        self.awaiting.pop(record.uid, None)
        if self.came_back is not None:
            self.came_back(record.uid)
        record.place = Place.FORGOTTEN
        record.shard = None

    def overdue(self, *, now: float, age_s: float, limit: int) -> list[PodRecord]:
        """Records that wait for the Binder's word for longer than ``age_s``; their clocks start
        anew.
        """
        late: list[PodRecord] = []
        for record in self.awaiting.values():
            if record.since + age_s > now or len(late) >= limit:
                break
            late.append(record)
        for record in late:
            self.move(record, record.place, now)
        return late

    def validate(self) -> None:
        """Check what must hold between the records and the counts."""
        counts = [0] * len(Place)
        for uid, record in self.records.items():
            assert record.uid == uid, f"{record!r} is filed under {uid}"
            counts[record.place] += 1
            assert (uid in self.awaiting) == (record.place in AWAITING), f"{record!r} awaiting"
            out = record.place is Place.DISPATCHED
            assert (record.shard is not None) == out, f"{record!r} shard"
            if record.patching:
                held = record.place in (Place.DISPATCHED,)
                assert not held, f"{record!r} was dispatched while its patch is in flight"
        assert counts == self.counts, f"counts {self.counts}, but there are {counts}"
        assert all(self.records.get(uid) is record for uid, record in self.awaiting.items())
