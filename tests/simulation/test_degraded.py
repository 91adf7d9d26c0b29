"""Throughput with a shard dead, packets lost, or requests refused (R15), in virtual time."""

from __future__ import annotations

import logging

import pytest

from tests.simulation.degraded import kept


@pytest.mark.timeout(600)
def test_enough_of_the_throughput_is_kept_whatever_is_wrong() -> None:
    logging.disable(logging.CRITICAL)
    try:
        shares = kept(1)
    finally:
        logging.disable(logging.NOTSET)
    assert not {wrong: share for wrong, share in shares.items() if share < wrong.value}
