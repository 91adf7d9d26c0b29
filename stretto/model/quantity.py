"""Kubernetes quantities, exact, as integers in base units (reliability: bounded input, upstream
apimachinery resource.Quantity).

The grammar is linear and bounded before any arithmetic: a hostile text (5,000 digits, an exponent
of 200,000) is refused by its length or exponent, never computed. Values round up to whole units,
as upstream's Value() and MilliValue() do, and are clamped to 2^53 − 1, the largest integer that
every part of the system holds exactly.
"""

from __future__ import annotations

import re
from functools import lru_cache

from stretto.model.errors import OperatorError

MAX_LENGTH = 64
MAX_EXPONENT = 30
MAX_VALUE = 2**53 - 1

_PATTERN = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?([eE][+-]?\d+|[KMGTPE]i|[numkMGTPE]|)\Z", re.ASCII)
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


class QuantityError(OperatorError, ValueError):
    """A text that is not a quantity, or one outside the bounds."""


def _scaled(text: str, extra: int) -> int:
    """ceil(quantity · 10^extra), clamped to ±MAX_VALUE."""
    if len(text) > MAX_LENGTH:
        raise QuantityError(f"quantity of {len(text)} characters; at most {MAX_LENGTH}")
    match = _PATTERN.match(text)
    if match is None or not (match[2] or match[3]):
        raise QuantityError(f"{text!r} is not a quantity")
    sign, whole, fraction, suffix = match[1], match[2], match[3] or "", match[4]
    digits = int((whole + fraction) or "0")
    exponent = extra - len(fraction)
    factor: int = 1
    if suffix in _BINARY:
        factor = 1024 ** _BINARY[suffix]
    elif suffix in _DECIMAL:
        exponent += _DECIMAL[suffix]
    elif suffix[:1] in ("e", "E"):
        power = int(suffix[1:])
        if abs(power) > MAX_EXPONENT:
            raise QuantityError(f"{text!r}: exponent outside ±{MAX_EXPONENT}")
        exponent += power
    else:
        raise QuantityError(f"{text!r} is not a quantity")
    value: int = -digits * factor if sign == "-" else digits * factor
    value = value * 10**exponent if exponent >= 0 else -(-value // 10**-exponent)
    return max(-MAX_VALUE, min(MAX_VALUE, value))


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    raise QuantityError(f"{value!r} is not a quantity")


@lru_cache(maxsize=8192)
def _base(text: str) -> int:
    return _scaled(text, 0)


@lru_cache(maxsize=8192)
def _milli(text: str) -> int:
    return _scaled(text, 3)


def base_value(value: object) -> int:
    """The quantity in whole base units (bytes, counts), rounded up.

    Raises:
        QuantityError: not a quantity, or outside the bounds.
    """
    return _base(_text(value))


def milli_value(value: object) -> int:
    """The quantity in thousandths, rounded up.

    Raises:
        QuantityError: not a quantity, or outside the bounds.
    """
    return _milli(_text(value))


def amount(resource: str, value: object) -> int:
    """The quantity in the unit that the resource is counted in: milli for cpu, base units for the
    rest."""
    return milli_value(value) if resource == "cpu" else base_value(value)
