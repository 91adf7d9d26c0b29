"""Shapes go round: open, parked as unschedulable, in backoff, probing, open again.

Naive form: a queue of pods, each with its own failures, moved one by one by every event. Its
fault: 9,000 hopeless pods of one shape cost 9,000 decisions each time a pod ends somewhere. The
form chosen: pods wait in the line of their shape, and the shape is parked and woken as one.

OPEN: its pods are active. A shard answers that a pod fits nowhere at version v: the shape is PARKED
with that answer, unless an event later than v is known that may help it, then it goes to BACKOFF
(the events are replayed, design §12.1). Which events may help is told by the hints of the plugins
that rejected the shape (see wakeups.py). Such an event later than v moves it PARKED → BACKOFF; its
time is up 1, 2, 4, 8, 10 s after the decision, or earlier when nothing else is to be done
(KEP-5142). Then PROBING: one pod goes out; each that is bound multiplies the number that may go,
and soon the shape is OPEN. A probe that fits nowhere parks it again.

A lost wake-up would leave pods waiting for ever, so whatever stays parked for five minutes is
woken anyway; a pod that is then bound is counted as a defect.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from dispatcher.lanes import Lanes
from dispatcher.queue_limits import QueueLimits
from dispatcher.shape_records import Mode, ShapeRecord
from dispatcher.states import State
from dispatcher.statistics import Statistics
from dispatcher.wakeups import Wakeups
from stretto.model.unit import Version
from stretto.placement.events import QUOTA_CAME_BACK, TIMEOUT, ClusterEvent

PROBE_GROWTH = 8
PROBE_OPEN = 64
"""A shape whose allowance has grown beyond one batch is open."""


class ShapeCycle:
    """Moves shapes from mode to mode; see the module docstring."""

    def __init__(self, *, lanes: Lanes, limits: QueueLimits, statistics: Statistics) -> None:
        self._lanes = lanes
        self._limits = limits
        self._statistics = statistics
        self._wakeups = Wakeups()
        """What is parked, and what it waits for."""
        self._ends: list[tuple[float, int, ShapeRecord]] = []
        """When backoffs are up."""
        self._pushed = 0

    @property
    def last_version(self) -> Version:
        """Of the last step of the log with an event."""
        return self._wakeups.last_version

    def parked(self, shape: ShapeRecord) -> bool:
        """Whether an event may wake the shape."""
        return self._wakeups.holds(shape)

    # -------------------------------------------------------------------------- answers and events

    def unplaceable(
        self,
        shape: ShapeRecord,
        *,
        version: Version,
        plugins: tuple[str, ...],
        probe: bool,
        now: float,
    ) -> bool:
        """A pod of the shape, a ``probe`` or not, fits nowhere at ``version``, rejected by
        ``plugins``; True if that is news."""
        if shape.mode is Mode.UNREAD:
            return False  # it was decided under labels that do not count any more
        if shape.mode is Mode.PARKED:
            if version > shape.decided_at:
                self._wakeups.decided_anew(shape, version=version, plugins=plugins)
                if (event := self._wakeups.missed(shape)) is not None:
                    self._wake(shape, event=event, now=now)
            return False
        if not probe and version < shape.min_version:
            self._lanes.offer(shape)
            return False
        first = shape.mode is not Mode.BACKOFF
        if first:
            shape.failures += 1
            shape.parked_at = now
        shape.decided_at = version
        shape.plugins = plugins
        if self._wakeups.missed(shape) is not None:
            self._back_off(shape, now)
        else:
            self._park(shape)
        return first

    def placed(self, shape: ShapeRecord, *, probe: bool) -> None:
        """A pod of the shape, a ``probe`` or not, was bound: the shape fits."""
        shape.failures = 0
        if shape.mode is Mode.PROBING and probe:
            self._statistics.scheduled_after_flush += shape.flushed
            shape.flushed = False
            shape.allowance *= PROBE_GROWTH
            if shape.allowance > PROBE_OPEN:
                self._open(shape)

    def wake(self, events: Sequence[ClusterEvent], *, version: Version, now: float) -> int:
        """A step of the Binder's log at ``version``: wakes the shapes that were decided before it
        and that one of its events may help; how many.
        """
        woken = self._wakeups.step(events, version=version)
        for shape, event in woken:
            self._wake(shape, event=event, now=now)
        return len(woken)

    def quota_came_back(self, now: float) -> None:
        """Units for which quota had room have not taken it."""
        for shape in self._wakeups.parked_for_quota():
            self._wake(shape, event=QUOTA_CAME_BACK, now=now)

    def tick(self, now: float) -> None:
        """Let the backoffs end whose time has come, and flush what was forgotten."""
        while self._ends and self._ends[0][0] <= now:
            until, _, shape = heapq.heappop(self._ends)
            if shape.mode is Mode.BACKOFF and shape.until == until:
                self.probe(shape)
        while (forgotten := self._wakeups.oldest()) is not None:
            if forgotten.parked_at + self._limits.leftover_s > now:
                break
            if len(forgotten):
                self._statistics.leftover_flushes += 1
            self._wake(forgotten, event=TIMEOUT, now=now)

    # ---------------------------------------------------------------------------------- transitions

    def probe(self, shape: ShapeRecord) -> None:
        """One pod of the shape may go out."""
        assert not self._wakeups.holds(shape), f"{shape!r} is parked and probes"
        shape.mode = Mode.PROBING
        shape.allowance = 1
        shape.probes.clear()
        shape.min_version = max(shape.min_version, self._wakeups.last_version)
        self._lanes.offer(shape)

    def probe_early(self) -> None:
        """There is nothing else to do: the backoff that would end next does so now, as
        kube-scheduler pops from its backoff queue (KEP-5142)."""
        while self._limits.pop_from_backoff and self._ends and not self._lanes:
            until, _, shape = heapq.heappop(self._ends)
            if shape.mode is Mode.BACKOFF and shape.until == until:
                self._statistics.came_in(State.ACTIVE, "PopFromBackoffQ", min(len(shape), 1))
                self.probe(shape)

    def urge(self, shape: ShapeRecord) -> None:
        """A pod of the shape is decided at once, whatever the shape waits for."""
        if self._wakeups.holds(shape):
            self._wakeups.unpark(shape)
        self.probe(shape)

    def begin_anew(self, shape: ShapeRecord) -> None:
        """After a defect: whatever the shape waits for, it is looked at."""
        if self._wakeups.holds(shape):
            self._wakeups.unpark(shape)
        if shape.mode is not Mode.REFUSED:
            shape.heap_key = None
            self._open(shape)

    def _open(self, shape: ShapeRecord) -> None:
        shape.mode = Mode.OPEN
        shape.probes.clear()
        shape.condition = None
        shape.todo = None
        self._lanes.offer(shape)

    def _park(self, shape: ShapeRecord) -> None:
        shape.mode = Mode.PARKED
        shape.probes.clear()
        self._wakeups.park(shape)

    def _wake(self, shape: ShapeRecord, *, event: ClusterEvent, now: float) -> None:
        self._wakeups.unpark(shape)
        shape.flushed = event is TIMEOUT
        self._statistics.came_in(State.BACKOFF, event.label, len(shape))
        self._back_off(shape, now)

    def _back_off(self, shape: ShapeRecord, now: float) -> None:
        """To BACKOFF until its time after the last fruitless decision is up; at once to PROBING
        if it is.
        """
        shape.mode = Mode.BACKOFF
        shape.probes.clear()
        shape.until = shape.parked_at + self._limits.backoff(shape.failures)
        if shape.until <= now:
            self.probe(shape)
            return
        self._pushed += 1
        heapq.heappush(self._ends, (shape.until, self._pushed, shape))

    def validate(self, shapes: Iterable[ShapeRecord]) -> None:
        """Check that what waits will be woken, and that only probing shapes probe."""
        ends = {(until, shape.number) for until, _, shape in self._ends}
        self._wakeups.validate()
        for shape in shapes:
            if shape.mode is Mode.BACKOFF:
                assert (shape.until, shape.number) in ends, f"{shape!r} never comes back"
            if shape.mode is Mode.PARKED:
                missed = self._wakeups.missed(shape)
                assert missed is None, f"{shape!r} missed {missed}"
            assert (shape.mode is Mode.PARKED) == self._wakeups.holds(shape), f"{shape!r} parked"
            assert shape.mode is Mode.PROBING or not shape.probes, f"{shape!r} probes"
