"""The lines that pods wait in: each in the line of its shape, in backoff of its own, or with its
group.

What a line waits for is the business of its shape (shape_cycle.py), which line has its turn that of
the lanes (lanes.py), and what goes out that of the batches (batches.py). Here a pod joins a line,
at its end or, if it lost nothing but a race, at its head; leaves it; or waits on its own account,
after an error or too many conflicts, before it joins.
"""

from __future__ import annotations

import heapq

from dispatcher.groups import Groups
from dispatcher.lanes import Lanes
from dispatcher.pods import OUT, Place, PodRecord, PodTable
from dispatcher.shape_cycle import ShapeCycle
from dispatcher.shape_records import Mode, ShapeRecord
from dispatcher.states import State
from dispatcher.statistics import Statistics
from stretto.model.unit import Version

FRONT = -(1 << 60)
"""Orders from here on are before every order of a line."""


class Queue:
    """See the module docstring."""

    def __init__(
        self,
        *,
        pods: PodTable,
        groups: Groups,
        lanes: Lanes,
        cycle: ShapeCycle,
        statistics: Statistics,
    ) -> None:
        self._pods = pods
        self._groups = groups
        self._lanes = lanes
        self._cycle = cycle
        self._statistics = statistics
        self._orders = 0
        self._front_orders = FRONT
        self._backoff: list[tuple[float, int, PodRecord]] = []
        """Pods that wait on their own account, and until when."""
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
            self._cycle.probe(shape)
        else:
            self.remind(record)
        if shape.heap_key is None:
            self._lanes.offer(shape)

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
            self.remind(record)
        self._lanes.offer(shape)

    def remind(self, record: PodRecord) -> None:
        """A pod of a line may have to be told why the line stands."""
        shape = record.shape
        if shape.condition is not None and record.condition != shape.condition:
            shape.remind(record)
            self.untold[shape.number] = shape

    def urge(self, record: PodRecord) -> None:
        """A pod of a line that stands is decided at once, before the others of its line."""
        shape = record.shape
        shape.discard(record)
        self._front_orders += 1
        record.order = self._front_orders
        shape.push_back(record)
        self._cycle.urge(shape)

    # --------------------------------------------------------------------------- on its own account

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
        heapq.heappush(self._backoff, (now + delay, self._tokens, record))
        self.left(record)

    def tick(self, now: float) -> None:
        """Let the backoffs end whose time has come."""
        while self._backoff and self._backoff[0][0] <= now:
            _, token, record = heapq.heappop(self._backoff)
            if record.place is Place.BACKOFF and record.backoff_token == token:
                self._statistics.came_in(State.ACTIVE, "BackoffComplete")
                self.add(record, now)

    # ---------------------------------------------------------------------------------- out of line

    def discard(self, record: PodRecord) -> None:
        """Take a pod out of its line, wherever it was; its place is the caller's business."""
        record.backoff_token = 0
        if record.shape.discard(record):
            # Another stands at the head now, maybe with an earlier order.
            self._lanes.offer(record.shape)
        self.left(record)

    def left(self, record: PodRecord) -> None:
        """A pod is no longer out as a probe of its shape: another may go."""
        self._groups.touch(record)
        shape = record.shape
        if record.uid in shape.probes:
            shape.probes.discard(record.uid)
            self._lanes.offer(shape)

    # -------------------------------------------------------------------------------------- answers

    def unplaceable(
        self, record: PodRecord, *, version: Version, plugins: tuple[str, ...], now: float
    ) -> bool:
        """A shard says that the pod's shape fits nowhere at ``version``, rejected by ``plugins``;
        True if that is news for the shape. The pod goes back to the head of its line."""
        shape = record.shape
        probe = record.uid in shape.probes
        shape.probes.discard(record.uid)
        self._groups.touch(record)  # it may have changed meanwhile
        if record.place is not Place.WAITING:
            self._pods.move(record, Place.WAITING, now)
            if record.asked_s >= 0:
                shape.push_back(record)  # it is its turn to use its stake
            else:
                shape.return_to_line(record)
        return self._cycle.unplaceable(
            shape, version=version, plugins=plugins, probe=probe, now=now
        )

    def placed(self, record: PodRecord) -> None:
        """A pod was bound: its shape fits."""
        self._cycle.placed(record.shape, probe=record.uid in record.shape.probes)
        self.left(record)

    # ---------------------------------------------------------------------------------------- audit

    def misplaced(self, record: PodRecord) -> str:
        """Why a waiting pod would never be found, "" if it would."""
        shape = record.shape
        if record.uid not in shape.line and record.uid not in (shape.front or ()):
            return "it stands in no line"
        if shape.takeable() and shape.heap_key is None:
            return "nobody looks at its line"
        if shape.mode is Mode.PARKED and not self._cycle.parked(shape):
            return "its shape is parked where nothing wakes it"
        return ""

    def begin_anew(self, record: PodRecord, now: float) -> None:
        """After a defect: to the head of its line, and the line is looked at."""
        shape = record.shape
        self.discard(record)
        self.requeue_front(record, now)
        self._cycle.begin_anew(shape)

    def validate(self) -> None:
        """Check that every pod and shape that waits is where something will find it."""
        backoff = {(token, record.uid) for _, token, record in self._backoff}
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
            for uid in shape.probes:
                probe = self._pods.get(uid)
                assert probe is not None, f"{shape!r} probes with a stranger"
                assert probe.place in OUT, f"{shape!r} probes with {probe!r}"
        self._lanes.validate(shapes.values())
        self._cycle.validate(shapes.values())
