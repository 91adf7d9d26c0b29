"""Plain numbers that the brain counts and the shell exports; nothing here costs more than an
addition.
"""

from __future__ import annotations

import bisect

from dispatcher.states import State

SLI_BUCKETS_S = tuple(0.01 * 2.0**power for power in range(20))
"""kube-scheduler's buckets of pod_scheduling_sli_duration_seconds."""
ATTEMPT_BUCKETS_S = tuple(0.001 * 2.0**power for power in range(15))
"""kube-scheduler's buckets of scheduling_attempt_duration_seconds."""
ATTEMPT_BUCKETS = (1.0, 2.0, 4.0, 8.0, 16.0)


class Buckets:
    """A histogram that is cheap to add to: one bisection in plain floats."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """One more than bounds: the last is beyond all of them. Not cumulative."""
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper bound, values up to it), as Prometheus wants it."""
        names = [*(repr(bound) for bound in self.bounds), "+Inf"]
        total = 0
        pairs = []
        for name, count in zip(names, self.counts, strict=True):
            total += count
            pairs.append((name, float(total)))
        return pairs


class Statistics:
    """Counters of the dispatcher."""

    def __init__(self) -> None:
        self.attempts: dict[tuple[str, str], int] = {}
        """(result, profile) → attempts that ended so: scheduled, unschedulable, error."""
        self.incoming: dict[tuple[str, str], int] = {}
        """(queue, event) → pods that entered the queue because of the event."""
        self.conflicts: dict[str, int] = {}
        """Cause → attempts lost to it."""
        self.sli: dict[str, Buckets] = {}
        """Attempts ("1" … "15+") → seconds from the first queueing to the bind."""
        self.attempt_seconds: dict[tuple[str, str], Buckets] = {}
        """(result, profile) → seconds from sending a unit to a shard to how that ended."""
        self.attempts_per_pod = Buckets(ATTEMPT_BUCKETS)
        self.leftover_flushes = 0
        self.scheduled_after_flush = 0
        """A missed wake-up each: a defect."""
        self.bound_elsewhere = 0
        """Bound although neither a shard nor the Binder was known to hold it."""
        self.dispatched = 0
        self.batches = 0
        self.handed_back = 0
        self.overdue = 0
        """Units that a live shard held for too long: a defect."""
        self.orphans = 0
        self.drift = 0
        """Units that the Binder turned out not to own."""
        self.late_outcomes = 0
        """Outcomes of an attempt that is no longer the current one."""
        self.shard_deaths = 0
        self.quarantined = 0
        self.patches: dict[str, int] = {}
        """Result → condition patches."""

    def came_in(self, state: State, event: str, count: int = 1) -> None:
        """Count pods that enter a queue."""
        if count:
            key = (state.value, event)
            self.incoming[key] = self.incoming.get(key, 0) + count

    def ended(self, result: str, profile: str, *, seconds: float | None = None) -> None:
        """Count an attempt that ended, ``seconds`` after it was sent; None: not known."""
        key = (result, profile)
        self.attempts[key] = self.attempts.get(key, 0) + 1
        if seconds is None:
            return
        buckets = self.attempt_seconds.get(key)
        if buckets is None:
            buckets = self.attempt_seconds[key] = Buckets(ATTEMPT_BUCKETS_S)
        buckets.add(seconds)

    def bound(self, *, attempts: int, seconds: float, out_s: float | None, profile: str) -> None:
        """Count a pod that was bound, ``seconds`` after it was first queued and ``out_s`` after it
        was sent to a shard."""
        self.ended("scheduled", profile, seconds=out_s)
        name = str(attempts) if attempts < 15 else "15+"
        buckets = self.sli.get(name)
        if buckets is None:
            buckets = self.sli[name] = Buckets(SLI_BUCKETS_S)
        buckets.add(seconds)
        self.attempts_per_pod.add(attempts)

    def conflict(self, cause: str) -> None:
        """Count an attempt that lost a race."""
        self.conflicts[cause] = self.conflicts.get(cause, 0) + 1
