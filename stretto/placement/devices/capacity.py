"""Consumable capacity: how much of a device a share takes, and whether that is left.

Amounts are in nano. Source: consumable_capacity.go of the structured allocator; its fractional
ranges are off by default in 1.37, so ranges are counted in whole units, rounded up.
"""

from __future__ import annotations

from collections.abc import Mapping

from stretto.cel.quantities import signed_nano
from stretto.model.devices import CapacityRow, Texts
from stretto.model.quantity import NANO_PER_UNIT

_MAX_INT = (1 << 63) - 1
Amounts = Mapping[str, int]


class CapacityError(ValueError):
    """An amount that no device can be asked for; the text completes upstream's message."""


def fits(
    capacity: tuple[CapacityRow, ...], wanted: Texts, *, consumed: Amounts, allocating: Amounts
) -> bool:
    """Whether a device has room for a request, and its policies allow the amounts.

    Raises:
        CapacityError: an amount cannot be counted at all.
    """
    asked = dict(wanted)
    if any(name not in {row.name for row in capacity} for name in asked):
        return False
    amounts = consumption(capacity, wanted)
    for row in capacity:
        amount = signed_nano(amounts[row.name])
        if _violates(amount, row):
            return False
        total = consumed.get(row.name, 0) + amount + allocating.get(row.name, 0)
        if total > signed_nano(row.value):
            return False
    return True


def consumption(capacity: tuple[CapacityRow, ...], wanted: Texts) -> dict[str, str]:
    """What a share takes of each capacity of a device, as quantities.

    Raises:
        CapacityError: an amount cannot be counted at all.
    """
    asked = dict(wanted)
    found = {}
    for row in capacity:
        text = _consumed(asked.get(row.name), row)
        if signed_nano(text) < 0:
            raise CapacityError(f'capacity "{row.name}": capacity value is negative')
        found[row.name] = text
    return found


def _consumed(asked: str | None, row: CapacityRow) -> str:
    if asked is None:
        return row.value if row.default is None else row.default
    if not row.has_policy:
        return asked
    if row.has_range and row.minimum is not None:
        return _rounded(asked, row)
    for value in row.valid_values:
        if signed_nano(asked) <= signed_nano(value):
            return value
    return asked


def _rounded(asked: str, row: CapacityRow) -> str:
    assert row.minimum is not None, "only ranges with a minimum are rounded"
    if signed_nano(asked) < signed_nano(row.minimum):
        return row.minimum
    if row.step is None:
        return asked
    least, step = _whole(row.minimum), max(_whole(row.step), 1)
    steps = -(-(_whole(asked) - least) // step)
    value = least + step * steps
    if value > _MAX_INT:
        raise CapacityError(
            f'capacity "{row.name}": capacity request cannot be represented in the device\'s range '
            f"arithmetic: request {asked} exceeds MaxInt64"
        )
    return str(value)


def _violates(amount: int, row: CapacityRow) -> bool:
    if not row.has_policy or (row.default is not None and amount == signed_nano(row.default)):
        return False
    if row.has_range:
        if row.maximum is not None and amount > signed_nano(row.maximum):
            return True
        if row.step is None:
            return False
        least = 0 if row.minimum is None else _whole(row.minimum)
        return (-(-amount // NANO_PER_UNIT) - least) % max(_whole(row.step), 1) != 0
    values = row.valid_values
    return bool(values) and all(amount != signed_nano(value) for value in values)


def _whole(text: str) -> int:
    """Rounded up, as Quantity.Value does."""
    return -(-signed_nano(text) // NANO_PER_UNIT)
