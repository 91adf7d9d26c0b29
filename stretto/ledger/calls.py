"""Calls to the ledger's script: one in flight, over one connection, each under a number of its own.

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
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import hiredis
import msgspec
import redis.asyncio
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import (
    ConnectionError,  # noqa: A004 (redis' own, not the built-in)
    InvalidResponse,
    NoScriptError,
    ResponseError,
)

from stretto.ledger.requests import Names
from stretto.ledger.server_check import silent
from stretto.ledger.types import LedgerFenced, LedgerGap, LedgerUnavailable

RESENDS = 3
SCRIPT = importlib.resources.files("stretto.ledger").joinpath("ledger.lua").read_bytes()
SCRIPT_SHA = hashlib.sha1(SCRIPT, usedforsecurity=False).hexdigest()
MALFORMED = (
    ValueError, IndexError, struct.error, msgspec.DecodeError, TypeError, AttributeError,
)  # fmt: skip
"""What reading an answer or a record raises that is not one of ours."""


class _Open(msgspec.Struct, frozen=True):
    """A numbered call that has no answer yet."""

    packed: bytes
    names: int
    """Resource names that the ledger knows once it is answered."""


class Calls:
    """See the module docstring. ``where`` is the server's address for messages, ``keys`` are those
    that the script is given, ``timeout_s`` is for one exchange."""

    def __init__(
        self,
        server: redis.asyncio.Redis,
        *,
        where: str,
        keys: Sequence[bytes],
        timeout_s: float,
        first_pause_s: float,
    ) -> None:
        self._server = server
        self._connection: AbstractConnection | None = None
        self._where = where
        self._keys = tuple(keys)
        self._timeout_s = timeout_s
        self._first_pause_s = first_pause_s
        self.names = Names()
        self.epoch = 0
        self._stamp = ""
        self._sequence = 0
        self._busy = False
        self._open: _Open | None = None
        self.resends = 0
        """Calls that were sent again for want of an answer."""

    def taken(self, *, generation: str, epoch: int, token: str, names: Names) -> None:
        """The ledger is ours: what follows is numbered from 1."""
        self._stamp = f"{generation} {epoch} {token}"
        self.epoch, self._sequence, self._open = epoch, 0, None
        self.names = names

    async def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            await self._server.connection_pool.release(self._connection)
            self._connection = None

    # ------------------------------------------------------------------------------- what is wrong
    def silent(self, error: BaseException) -> LedgerUnavailable:
        """No answer."""
        return LedgerUnavailable(silent(self._where, error, self._timeout_s))

    def _senseless(self, error: BaseException) -> LedgerUnavailable:
        why = " ".join(str(error).split())[:200]
        return LedgerUnavailable(
            f"the ledger at {self._where} answers what its script does not ({why})"
        )

    @contextlib.contextmanager
    def understood(self) -> Iterator[None]:
        """Around reading an answer: a server that says anything else is no ledger at the moment."""
        try:
            yield
        except MALFORMED as error:
            raise self._senseless(error) from None

    # -------------------------------------------------------------------------------- one exchange
    async def exchange(self, packed: bytes) -> list[Any]:
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

    def _pack(self, operation: str, *arguments: Any) -> bytes:
        packed: bytes = hiredis.pack_command(
            ("EVALSHA", SCRIPT_SHA, len(self._keys), *self._keys, operation, *arguments)
        )
        return packed

    async def _evaluate(self, packed: bytes) -> list[Any]:
        """Run the script once; NOSCRIPT loads it."""
        try:
            async with asyncio.timeout(self._timeout_s):
                try:
                    return await self.exchange(packed)
                except NoScriptError:
                    await self._server.script_load(SCRIPT)
                    return await self.exchange(packed)
        except (ConnectionError, OSError) as error:
            raise self.silent(error) from None
        except InvalidResponse as error:
            raise self._senseless(error) from None
        except ResponseError as error:
            text = f"the ledger at {self._where} refuses a call: {error}"
            raise LedgerUnavailable(text) from None

    async def _with_resends(self, packed: bytes) -> list[Any]:
        for attempt in range(RESENDS):
            try:
                return await self._evaluate(packed)
            except LedgerUnavailable:
                await asyncio.sleep(self._first_pause_s * 4**attempt)
                self.resends += 1
        return await self._evaluate(packed)

    # ----------------------------------------------------------------------------------- the calls
    async def unnumbered(self, operation: str, *arguments: Any) -> list[Any]:
        """A call that may be executed again without harm.

        Raises:
            LedgerUnavailable: no answer after the re-sends.
        """
        assert not self._busy, "one ledger call in flight"
        self._busy = True
        try:
            return await self._with_resends(self._pack(operation, *arguments))
        finally:
            self._busy = False

    async def numbered(self, operation: str, *arguments: Any) -> bytes:
        """A call of ours, sent again under its number while no answer comes.

        Raises:
            LedgerFenced, LedgerGap: see the classes.
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
            header = (self._stamp, str(self._sequence), self.names.header())
            packed = self._pack(operation, *header, *arguments)
            self._open = _Open(packed, len(self.names.names))
            return await self._settle(self._open)
        finally:
            self._busy = False

    async def _settle(self, call: _Open) -> bytes:
        reply = await self._with_resends(call.packed)
        with self.understood():
            word, text = reply[0], bytes(reply[1]) if len(reply) > 1 else b""
            at = text.decode() if word in (b"fenced", b"gap") else ""
            if word not in (b"ok", b"fenced", b"gap", b"lost"):
                raise ValueError(f"the word {str(word)[:20]}")
        self._open = None
        if word == b"ok":
            self.names.saved = max(self.names.saved, call.names)
            return text
        if word == b"fenced":
            raise LedgerFenced(
                f"the ledger at {self._where} belongs to epoch {at} now, "
                f"ours is {self.epoch}; another Binder leads"
            )
        if word == b"gap":
            raise LedgerGap(
                f"the ledger at {self._where} is at call {at}, we at "
                f"{self._sequence}: it lost writes that it had acknowledged"
            )
        raise LedgerGap(f"the ledger at {self._where} was emptied or replaced")

    def check_position(self, stamp: bytes | None, sequence: bytes | None) -> None:
        """A read carries no number, so what it shows must be ours to the last call; while one has
        no answer, the next call finds out.

        Raises:
            LedgerGap: the ledger is somewhere else.
        """
        ours = (self._stamp.encode(), str(self._sequence).encode())
        if self._open is None and (stamp, sequence) != ours:
            at = "nowhere" if sequence is None else bytes(sequence[:20]).decode(errors="replace")
            raise LedgerGap(
                f"the ledger at {self._where} is at call {at}, we at {self._sequence}: it was "
                "emptied or replaced, or lost writes that it had acknowledged"
            )
