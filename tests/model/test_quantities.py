"""Quantities: the grammar, exact rounding, and hostile text."""

from __future__ import annotations

import contextlib
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stretto.model.quantity import MAX_AMOUNT, QuantityError, base_value, milli_value, nano_value


@pytest.mark.parametrize(
    ("text", "base", "milli"),
    [
        ("0", 0, 0),
        ("1", 1, 1000),
        ("+1", 1, 1000),
        ("-0", 0, 0),
        ("100m", 1, 100),
        ("1500m", 2, 1500),
        ("100u", 1, 1),
        ("1n", 1, 1),
        ("0.0000000001", 1, 1),
        (".5", 1, 500),
        ("5.", 5, 5000),
        ("1k", 1000, 10**6),
        ("1Ki", 1024, 1024000),
        ("1.5Gi", 1610612736, 1610612736000),
        ("128974848", 128974848, 128974848000),
        ("129e6", 129 * 10**6, 129 * 10**9),
        ("1E3", 1000, 10**6),
        ("1e-3", 1, 1),
        ("1E", 10**18, MAX_AMOUNT),
        ("1Ei", MAX_AMOUNT, MAX_AMOUNT),
        ("50E", MAX_AMOUNT, MAX_AMOUNT),
        (2, 2, 2000),
        (0.25, 1, 250),
        (1e22, MAX_AMOUNT, MAX_AMOUNT),
    ],
)
def test_values(text: str | float, base: int, milli: int) -> None:
    assert milli_value(text) == milli
    assert base_value(text) == min(base, MAX_AMOUNT)


@pytest.mark.parametrize(
    "text",
    [
        *("", ".", "m", "1 ", " 1", "1KI", "1ki", "1K", "1mi", "0x10", "1e", "1e+", "1_000", "１"),
        *("-1", "-1Gi", "1e31", "1e-31", "1e200000", "1" * 5000, "nan", "inf", "1Gii", "1.2.3"),
        *(float("nan"), float("inf"), 10**70, -1),
    ],
)
def test_refused_with_one_line(text: str | float) -> None:
    with pytest.raises(QuantityError) as caught:
        base_value(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@given(
    whole=st.integers(0, 10**12),
    fraction=st.text("0123456789", max_size=12),
    suffix=st.sampled_from(["n", "u", "m", "", "k", "M", "G", "Ki", "Mi", "Gi", "e3", "E-2"]),
)
def test_equals_exact_arithmetic(whole: int, fraction: str, suffix: str) -> None:
    scale = {
        "n": Fraction(1, 10**9),
        "u": Fraction(1, 10**6),
        "m": Fraction(1, 1000),
        "": Fraction(1),
        "k": Fraction(10**3),
        "M": Fraction(10**6),
        "G": Fraction(10**9),
        "Ki": Fraction(2**10),
        "Mi": Fraction(2**20),
        "Gi": Fraction(2**30),
        "e3": Fraction(10**3),
        "E-2": Fraction(1, 100),
    }[suffix]
    value = (whole + Fraction(int(fraction or 0), 10 ** len(fraction))) * scale
    text = f"{whole}.{fraction}{suffix}" if fraction else f"{whole}{suffix}"
    assert nano_value(text) == math.ceil(value * 10**9)
    nano = Fraction(math.ceil(value * 10**9), 10**9)
    assert base_value(text) == min(math.ceil(nano), MAX_AMOUNT)
    assert milli_value(text) == min(math.ceil(nano * 1000), MAX_AMOUNT)


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(QuantityError):
        assert 0 <= base_value(text) <= MAX_AMOUNT


def test_numbers_of_five_thousand_digits_are_not_even_printed() -> None:
    with pytest.raises(QuantityError, match="digits"):
        base_value(10**5000)
