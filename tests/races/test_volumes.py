"""A few rounds of each race; ``make races`` runs ten thousand."""

from __future__ import annotations

import pytest

from tests.races.volumes import RACES, run

ROUNDS = 40


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", RACES)
def test_one_wins_and_the_others_are_told_why_they_wait(name, seed):
    found = run(name, rounds=ROUNDS, seed=seed)
    assert found["conflicts"] >= ROUNDS, "the shards did not collide"
    assert (found["volume"] >= ROUNDS) == name.endswith(("volume", "volumes"))
    assert (found["attachments"] >= ROUNDS) == (name == "last attachment")
