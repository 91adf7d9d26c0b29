"""Quantities of CEL's ``quantity()``: signed, exact to the nano."""

from __future__ import annotations

from stretto.model.quantity import NANO_PER_UNIT, nano_value

_MAX_INT = (1 << 63) - 1


def signed_nano(text: str) -> int:
    """A quantity in billionths; unlike amounts of resources it may be negative.

    Raises:
        ValueError: not a quantity.
    """
    return -nano_value(text[1:]) if text.startswith("-") else nano_value(text)


def is_integer(nano: int) -> bool:
    """Whether a quantity is a whole number that fits 64 bits."""
    return nano % NANO_PER_UNIT == 0 and -_MAX_INT - 1 <= nano // NANO_PER_UNIT <= _MAX_INT


def as_integer(nano: int) -> int:
    """The whole number.

    Raises:
        ValueError: it is none, or too large.
    """
    if not is_integer(nano):
        raise ValueError("cannot convert value to integer")
    return nano // NANO_PER_UNIT


def sign(number: int) -> int:
    """-1, 0 or 1."""
    return (number > 0) - (number < 0)
