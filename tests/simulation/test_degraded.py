"""Throughput with a shard dead, packets lost, or requests refused (R15), in virtual time."""

from __future__ import annotations

import logging

import pytest

from tests.simulation.degraded import Share, Wrong, rates, shares

SEEDS = range(1, 9)
"""So many that a share, of which the standard error is 2 to 4 %, lies three errors or more above
its goal: whatever a change of the code makes of the seeds, it is not chance that decides."""


@pytest.mark.timeout(1800)
def test_enough_of_the_throughput_is_kept_whatever_is_wrong() -> None:
    logging.disable(logging.CRITICAL)
    try:
        found = shares([rates(seed) for seed in SEEDS])
    finally:
        logging.disable(logging.NOTSET)
    told = {wrong.name: str(share) for wrong, share in found.items()}
    assert all(share.value >= wrong.value for wrong, share in found.items()), told


def test_the_error_of_a_share_is_that_of_the_seeds() -> None:
    """Equal seeds have none; of two that differ it is half their difference, as of any mean."""
    same = [{wrong: 100.0 * wrong.value for wrong in Wrong}] * 3
    assert shares(same)[Wrong.REFUSED] == Share(0.6, 0.0)
    differ = [dict.fromkeys(Wrong, 100.0) | {Wrong.REFUSED: kept} for kept in (50.0, 70.0)]
    share = shares(differ)[Wrong.REFUSED]
    assert share.value == pytest.approx(0.6)
    assert share.error == pytest.approx(0.1)
