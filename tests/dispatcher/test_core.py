"""When the core collects what the machine wants to send: soon, or patiently."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from dispatcher.core import Core
from dispatcher.machine import Machine

LINGER_S = 0.001


class Timers:
    """The one method of a loop that the core uses; nothing here runs by itself."""

    def __init__(self) -> None:
        self.set: list[tuple[float, asyncio.TimerHandle]] = []

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        loop = asyncio.new_event_loop()
        loop.close()
        handle = asyncio.TimerHandle(delay_s, callback, (), loop)
        self.set.append((delay_s, handle))
        return handle

    @property
    def due(self) -> list[float]:
        """The delays of those that count."""
        return [delay_s for delay_s, handle in self.set if not handle.cancelled()]


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> Timers:
    made = Timers()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: made)
    return made


def test_patient_changes_wait_for_the_tick(timers: Timers) -> None:
    core = Core(Machine(), linger_s=LINGER_S)
    for _ in range(5):
        core.changed(patient=True)
    assert timers.due == []


def test_what_is_urgent_does_not_wait_for_what_is_patient(timers: Timers) -> None:
    core = Core(Machine(), linger_s=LINGER_S)
    core.changed(patient=True)
    core.changed()
    core.changed()
    core.changed(patient=True)
    assert timers.due == [LINGER_S]


def test_a_look_takes_the_place_of_the_one_that_was_set(timers: Timers) -> None:
    core = Core(Machine(), linger_s=LINGER_S)
    core.changed()
    core.pump()
    assert timers.due == []
    core.changed()
    assert timers.due == [LINGER_S]
