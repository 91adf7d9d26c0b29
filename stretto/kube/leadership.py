"""Being the active one of a role: wait for the Lease, stand by meanwhile, keep it, give it up.

The dispatcher and the Binder do this alike. A process that waits longer than a Lease lasts has seen
a leader renew it, and is as ready as a standby can be. One that loses its Lease ends on the spot,
without clean-up, because another may be acting already (reliability §2.1).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine
from typing import Any, NoReturn, TypeVar

from stretto.config.common import LeaderSettings
from stretto.kube.client import KubeClient
from stretto.kube.lease import LeaseSettings, Tenure
from stretto.kube.lease_keeper import LeaseKeeper

log = logging.getLogger(__name__)

SUPERSEDED = 4
"""Exit code of a process in whose place another may lead: no defect, and nothing to mend. Whoever
keeps it running starts it again, and it stands by."""

Result = TypeVar("Result")


def end_superseded() -> NoReturn:
    """End on the spot: another may be acting already, so there is nothing that we may still do."""
    os._exit(SUPERSEDED)


class Leadership:
    """One process's hold on the Lease of its role."""

    def __init__(self, client: KubeClient, settings: LeaderSettings) -> None:
        self.standby = False
        """Waits for a leader that is alive."""
        self._patience_s = settings.lease_duration_s + settings.lease_retry_s
        self._keeper = LeaseKeeper(
            client,
            LeaseSettings(
                namespace=settings.lease_namespace,
                name=settings.lease_name,
                identity="",
                address=settings.advertise or settings.listen,
                duration_s=settings.lease_duration_s,
                renew_deadline_s=settings.lease_renew_deadline_s,
                retry_s=settings.lease_retry_s,
            ),
        )

    @property
    def identity(self) -> str:
        """Who we are in the Lease."""
        return self._keeper.identity

    def leader(self) -> str:
        """Address or identity of the active one, "" when unknown; what a standby answers."""
        leader = self._keeper.leader
        return "" if leader is None else leader.address or leader.identity

    def valid(self) -> bool:
        """Whether we may act right now. Ask immediately before each effect."""
        return self._keeper.valid()

    def left_s(self) -> float:
        """Seconds for which we may act without a further renewal of the Lease; 0 if we may not."""
        return self._keeper.left_s()

    async def acquired_unless(self, stop: asyncio.Event) -> Tenure | None:
        """Wait for the Lease; None if ``stop`` came first."""
        standing_by = asyncio.create_task(self._stand_by())
        try:
            return await unless(stop, self._keeper.acquire())
        finally:
            await cancelled(standing_by)
            self.standby = False

    async def _stand_by(self) -> None:
        await asyncio.sleep(self._patience_s)
        log.info("standing by; the leader is %s", self.leader() or "unknown")
        self.standby = True

    async def announced(self) -> None:
        """Wait until our epoch stands in the Lease; :meth:`keep` must run beside it."""
        await self._keeper.announced.wait()

    async def keep(self) -> NoReturn:
        """Renew until cancelled; once lost, end the process."""
        await self._keeper.run()
        end_superseded()

    async def release(self, *, clean: bool) -> None:
        """Give the Lease up, after all guarded work has ended; see :meth:`LeaseKeeper.release`."""
        await self._keeper.release(clean=clean)


async def beside(work: Coroutine[Any, Any, Result], *tasks: asyncio.Task[Any]) -> Result:
    """Do some work of a role while its long-lived tasks run.

    A task that fails ends the work, which is cancelled, and what the task raised is raised: a role
    of which a part has ended goes on with a state that nobody looks after.
    """
    working = asyncio.ensure_future(work)
    try:
        while not working.done():
            running = [task for task in tasks if not task.done()]
            await asyncio.wait([working, *running], return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done() and not task.cancelled():
                    task.result()
        return working.result()
    finally:
        await cancelled(working)


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, Result]) -> Result | None:
    """What the work gives; None if we are asked to stop first, which ends it."""
    working = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([working, stopped], return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        await cancelled(working, stopped)


async def cancelled(*tasks: asyncio.Task[Any]) -> None:
    """End tasks; what they raised is somebody else's business."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
