"""The rows of the fault matrix that every push plays, with two seeds each (reference §7)."""

from __future__ import annotations

import sys

import pytest
import uvloop

import tests.matrix.rows
from tests.matrix.play import play
from tests.matrix.row import Played, Result

assert tests.matrix.rows.__doc__
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

EACH_PUSH = (1, 4, 5, 13, 14, 15, 16, 21, 23, 25, 33, 35)
TRIES = 3
"""A run that proves nothing is played again: a machine under load may not get its fault in."""


def tell(played: Played) -> None:
    sys.stdout.write(f"{played.line()}\n")


@pytest.mark.parametrize("seed", [1, 2])
def test_no_row_breaks_an_invariant(seed: int) -> None:
    left, failed = list(EACH_PUSH), []
    for _ in range(TRIES):
        found = uvloop.run(play(left, seed=seed, tell=tell))
        failed += [played for played in found if played.result is Result.FAILED]
        left = [played.number for played in found if played.result is Result.INCONCLUSIVE]
        if failed or not left:
            break
    assert not failed, "\n".join(played.line() for played in failed)
    assert not left, f"rows {left} stayed inconclusive"
