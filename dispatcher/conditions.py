"""The slower lane: which pod is told next why it waits (PodScheduled=False), and what came of it.

Parked pods share a decision, not a condition: each gets one patch, written only when what it says
has changed (design §12.22). The lane is bounded in rate and in flight, takes shapes in turn so
that one of 9,000 pods does not keep the others uninformed, and never delays a decision: a pod that
is woken before its patch was sent is simply not told. While a patch is in flight the pod is not
dispatched, because the patch gives it a new resourceVersion and the bind carries one as its
precondition (design §12.19).
"""

from __future__ import annotations

from collections import OrderedDict, deque

import msgspec

from dispatcher.patching import PATCH_TRIES, PatchResult
from dispatcher.pods import Condition, Place, PodRecord
from dispatcher.queue import Queue
from dispatcher.shape_records import Mode, ShapeRecord

WAITING_PLACES = (Place.WAITING, Place.BACKOFF, Place.REFUSED, Place.GROUPED)


class LaneLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the lane."""

    per_second: float = 50.0
    """An API server spends about as much on a patch as on a bind."""
    burst: int = 20
    in_flight: int = 8


class PatchOrder(msgspec.Struct, frozen=True, gc=False):
    """A condition to write, with the version it may be written on."""

    uid: str
    namespace: str
    name: str
    resource_version: int
    generation: int
    condition: Condition
    transition: bool
    """The status turns to False now; otherwise the time of the last transition is kept."""
    profile: str


class ConditionLane:
    """Rate, turns and what is in flight."""

    def __init__(self, *, queue: Queue, limits: LaneLimits) -> None:
        self._queue = queue
        self._limits = limits
        self._turns: OrderedDict[int, ShapeRecord] = OrderedDict()
        self._single: deque[PodRecord] = deque()
        self._in_flight: dict[str, tuple[PodRecord, PatchOrder]] = {}
        self._tokens = float(limits.burst)
        self._refilled = 0.0
        self._not_before = 0.0

    def tell_shape(self, shape: ShapeRecord, condition: Condition) -> None:
        """All pods in the line of a shape are to be told this."""
        shape.condition = condition
        untold = deque(record for record in shape.waiting() if record.condition != condition)
        shape.todo = untold or None
        if untold:
            self._queue.untold[shape.number] = shape

    def tell(self, record: PodRecord, condition: Condition) -> None:
        """One pod is to be told something of its own."""
        if record.condition == condition:
            record.wanted = None
            return
        if record.wanted is None:
            self._single.append(record)
        record.wanted = condition

    def retell(self, record: PodRecord) -> None:
        """A pod has changed and may have to be told again."""
        if record.wanted is not None:
            self._single.append(record)
        if record.place is Place.WAITING:
            self._queue.remind(record)

    def take(self, now: float) -> list[PatchOrder]:
        """The patches that may be sent now; their pods count as in flight until :meth:`reply`."""
        self._refill(now)
        orders: list[PatchOrder] = []
        if now < self._not_before:
            return orders
        while self._tokens >= 1 and len(self._in_flight) < self._limits.in_flight:
            found = self._next()
            if found is None:
                break
            record, condition = found
            assert not record.patching, f"{record!r} is patched twice at a time"
            self._tokens -= 1
            record.patching = True
            order = PatchOrder(
                uid=record.uid,
                namespace=record.namespace,
                name=record.name,
                resource_version=record.resource_version,
                generation=record.generation,
                condition=condition,
                transition=record.condition is None,
                profile=record.profile,
            )
            assert record.uid not in self._in_flight
            assert order.resource_version > 0, f"{record!r} is patched without a version"
            self._in_flight[record.uid] = (record, order)
            orders.append(order)
        return orders

    def reply(
        self,
        uid: str,
        result: PatchResult,
        *,
        resource_version: int,
        now: float,
        pause_s: float = 0.0,
    ) -> PodRecord | None:
        """A patch is answered; the record it was for (which may be forgotten by now), or None."""
        record, order = self._in_flight.pop(uid, (None, None))
        if record is None or order is None:
            return None
        assert record.patching, f"{record!r} was not being patched"
        record.patching = False
        self._not_before = max(self._not_before, now + pause_s)
        if result is PatchResult.WRITTEN:
            record.resource_version = max(record.resource_version, resource_version)
            record.condition = order.condition
            record.patch_failures = 0
            self.retell(record)
        elif result is PatchResult.FAILED:
            record.patch_failures += 1
            if record.patch_failures < PATCH_TRIES:
                self._again(record, order)
        unseen = result is PatchResult.STALE and record.resource_version <= order.resource_version
        if result is PatchResult.STALE:
            self._again(record, order, now=not unseen)
        if record.wanted is not None and not unseen:
            self._single.append(record)
        return record

    def statistics(self) -> dict[str, int]:
        """Sizes, for metrics."""
        todo = sum(len(shape.todo or ()) for shape in self._queue.untold.values())
        return {"in_flight": len(self._in_flight), "waiting": todo + len(self._single)}

    def idle(self) -> bool:
        """True if nobody is left to be told."""
        return not (self._in_flight or self._single or self._queue.untold or self._turns)

    def tidy(self) -> None:
        """Forget whom nobody can tell anything any more; else only :meth:`take` does."""
        self._single = deque(r for r in self._single if r.place is not Place.FORGOTTEN)
        for number, shape in list(self._queue.untold.items()):
            left = deque(r for r in shape.todo or () if r.place is not Place.FORGOTTEN)
            shape.todo = left or None
            if not left:
                del self._queue.untold[number]

    def _again(self, record: PodRecord, order: PatchOrder, *, now: bool = True) -> None:
        """What was not written is still to be told, unless something newer is; ``now`` or when the
        watch shows what the pod has become."""
        if order.condition == record.shape.condition:
            if now:
                self.retell(record)
        elif record.wanted is None:
            record.wanted = order.condition

    def _refill(self, now: float) -> None:
        earned = (now - self._refilled) * self._limits.per_second
        self._tokens = min(float(self._limits.burst), self._tokens + max(0.0, earned))
        assert 0 <= self._tokens <= self._limits.burst
        self._refilled = now

    def _next(self) -> tuple[PodRecord, Condition] | None:
        """The next pod to tell: those on their own account first, then the shapes in turn."""
        while self._single:
            record = self._single.popleft()
            if record.patching:
                continue  # its reply brings it back
            condition, record.wanted = record.wanted, None
            if condition and record.place in WAITING_PLACES:
                return record, condition
        if self._queue.untold:
            self._turns.update(self._queue.untold)
            self._queue.untold.clear()
        while self._turns:
            _, shape = self._turns.popitem(last=False)
            record_of = self._next_of(shape)
            if record_of is not None:
                self._turns[shape.number] = shape
                assert shape.condition is not None
                return record_of, shape.condition
        return None

    @staticmethod
    def _next_of(shape: ShapeRecord) -> PodRecord | None:
        """The next pod in a shape's line that is not told yet."""
        condition = shape.condition
        while shape.todo and condition is not None and shape.mode is not Mode.OPEN:
            record = shape.todo.popleft()
            waiting = record.place is Place.WAITING and record.shape is shape
            waiting = waiting and record.resource_version > 0
            if waiting and not record.patching and record.condition != condition:
                return record
        shape.todo = None
        return None
