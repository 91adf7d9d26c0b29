"""Who is next: active by priority and age, backoff, and shapes parked as unschedulable.

Naive form: a queue of pods, each with its own failures, moved one by one by every event. Its
fault: 9,000 hopeless pods of one shape cost 9,000 decisions each time a pod ends somewhere. The
form chosen: pods wait in the line of their shape, and the shape is parked and woken as one.

A shape goes round like this. OPEN: its pods are active. A shard answers that a pod fits nowhere at
version v: the shape is PARKED with that answer, unless an event later than v is known that may help
it, then it goes to BACKOFF (the events are replayed, design §12.1). Which events may help is told
by the hints of the plugins that rejected the shape (see wakeups.py). Such an event later than v
moves it PARKED → BACKOFF; its time is up 1, 2, 4, 8, 10 s after the decision, or earlier when
nothing else is to be done (KEP-5142). Then PROBING: one pod goes out; each that is bound multiplies
the number that may go, and soon the shape is OPEN. A probe that fits nowhere parks it again.

A lost wake-up would leave pods waiting for ever, so whatever stays parked for five minutes is
woken anyway; a pod that is then bound is counted as a defect.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from dispatcher.groups import Groups
from dispatcher.lanes import Lanes
from dispatcher.pods import Place, PodRecord, PodTable, State
from dispatcher.queue_limits import QueueLimits
from dispatcher.quota import QuotaGate
from dispatcher.shapes import Mode, ShapeRecord
from dispatcher.slow_lane import SlowLane
from dispatcher.statistics import Statistics
from dispatcher.wakeups import Wakeups
from stretto.model.unit import Version
from stretto.placement.events import QUOTA_CAME_BACK, TIMEOUT, ClusterEvent
from stretto.placement.hints import QUOTA

FRONT = -(1 << 60)
"""Orders from here on are before every order of a line."""
PROBE_GROWTH = 8
PROBE_OPEN = 64
"""A shape whose allowance has grown beyond one batch is open."""


class Queue:
    """Lines of shapes, the heap over them, backoff and parking."""

    def __init__(
        self,
        *,
        pods: PodTable, groups: Groups, limits: QueueLimits, statistics: Statistics,
        slow: SlowLane,
    ) -> None:  # fmt: skip
        self._pods = pods
        self._groups = groups
        self._limits = limits
        self._statistics = statistics
        self._orders = 0
        self._front_orders = FRONT
        self.slow = slow
        self._lanes = Lanes(slow)
        self.gate: QuotaGate | None = None
        """None: there are no queues."""
        self.over_quota: list[tuple[PodRecord, str, bool]] = []
        """(pod, why, whether that is news) of what the gate has refused."""
        self._pod_backoff: list[tuple[float, int, PodRecord]] = []
        self._shape_backoff: list[tuple[float, int, ShapeRecord]] = []
        self._wakeups = Wakeups()
        """What is parked, and what it waits for."""
        self._tokens = 0
        self.untold: dict[int, ShapeRecord] = {}
        """Shapes with pods that may still have to be told their condition."""

    # -------------------------------------------------------------------------------- into the line

    def add(self, record: PodRecord, now: float) -> None:
        """A pod that was not waiting before joins the line of its shape.

        If the shape was woken after its last decision, a newcomer need not wait for its backoff:
        it is not the one that failed. A member of a gang stays with its group.
        """
        if not self._groups.takes(record, now):
            self.add_lead(record, now)

    def add_lead(self, record: PodRecord, now: float) -> None:
        """:meth:`add` for a pod that stands for itself, or for its group."""
        self._orders += 1
        record.order = self._orders
        self._pods.move(record, Place.WAITING, now)
        shape = record.shape
        shape.append(record)
        if shape.mode is Mode.BACKOFF:
            self._probe(shape)
        else:
            self._remind(record)
        if shape.heap_key is None:
            self.offer(shape)

    def requeue_front(self, record: PodRecord, now: float) -> None:
        """A pod that lost nothing but a race goes to the head of its own priority.

        Its shape may have been parked while it was out: then it waits, and has to be told why like
        the others, who were told when that was decided.
        """
        if self._groups.takes(record, now, front=True):
            self.left(record)
        else:
            self.front_lead(record, now)

    def front_lead(self, record: PodRecord, now: float) -> None:
        """:meth:`requeue_front` for a pod that stands for itself, or for its group."""
        self._front_orders += 1
        record.order = self._front_orders
        self._pods.move(record, Place.WAITING, now)
        shape = record.shape
        shape.append_front(record)
        self.left(record)
        if shape.mode is not Mode.PROBING:  # else it goes out again soon
            self._remind(record)
        self.offer(shape)

    def _remind(self, record: PodRecord) -> None:
        """A pod has joined a line; it may have to be told why the line stands."""
        shape = record.shape
        if shape.condition is not None and record.condition != shape.condition:
            shape.remind(record)
            self.untold[shape.number] = shape

    def back_off(self, record: PodRecord, *, now: float, delay: float) -> None:
        """A pod waits on its own account for ``delay`` seconds, then joins its line."""
        if self._groups.takes(record, now, delay=delay):
            self.left(record)
        else:
            self.back_off_lead(record, now=now, delay=delay)

    def back_off_lead(self, record: PodRecord, *, now: float, delay: float) -> None:
        """:meth:`back_off` for a pod that stands for itself, or for its group."""
        self._tokens += 1
        record.backoff_token = self._tokens
        self._pods.move(record, Place.BACKOFF, now)
        heapq.heappush(self._pod_backoff, (now + delay, self._tokens, record))
        self.left(record)

    def discard(self, record: PodRecord) -> None:
        """Take a pod out of its line, wherever it was; its place is the caller's business."""
        record.backoff_token = 0
        if record.shape.discard(record):
            self.offer(record.shape)  # another stands at the head now, maybe with an earlier order
        self.left(record)

    def left(self, record: PodRecord) -> None:
        """A pod is no longer out as a probe of its shape: another may go."""
        self._groups.touch(record)
        shape = record.shape
        if record.uid in shape.probes:
            shape.probes.discard(record.uid)
            self.offer(shape)

    # ---------------------------------------------------------------------------------- out of line

    def offer(self, shape: ShapeRecord) -> None:
        """Make sure that a shape with pods to take is in the heap under its head's order."""
        if not shape.takeable():
            return
        key = (-shape.priority, shape.head_order())
        if shape.heap_key is None or key < shape.heap_key:
            shape.heap_key = key
            self._tokens += 1
            self._lanes.push((*key, self._tokens, shape))

    def active(self) -> bool:
        """True if there may be something to take.

        When nothing is, and no shard is deciding anything, the shape that comes out of its backoff
        next is tried early, as kube-scheduler pops from its backoff queue when it has nothing else
        to do (KEP-5142). Pods that back off by themselves, after errors, stay out.
        """
        idle = not self._lanes and not self._pods.counts[Place.DISPATCHED]
        if idle and self._limits.pop_from_backoff:
            self._probe_early()
        return bool(self._lanes)

    def _probe_early(self) -> None:
        while self._shape_backoff and not self._lanes:
            until, _, shape = heapq.heappop(self._shape_backoff)
            if shape.mode is Mode.BACKOFF and shape.until == until:
                self._statistics.came_in(State.ACTIVE, "PopFromBackoffQ", min(len(shape), 1))
                self._probe(shape)

    def use_gate(self, gate: QuotaGate | None) -> None:
        """There are queues, others than before, or none."""
        self.gate = gate
        self._lanes.gate = gate
        self.tidy()

    def came_back(self, now: float) -> None:
        """Units for which quota had room have not taken it."""
        for shape in self._wakeups.parked_for_quota():
            self._wake(shape, event=QUOTA_CAME_BACK, now=now)

    def tidy(self) -> None:
        """Drop the entries of the heap that do not count; else only :meth:`take` does."""
        kept = []
        for entry in self._lanes.entries():
            shape = entry[3]
            if shape.heap_key != entry[:2]:
                continue
            if shape.takeable():
                kept.append(entry)
            else:
                shape.heap_key = None
        self._lanes.replace(kept)

    def take(
        self,
        *,
        limit: int,
        enough: int,
        now: float,
        may_go: Callable[[PodRecord], bool] = lambda _: True,
    ) -> list[PodRecord]:
        """The next pods by priority and age, at most ``limit``, of one shape if that has
        ``enough`` of them.

        A line whose first pod may not go (to the shard that asks) waits for another shard.
        A pod whose condition patch is in flight is set aside (PATCHING) until the reply.
        """
        taken: list[PodRecord] = []
        aside: list[ShapeRecord] = []
        while len(taken) < enough and (entry := self._lanes.pop()) is not None:
            shape = entry[3]
            if shape.heap_key != entry[:2]:
                continue
            shape.heap_key = None
            alone = self._take_from(shape, taken=taken, limit=limit, now=now, may_go=may_go)
            if len(shape) and not may_go(shape.head()):
                aside.append(shape)
            else:
                self.offer(shape)
            if alone:
                break
        for shape in aside:
            self.offer(shape)
        return taken

    def _take_from(
        self,
        shape: ShapeRecord,
        *,
        taken: list[PodRecord],
        limit: int,
        now: float,
        may_go: Callable[[PodRecord], bool],
    ) -> bool:
        """Move pods from a line into ``taken``; True if the batch must end here.

        Gangs and bulky pods go alone, and so do pods that shards died with twice.
        """
        room = min(limit - len(taken), shape.takeable())
        probing = shape.mode is Mode.PROBING
        while room > 0 and len(shape) and may_go(shape.head()):
            record = shape.pop()
            if self.waits_for_patch(record):
                self._pods.move(record, Place.PATCHING, now)
                continue
            bulky = shape.bulky or self._of_bulky(record)
            if bulky and not self.slow.open:  # a member of the gang is
                shape.push_back(record)
                return False
            alone = bulky or record.blamed >= 2 or self._groups.leads(record)
            if alone and taken:
                shape.push_back(record)
                return True
            if self.gate and (why := self.gate.admit(self._groups.unit_of(record))):
                shape.push_back(record)
                if self.gate.lets_ahead(shape, record, most=room):
                    continue
                self._hold(record, why, now)
                return False
            assert not record.patching, f"{record!r} goes out while its patch is in flight"
            taken.append(record)
            if bulky:
                self.slow.goes(record, now)
            if probing:
                shape.probes.add(record.uid)
            if alone:
                return True
            room -= 1
        return False

    def _of_bulky(self, lead: PodRecord) -> bool:
        """Whether a gang has a bulky member; its line is in the slow lane from then on."""
        if self._groups.leads(lead):
            lead.shape.bulky = any(pod.shape.bulky for pod in self._groups.unit_of(lead))
        return lead.shape.bulky

    def _hold(self, record: PodRecord, why: str, now: float) -> None:
        """Quota has no room for a pod: its shape waits as one that fits nowhere."""
        shape = record.shape
        version = max(self._wakeups.last_version, shape.min_version)
        news = self.unplaceable(record, version=version, plugins=(QUOTA,), now=now)
        self.over_quota.append((record, why, news))

    def waits_for_patch(self, record: PodRecord) -> bool:
        """A condition patch of the pod, or of another of its unit, is in flight."""
        return record.patching or (record.group is not None and self._groups.busy(record))

    @property
    def longest_backoff_s(self) -> float:
        """No pod backs off for longer on account of errors or conflicts."""
        return self._limits.max_backoff_s

    # --------------------------------------------------------------------------- answers and events

    def unplaceable(
        self, record: PodRecord, *, version: Version, plugins: tuple[str, ...], now: float
    ) -> bool:
        """A shard says that the pod's shape fits nowhere at ``version``, rejected by ``plugins``;
        True if that is news for the shape. The pod goes back to the head of its line."""
        shape = record.shape
        was_probe = record.uid in shape.probes
        shape.probes.discard(record.uid)
        self._groups.touch(record)  # it may have changed meanwhile
        if record.place is not Place.WAITING:
            self._pods.move(record, Place.WAITING, now)
            if record.asked_s >= 0:
                shape.push_back(record)  # it is its turn to use its stake
            else:
                shape.return_to_line(record)
        if shape.mode is Mode.UNREAD:
            return False  # it was decided under labels that do not count any more
        if shape.mode is Mode.PARKED:
            if version > shape.decided_at:
                self._wakeups.decided_anew(shape, version=version, plugins=plugins)
                if (event := self._wakeups.missed(shape)) is not None:
                    self._wake(shape, event=event, now=now)
            return False
        if not was_probe and version < shape.min_version:
            self.offer(shape)
            return False
        assert record.uid not in shape.probes, f"{record!r} has come back and probes"
        first = shape.mode is not Mode.BACKOFF
        if first:
            shape.failures += 1
            shape.parked_at = now
        shape.decided_at = version
        shape.plugins = plugins
        if self._wakeups.missed(shape) is not None:
            self._back_off_shape(shape, now)
        else:
            self._park(shape)
        return first

    def placed(self, record: PodRecord) -> None:
        """A pod of the shape was bound: the shape fits."""
        shape = record.shape
        shape.failures = 0
        if shape.mode is Mode.PROBING and record.uid in shape.probes:
            self._statistics.scheduled_after_flush += shape.flushed
            shape.flushed = False
            shape.allowance *= PROBE_GROWTH
            if shape.allowance > PROBE_OPEN:
                self._open(shape)
        self.left(record)

    def wake(self, events: Sequence[ClusterEvent], *, version: Version, now: float) -> int:
        """A step of the Binder's log at ``version``: wakes the shapes that were decided before it
        and that one of its events may help; how many.
        """
        woken = self._wakeups.step(events, version=version)
        for shape, event in woken:
            self._wake(shape, event=event, now=now)
        return len(woken)

    def tick(self, now: float) -> None:
        """Let the backoffs end whose time has come, and flush what was forgotten."""
        while self._pod_backoff and self._pod_backoff[0][0] <= now:
            _, token, record = heapq.heappop(self._pod_backoff)
            if record.place is Place.BACKOFF and record.backoff_token == token:
                self._statistics.came_in(State.ACTIVE, "BackoffComplete")
                self.add(record, now)
        while self._shape_backoff and self._shape_backoff[0][0] <= now:
            until, _, shape = heapq.heappop(self._shape_backoff)
            if shape.mode is Mode.BACKOFF and shape.until == until:
                self._probe(shape)
        while (forgotten := self._wakeups.oldest()) is not None:
            if forgotten.parked_at + self._limits.leftover_s > now:
                break
            if len(forgotten):
                self._statistics.leftover_flushes += 1
            self._wake(forgotten, event=TIMEOUT, now=now)

    # ---------------------------------------------------------------------------------- transitions

    def _open(self, shape: ShapeRecord) -> None:
        shape.mode = Mode.OPEN
        shape.probes.clear()
        shape.condition = None
        shape.todo = None
        self.offer(shape)

    def _park(self, shape: ShapeRecord) -> None:
        shape.mode = Mode.PARKED
        shape.probes.clear()
        self._wakeups.park(shape)

    def _wake(self, shape: ShapeRecord, *, event: ClusterEvent, now: float) -> None:
        self._wakeups.unpark(shape)
        shape.flushed = event is TIMEOUT
        self._statistics.came_in(State.BACKOFF, event.label, len(shape))
        self._back_off_shape(shape, now)

    def _back_off_shape(self, shape: ShapeRecord, now: float) -> None:
        """To BACKOFF until its time after the last fruitless decision is up; at once to PROBING
        if it is.
        """
        shape.mode = Mode.BACKOFF
        shape.probes.clear()
        shape.until = shape.parked_at + self._limits.backoff(shape.failures)
        if shape.until <= now:
            self._probe(shape)
            return
        self._tokens += 1
        heapq.heappush(self._shape_backoff, (shape.until, self._tokens, shape))

    def _probe(self, shape: ShapeRecord) -> None:
        assert not self._wakeups.holds(shape), f"{shape!r} is parked and probes"
        shape.mode = Mode.PROBING
        shape.allowance = 1
        shape.probes.clear()
        shape.min_version = max(shape.min_version, self._wakeups.last_version)
        self.offer(shape)

    def urge(self, record: PodRecord) -> None:
        """A pod of a line that stands is decided at once, before the others of its line."""
        shape = record.shape
        shape.discard(record)
        self._front_orders += 1
        record.order = self._front_orders
        shape.push_back(record)
        if self._wakeups.holds(shape):
            self._wakeups.unpark(shape)
        self._probe(shape)

    def misplaced(self, record: PodRecord) -> str:
        """Why a waiting pod would never be found, "" if it would."""
        shape = record.shape
        if record.uid not in shape.line and record.uid not in (shape.front or ()):
            return "it stands in no line"
        if shape.takeable() and shape.heap_key is None:
            return "nobody looks at its line"
        if shape.mode is Mode.PARKED and not self._wakeups.holds(shape):
            return "its shape is parked where nothing wakes it"
        return ""

    def begin_anew(self, record: PodRecord, now: float) -> None:
        """After a defect: to the head of its line, and the line is looked at."""
        shape = record.shape
        self.discard(record)
        self.requeue_front(record, now)
        if self._wakeups.holds(shape):
            self._wakeups.unpark(shape)
        if shape.mode is not Mode.REFUSED:
            shape.heap_key = None
            self._open(shape)

    def validate(self) -> None:
        """Check that every pod and shape that waits is where something will find it."""
        heap = {(entry[:2], entry[3].number) for entry in self._lanes.entries()}
        backoff = {(token, record.uid) for _, token, record in self._pod_backoff}
        ends = {(until, shape.number) for until, _, shape in self._shape_backoff}
        self._wakeups.validate()
        shapes: dict[int, ShapeRecord] = {}
        for record in self._pods.records.values():
            shape = shapes.setdefault(record.shape.number, record.shape)
            lines = (record.uid in shape.line) + (record.uid in (shape.front or ()))
            assert lines == (record.place is Place.WAITING), f"{record!r} stands in {lines} lines"
            if record.place is Place.BACKOFF:
                assert (record.backoff_token, record.uid) in backoff, f"{record!r} never comes back"
        for shape in shapes.values():
            known = (self._pods.get(uid) for uid in (*shape.line, *(shape.front or ())))
            assert all(r is not None and r.shape is shape for r in known), (
                f"{shape!r} holds a stranger"
            )
            if shape.takeable():
                assert shape.heap_key is not None, f"{shape!r} is forgotten"
                assert shape.heap_key[1] <= shape.head_order(), f"{shape!r} is found too late"
                assert (shape.heap_key, shape.number) in heap, f"{shape!r} is not in the heap"
            if shape.mode is Mode.BACKOFF:
                assert (shape.until, shape.number) in ends, f"{shape!r} never comes back"
            if shape.mode is Mode.PARKED:
                missed = self._wakeups.missed(shape)
                assert missed is None, f"{shape!r} missed {missed}"
            assert (shape.mode is Mode.PARKED) == self._wakeups.holds(shape), f"{shape!r} parked"
            assert shape.mode is Mode.PROBING or not shape.probes, f"{shape!r} probes"
            for uid in shape.probes:
                probe = self._pods.get(uid)
                assert probe is not None, f"{shape!r} probes with a stranger"
                out = probe.place in (Place.DISPATCHED, Place.OWNED)
                assert out, f"{shape!r} probes with {probe!r}"
