"""Percentiles, and what /metrics pages say."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stretto.workload.exposition import Reading
from stretto.workload.measures import per_second, percentile, percentiles
from stretto.workload.plots import nice_step, short
from stretto.workload.synthetic import shapes


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.1, 100))
def test_a_percentile_is_not_exceeded_by_that_share(values: list[float], percent: float) -> None:
    ascending = sorted(values)
    found = percentile(ascending, percent)
    assert found in values
    assert sum(v <= found for v in values) >= percent / 100 * len(values) - 1e-6


def test_of_nothing() -> None:
    assert percentiles([]).count == 0
    assert per_second([], 0) == [0]


def test_per_second() -> None:
    assert per_second([0.1, 0.9, 1.0, 7.0], 3) == [2, 1, 1]


PAGE = """# HELP x_seconds text
# TYPE x_seconds histogram
x_seconds_bucket{le="0.001",result="a\\"b"} 50
x_seconds_bucket{le="0.01",result="a\\"b"} 99
x_seconds_bucket{le="+Inf",result="a\\"b"} 100
x_seconds_sum{result="a\\"b"} 0.5
x_seconds_count{result="a\\"b"} 100
lost_total{cause="CAPACITY"} 3.0
lost_total{cause="EPOCH"} 0.0
broken{ 1
"""


def test_a_histogram_becomes_percentiles() -> None:
    found = Reading([PAGE]).histogram_ms("x_seconds")
    assert found is not None
    assert (found.count, found.p50, found.p90, found.p99) == (100, 1.0, 10.0, 10.0)
    assert found.mean == pytest.approx(5.0)
    assert found.largest == 10.0, "beyond the last bound nothing is known"


def test_a_run_is_the_difference_of_two_readings_over_all_processes() -> None:
    before, after = Reading([PAGE]), Reading([PAGE, PAGE])
    run = after.since(before)
    assert run.by_label("lost_total", "cause") == {"CAPACITY": 3}
    assert run.total("lost_total") == 3
    assert before.since(before).histogram_ms("x_seconds") is None
    assert run.histogram_ms("nothing") is None


@given(st.floats(1e-6, 1e9))
def test_axis_steps_are_round(span: float) -> None:
    step = nice_step(span)
    mantissa = step / 10 ** math.floor(math.log10(step) + 1e-9)
    assert min(abs(mantissa - m) for m in (1, 2, 5, 10)) < 1e-6
    assert 1.5 <= span / step <= 4.1


def test_short_numbers() -> None:
    assert [short(v) for v in (0, 1234, 0.25, 12_345, 2e7)] == ["0", "1,234", "0.25", "12k", "20M"]


@pytest.mark.parametrize("count", [1, 20, 36, 500])
def test_shapes_are_different(count: int) -> None:
    assert len(set(shapes(count))) == count
