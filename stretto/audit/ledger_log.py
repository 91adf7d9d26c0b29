"""The ledger's history from its server's append-only file: effects of each call, in order.

A script's writes stand in the file between MULTI and EXEC (a single write stands alone), so that a
call is one step here too. The records' layout is that of ``ledger.lua``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from stretto.ledger.requests import Names, account_fields, entry_of, pod_fields
from stretto.ledger.types import LedgerEntry

Write = tuple[str, str, bytes | None]
"""(part, field, value); None: the field was deleted."""
_KEY = re.compile(r"\{stretto:(?P<owner>.*)\}:(?P<part>meta|accounts|open|bound|units)\Z")
PARTS = ("meta", "accounts", "open", "bound", "units")


class LogCutError(ValueError):
    """The file ends in the middle of a command."""


def commands(data: bytes) -> Iterator[list[bytes]]:
    """Commands of an append-only file; annotations are left out.

    Raises:
        LogCutError: the end is missing; what came before has been given.
    """
    at = 0
    while at < len(data):
        end = data.find(b"\r\n", at)
        if end < 0:
            raise LogCutError("cut in a header")
        if data[at : at + 1] == b"#":
            at = end + 2
            continue
        count, at = int(data[at + 1 : end]), end + 2
        words = []
        for _ in range(count):
            end = data.find(b"\r\n", at)
            if end < 0:
                raise LogCutError("cut in a length")
            size, at = int(data[at + 1 : end]), end + 2
            if at + size + 2 > len(data):
                raise LogCutError("cut in a word")
            words.append(data[at : at + size])
            at += size + 2
        yield words


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """What one call changed."""

    number: int
    """From 1."""
    writes: tuple[Write, ...]
    cleared: frozenset[str]
    """Parts that were emptied before."""

    def fields(self, part: str) -> dict[str, bytes | None]:
        """Last values written to a part."""
        return {field: value for where, field, value in self.writes if where == part}


def steps_of(data: bytes, *, owner: str) -> tuple[list[Step], str]:
    """(steps of one ledger, what is wrong with the file's end or "").

    Commands on other keys are skipped.
    """
    steps: list[Step] = []
    open_: list[list[bytes]] | None = None
    problem = ""
    try:
        for words in commands(data):
            verb = words[0].upper()
            if verb == b"MULTI":
                open_ = []
            elif verb == b"EXEC":
                _add(steps, open_ or [], owner)
                open_ = None
            elif open_ is not None:
                open_.append(words)
            else:
                _add(steps, [words], owner)
    except LogCutError as error:
        problem = str(error)
    return steps, problem


def _add(steps: list[Step], batch: list[list[bytes]], owner: str) -> None:
    writes: list[Write] = []
    cleared: set[str] = set()
    for words in batch:
        verb = words[0].upper()
        if verb in (b"FLUSHALL", b"FLUSHDB"):
            writes.clear()
            cleared |= set(PARTS)
            continue
        if verb in (b"DEL", b"UNLINK"):
            for key in words[1:]:
                part = _part(key, owner)
                if part:
                    cleared.add(part)
                    writes = [write for write in writes if write[0] != part]
            continue
        part = _part(words[1], owner) if len(words) > 1 else ""
        if not part:
            continue
        if verb in (b"HSET", b"HMSET"):
            pairs = zip(words[2::2], words[3::2], strict=True)
            writes += [(part, field.decode(), value) for field, value in pairs]
        elif verb == b"HDEL":
            writes += [(part, field.decode(), None) for field in words[2:]]
    if writes or cleared:
        steps.append(Step(len(steps) + 1, tuple(writes), frozenset(cleared)))


def _part(key: bytes, owner: str) -> str:
    found = _KEY.match(key.decode(errors="replace"))
    return found["part"] if found and found["owner"] == owner else ""


@dataclasses.dataclass(slots=True)
class AccountState:
    """An account as the ledger has it."""

    flags: int
    amounts: dict[str, tuple[int, int, int]]
    """Resource → (capacity, used, foreign)."""


@dataclasses.dataclass(slots=True)
class LedgerState:
    """The ledger after a step; :meth:`apply` moves it on."""

    meta: dict[str, str] = dataclasses.field(default_factory=dict)
    accounts: dict[str, AccountState] = dataclasses.field(default_factory=dict)
    open: dict[str, LedgerEntry] = dataclasses.field(default_factory=dict)
    bound: dict[str, LedgerEntry] = dataclasses.field(default_factory=dict)
    names: Names = dataclasses.field(default_factory=Names)

    @property
    def generation(self) -> str:
        """Which filling of the ledger this is."""
        return self.meta.get("generation", "")

    @property
    def epoch(self) -> int:
        """The Binder's that has it."""
        return int(self.meta.get("epoch", "0") or 0)

    def entry(self, uid: str) -> LedgerEntry | None:
        """A pod's reservation."""
        return self.open.get(uid) or self.bound.get(uid)

    def entries(self) -> dict[str, LedgerEntry]:
        """All reservations by pod uid."""
        return {**self.open, **self.bound}

    def apply(self, step: Step) -> None:
        """Carry out what a call changed."""
        for part in step.cleared:
            getattr(self, part, {}).clear()
        for part, field, value in step.writes:
            if part == "meta":
                self._meta(field, value)
        for part, field, value in step.writes:
            if part == "accounts":
                self._account(field, value)
            elif part in ("open", "bound"):
                self._pod(getattr(self, part), field, value)

    def _meta(self, field: str, value: bytes | None) -> None:
        if value is None:
            self.meta.pop(field, None)
            return
        self.meta[field] = value.decode(errors="replace")
        if field == "names":
            self.names = Names(msgspec.json.decode(value, type=list[str]) if value else ())

    def _account(self, uid: str, value: bytes | None) -> None:
        if value is None:
            self.accounts.pop(uid, None)
            return
        flags, *rest = account_fields(value)
        amounts = {
            self.names.name_of(rest[at]): (rest[at + 1], rest[at + 2], rest[at + 3])
            for at in range(0, len(rest), 4)
        }
        self.accounts[uid] = AccountState(flags, amounts)

    def _pod(self, part: dict[str, Any], uid: str, value: bytes | None) -> None:
        if value is None:
            part.pop(uid, None)
        else:
            part[uid] = entry_of(uid, pod_fields(value), self.names)
