"""What there is of devices and counters, and what is taken of them, as whole amounts for accounts.

An account counts below 2^53, so amounts are whole units there, not nano: what there is rounded up,
what is taken rounded down. So an account never refuses what the allocator would give, and differs
from it by fractions only.
"""

from __future__ import annotations

from collections.abc import Iterable

from stretto.cel.quantities import signed_nano
from stretto.model.devices import Result
from stretto.model.quantity import NANO_PER_UNIT
from stretto.placement.devices.inventory import Device, DeviceId, Slice
from stretto.placement.devices.usage import DeviceUsage

Whole = dict[str, int]
"""Name → amount in units."""


def _up(text: str) -> int:
    return -(-signed_nano(text) // NANO_PER_UNIT)


def capacity_of(device: Device) -> Whole:
    """What shares of a device can consume."""
    return {row.name: _up(row.value) for row in device.row.capacity}


def consumed_of(id_: DeviceId, usage: DeviceUsage) -> Whole:
    """What shares of a device consume."""
    amounts = usage.consumed.get(id_, {})
    return {name: amount // NANO_PER_UNIT for name, amount in amounts.items()}


def share_of(result: Result) -> Whole:
    """What a share takes of its device."""
    return {name: signed_nano(text) // NANO_PER_UNIT for name, text in result.consumed}


def counters_of(slices: Iterable[Slice]) -> dict[str, Whole]:
    """The sets of counters that devices of a pool share, of the newest generation."""
    kept = [each.row for each in slices if each.row.counters]
    newest = max((row.generation for row in kept), default=0)
    return {
        name: {counter: _up(text) for counter, text in amounts}
        for row in kept
        if row.generation == newest
        for name, amounts in row.counters
    }


def drawn_by(device: Device) -> dict[str, Whole]:
    """What a device draws of each set of counters when somebody has it."""
    found: dict[str, Whole] = {}
    for name, amounts in device.row.consumes:
        drawn = found.setdefault(name, {})
        for counter, text in amounts:
            drawn[counter] = drawn.get(counter, 0) + signed_nano(text) // NANO_PER_UNIT
    return found


def drawn_of(devices: Iterable[Device], usage: DeviceUsage) -> dict[str, Whole]:
    """What devices in use draw of each set of counters."""
    found: dict[str, Whole] = {}
    for device in devices:
        if device.row.consumes and usage.in_use(device.id):
            for name, amounts in drawn_by(device).items():
                drawn = found.setdefault(name, {})
                for counter, amount in amounts.items():
                    drawn[counter] = drawn.get(counter, 0) + amount
    return found
