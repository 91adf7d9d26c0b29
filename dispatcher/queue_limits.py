"""Times of the queue."""

from __future__ import annotations

import msgspec


class QueueLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Times of the queue, in seconds; kube-scheduler's defaults."""

    initial_backoff_s: float = 1.0
    max_backoff_s: float = 10.0
    pop_from_backoff: bool = True
    """Try what is in backoff early when nothing else is to be done (SchedulerPopFromBackoffQ)."""
    leftover_s: float = 300.0
    """An attempt happens at most so long (and the backoff) after the last one (design §12.22)."""

    def backoff(self, failures: int) -> float:
        """Delay after so many failures in a row: doubling from the initial to the maximum."""
        return min(
            self.initial_backoff_s * 2.0 ** min(max(failures - 1, 0), 30), self.max_backoff_s
        )
