"""Percentiles with their counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

PERCENTS = (50, 90, 99, 99.9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """A distribution in a line. All in the unit of the values; zeros if there are none."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    p999: float
    largest: float


def percentile(ascending: Sequence[float], percent: float) -> float:
    """The smallest value that at least ``percent`` of the values do not exceed (nearest rank)."""
    if not ascending:
        return 0.0
    rank = math.ceil(percent / 100 * len(ascending))
    return ascending[min(max(rank, 1), len(ascending)) - 1]


def percentiles(values: Sequence[float]) -> Percentiles:
    """Percentiles of values in any order."""
    ascending = sorted(values)
    p50, p90, p99, p999 = (percentile(ascending, percent) for percent in PERCENTS)
    return Percentiles(
        count=len(ascending),
        mean=sum(ascending) / len(ascending) if ascending else 0.0,
        p50=p50,
        p90=p90,
        p99=p99,
        p999=p999,
        largest=ascending[-1] if ascending else 0.0,
    )


def per_second(times: Sequence[float], seconds: int) -> list[int]:
    """How many of the times (seconds from the start) fall into each second."""
    found = [0] * max(seconds, 1)
    for time in times:
        found[min(max(int(time), 0), len(found) - 1)] += 1
    return found
