"""A few rounds of each race; ``make races`` runs ten thousand."""

from __future__ import annotations

import pytest

from tests.races.devices import RACES, run

ROUNDS = 30


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", RACES)
def test_no_device_is_given_out_twice_and_losers_hear_why(name, seed):
    found = run(name, rounds=ROUNDS, seed=seed)
    assert found["conflicts"] >= ROUNDS, "the shards did not collide"
    assert found["device"] >= ROUNDS, "the ledger did not guard the devices"
    assert (found["counters"] >= ROUNDS) == (name == "last part of a device")
