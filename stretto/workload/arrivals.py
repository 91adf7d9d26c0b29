"""When pods come: seconds from the start, ascending. Pure arithmetic."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Sequence


def burst(count: int) -> Iterator[float]:
    """All at once."""
    return iter([0.0] * count)


def steady(count: int, rate: float) -> Iterator[float]:
    """``rate`` a second."""
    return (i / rate for i in range(count))


def ramp(count: int, rate_from: float, rate_to: float) -> Iterator[float]:
    """At a rate that grows (or falls) evenly from one to the other.

    After t seconds f·t + k·t²/2 pods have come; with k such that the last comes at the final rate
    this takes 2·count/(from + to) seconds, and is solved for t.
    """
    duration = 2 * count / (rate_from + rate_to)
    slope = (rate_to - rate_from) / duration
    for i in range(count):
        if abs(slope) < 1e-12:
            yield i / rate_from
        else:
            # Conjugate form: no cancellation for small slopes.
            yield 2 * i / (rate_from + math.sqrt(rate_from**2 + 2 * slope * i))


class Compression:
    """Trace time to replay time: long pauses cut, then everything divided by one factor.

    The mapping is ascending, so creations and ends keep their order, and it applies to both:
    lifetimes shrink as the time does in which they lie.
    """

    def __init__(self, times: Sequence[float], *, span_s: float, max_gap_s: float = 0.0) -> None:
        """``times``: creation times, ascending; ``span_s``: when the last shall come."""
        self._from = [times[0] if times else 0.0]
        self._to = [0.0]
        for time in times:
            gap = time - self._from[-1]
            if gap > 0:
                self._from.append(time)
                self._to.append(self._to[-1] + (min(gap, max_gap_s) if max_gap_s else gap))
        kept = self._to[-1]
        self.factor = kept / span_s or 1.0
        """How many seconds of the trace (pauses cut) pass in one of the replay."""
        self.cut_s = self._from[-1] - self._from[0] - kept
        """Seconds of pauses that were cut away."""
        self.end = self._from[-1]
        """Trace time of the last creation."""

    def __call__(self, time: float) -> float:
        """Seconds from the start of the replay; times after the end go on at the same factor."""
        i = bisect.bisect_right(self._from, time) - 1
        if i < 0:
            return 0.0
        kept = self._to[i]
        if i + 1 < len(self._from):
            share = (time - self._from[i]) / (self._from[i + 1] - self._from[i])
            kept += share * (self._to[i + 1] - kept)
        else:
            kept += time - self._from[i]
        return kept / self.factor
