"""Waits before the API server is asked again: never less than it asked for, and not in step."""

from __future__ import annotations

import random

from stretto.kube.backoff import SPREAD, Backoff, spread


def test_waits_double_up_to_the_limit_and_begin_anew() -> None:
    backoff = Backoff(random.Random(1), first_s=1.0, limit_s=4.0)
    for most in (1.0, 2.0, 4.0, 4.0):
        assert most / 2 <= backoff.next_s() <= most
    backoff.reset()
    assert backoff.next_s() <= 1.0


def test_those_that_are_put_off_together_do_not_come_back_together() -> None:
    backoffs = [Backoff(random.Random(seed), first_s=1.0, limit_s=4.0) for seed in range(20)]
    waits = [backoff.next_s(at_least_s=5.0) for backoff in backoffs]
    assert 5.0 <= min(waits) <= max(waits) <= 5.0 * (1 + SPREAD)
    assert len(set(waits)) == 20


def test_a_wait_of_ones_own_that_is_longer_than_what_was_asked_for_stands() -> None:
    backoff = Backoff(random.Random(1), first_s=8.0, limit_s=8.0)
    assert backoff.next_s(at_least_s=1.0) >= 4.0


def test_no_time_is_spread_to_no_time() -> None:
    assert spread(0.0, random.Random(1)) == 0.0
