"""Between the brain and the shells: whoever told the machine something calls :meth:`Core.changed`.

What the machine wants to send is collected a linger later, once for all that happened meanwhile:
a burst of watch events becomes full batches, and 64 outcomes become one acknowledgement. Against a
real API server pods leave one by one, and then collecting nothing for each of them was a tenth of
the dispatcher's CPU: what nobody waits for (pods that are bound, and that have left the watch) is
collected with what comes next, at the latest with the next tick.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from dispatcher.binder_side import Requests
from dispatcher.conditions import PatchOrder
from dispatcher.group_conditions import GroupOrder
from dispatcher.job_records import JobOrder
from dispatcher.machine import Machine
from dispatcher.queue_status import StatusOrder
from dispatcher.shard_side import Send

log = logging.getLogger(__name__)

TICK_S = 0.1
"""Backoffs are whole seconds; a tenth late is not noticed. So long, too, the Binder waits for an
acknowledgement, or for word of a pod that is gone."""
AUDIT_S = 30.0


class Sinks(NamedTuple):
    """Where the machine's wishes go; none of these waits."""

    to_shard: Callable[[Send], None]
    """Units for a shard."""
    to_binder: Callable[[Requests], None]
    """Withdrawals, questions, acknowledgements."""
    conditions: Callable[[list[PatchOrder]], None]
    """To write on pods."""
    groups: Callable[[list[GroupOrder]], None]
    """Conditions to write on pod groups."""
    queues: Callable[[list[StatusOrder]], None]
    """Statuses to write on queues."""
    jobs: Callable[[list[JobOrder]], None]
    """Jobs to resume, or to tell what they wait for."""


class Core:
    """Owns the machine; gives it time and takes what it wants to send."""

    def __init__(
        self,
        machine: Machine,
        *,
        linger_s: float,
        audit: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.machine = machine
        self.sinks: Sinks | None = None
        self.may_act: Callable[[], bool] = lambda: True
        """Whether the Lease is ours right now; a process that was paused finds out here."""
        self.opened = asyncio.Event()
        """Set when units may be dispatched for the first time."""
        self.ticked_at = 0.0
        """When the machine was last given its time; 0 before the first."""
        self._clock = clock
        self._linger_s = linger_s
        self._audit = audit
        self._scheduled: asyncio.TimerHandle | None = None
        self._acknowledged = (0, 0)
        self._defect: Exception | None = None
        self._defective = asyncio.Event()

    def now(self) -> float:
        """Monotonic seconds, the machine's time."""
        return self._clock()

    def changed(self, *, patient: bool = False) -> None:
        """Something was told to the machine; collect what follows from it soon, or ``patient``:
        with the next tick, because nothing that anybody waits for can follow."""
        if self._scheduled is None and not patient:
            self._scheduled = asyncio.get_running_loop().call_later(self._linger_s, self._due)

    def _due(self) -> None:
        """As :meth:`pump`, from a timer: the loop would log what it raises and go on."""
        try:
            self.pump()
        except Exception as error:
            self._defect = error
            self._defective.set()

    def pump(self) -> None:
        """Collect what the machine wants to send."""
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None
        sinks = self.sinks
        if sinks is None or not self.may_act():
            return
        now = self._clock()
        for send in self.machine.dispatch(now):
            sinks.to_shard(send)
        acknowledged = self.machine.binder.acknowledged
        requests = self.machine.binder.requests()
        if (
            requests.withdraw
            or requests.ask
            or requests.label_keys
            or acknowledged != self._acknowledged
        ):
            self._acknowledged = acknowledged
            sinks.to_binder(requests)
        if conditions := self.machine.patches(now):
            sinks.conditions(conditions)
        if groups := self.machine.group_patches(now):
            sinks.groups(groups)
        if queues := self.machine.queue_patches(now):
            sinks.queues(queues)
        if jobs := self.machine.job_writes(now):
            sinks.jobs(jobs)
        if self.machine.open():
            self.opened.set()

    async def run(self) -> None:
        """Give the machine its time until cancelled. Raises what a pump by timer has raised."""
        audited = self._clock()
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._defective.wait(), TICK_S)
            if self._defect is not None:
                raise self._defect
            now = self.ticked_at = self._clock()
            self.machine.tick(now)
            self.pump()
            if self._audit and now - audited >= AUDIT_S:
                audited = now
                self.machine.validate()
