"""How late an event loop is, is told for half a minute at least, and for a minute at most."""

from __future__ import annotations

import asyncio
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from stretto.telemetry.http import TelemetryServer
from stretto.telemetry.loop_lag import PERIOD_S, WINDOW_S, LoopLag


class Loop:
    """A loop whose one timer comes when the test says."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timer: tuple[float, Any, tuple[Any, ...]] | None = None

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Any, *args: Any) -> Any:
        self.timer = when, callback, args
        return self

    def cancel(self) -> None:
        self.timer = None

    def fire(self, *, late_s: float = 0.0) -> None:
        assert self.timer is not None
        when, callback, args = self.timer
        self.now = when + late_s
        callback(*args)


def lag_of(lag: LoopLag) -> float:
    (family,) = lag.collect()
    return float(family.samples[0].value)


def test_the_longest_delay_is_told_for_one_to_two_windows() -> None:
    loop, lag = Loop(), LoopLag()
    lag.start(loop)  # type: ignore[arg-type]
    loop.fire()
    assert lag_of(lag) == 0.0
    loop.fire(late_s=2.5)
    loop.fire(late_s=0.5)
    turns = int(WINDOW_S / PERIOD_S)
    for _ in range(turns):
        loop.fire()
        assert lag_of(lag) == 2.5
    for _ in range(turns + 1):
        loop.fire()
    assert lag_of(lag) == 0.0
    lag.stop()
    assert loop.timer is None


async def test_each_role_s_metrics_tell_it() -> None:
    registry = CollectorRegistry()
    server = TelemetryServer("127.0.0.1:0", registry=registry)
    try:
        assert b"stretto_loop_lag_seconds" in await asyncio.to_thread(generate_latest, registry)
    finally:
        server.close()
