"""The ledger on a Redis or Valkey server: one script, one call in flight, one number a call.

A call that gets no answer is an *unknown* call: it may have been executed, or may be yet, when the
server wakes up. It is sent again under the same number, and the script answers a repeated number
from its stored reply, so that each call happens once; a copy that arrives late is a gap to the
script and changes nothing. If no answer comes at all, the call stays open and the next one sends
it again first. An acknowledged call that the server has lost since (a truncated append-only file, a
failover, FLUSHALL) shows as a gap at the very next one (reliability I12). redis-py's own retries
are off: they would send a call twice without a number. Its encoder, pool and instrumentation cost
more than the script does, so calls go over one of its connections, packed by hiredis.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib.resources
import logging
import struct
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any

import hiredis
import msgspec
import redis.asyncio
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ConnectionError,  # noqa: A004 (redis' own, not the built-in)
    InvalidResponse,
    NoScriptError,
    RedisError,
    ResponseError,
)

from stretto.ledger.access import Access, known_hole, login_problem, safe_url, server_problem
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
from stretto.ledger.types import (
    SCHEMA,
    Account,
    Holdings,
    InstallReply,
    LedgerEntry,
    LedgerFenced,
    LedgerGap,
    LedgerOp,
    LedgerRefused,
    LedgerUnavailable,
    LedgerUnit,
    ReserveReply,
)

logger = logging.getLogger(__name__)

CALL_TIMEOUT_S = 2.0
OPEN_TIMEOUT_S = 5.0
"""For the look at the server when it is opened, some round trips and connections."""
RESENDS = 3
FIRST_PAUSE_S = 0.05
"""Before the first re-send; four times as long before each further one."""
CHUNK = 500
"""Rows a call when many are written at once (rebuild); keeps a call in the low milliseconds."""
SCAN_COUNT = 1000

SCRIPT = importlib.resources.files("stretto.ledger").joinpath("ledger.lua").read_bytes()
SCRIPT_SHA = hashlib.sha1(SCRIPT, usedforsecurity=False).hexdigest()
REFUSALS = (AuthenticationError, AuthorizationError, ResponseError)
MALFORMED = (
    ValueError, IndexError, struct.error, msgspec.DecodeError, TypeError, AttributeError,
)  # fmt: skip
"""What reading an answer or a record raises that is not one of ours."""
PARTS = ("meta", "accounts", "open", "bound", "units")


class _Open(msgspec.Struct, frozen=True):
    """A numbered call that has no answer yet."""

    packed: bytes
    names: int
    """Resource names that the ledger knows once it is answered."""


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
        self._connection: AbstractConnection | None = None
        self.where = safe_url(url)
        self.owner = owner
        self._keys = {part: f"{{stretto:{owner}}}:{part}".encode() for part in PARTS}
        self._timeout_s = timeout_s
        self._first_pause_s = first_pause_s
        self._names = Names()
        self._epoch = 0
        self._stamp = ""
        self._sequence = 0
        self._busy = False
        self._open: _Open | None = None
        self.call_seconds = 0.0
        """Seconds of the last exchange with the server, for the metric."""
        self.resends = 0
        """Calls that were sent again for want of an answer."""

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
            await ledger._check_server(restricted=access.restricted(url))
        except BaseException:
            await ledger.close()
            raise
        return ledger

    async def close(self) -> None:
        """Let go of the connections."""
        if self._connection is not None:
            await self._server.connection_pool.release(self._connection)
            self._connection = None
        await self._server.aclose()

    async def _check_server(self, *, restricted: bool) -> None:
        """``restricted``: our user must have the ledger's rights, and nobody be let in without a
        login."""
        problem = ""
        limit_s = max(OPEN_TIMEOUT_S, self._timeout_s)
        try:
            async with asyncio.timeout(limit_s):
                if restricted:
                    key = self._keys["meta"].decode()
                    problem = await login_problem(self._server, key=key, timeout_s=OPEN_TIMEOUT_S)
                if problem:
                    raise LedgerRefused(f"the server at {self.where} {problem}")
                info: dict[str, Any] = await self._server.info()
        except (RedisError, OSError) as error:
            # While a connection is made, redis-py wraps what the server answers.
            if isinstance(error.__cause__ or error, REFUSALS):
                raise LedgerRefused(
                    f"the ledger at {self.where} refuses our login: {error}; "
                    "put the user in --redis-url and its password in --redis-password-file"
                ) from None
            raise LedgerUnavailable(
                f"{self._silent(error, limit_s)}; check the address and that the server runs"
            ) from None
        if problem := server_problem(info):
            raise LedgerRefused(f"the server at {self.where} {problem}")
        if hole := known_hole(info):
            logger.warning("the ledger at %s %s", self.where, hole)
        if not int(info.get("aof_enabled", 1)):
            logger.warning(
                "the ledger at %s has no append-only file: each restart costs a rebuild; "
                "set appendonly yes",
                self.where,
            )

    def _silent(self, error: BaseException, limit_s: float = 0.0) -> str:
        why = str(error) or f"nothing within {limit_s or self._timeout_s:g} s"
        return f"the ledger at {self.where} does not answer ({why})"

    def _senseless(self, error: BaseException) -> str:
        why = " ".join(str(error).split())[:200]
        return f"the ledger at {self.where} answers what its script does not ({why})"

    @contextlib.contextmanager
    def _understood(self) -> Iterator[None]:
        """Around reading an answer: a server that says anything else is no ledger at the moment."""
        try:
            yield
        except MALFORMED as error:
            raise LedgerUnavailable(self._senseless(error)) from None

    # ------------------------------------------------------------------------------ the script
    def _pack(self, operation: str, *arguments: Any) -> bytes:
        keys = self._keys.values()
        packed: bytes = hiredis.pack_command(
            ("EVALSHA", SCRIPT_SHA, len(keys), *keys, operation, *arguments)
        )
        return packed

    async def _exchange(self, packed: bytes) -> list[Any]:
        """One command and its answer. A connection on which either fails is closed with it, so
        that a late answer never meets the next command."""
        if self._connection is None:
            pool = self._server.connection_pool
            self._connection = await pool.get_connection()  # type: ignore[no-untyped-call]
        assert self._connection is not None
        await self._connection.send_packed_command(packed, check_health=False)
        reply = await self._connection.read_response()
        if not isinstance(reply, list) or not reply:
            await self._connection.disconnect()
            raise InvalidResponse(f"a {type(reply).__name__} for an answer")
        return reply

    async def _evaluate(self, packed: bytes) -> list[Any]:
        """Run the script once; NOSCRIPT loads it."""
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self._timeout_s):
                try:
                    return await self._exchange(packed)
                except NoScriptError:
                    await self._server.script_load(SCRIPT)
                    return await self._exchange(packed)
        except (ConnectionError, OSError) as error:
            raise LedgerUnavailable(self._silent(error)) from None
        except InvalidResponse as error:
            raise LedgerUnavailable(self._senseless(error)) from None
        except ResponseError as error:
            text = f"the ledger at {self.where} refuses a call: {error}"
            raise LedgerUnavailable(text) from None
        finally:
            self.call_seconds = time.perf_counter() - began

    async def _with_resends(self, packed: bytes) -> list[Any]:
        for attempt in range(RESENDS):
            try:
                return await self._evaluate(packed)
            except LedgerUnavailable:
                await asyncio.sleep(self._first_pause_s * 4**attempt)
                self.resends += 1
        return await self._evaluate(packed)

    async def _call(self, operation: str, *arguments: Any) -> bytes:
        """A numbered call, sent again under its number while no answer comes.

        Raises:
            LedgerUnavailable: no answer after the re-sends. Whether it happened is unknown; it
                stays open, and the next call sends it again before its own.
        """
        assert not self._busy, "one ledger call in flight"
        assert self._stamp, "install comes first"
        self._busy = True
        try:
            if self._open is not None:
                await self._settle(self._open)
            self._sequence += 1
            header = (self._stamp, str(self._sequence), self._names.header())
            packed = self._pack(operation, *header, *arguments)
            self._open = _Open(packed, len(self._names.names))
            return await self._settle(self._open)
        finally:
            self._busy = False

    async def _settle(self, call: _Open) -> bytes:
        reply = await self._with_resends(call.packed)
        with self._understood():
            word, text = reply[0], bytes(reply[1]) if len(reply) > 1 else b""
            at = text.decode() if word in (b"fenced", b"gap") else ""
            if word not in (b"ok", b"fenced", b"gap", b"lost"):
                raise ValueError(f"the word {str(word)[:20]}")
        self._open = None
        if word == b"ok":
            self._names.saved = max(self._names.saved, call.names)
            return text
        if word == b"fenced":
            raise LedgerFenced(
                f"the ledger at {self.where} belongs to epoch {at} now, "
                f"ours is {self._epoch}; another Binder leads"
            )
        if word == b"gap":
            raise LedgerGap(
                f"the ledger at {self.where} is at call {at}, we at "
                f"{self._sequence}: it lost writes that it had acknowledged"
            )
        raise LedgerGap(f"the ledger at {self.where} was emptied or replaced")

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
        assert not self._busy, "one ledger call in flight"
        token, force = uuid.uuid4().hex, str(int(force_rebuild))
        packed = self._pack("install", self.owner, str(SCHEMA), str(epoch), token, force)
        self._busy = True
        try:
            reply = await self._with_resends(packed)
        finally:
            self._busy = False
        with self._understood():
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
        self._stamp = f"{generation} {epoch} {token}"
        self._epoch, self._sequence, self._open = epoch, 0, None
        self._names = names
        return InstallReply(generation, bool(intact), previous, waiting, bool(restarted))

    async def opened(self) -> None:
        """The rebuild has ended: a successor may take the ledger as it is."""
        await self._call("opened")

    async def rebuild(
        self, *, accounts: Sequence[Account], entries: Iterable[LedgerEntry]
    ) -> InstallReply:
        """Empty the ledger and fill it with the accounts and entries that are true.

        Raises:
            LedgerFenced, LedgerGap, LedgerUnavailable: see the classes. Do it again then.
        """
        reply = await self.install(self._epoch, force_rebuild=True)
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
        request = ReserveRequest(units, self._names, epoch=self._epoch)
        reply = await self._call("reserve", *request.arguments())
        with self._understood():
            return reserve_replies(decode(reply), self._names, count=len(units))

    async def transition(self, ops: Sequence[LedgerOp]) -> list[bool]:
        """Move reservations on; True where the step applied (a repeated one does not)."""
        applied: list[bool] = []
        for part in chunks(ops, CHUNK):
            request = TransitionRequest(part, self._names, epoch=self._epoch)
            reply = await self._call("transition", *request.arguments())
            applied += [digit == ord("1") for digit in reply]
        return applied

    async def set_accounts(self, changes: Sequence[Account], removed: Iterable[str] = ()) -> None:
        """Add, change or remove accounts; what entries use of them stays counted."""
        for part in chunks(changes, CHUNK):
            await self._call("accounts", encode([account_rows(part, self._names), []]))
        for part in chunks(list(removed), CHUNK):
            await self._call("accounts", encode([[], part]))

    # --------------------------------------------------------------------------------- reading
    async def _records(
        self, part: str, decoder: Callable[[bytes], list[Any]]
    ) -> AsyncIterator[tuple[str, list[Any]]]:
        key, cursor = self._keys[part], 0
        while True:
            try:
                async with asyncio.timeout(self._timeout_s):
                    with self._understood():
                        reply: Any = await self._server.hscan(key, cursor, count=SCAN_COUNT)
                        cursor, page = reply
                        records = [(f.decode(), decoder(v)) for f, v in page.items()]
            except (RedisError, OSError) as error:
                raise LedgerUnavailable(self._silent(error)) from None
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
            raise LedgerUnavailable(self._silent(error)) from None
        with self._understood():
            self._names = Names(msgspec.json.decode(raw, type=list[str]) if raw else ())

    async def entries(self, *, open_only: bool = False) -> list[LedgerEntry]:
        """All reservations, or those that are not BOUND.

        Consistent only while nobody writes, as after our own install. A scan may name a record
        twice, never miss one that is there throughout.
        """
        found: dict[str, list[Any]] = {}
        for part in ("open",) if open_only else ("open", "bound"):
            found |= {uid: record async for uid, record in self._records(part, pod_fields)}
        with self._understood():
            return [entry_of(uid, record, self._names) for uid, record in found.items()]

    async def _read(self, part: str, fields: Sequence[str]) -> list[Any]:
        """Fields of one of our hashes."""
        command: Any = ("HMGET", self._keys[part], *fields)
        return await self._exchange(hiredis.pack_command(command))

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
                with self._understood():
                    self._check_position(*position)
                for part, uids in wanted:
                    if uids:
                        values = zip(uids, await self._read(part, uids), strict=True)
                        with self._understood():
                            found[part] = {uid: value for uid, value in values if value is not None}
        except (RedisError, OSError) as error:
            raise LedgerUnavailable(self._silent(error)) from None
        used, entries = {}, {}
        for uid, packed in found["accounts"].items():
            with contextlib.suppress(*MALFORMED):
                used[uid] = sums_of(account_fields(packed), self._names)
        for uid, packed in (found["bound"] | found["open"]).items():
            with contextlib.suppress(*MALFORMED):
                entries[uid] = entry_of(uid, pod_fields(packed), self._names)
        return Holdings(used, entries)

    def _check_position(self, stamp: bytes | None, sequence: bytes | None) -> None:
        """A read carries no number, so what it shows must be ours to the last call; while one has
        no answer, the next call finds out."""
        ours = (self._stamp.encode(), str(self._sequence).encode())
        if self._open is None and (stamp, sequence) != ours:
            at = "nowhere" if sequence is None else bytes(sequence[:20]).decode(errors="replace")
            raise LedgerGap(
                f"the ledger at {self.where} is at call {at}, we at {self._sequence}: it was "
                "emptied or replaced, or lost writes that it had acknowledged"
            )

    async def sums(self) -> dict[str, dict[str, int]]:
        """Amounts that entries use, per account (removed ones too, while in use)."""
        return {
            uid: sums_of(record, self._names)
            async for uid, record in self._records("accounts", account_fields)
        }
