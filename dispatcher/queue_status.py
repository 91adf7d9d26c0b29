"""Which queue's status is written next: what it has used and borrowed, who waits and why.

The picture is taken at most once a second, and a queue is written only if what it says has changed,
each at most so often, so that a busy queue costs the API server a write now and then. What a queue
says travels in the Binder's log with its object, so that a dispatcher that starts does not repeat
it.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from dispatcher.admission import Admission
from dispatcher.pods import Condition
from dispatcher.quota import QuotaGate
from dispatcher.shape_records import Mode
from dispatcher.shapes import ShapeTable
from stretto.placement.hints import QUOTA
from stretto.quota.rows import QueueRow
from stretto.quota.status import QueueStatus, status_in, status_of

LOOK_EVERY_S = 1.0
WRITE_EVERY_S = 5.0
"""At most so often for one queue."""
IN_FLIGHT = 20
"""Statuses that are being written; with one look a second, so many a second at most."""
PAUSE_S = 30.0
"""After a write that failed."""


class StatusOrder(msgspec.Struct, frozen=True, gc=False):
    """A status to write."""

    name: str
    uid: str
    status: QueueStatus
    before: QueueStatus


class StatusLane:
    """See the module docstring."""

    def __init__(self, gate: QuotaGate, shapes: ShapeTable, admission: Admission) -> None:
        self._gate = gate
        self._admission = admission
        self._shapes = shapes
        self._looked_at = 0.0
        self._not_before: dict[str, float] = {}
        self._in_flight: dict[str, StatusOrder] = {}
        self._written: dict[str, tuple[str, QueueStatus]] = {}
        """By queue: (uid, what was written and may not have come back in the log yet)."""
        self.waiting: Counter[str] = Counter()
        """Pods that are on no node, and members of Jobs that have no pod yet, by queue, those of
        the queues below counted too."""

    def take(self, now: float) -> list[StatusOrder]:
        """The statuses to write now; in flight until :meth:`reply`."""
        if not self._gate.on or now - self._looked_at < LOOK_EVERY_S:
            return []
        self._looked_at = now
        why = self._look()
        orders: list[StatusOrder] = []
        view = self._gate.view
        tree = view.tree
        # Who was written longest ago comes first: else a few busy queues would have all the turns.
        for node in sorted(tree, key=lambda each: self._not_before.get(each.name, 0.0)):
            row, name = view.row(node.name), node.name
            if len(self._in_flight) >= IN_FLIGHT:
                break
            if not row.uid or name in self._in_flight or self._not_before.get(name, 0.0) > now:
                continue
            before = self._told(name, row)
            usage, waiting = view.usage_of(name), self.waiting[name]
            status = status_of(
                node, tree, usage, waiting=waiting, why=why.get(name, ""),
                promised=view.owed(node),
            )  # fmt: skip
            if status.says != before.says:
                order = self._in_flight[name] = StatusOrder(name, row.uid, status, before)
                orders.append(order)
        return orders

    def _told(self, name: str, row: QueueRow) -> QueueStatus:
        uid, written = self._written.get(name, ("", QueueStatus()))
        return written if uid == row.uid else status_in(row.told)

    def _look(self) -> dict[str, str]:
        """Count who waits; queue → why the first of them that waits for quota does."""
        self.waiting.clear()
        why: dict[str, tuple[float, str]] = {}
        for shape in list(self._shapes.by_number.values()):
            count = shape.refs - shape.of_group  # a group holds its line, too
            queue = self._gate.queue_of(shape) if count > 0 else None
            for each in queue.path if queue is not None else ():
                self.waiting[each.name] += count
            told: Condition | None = shape.condition
            if queue is None or shape.mode is not Mode.PARKED or told is None:
                continue
            if QUOTA in shape.plugins:
                for each in queue.path:
                    first = why.setdefault(each.name, (shape.parked_at, told.message))
                    why[each.name] = min(first, (shape.parked_at, told.message))
        self._look_at_jobs(why)
        return {name: message for name, (_, message) in why.items()}

    def _look_at_jobs(self, why: dict[str, tuple[float, str]]) -> None:
        for line in self._admission.waiting():
            for each in line.queue.path:
                self.waiting[each.name] += line.members
                if line.why:
                    first = why.setdefault(each.name, (line.since, line.why))
                    why[each.name] = min(first, (line.since, line.why))

    def reply(self, name: str, *, written: QueueStatus | None, now: float) -> None:
        """A patch is answered: the status that stands there now, with its times, or None."""
        order = self._in_flight.pop(name)
        self._not_before[name] = now + (WRITE_EVERY_S if written else PAUSE_S)
        if written:
            self._written[name] = order.uid, written
        else:
            self._written.pop(name, None)
