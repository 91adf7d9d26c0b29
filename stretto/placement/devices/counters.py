"""Counters that the devices of a pool share: partitions of one thing (checkAvailableCounters)."""

from __future__ import annotations

from stretto.cel.quantities import signed_nano
from stretto.placement.devices.inventory import Device, Pool, PoolId
from stretto.placement.devices.usage import DeviceUsage

Amounts = dict[tuple[str, str], int]
"""(counter set, counter) → amount in nano."""


class Counters:
    """What is left of counters during one search."""

    def __init__(self, usage: DeviceUsage) -> None:
        self._usage = usage
        self._left: dict[PoolId, Amounts] = {}

    def take(self, pool: Pool, device: Device) -> bool:
        """Consume what a device needs; False, and nothing consumed, if a counter of the pool would
        be short."""
        left = self._left.get(pool.id)
        if left is None:
            left = self._left[pool.id] = self._available(pool)
        wants = _consumption(device)
        for key, amount in wants.items():
            left[key] -= amount
        if all(amount >= 0 for amount in left.values()):
            return True
        for key, amount in wants.items():
            left[key] += amount
        return False

    def give_back(self, pool: Pool, device: Device) -> None:
        """Undo :meth:`take`."""
        for key, amount in _consumption(device).items():
            self._left[pool.id][key] += amount

    def _available(self, pool: Pool) -> Amounts:
        left = {
            (name, counter): amount
            for name, amounts in (pool.counters or {}).items()
            for counter, amount in amounts.items()
        }
        for each in (*pool.slices, *pool.elsewhere):
            for device in each.devices:
                if device.row.consumes and self._usage.in_use(device.id):
                    for key, amount in _consumption(device).items():
                        left[key] -= amount
        return left


def _consumption(device: Device) -> Amounts:
    total: Amounts = {}
    for name, amounts in device.row.consumes:
        for counter, text in amounts:
            total[name, counter] = total.get((name, counter), 0) + signed_nano(text)
    return total
