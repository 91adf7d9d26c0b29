"""The embedded ledger of `stretto run` and `stretto demo`, started again whenever it dies.

Recovery is the Binder's business: it waits, compares and repairs. All that is needed here is that
a server comes back at the same address with the same data, however often it dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pathlib
import time
from typing import Self

from stretto.cli.supervisor import RestartPause
from stretto.ledger.server import EmbeddedServer
from stretto.ledger.types import LedgerRefused

logger = logging.getLogger(__name__)


class KeptLedger:
    """``async with KeptLedger(folder=…) as ledger: ledger.url``."""

    def __init__(self, *, folder: pathlib.Path) -> None:
        self.server = EmbeddedServer(folder=folder)
        self.restarts = 0
        """How often it was started again after it had died."""
        self.died = False
        """It has died at least once, and may be away right now."""
        self._keeper: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Its address, the same after each start."""
        return self.server.url

    async def __aenter__(self) -> Self:
        """Start it.

        Raises:
            LedgerRefused: it cannot be started; only the first time is this the caller's to know.
        """
        await self.server.start()
        self._keeper = asyncio.create_task(self._keep(), name="keep the ledger")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        await self.server.stop()

    async def _keep(self) -> None:
        pause = RestartPause()
        runs = True
        while True:
            began = time.monotonic()
            if runs:
                code = await self.server.ended()
                self.died = True
                logger.warning("the ledger server ended with code %s; starting it again.", code)
            await asyncio.sleep(pause.after(lived_s=time.monotonic() - began))
            runs = await self._started_again()

    async def _started_again(self) -> bool:
        try:
            await self.server.start()
        except LedgerRefused as error:
            logger.warning("%s; trying again, no pod is bound until then", error)
            return False
        self.restarts += 1
        logger.warning("the ledger server runs again.")
        return True
