"""Quota before dispatch: what is known to have no room is not sent, and its shape waits for room.

The Binder's log says what queues have used, exactly, at each version. What was sent since and is in
no commit yet is counted on top (*in flight*), from the moment a unit is sent until the log shows it
placed or it comes back. A pod of which another source says first that it was bound is *landing*: it
counts on until the log shows it, or for a while if the log never does (it is gone already). So
shards seldom lose for quota, however many there are; the Binder has the last word.

A shape without room is parked as one that fits nowhere, and woken by what the hints of quota name,
or by a unit that comes back: none of its pods costs anything meanwhile. A unit that would be
guaranteed is sent although a queue above its level is full, if pods there may be reclaimed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from dispatcher.pods import PodRecord
from dispatcher.promises import Promises
from dispatcher.shape_records import ShapeRecord
from stretto.model.shape import Shape
from stretto.quota.accounts import NO_LEVEL
from stretto.quota.rows import Amounts, asked
from stretto.quota.tree import QueueNode, Tree
from stretto.quota.view import QuotaView
from stretto.snapshot.delta import ObjectRow
from stretto.snapshot.quota_rows import tell_quota

WAITS_FOR_QUOTA = "WaitingForQuota"
"""Reason of pods that wait for room in their queue: no autoscaler should make nodes for them."""

LANDING_S = 10.0
"""A pod that was bound and that the log does not show is counted for so long."""


class QuotaGate:
    """See the module docstring."""

    def __init__(self) -> None:
        self.view = QuotaView()
        self.promises = Promises()
        """What admitted Jobs are promised; the view is told."""
        self.read = False
        """The log was read: whether there are queues is known."""
        self.totals: Mapping[str, int] = {}
        """What all nodes offer, by resource."""
        self._tree: Tree | None = None
        self._units: dict[str, list[str]] = {}
        """Unit in flight → its members."""
        self._flying: dict[str, Shape] = {}
        """Members in flight that the log does not show placed."""
        self._landing: dict[str, float] = {}
        """Those of them that were bound, and since when that is known; the oldest first."""
        self._now = 0.0
        self._returned = False
        self.version = 0
        """Grows with each change of what is in flight."""
        self.refusals = 0
        """Units that were held back."""

    @property
    def on(self) -> bool:
        """Whether there are queues."""
        return self.view.on

    # -------------------------------------------------------------------------------------- the log
    def anew(self, rows: Iterable[ObjectRow]) -> None:
        """The log was read anew: it shows these and no others."""
        self.view = QuotaView()
        self.read = True
        for uid in self._landing:
            del self._flying[uid]
        self._landing = {}
        for row in rows:
            tell_quota(self.view, row)
        self._suppose_all()
        self._tree = None

    def _suppose_all(self) -> None:
        """Tell a view that knows of nothing what is in flight and what is promised."""
        for shape in self._flying.values():
            self.view.suppose(shape, 1)
        self.promises.counted_in(self.view)

    def step(self, rows: Iterable[ObjectRow], placed: Iterable[str]) -> None:
        """A step of the log: its objects, and uids of pods that came to nodes."""
        served = self.view.on
        for row in rows:
            tell_quota(self.view, row)
        if self.view.on != served:
            self._suppose_all()
        if self._flying:
            for uid in placed:
                self._landed(uid)

    def changed_tree(self) -> bool:
        """True once after queues or namespaces have changed."""
        tree = self.view.tree
        changed, self._tree = tree is not self._tree, tree
        return changed

    def take_returned(self) -> bool:
        """True once after a unit has come back without a place, or a promise has ended."""
        returned = self._returned or self.promises.shrunk
        self._returned = self.promises.shrunk = False
        return returned

    # ------------------------------------------------------------------------------------ in flight
    def admit(self, unit: Sequence[PodRecord]) -> str:
        """'' if a unit may be sent, which counts it from now on; else why not."""
        lead = unit[0].uid
        self.released(lead)
        sent: list[Shape] = []
        for record in unit:
            shape = record.shape.shape
            assert shape is not None, "a pod that cannot be read is never taken"
            self._landed(record.uid)
            promised = self.promises.has(record.uid)
            self.promises.out(record.uid)
            text = self.view.refusal(shape)
            if text and promised:
                # More may be promised than there is: Jobs that others have resumed, or a limit that
                # was lowered; promises must not keep out all of their pods.
                text = self.view.refusal(shape, promised=True)
            if text and not (len(unit) == 1 and self._may_reclaim_one(shape)):
                self._take_back(unit, sent)
                return text
            self.view.suppose(shape, 1)
            sent.append(shape)
        self.version += 1
        self._units[lead] = [record.uid for record in unit]
        for record, shape in zip(unit, sent, strict=True):
            self._flying[record.uid] = shape
        return ""

    def _take_back(self, unit: Sequence[PodRecord], sent: Sequence[Shape]) -> None:
        """A unit is not sent: its members are not counted."""
        for shape in sent:
            self.view.suppose(shape, -1)
        for record in unit:
            self.promises.back(record.uid)
        self.refusals += 1

    def count_out(self, records: Iterable[PodRecord]) -> None:
        """These were sent when there were no queues, or none were known yet."""
        for record in records:
            shape = record.shape.shape
            if shape is not None and record.uid not in self._flying:
                self.promises.out(record.uid)
                self.view.suppose(shape, 1)
                self._units[record.uid] = [record.uid]
                self._flying[record.uid] = shape

    def lets_ahead(self, line: ShapeRecord, refused: PodRecord, *, most: int) -> bool:
        """Whether pods go before one for which there is no room, because they were promised some;
        they stand at the head of the line then."""
        if not self.promises or self.promises.has(refused.uid):
            return False
        ahead = list(itertools.islice(self._promised_in(line), most))
        for record in reversed(ahead):
            line.discard(record)
            line.push_back(record)
        return bool(ahead)

    def unpromised_in(self, line: ShapeRecord) -> int:
        """How many pods of a line were promised no room."""
        return len(line) - (sum(1 for _ in self._promised_in(line)) if self.promises else 0)

    def _promised_in(self, line: ShapeRecord) -> Iterator[PodRecord]:
        """Pods of a line that were promised room. Either many pods stand in the line or many were
        promised something in its queue; the fewer are looked at."""
        assert line.shape is not None, "pods that cannot be read wait for no quota"
        found = self.promises.waiting_in(line.shape)
        few = len(found) < len(line)
        records = (line.find(uid) for uid in found) if few else line.waiting()
        has = self.promises.has
        return (each for each in records if each is not None and has(each.uid))

    def _may_reclaim_one(self, shape: Shape) -> bool:
        queue = self.view.assigned(shape).queue
        return queue is not None and self.may_reclaim(queue, asked(shape))

    def may_reclaim(self, queue: QueueNode, amounts: Amounts) -> bool:
        """Whether what has no room is worth sending: it would be guaranteed, what is full is
        above that level, and holds pods outside that may be made to leave."""
        accounts = self.view.accounts
        level = accounts.level(queue, amounts)
        full = accounts.over(queue, amounts)
        if level == NO_LEVEL or full is None or full[0].depth >= level:
            return False
        return accounts.of(full[0]).aged > accounts.of(queue.at(level)).aged

    def bound(self, uid: str) -> None:
        """A pod has a node, by another source than the log."""
        if uid in self._flying:
            self._landing.pop(uid, None)  # a gang's members land when one does: keep the order
            self._landing[uid] = self._now

    def tick(self, now: float, *, followed_since: float | None) -> None:
        """Time has passed; the log is followed since then, or is not (None), and shows nothing."""
        self._now = now
        if followed_since is None:
            return
        for uid, since in list(self._landing.items()):
            if now - max(since, followed_since) < LANDING_S:
                break
            self._landed(uid)
            self._returned = True

    def released(self, lead: str) -> None:
        """A unit is in flight no longer."""
        unit = self._units.pop(lead, ())
        bound = any(uid in self._landing for uid in unit)
        for uid in unit:
            if bound and uid in self._flying and not self.promises.keeps(uid):
                self._landing.setdefault(uid, self._now)  # of a gang one is bound first
            else:
                self._returned |= uid in self._flying
                self._landed(uid)
            self.promises.back(uid)

    def _landed(self, uid: str) -> None:
        self._landing.pop(uid, None)
        shape = self._flying.pop(uid, None)
        if shape is not None:
            self.version += 1
            self.view.suppose(shape, -1)

    # ---------------------------------------------------------------------------------------- order
    def lane_of(self, shape: ShapeRecord) -> str:
        """The queue of a shape's pods, '' for none."""
        queue = self.queue_of(shape)
        return "" if queue is None else queue.name

    def queue_of(self, shape: ShapeRecord) -> QueueNode | None:
        """The queue of a shape's pods."""
        return None if shape.shape is None else self.view.assigned(shape.shape).queue

    def turn(self, name: str) -> tuple[object, ...]:
        """Sorts queues: who lacks what is guaranteed, then by share from the root down."""
        node = self.view.tree.nodes.get(name)
        if node is None:
            return (True, 0.0, name)
        accounts = self.view.accounts
        lacking = any(
            accounts.of(each).held.get(resource, 0) < amount
            for each in node.path
            for resource, amount in each.guaranteed.items()
        )
        way: list[object] = []
        for each in reversed(node.path):
            way += [accounts.share(each, self.totals), each.name]
        return (not lacking, *way)

    def validate(self, out: Callable[[str], bool]) -> None:
        """Check that only units that are out are counted as in flight."""
        for lead in self._units:
            assert out(lead), f"{lead} is counted in flight and is not out"
        assert self._landing.keys() <= self._flying.keys(), "what lands is counted"
        counted = {uid for unit in self._units.values() for uid in unit} | self._landing.keys()
        assert self._flying.keys() <= counted, "what is in flight comes back, or lands"
        self.promises.validate()
