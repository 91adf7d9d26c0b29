"""A few rounds of each race; ``make races`` runs ten thousand."""

from __future__ import annotations

import pytest

from tests.races.neighbours import RACES, run


@pytest.mark.parametrize("name", RACES)
def test_exactly_those_win_who_may(name):
    assert run(name, rounds=60, seed=7)["conflicts"] > 5, "nobody raced"
