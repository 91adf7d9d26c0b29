"""The ledger on a Redis or Valkey server: what may be asked of it, in ledger terms.

How a call finds the script, and what becomes of one without an answer, is in
:mod:`stretto.ledger.calls`.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

import hiredis
import msgspec
import redis.asyncio
from redis.exceptions import RedisError

from stretto.ledger.access import Access, safe_url
from stretto.ledger.calls import MALFORMED, Calls
from stretto.ledger.requests import (
    Names,
    ReserveRequest,
    TransitionRequest,
    account_fields,
    account_rows,
    chunks,
    decode,
    encode,
    entry_of,
    pod_fields,
    reserve_replies,
    sums_of,
)
from stretto.ledger.server_check import check_server
from stretto.ledger.types import (
    SCHEMA,
    Account,
    Holdings,
    InstallReply,
    LedgerEntry,
    LedgerFenced,
    LedgerOp,
    LedgerRefused,
    LedgerUnit,
    ReserveReply,
)

CALL_TIMEOUT_S = 2.0
FIRST_PAUSE_S = 0.05
"""Before the first re-send; four times as long before each further one."""
CHUNK = 500
"""Rows a call when many are written at once (rebuild); keeps a call in the low milliseconds."""
SCAN_COUNT = 1000
PARTS = ("meta", "accounts", "open", "bound", "units")


class Ledger:
    """See the module docstring. Made by :meth:`open`; not for concurrent use."""

    def __init__(
        self,
        server: redis.asyncio.Redis,
        *,
        url: str,
        owner: str,
        timeout_s: float = CALL_TIMEOUT_S,
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        self._server = server
        self.where = safe_url(url)
        self.owner = owner
        self._keys = {part: f"{{stretto:{owner}}}:{part}".encode() for part in PARTS}
        self._timeout_s = timeout_s
        self.generations = 0
        """How many have begun with an :meth:`install` of ours."""
        self._calls = Calls(
            server, where=self.where, keys=tuple(self._keys.values()), timeout_s=timeout_s,
            first_pause_s=first_pause_s,
        )  # fmt: skip

    @property
    def resends(self) -> int:
        """Calls that were sent again for want of an answer."""
        return self._calls.resends

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        owner: str,
        access: Access | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> Ledger:
        """Connect and make sure that the server may hold a ledger.

        Raises:
            LedgerUnavailable: it does not answer.
            LedgerRefused: the URL is malformed, the login is refused, our user may do too little or
                too much, or the server evicts keys, is too old or a replica.
        """
        access = access or Access()
        server = access.connect(url, timeout_s=timeout_s)
        ledger = cls(server, url=url, owner=owner, timeout_s=timeout_s, first_pause_s=first_pause_s)
        try:
            await check_server(
                server, where=ledger.where, key=ledger._keys["meta"].decode(),
                restricted=access.restricted(url), timeout_s=timeout_s,
            )  # fmt: skip
        except BaseException:
            await ledger.close()
            raise
        return ledger

    async def close(self) -> None:
        """Let go of the connections."""
        await self._calls.close()
        await self._server.aclose()

    # ------------------------------------------------------------------------------ operations
    async def install(self, epoch: int, *, force_rebuild: bool = False) -> InstallReply:
        """Take the ledger for an epoch; ``force_rebuild`` empties it and begins a new generation.

        A ledger that was not intact is to be filled from the truth (:meth:`set_accounts`, then
        adopting :meth:`transition` steps); it counts as intact for a successor once
        :meth:`opened` or the first :meth:`reserve` has said so.

        Raises:
            LedgerFenced: a later epoch has it.
            LedgerRefused: it belongs to another owner or another schema.
            LedgerUnavailable: no answer.
        """
        token, force = uuid.uuid4().hex, str(int(force_rebuild))
        reply = await self._calls.unnumbered(
            "install", self.owner, str(SCHEMA), str(epoch), token, force
        )
        with self._calls.understood():
            return self._installed(reply, epoch=epoch, token=token)

    def _installed(self, reply: list[Any], *, epoch: int, token: str) -> InstallReply:
        if reply[0] == b"refused":
            found = f"{reply[1].decode()} {reply[2].decode()}"
            raise LedgerRefused(
                f"the ledger at {self.where} has {found}, not ours; "
                "use another server or database, or empty it"
            )
        if reply[0] == b"fenced":
            raise LedgerFenced(
                f"the ledger at {self.where} has been taken by epoch {reply[1].decode()}, "
                f"ours is {epoch}"
            )
        generation, intact, previous, waiting, restarted = decode(reply[1])
        names = Names(msgspec.json.decode(reply[2], type=list[str]) if reply[2] else ())
        self.generations += not intact
        self._calls.taken(generation=generation, epoch=epoch, token=token, names=names)
        return InstallReply(generation, bool(intact), previous, waiting, bool(restarted))

    async def opened(self) -> None:
        """The rebuild has ended: a successor may take the ledger as it is."""
        await self._calls.numbered("opened")

    async def rebuild(
        self, *, accounts: Sequence[Account], entries: Iterable[LedgerEntry]
    ) -> InstallReply:
        """Empty the ledger and fill it with the accounts and entries that are true.

        Raises:
            LedgerFenced, LedgerGap, LedgerUnavailable: see the classes. Do it again then.
        """
        reply = await self.install(self._calls.epoch, force_rebuild=True)
        await self.set_accounts(accounts)
        await self.transition([LedgerOp.adopting(entry) for entry in entries])
        await self.opened()
        return reply

    async def reserve(self, units: Sequence[LedgerUnit]) -> list[ReserveReply]:
        """Reserve each unit whole or not at all, in order, later ones seeing earlier grants.

        64 units a call is the knee: a call of more makes others wait longer for little gain.

        Raises:
            LedgerFenced, LedgerGap, LedgerUnavailable: see the classes. After
            LedgerUnavailable, asking again for the same attempts is safe.
        """
        if not units:
            return []
        request = ReserveRequest(units, self._calls.names, epoch=self._calls.epoch)
        reply = await self._calls.numbered("reserve", *request.arguments())
        with self._calls.understood():
            return reserve_replies(decode(reply), self._calls.names, count=len(units))

    async def transition(self, ops: Sequence[LedgerOp]) -> list[bool]:
        """Move reservations on; True where the step applied (a repeated one does not)."""
        applied: list[bool] = []
        for part in chunks(ops, CHUNK):
            request = TransitionRequest(part, self._calls.names, epoch=self._calls.epoch)
            reply = await self._calls.numbered("transition", *request.arguments())
            applied += [digit == ord("1") for digit in reply]
        return applied

    async def set_accounts(self, changes: Sequence[Account], removed: Iterable[str] = ()) -> None:
        """Add, change or remove accounts; what entries use of them stays counted."""
        for part in chunks(changes, CHUNK):
            await self._calls.numbered(
                "accounts", encode([account_rows(part, self._calls.names), []])
            )
        for part in chunks(list(removed), CHUNK):
            await self._calls.numbered("accounts", encode([[], part]))

    # --------------------------------------------------------------------------------- reading
    async def _records(
        self, part: str, decoder: Callable[[bytes], list[Any]]
    ) -> AsyncIterator[tuple[str, list[Any]]]:
        key, cursor = self._keys[part], 0
        while True:
            try:
                async with asyncio.timeout(self._timeout_s):
                    with self._calls.understood():
                        reply: Any = await self._server.hscan(key, cursor, count=SCAN_COUNT)
                        cursor, page = reply
                        records = [(f.decode(), decoder(v)) for f, v in page.items()]
            except (RedisError, OSError) as error:
                raise self._calls.silent(error) from None
            for record in records:
                yield record
            if not cursor:
                return

    async def load_names(self) -> None:
        """Learn the resource names of an existing ledger without taking it: to look only."""
        try:
            async with asyncio.timeout(self._timeout_s):
                raw: Any = await self._server.hget(self._keys["meta"], "names")
        except (RedisError, OSError) as error:
            raise self._calls.silent(error) from None
        with self._calls.understood():
            self._calls.names = Names(msgspec.json.decode(raw, type=list[str]) if raw else ())

    async def entries(self, *, open_only: bool = False) -> list[LedgerEntry]:
        """All reservations, or those that are not BOUND.

        Consistent only while nobody writes, as after our own install. A scan may name a record
        twice, never miss one that is there throughout.
        """
        found: dict[str, list[Any]] = {}
        for part in ("open",) if open_only else ("open", "bound"):
            found |= {uid: record async for uid, record in self._records(part, pod_fields)}
        with self._calls.understood():
            return [entry_of(uid, record, self._calls.names) for uid, record in found.items()]

    async def _read(self, part: str, fields: Sequence[str]) -> list[Any]:
        """Fields of one of our hashes."""
        command: Any = ("HMGET", self._keys[part], *fields)
        return await self._calls.exchange(hiredis.pack_command(command))

    async def holdings(self, *, accounts: Sequence[str], pods: Sequence[str]) -> Holdings:
        """What the ledger says of these accounts and pods; what cannot be read is left out.

        Raises:
            LedgerGap: it is not where our last call left it, so that nothing it says counts.
            LedgerUnavailable: no answer.
        """
        wanted = (("accounts", accounts), ("open", pods), ("bound", pods))
        found: dict[str, dict[str, Any]] = {part: {} for part, _ in wanted}
        try:
            async with asyncio.timeout(self._timeout_s):
                position = await self._read("meta", ["stamp", "seq"])
                with self._calls.understood():
                    self._calls.check_position(*position)
                for part, uids in wanted:
                    if uids:
                        values = zip(uids, await self._read(part, uids), strict=True)
                        with self._calls.understood():
                            found[part] = {uid: value for uid, value in values if value is not None}
        except (RedisError, OSError) as error:
            raise self._calls.silent(error) from None
        used, entries = {}, {}
        for uid, packed in found["accounts"].items():
            with contextlib.suppress(*MALFORMED):
                used[uid] = sums_of(account_fields(packed), self._calls.names)
        for uid, packed in (found["bound"] | found["open"]).items():
            with contextlib.suppress(*MALFORMED):
                entries[uid] = entry_of(uid, pod_fields(packed), self._calls.names)
        return Holdings(used, entries)

    async def sums(self) -> dict[str, dict[str, int]]:
        """Amounts that entries use, per account (removed ones too, while in use)."""
        return {
            uid: sums_of(record, self._calls.names)
            async for uid, record in self._records("accounts", account_fields)
        }
