"""A few rounds of each race; ``make races`` runs ten thousand."""

from __future__ import annotations

import pytest

from tests.races.neighbours import RACES, run

SEEDS = range(1, 5)
RACED = 5
"""Conflicts of all seeds together that show that there was a race at all. The rarest, over zones,
has 3 to 13 a seed."""


@pytest.mark.parametrize("name", RACES)
def test_exactly_those_win_who_may(name):
    conflicts = sum(run(name, rounds=60, seed=seed)["conflicts"] for seed in SEEDS)
    assert conflicts > RACED, "nobody raced"
