"""The soak's arithmetic; the soak itself is `make reliability WHAT=soak`."""

from __future__ import annotations

import os

import pytest

from tests.reliability.soak import Look, line, look_at, slope_an_hour


def looks_of(*rss_mib: float, every_s: float = 10.0) -> list[Look]:
    return [Look(n * every_s, mib, files=20, threads=9) for n, mib in enumerate(rss_mib)]


def test_the_slope_is_that_of_an_hour() -> None:
    assert slope_an_hour(looks_of(50.0, 51.0, 52.0), of="rss_mib") == pytest.approx(360.0)
    assert slope_an_hour(looks_of(50.0, 51.0, 52.0), of="files") == 0.0


def test_the_first_third_does_not_count() -> None:
    text = line("binder", looks_of(10.0, 30.0, 60.0, *[60.0] * 6))
    assert "+0.00 MiB/h (60.0 → 60.0 MiB RSS), files 20 → 20" in text


def test_a_process_is_looked_at_while_it_is_there() -> None:
    seen = look_at(os.getpid(), at_s=1.0)
    assert seen is not None
    assert seen.rss_mib > 5.0
    assert seen.files > 2
    assert seen.threads >= 1
    assert look_at(1 << 30, at_s=1.0) is None
