"""Reads what processes expose on /metrics, so that a report can tell what happened inside.

Counters and histograms only grow, so a run is the difference of two readings. A percentile of a
histogram is the upper bound of the bucket it falls into: never too small, and not finer than the
buckets are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from stretto.workload.measures import PERCENTS, Percentiles

_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: \d+)?$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Labels = tuple[tuple[str, str], ...]


class Reading:
    """The samples of one or several /metrics pages, by name and labels; equal ones are added."""

    def __init__(self, pages: Iterable[str] = ()) -> None:
        self._samples: dict[str, dict[Labels, float]] = {}
        for page in pages:
            self._add(page)

    def _add(self, page: str) -> None:
        for line in page.splitlines():
            match = None if line.startswith("#") else _SAMPLE.match(line)
            if match is None:
                continue
            name, labels, value = match.groups()
            try:
                number = float(value)
            except ValueError:
                continue
            key = tuple(sorted(_LABEL.findall(labels or "")))
            family = self._samples.setdefault(name, {})
            family[key] = family.get(key, 0.0) + number

    def family(self, name: str) -> Mapping[Labels, float]:
        """All samples of a name."""
        return self._samples.get(name, {})

    def since(self, before: Reading) -> Reading:
        """What was added after an earlier reading."""
        found = Reading()
        for name, samples in self._samples.items():
            old = before.family(name)
            found._samples[name] = {
                labels: max(value - old.get(labels, 0.0), 0.0) for labels, value in samples.items()
            }
        return found

    def total(self, name: str) -> float:
        """The sum over all labels."""
        return sum(self.family(name).values())

    def by_label(self, name: str, label: str) -> dict[str, int]:
        """Counts of a counter by one of its labels, zeros left out."""
        found: dict[str, int] = {}
        for labels, value in self.family(name).items():
            key = dict(labels).get(label, "")
            found[key] = found.get(key, 0) + round(value)
        return {key: count for key, count in found.items() if count}

    def histogram_ms(self, name: str) -> Percentiles | None:
        """A histogram of seconds as percentiles in milliseconds; None if it has no values."""
        buckets: dict[float, float] = {}
        for labels, value in self.family(f"{name}_bucket").items():
            bound = float(dict(labels).get("le", "inf"))
            buckets[bound] = buckets.get(bound, 0.0) + value
        ascending = sorted(buckets.items())
        count = round(ascending[-1][1]) if ascending else 0
        if not count:
            return None
        finite = [bound for bound, _ in ascending if math.isfinite(bound)]
        top = finite[-1] if finite else 0.0

        def at(percent: float) -> float:
            rank = max(1, math.ceil(percent / 100 * count))
            bound = next(bound for bound, below in ascending if round(below) >= rank)
            return (bound if math.isfinite(bound) else top) * 1000

        p50, p90, p99, p999 = map(at, PERCENTS)
        return Percentiles(
            count=count,
            mean=self.total(f"{name}_sum") / count * 1000,
            p50=p50,
            p90=p90,
            p99=p99,
            p999=p999,
            largest=at(100),
        )
