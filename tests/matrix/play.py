"""Plays rows on fields, one after another, and judges each."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pathlib
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable

from tests.kube_env.binaries import build
from tests.kube_env.control_plane import ControlPlane
from tests.matrix.field import Field
from tests.matrix.row import ROWS, NotPossibleHereError, Played, Result, Row, judged

A_FIELD = 10
"""Rows played on one field before a fresh one is made: its history is read again after each."""
FIELD_S = 150.0
"""For a field to be ready, or a row's rest to come."""
logger = logging.getLogger(__name__)
Tell = Callable[[Played], None]


def plan(rows: Iterable[int], seed: int) -> list[list[Row]]:
    """The rows in the seed's own order, in groups that may share a field."""
    chosen = [ROWS[number] for number in rows]
    random.Random(seed).shuffle(chosen)
    groups = [[each] for each in chosen if each.alone and each.scenario]
    for real in (False, True):
        some = [r for r in chosen if r.real == real and not r.alone and r.scenario]
        groups += [some[at : at + A_FIELD] for at in range(0, len(some), A_FIELD)]
    return groups


async def play(rows: Iterable[int], *, seed: int, tell: Tell, keep: bool = False) -> list[Played]:
    """All rows once."""
    rows, found = list(rows), []

    def take(played: Played) -> None:
        found.append(played)
        tell(played)

    for number in rows:
        if ROWS[number].scenario is None:
            take(Played(number, seed, Result.NOT_BUILT, ROWS[number].expected))
    for group in plan(rows, seed):
        rest = list(group)
        while rest:  # a field that a row has spoilt is replaced
            rest = await play_group(rest, seed=seed, tell=take, keep=keep)
    return found


async def play_group(rows: list[Row], *, seed: int, tell: Tell, keep: bool) -> list[Row]:
    """Play rows on one field; those that are left when it cannot be used any more."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="stretto-matrix-"))
    bad = True
    try:
        with contextlib.ExitStack() as open_:
            plane = None
            if rows[0].real:
                plane = open_.enter_context(ControlPlane(folder / "plane", build()))
            field = Field(folder / "field", seed=seed * 1000 + rows[0].number, plane=plane)
            field.wants_disk, field.certified = rows[0].disk, rows[0].certified
            try:
                async with asyncio.timeout(FIELD_S):
                    await field.__aenter__()
            except Exception as error:
                tell(Played(rows[0].number, seed, Result.INCONCLUSIVE, f"no field: {error!r}"))
                return rows[1:]
            try:
                for at, each in enumerate(rows):
                    played = await play_row(field, each, seed=seed)
                    tell(played)
                    bad = played.result is not Result.PASSED
                    if field.spoilt:
                        return rows[at + 1 :]
            finally:
                await field.__aexit__(None, None, None)
        return []
    finally:
        if not (keep and bad):
            shutil.rmtree(folder, ignore_errors=True)
        else:
            sys.stdout.write(f"kept {folder}\n")


async def play_row(field: Field, row: Row, *, seed: int) -> Played:
    """One row on a field that is at rest."""
    field.rng.seed(seed * 1000 + row.number)
    field.begin(f"r{row.number}-{seed}")
    began = time.monotonic()
    error, violations, gaps, impossible = "", "", [], ""
    try:
        assert row.scenario is not None
        async with asyncio.timeout(row.limit_s):
            await row.scenario(field)
    except NotPossibleHereError as why:
        impossible = str(why)
    except Exception as failure:
        error = described(failure, row)
    took_s, proof, binds = time.monotonic() - began, field.proof(), field.load.binds
    try:
        async with asyncio.timeout(FIELD_S):
            await field.rest()
            findings = await field.history(ledger=row.ledger_judged)
        violations = "; ".join(map(str, findings.violations[:3]))
        gaps = findings.gaps
        if not (error or violations or gaps or row.alone):
            async with asyncio.timeout(FIELD_S):
                await field.sweep()
    except Exception as failure:
        error = error or f"no rest afterwards: {described(failure, row)}"
    field.spoilt = bool(error or violations or gaps or row.alone or impossible)
    result, why = judged(
        violations=violations,
        error=error,
        proof=proof,
        binds=binds,
        gaps=gaps,
        stood_still_s=field.stood_still_s,
    )
    if impossible and not (error or violations):
        result, why = Result.INCONCLUSIVE, impossible
    text = ", ".join(f"{what} ×{count}" for what, count in sorted(proof.items()) if count)
    return Played(row.number, seed, result, why, took_s, binds, text)


def described(failure: Exception, row: Row) -> str:
    """One line of what went wrong."""
    logger.info("%s", "".join(traceback.format_exception(failure)))
    if isinstance(failure, TimeoutError) and not str(failure):
        return f"not done within {row.limit_s:.0f} s"
    return f"{type(failure).__name__}: {failure}"[:400]
