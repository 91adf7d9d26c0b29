"""How late a role's event loop is: a timer that notes by how much it came after its time.

A loop that is held up (by a long decision, a full collection, a machine without CPU) renews no
Lease and answers nobody; how long it was held up is the first thing to know about a slow role.
Costs four timers a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

PERIOD_S = 0.25
"""Between two looks; what holds the loop up for less is seen by chance, for more always."""
WINDOW_S = 30.0
"""The longest of this window and the one before is told: no scrape of a minute misses it."""


class LoopLag(Collector):
    """See the module docstring. Read on other threads: the numbers are plain floats."""

    def __init__(self) -> None:
        self._longest_s = self._before_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._window_ends = 0.0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Watch a loop, from within it."""
        assert self._timer is None, "a loop is watched already"
        self._window_ends = loop.time() + WINDOW_S
        self._next(loop)

    def stop(self) -> None:
        """Watch it no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        due = loop.time() + PERIOD_S
        self._timer = loop.call_at(due, self._came, loop, due)

    def _came(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        now = loop.time()
        if now >= self._window_ends:
            self._before_s, self._longest_s = self._longest_s, 0.0
            self._window_ends = now + WINDOW_S
        self._longest_s = max(self._longest_s, now - due)
        self._next(loop)

    def collect(self) -> Iterator[Metric]:
        """The longest of late."""
        yield GaugeMetricFamily(
            "stretto_loop_lag_seconds",
            "Longest time of the last half to whole minute by which the event loop came late.",
            value=max(self._longest_s, self._before_s),
        )
