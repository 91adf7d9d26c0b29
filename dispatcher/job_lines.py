"""Suspended Jobs in line: those that ask for the same things in the same place, in their order."""

from __future__ import annotations

import bisect

from dispatcher.job_records import JobRecord, LineKey, Order
from stretto.model.shape import Shape
from stretto.quota.rows import asked


class Line:
    """Suspended Jobs of one namespace, queue and set of resources, by priority, then age."""

    __slots__ = ("orders", "since", "why")

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self.why = ""
        """What its head, and so all, wait for; '' if it was not looked at yet."""
        self.since = 0.0
        """Monotonic time at which it began to wait for that."""


class JobLines:
    """All lines, each with a Job at least."""

    def __init__(self) -> None:
        self.by_key: dict[LineKey, Line] = {}

    def add(self, job: JobRecord, shape: Shape, *, priority: int) -> None:
        """A Job waits."""
        names = tuple(name for name, amount in asked(shape) if amount)
        job.line = shape.namespace, shape.queue, names
        job.order = -priority, job.seen.created, job.seen.uid
        bisect.insort(self.by_key.setdefault(job.line, Line()).orders, job.order)

    def remove(self, job: JobRecord) -> None:
        """A Job, which may wait, does not."""
        if job.line is not None:
            line = self.by_key[job.line]
            del line.orders[bisect.bisect_left(line.orders, job.order)]
            if not line.orders:
                del self.by_key[job.line]
            job.line = None

    def why(self, job: JobRecord) -> str:
        """What a Job in line waits for; '' if that is not known yet, or it is in none."""
        return self.by_key[job.line].why if job.line is not None else ""

    def validate(self, jobs: dict[str, JobRecord]) -> None:
        """Check that every Job stands where its record says, and nobody else does."""
        lined = {order[2]: key for key, line in self.by_key.items() for order in line.orders}
        for uid, job in jobs.items():
            assert lined.pop(uid, None) == job.line, f"{job.seen.key} stands elsewhere"
        assert not lined, f"{lined} are nobody"
