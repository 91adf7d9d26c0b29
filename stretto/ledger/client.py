"""The ledger on a Redis or Valkey server: one script, one call in flight, one number a call.

A call that gets no answer is an unknown call: it may have been executed. It is therefore sent again
under the same
sequence number, and the script answers a repeated number from its stored reply. So every operation
happens once, and an
acknowledged call that the server has lost since (a truncated append-only file, a failover,
FLUSHALL) shows as a gap at
the very next one (reliability I12). redis-py's own retries are off: they would do the same without
a number.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.resources
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    ConnectionError,  # noqa: A004 (redis' own, not the built-in)
    NoScriptError,
    RedisError,
    ResponseError,
    TimeoutError,  # noqa: A004
)

from stretto.ledger.requests import (
    Names,
    ReserveRequest,
    chunks,
    decode,
    encode,
    entry_of,
    nodes_body,
    reserve_replies,
    sums_of,
    transition_body,
)
from stretto.ledger.types import (
    SCHEMA,
    InstallReply,
    LedgerEntry,
    LedgerFenced,
    LedgerGap,
    LedgerOp,
    LedgerRefused,
    LedgerUnavailable,
    LedgerUnit,
    NodeAccount,
    ReserveReply,
)

CALL_TIMEOUT_S = 2.0
RESENDS = 3
CHUNK = 500
"""Rows a call when many are written at once (rebuild); keeps a call in the low milliseconds."""

SCRIPT = importlib.resources.files("stretto.ledger").joinpath("ledger.lua").read_bytes()
SCRIPT_SHA = hashlib.sha1(SCRIPT, usedforsecurity=False).hexdigest()


def safe_url(url: str) -> str:
    """The address without credentials, for messages."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"


