"""When pods come."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stretto.workload.arrivals import Compression, burst, ramp, steady


def test_burst_and_steady() -> None:
    assert list(burst(3)) == [0.0, 0.0, 0.0]
    assert list(steady(4, 2.0)) == [0.0, 0.5, 1.0, 1.5]


@given(
    count=st.integers(2, 300),
    rate_from=st.floats(0.5, 1000),
    rate_to=st.floats(0.5, 1000),
)
def test_a_ramp_goes_from_one_rate_to_the_other(
    count: int, rate_from: float, rate_to: float
) -> None:
    times = list(ramp(count, rate_from, rate_to))
    duration = 2 * count / (rate_from + rate_to)
    assert times[0] == 0.0
    assert all(a < b for a, b in itertools.pairwise(times))
    assert times[-1] < duration * 1.001
    for i, time in enumerate(times):
        came = rate_from * time + (rate_to - rate_from) / duration * time**2 / 2
        assert came == pytest.approx(i, abs=1e-3)


def test_pauses_are_cut_and_the_rest_keeps_its_shape() -> None:
    compress = Compression([100, 110, 1110, 1120], span_s=3.0, max_gap_s=10)
    assert [compress(t) for t in (100, 110, 1110, 1120)] == [0.0, 1.0, 2.0, 3.0]
    assert compress(610) == pytest.approx(1.5), "within a pause, evenly"
    assert compress(1220) == pytest.approx(13.0), "after the end, at the same factor"
    assert compress.cut_s == 990
    assert compress.factor == pytest.approx(10)


@given(
    st.lists(st.floats(0, 1e7), min_size=1, max_size=50).map(sorted),
    st.floats(0, 1e5),
    st.lists(st.floats(0, 2e7), min_size=2, max_size=10).map(sorted),
)
def test_compression_keeps_order_and_fills_the_span(
    times: list[float], gap: float, asked: list[float]
) -> None:
    compress = Compression(times, span_s=60.0, max_gap_s=gap)
    assert compress(times[0]) == 0.0
    assert compress(times[-1]) == pytest.approx(60.0) or times[0] == times[-1] or gap < 1e-6
    mapped = [compress(t) for t in asked]
    assert all(a <= b * (1 + 1e-9) + 1e-9 for a, b in itertools.pairwise(mapped))


def test_pauses_cut_to_next_to_nothing_do_not_divide_by_zero() -> None:
    smallest = Compression([0.0, 1.0], span_s=60.0, max_gap_s=5e-324)
    assert smallest(1.0) == 5e-324
