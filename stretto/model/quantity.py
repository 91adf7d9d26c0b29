"""Kubernetes quantities as exact integers, with bounded effort.

The grammar is apimachinery's: a signed decimal number and one of ``n u m k M G T P E``,
``Ki Mi Gi Ti Pi Ei`` or a decimal exponent. Text comes from anyone who may create a pod, so the
parser bounds what it will look at *before* it computes anything: ``1e200000`` or 5,000 digits
cost nothing and are an error (reliability §4.4).

As in Go, what is finer than nano is rounded up, and a value is rounded up to whole base units (or
milli units, for cpu) only at the end, after sums. Results are clamped to 2^53 − 1, the largest
integer that every part of the system, the ledger's Lua included, adds up exactly.
"""

from __future__ import annotations

import functools
import re

from stretto.model.errors import OperatorError

MAX_AMOUNT = (1 << 53) - 1
"""The largest amount of a resource that is told apart."""
MAX_TEXT = 64
"""Characters of a quantity that are looked at."""
MAX_EXPONENT = 30
NANO_PER_UNIT = 10**9
NANO_PER_MILLI = 10**6

Quantity = str | int | float
"""A quantity as JSON may hold it. The API server writes strings, other writers use numbers."""

_GRAMMAR = re.compile(
    r"([+-]?)(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?"
    r"(?:([kMGTPEnum]|[KMGTPE]i)|[eE]([+-]?[0-9]{1,4}))?",
    re.ASCII,
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


class QuantityError(OperatorError, ValueError):
    """A text that is no quantity, or one that no resource can have."""


@functools.lru_cache(maxsize=4096)
def _nano_of_text(text: str) -> int:
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        raise QuantityError(
            f"{text!r} is not a quantity; write it like 500m, 2, 1.5Gi or 100M (at most "
            f"{MAX_TEXT} characters)"
        )
    sign, whole, fraction, suffix, exponent = match.groups(default="")
    digits = int(whole + fraction)
    if sign == "-" and digits:
        raise QuantityError(f"{text!r} is negative; a resource amount is 0 or more")
    if suffix in _BINARY:
        return _scaled(digits << _BINARY[suffix], 9 - len(fraction))
    power = int(exponent) if exponent else _DECIMAL[suffix]
    if abs(power) > MAX_EXPONENT:
        raise QuantityError(f"{text!r} has an exponent beyond ±{MAX_EXPONENT}")
    return _scaled(digits, 9 + power - len(fraction))


def _scaled(number: int, power: int) -> int:
    """number · 10^power, rounded up."""
    factor: int = 10 ** abs(power)
    return number * factor if power >= 0 else -(-number // factor)


def nano_value(quantity: Quantity) -> int:
    """The value in billionths, exact; for sums, which are rounded only at the end.

    Raises:
        QuantityError: not a quantity, negative, or beyond the bounds above.
    """
    text = quantity if isinstance(quantity, str) else _text_of(quantity)
    if len(text) > MAX_TEXT:
        raise QuantityError(
            f"a quantity of {len(text)} characters ({text[:12]!r}…); at most {MAX_TEXT} are read"
        )
    if text.isascii():  # as most are written: 2, 500m, 64Mi; not worth to be remembered
        if text[-1:] == "m" and text[:-1].isdigit():
            return int(text[:-1]) * NANO_PER_MILLI
        if (bits := _BINARY.get(text[-2:])) is not None and text[:-2].isdigit():
            return int(text[:-2]) * NANO_PER_UNIT << bits
        if text.isdigit():
            return int(text) * NANO_PER_UNIT
    return _nano_of_text(text)


def _text_of(number: float) -> str:
    if isinstance(number, int) and abs(number) >= 10**MAX_TEXT:
        raise QuantityError(f"a quantity of more than {MAX_TEXT} digits")
    return repr(number)


def base_of_nano(nano: int) -> int:
    """Whole base units (bytes, counts), rounded up and clamped."""
    return min(-(-nano // NANO_PER_UNIT), MAX_AMOUNT)


def milli_of_nano(nano: int) -> int:
    """Whole milli units, rounded up and clamped."""
    return min(-(-nano // NANO_PER_MILLI), MAX_AMOUNT)


def base_value(quantity: Quantity) -> int:
    """A quantity in base units (bytes, counts), rounded up and clamped.

    Raises:
        QuantityError: see :func:`nano_value`.
    """
    return base_of_nano(nano_value(quantity))


def milli_value(quantity: Quantity) -> int:
    """A quantity in milli units (cpu), rounded up and clamped.

    Raises:
        QuantityError: see :func:`nano_value`.
    """
    return milli_of_nano(nano_value(quantity))


def amount_of(resource: str, nano: int) -> int:
    """A sum in the unit that the resource is counted in: milli for cpu, base units otherwise."""
    return milli_of_nano(nano) if resource == "cpu" else base_of_nano(nano)
