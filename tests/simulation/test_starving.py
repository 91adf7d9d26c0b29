"""Large units among small pods that leave them no room: within the bound, and never without stakes
(else the stream would prove nothing)."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator

import pytest

from tests.simulation.cluster import Settings, Violation
from tests.simulation.starving import BIG_GANG, BIG_POD, LIFE_S, Starving, bound_s

TAKEOVER_S = 12.0
"""A Lease of 3 s runs out, the successor lists and opens."""

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("settings", [BIG_POD, BIG_GANG], ids=["pod", "gang"])
def test_a_large_unit_is_placed_within_its_bound(
    settings: Settings, seed: int, record_property: Callable[[str, float], None]
) -> None:
    run = Starving(seed, settings)
    run.record()
    run.run()
    assert run.waited_s is not None
    record_property("waited_s", run.waited_s)
    record_property("bound_s", bound_s(settings))
    assert run.waited_s <= bound_s(settings)
    assert run.small > 100, "there was no stream"


@pytest.mark.parametrize("seed", range(2))
def test_a_stake_that_dies_with_the_binder_is_asked_for_again(seed: int) -> None:
    run = Starving(seed, BIG_GANG, kill=True)
    run.record()
    run.run()
    assert run.waited_s is not None
    assert run.waited_s <= bound_s(BIG_GANG) + LIFE_S + TAKEOVER_S
    assert run.incarnations > 6, "nobody was killed"


@pytest.mark.parametrize("settings", [BIG_POD, BIG_GANG], ids=["pod", "gang"])
def test_without_stakes_the_stream_keeps_it_out(settings: Settings) -> None:
    never = dataclasses.replace(settings, stake_after_s=0.0, patience_s=bound_s(settings) + 10)
    with pytest.raises(Violation, match="of the large unit wait"):
        Starving(0, never).run()
