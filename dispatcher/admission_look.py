"""One look at the Jobs that wait: which of them have room now; see :mod:`dispatcher.admission`."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple

from dispatcher.job_lines import Line
from dispatcher.job_records import JobOrder
from dispatcher.quota import QuotaGate
from dispatcher.shape_records import Mode, ShapeRecord
from dispatcher.shapes import ShapeTable
from stretto.model.shape import Shape
from stretto.placement.hints import QUOTA
from stretto.quota.rows import asked
from stretto.quota.tree import QueueNode
from stretto.quota.view import over_text

if TYPE_CHECKING:
    from dispatcher.admission import Admission


class _Entry(NamedTuple):
    """A line of Jobs, or one of pods, in the heap; pods come before Jobs of their priority."""

    turn: tuple[object, ...]
    """Of its queue."""
    minus_priority: int
    jobs: bool
    age: tuple[str, str] | int
    queue: QueueNode
    line: Line | ShapeRecord


class Look:
    """Goes through the lines in order; whoever finds no room keeps what is short from all that
    come after it."""

    def __init__(
        self, admission: Admission, gate: QuotaGate, shapes: ShapeTable, *, now: float
    ) -> None:
        self._admission = admission
        self._gate = gate
        self._shapes = shapes
        self._now = now
        self._short: dict[tuple[str, str], None] = {}
        """(queue, resource) that somebody waits for."""
        self._supposed: list[tuple[Shape, int]] = []
        self._heap: list[tuple[tuple[object, ...], int, _Entry]] = []
        self._pushed = 0
        self._unready = False
        """Somebody could not be resumed for another reason than room."""

    def run(self, orders: list[JobOrder]) -> bool:
        """Resume what has room; False: there may be more to do at once."""
        self._check()
        self._fill(orders)
        while self._heap and self._admission.writes.room:
            *_, entry = heapq.heappop(self._heap)
            turn = self._gate.turn(entry.queue.name)
            if turn > entry.turn:  # it has been given something meanwhile
                self._push(entry._replace(turn=turn))
            elif isinstance(entry.line, ShapeRecord):
                self._pods(entry.queue, entry.line)
            elif self._head(entry.queue, entry.line, orders):
                self._push_jobs(entry.queue, entry.line)
        for shape, count in self._supposed:
            self._gate.view.suppose(shape, -count)
        return not self._heap and self._admission.writes.room and not self._unready

    def _check(self) -> None:
        """What no limit ever allows stands in nobody's way, and is told so wherever it stands."""
        tree = self._gate.view.tree
        for job in self._admission.take_unchecked():
            shape = job.template.shape
            assert shape is not None, "a Job in a line has a shape"
            served = self._gate.view.on
            queue = tree.assigned(shape.namespace, shape.queue).queue if served else None
            too_much = queue is not None and _beyond(queue, shape, job.seen.count)
            if too_much:
                self._admission.set_aside(job, too_much)

    def _fill(self, orders: list[JobOrder]) -> None:
        view, queues = self._gate.view, False
        for (namespace, label, _), line in list(self._admission.lines.by_key.items()):
            queue, problem = view.tree.assigned(namespace, label) if view.on else (None, "")
            if problem:
                self._admission.wait(line, problem, self._now)
            elif queue is not None:
                queues = True
                self._push_jobs(queue, line)
            else:
                while line.orders and self._admission.writes.room and self._resume(line, orders):
                    pass
        for record in list(self._shapes.by_number.values()) if queues else ():
            waits = len(record) and (record.mode is Mode.OPEN or QUOTA in record.plugins)
            queue = self._gate.queue_of(record) if waits else None
            if queue is not None:
                turn = self._gate.turn(queue.name)
                self._push(_Entry(turn, -record.priority, False, record.number, queue, record))

    def _push_jobs(self, queue: QueueNode, line: Line) -> None:
        if line.orders:
            minus, created, uid = line.orders[0]
            turn = self._gate.turn(queue.name)
            self._push(_Entry(turn, minus, True, (created, uid), queue, line))

    def _push(self, entry: _Entry) -> None:
        self._pushed += 1
        key = entry.turn, entry.minus_priority, entry.jobs, entry.age
        heapq.heappush(self._heap, (key, self._pushed, entry))

    # ------------------------------------------------------------------------------------- one line
    def _pods(self, queue: QueueNode, record: ShapeRecord) -> None:
        """Pods that wait take what there is, for this look."""
        shape = record.shape
        assert shape is not None, "pods in a queue can be read"
        count = self._gate.unpromised_in(record)
        room = 0 if self._behind(queue, shape) else self._gate.view.room(shape, count)
        if room:
            self._suppose(shape, room)
        if room < count:
            lack = self._gate.view.lack(queue, shape)
            if lack is not None:
                self._short[lack[0].name, lack[1]] = None

    def _head(self, queue: QueueNode, line: Line, orders: list[JobOrder]) -> bool:
        """Look at the first of a line; whether the next may be looked at."""
        job = self._admission.jobs[line.orders[0][2]]
        shape, count = job.template.shape, job.seen.count
        assert shape is not None, "a Job in a line has a shape"
        behind = self._behind(queue, shape)
        if behind is not None:
            name, resource = behind
            where = "" if name == queue.name else f" above queue {queue.name}"
            why = f"waiting for quota: others wait for {resource} of queue {name}{where} before it"
            self._admission.wait(line, why, self._now)
            return False
        lack = self._gate.view.lack(queue, shape, count)
        if lack is not None and not self._gate.may_reclaim(queue, _times(shape, count)):
            self._short[lack[0].name, lack[1]] = None
            self._admission.wait(line, over_text(queue, *lack), self._now)
            return False
        if self._resume(line, orders):
            return True
        self._suppose(shape, count)
        return False

    def _resume(self, line: Line, orders: list[JobOrder]) -> bool:
        """Resume the head of a line, unless a write to it is in flight."""
        job = self._admission.jobs[line.orders[0][2]]
        if job.in_flight:
            self._unready = True
            return False
        self._admission.resume(job, orders)
        return True

    def _suppose(self, shape: Shape, count: int) -> None:
        if count:
            self._gate.view.suppose(shape, count)
            self._supposed.append((shape, count))

    def _behind(self, queue: QueueNode, shape: Shape) -> tuple[str, str] | None:
        """What is short, and asked for by somebody before this one."""
        if not self._short:
            return None
        for each in queue.path:
            for name, amount in asked(shape):
                if amount and (each.name, name) in self._short:
                    return each.name, name
        return None


def _times(shape: Shape, count: int) -> tuple[tuple[str, int], ...]:
    return tuple((name, amount * count) for name, amount in asked(shape))


def _beyond(queue: QueueNode, shape: Shape, count: int) -> str:
    """Why so many of a shape never have room; '' if they may."""
    for each in queue.path:
        for name, amount in _times(shape, count):
            if amount > each.limit.get(name, amount):
                where = "" if each is queue else f" above queue {queue.name}"
                return f"it asks for more {name} at once than the limit of queue {each.name}{where}"
    return ""
