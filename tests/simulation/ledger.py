"""The ledger's twin behind the client's interface, with calls that wait, fail, or lose their
answer.

The twin is the script's specification and is held equal to it on a real server elsewhere. What is
lost here is lost as by a real server: all of it (FLUSHALL), or the last acknowledged writes at a
crash.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterable, Sequence
from typing import Any

from stretto.ledger.twin import LedgerTwin
from stretto.ledger.twin_store import TwinStore
from stretto.ledger.types import LedgerOp, LedgerUnavailable
from tests.simulation.history import OWNER, Recorder
from tests.simulation.world import Host, World


class LedgerServer:
    """The server's memory, what it had written to its file, and whether it answers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.store = TwinStore()
        self.down_until = 0.0
        self._saved = copy.deepcopy(self.store)
        self.recorder: Recorder | None = None

    def save(self) -> None:
        """What is acknowledged up to now survives a crash (appendfsync everysec)."""
        self._saved = copy.deepcopy(self.store)

    def crash(self, *, away_s: float) -> None:
        """The server dies and is started again on its file."""
        server = self.store.server
        self._load(self._saved)
        self.store.server = server
        self.store.restart()
        self.down_until = self.world.now + away_s
        if self.recorder is not None:
            self.recorder.crashed()

    def _load(self, saved: TwinStore) -> None:
        fresh = copy.deepcopy(saved)
        self.store.meta, self.store.accounts = fresh.meta, fresh.accounts
        self.store.pods, self.store.units, self.store.names = fresh.pods, fresh.units, fresh.names


class Ledger:
    """Stands in for :class:`stretto.ledger.client.Ledger` on one host."""

    def __init__(self, server: LedgerServer, host: Host) -> None:
        self._server = server
        self._host = host
        self._twin = LedgerTwin(owner=OWNER, store=server.store)
        self._epoch = 0
        self.generations = 0

    async def _call(self, name: str, *args: Any, **options: Any) -> Any:
        world, server = self._server.world, self._server
        self._host.check()
        await asyncio.sleep(world.delay(most=0.004))
        self._host.check()
        if server.down_until > world.now:
            await asyncio.sleep(0.5)
            self._host.check()
            raise LedgerUnavailable("the ledger does not answer")
        try:
            reply = getattr(self._twin, name)(*args, **options)
        finally:
            if server.recorder is not None:
                server.recorder.called()
        world.note(f"{self._host.name} ledger {name}")
        await asyncio.sleep(world.delay(most=0.004))
        self._host.check()
        return reply

    async def install(self, epoch: int, *, force_rebuild: bool = False) -> Any:
        """Take it."""
        self._epoch = epoch
        reply = await self._call("install", epoch, force_rebuild=force_rebuild)
        self.generations += not reply.intact
        return reply

    async def opened(self) -> None:
        """It is whole."""
        await self._call("opened")

    async def reserve(self, units: Sequence[Any]) -> Any:
        """Reserve units."""
        return await self._call("reserve", units)

    async def transition(self, ops: Sequence[Any]) -> Any:
        """Steps."""
        return await self._call("transition", ops) if ops else []

    async def set_accounts(self, changes: Sequence[Any], removed: Iterable[str] = ()) -> None:
        """Accounts."""
        await self._call("set_accounts", changes, removed)

    async def rebuild(self, *, accounts: Sequence[Any], entries: Sequence[Any]) -> None:
        """Empty it and write it anew, as the client does."""
        await self.install(self._epoch, force_rebuild=True)
        await self.set_accounts(accounts)
        await self.transition([LedgerOp.adopting(entry) for entry in entries])
        await self.opened()

    async def entries(self, *, open_only: bool = False) -> Any:
        """All entries."""
        return await self._call("entries", open_only=open_only)

    async def holdings(self, *, accounts: Sequence[str], pods: Sequence[str]) -> Any:
        """Some accounts and pods."""
        return await self._call("holdings", accounts=accounts, pods=pods)

    async def sums(self) -> Any:
        """Sums."""
        return await self._call("sums")