class Ledger:
    """See the module docstring. Made by :meth:`open`; not for concurrent use."""

    def __init__(self, server: redis.asyncio.Redis, *, url: str, owner: str) -> None:
        self._server = server
        self.where = safe_url(url)
        self.owner = owner
        prefix = f"{{stretto:{owner}}}"
        self._keys = [f"{prefix}:{part}".encode() for part in ("meta", "nodes", "pods", "units")]
        self._names = Names()
        self._generation = ""
        self._epoch = 0
        self._sequence = 0
        self._busy = False
        self.call_seconds = 0.0
        """Time of the last call, for the metric."""

    @classmethod
    async def open(cls, url: str, *, owner: str, timeout_s: float = CALL_TIMEOUT_S) -> Ledger:
        """Connect and make sure that the server may hold a ledger.

        Raises:
            LedgerUnavailable: it does not answer.
            LedgerRefused: the URL is malformed, or the server evicts keys.
        """
        try:
            server = redis.asyncio.Redis.from_url(
                url,
                socket_timeout=timeout_s,
                socket_connect_timeout=timeout_s,
                retry=Retry(NoBackoff(), 0),
                protocol=2,
            )
        except ValueError as error:
            raise LedgerRefused(
                f"--redis-url {safe_url(url)}: {error}; use redis://host:port/db or unix://path"
            ) from None
        ledger = cls(server, url=url, owner=owner)
        try:
            await ledger._check_server()
        except BaseException:
            await ledger.close()
            raise
        return ledger

    async def close(self) -> None:
        """Let go of the connection."""
        await self._server.aclose()

    async def _check_server(self) -> None:
        try:
            memory: dict[str, Any] = await self._server.info("memory")
            server: dict[str, Any] = await self._server.info("server")
        except AuthenticationError as error:
            raise LedgerRefused(f"the ledger at {self.where} refuses our login: {error}") from None
        except (RedisError, OSError) as error:
            raise LedgerUnavailable(
                f"the ledger at {self.where} does not answer ({error}); "
                "check --redis-url and that the server runs"
            ) from None
        policy = str(memory.get("maxmemory_policy", ""))
        if policy != "noeviction":
            raise LedgerRefused(
                f"the server at {self.where} evicts keys (maxmemory-policy {policy}), which would "
                "lose reservations in silence; set maxmemory-policy noeviction"
            )
        major = str(server.get("redis_version", "0")).split(".")[0]
        if not major.isdigit() or int(major) < 7:
            raise LedgerRefused(
                f"the server at {self.where} is version {server.get('redis_version')}; "
                "Redis 7.0 or any Valkey is needed"
            )

    def _silent(self, error: BaseException) -> str:
        return f"the ledger at {self.where} does not answer: {error}"

    # ------------------------------------------------------------------------------ the script
    async def _evaluate(self, operation: bytes, *arguments: bytes) -> list[Any]:
        """Run the script once; NOSCRIPT loads it."""
        args = (*self._keys, operation, *arguments)
        began = time.perf_counter()
        try:
            try:
                return list(await self._server.evalsha(SCRIPT_SHA, 4, *args))
            except NoScriptError:
                await self._server.script_load(SCRIPT)
                return list(await self._server.evalsha(SCRIPT_SHA, 4, *args))
        except (ConnectionError, TimeoutError, OSError) as error:
            raise LedgerUnavailable(self._silent(error)) from None
        except ResponseError as error:
            text = f"the ledger at {self.where} refuses a call: {error}"
            raise LedgerUnavailable(text) from None
        finally:
            self.call_seconds = time.perf_counter() - began

    async def _call(self, operation: bytes, body: list[Any], records: Sequence[bytes] = ()) -> Any:
        """A numbered call, sent again under its number while no answer comes.

        Raises:
            LedgerUnavailable: no answer after the re-sends; the number stays open, so that
                the next call reports a gap and the owner rebuilds or re-installs.
        """
        assert not self._busy, "one ledger call in flight"
        self._busy = True
        try:
            self._sequence += 1
            names, known = self._names.header(), len(self._names.names)
            header = encode([self._generation, self._epoch, self._sequence, names])
            packed = encode(body)
            reply = await self._with_resends(operation, header, packed, *records)
            result = self._result(reply)
            if names:
                self._names.saved = known
            return result
        finally:
            self._busy = False

    async def _with_resends(self, operation: bytes, *arguments: bytes) -> list[Any]:
        for attempt in range(RESENDS):
            try:
                return await self._evaluate(operation, *arguments)
            except LedgerUnavailable:
                await asyncio.sleep(0.05 * 4**attempt)
        return await self._evaluate(operation, *arguments)

    def _result(self, reply: list[Any]) -> Any:
        word = reply[0]
        if word == b"ok":
            return decode(reply[1])
        if word == b"fenced":
            raise LedgerFenced(
                f"the ledger at {self.where} belongs to epoch {reply[1].decode()} now, "
                f"ours is {self._epoch}; another Binder leads"
            )
        if word == b"gap":
            raise LedgerGap(
                f"the ledger at {self.where} is at call {reply[1].decode()}, we at "
                f"{self._sequence}: it lost writes that it had acknowledged"
            )
        raise LedgerGap(f"the ledger at {self.where} was emptied or replaced")

    # ------------------------------------------------------------------------------ operations
    async def install(self, epoch: int, *, force_rebuild: bool = False) -> InstallReply:
        """Take the ledger for an epoch; ``force_rebuild`` empties it and begins a new generation.

        Raises:
            LedgerFenced: a later epoch has it.
            LedgerRefused: it belongs to another owner or another schema.
            LedgerUnavailable: no answer.
        """
        header = encode([self.owner, SCHEMA, epoch, uuid.uuid4().hex, force_rebuild])
        reply = await self._with_resends(b"install", header, encode([]))
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
        self._generation, self._epoch, self._sequence = reply[1].decode(), epoch, 0
        self._names = Names(msgspec.json.decode(reply[5], type=list[str]) if reply[5] else ())
        return InstallReply(self._generation, bool(reply[2]), int(reply[3]), int(reply[4]))

    async def reserve(self, units: Sequence[LedgerUnit]) -> list[ReserveReply]:
        """Reserve each unit whole or not at all, in order, later ones seeing earlier grants.

        Raises:
            LedgerFenced, LedgerGap, LedgerUnavailable: see the classes.
        """
        request = ReserveRequest(units, self._names, epoch=self._epoch)
        reply = await self._call(b"reserve", request.body, request.records)
        return reserve_replies(reply, self._names)

    async def transition(self, ops: Sequence[LedgerOp]) -> list[bool]:
        """Move reservations on; True where the step applied (a repeated one does not)."""
        applied: list[bool] = []
        for part in chunks(ops, CHUNK):
            reply = await self._call(b"transition", transition_body(part, self._names))
            applied += [bool(flag) for flag in reply]
        return applied

    async def set_nodes(self, changes: Sequence[NodeAccount], removed: Iterable[str] = ()) -> None:
        """Add, change or remove node accounts; what entries use on them stays."""
        gone = list(removed)
        for part in chunks(changes, CHUNK):
            await self._call(b"nodes", nodes_body(part, (), self._names))
        for part in chunks(gone, CHUNK):
            await self._call(b"nodes", nodes_body((), part, self._names))

    # --------------------------------------------------------------------------------- reading
    async def _records(self, key: bytes) -> AsyncIterator[tuple[str, list[Any]]]:
        try:
            async for field, value in self._server.hscan_iter(key, count=1000):
                yield field.decode(), decode(value)
        except (RedisError, OSError) as error:
            raise LedgerUnavailable(self._silent(error)) from None

    async def entries(self) -> list[LedgerEntry]:
        """All reservations. Consistent only while nobody else writes, as under our epoch."""
        found = {uid: record async for uid, record in self._records(self._keys[2])}
        return [entry_of(uid, record, self._names) for uid, record in found.items()]

    async def node_sums(self) -> dict[str, dict[str, int]]:
        """Amounts that entries use, per node uid."""
        return {
            uid: sums_of(record, self._names) async for uid, record in self._records(self._keys[1])
        }
