"""Which devices are taken: whole, or in shares with consumed capacity.

What admin access looks at is not taken. Source: allocateddevices.go of the DynamicResources plugin.
"""

from __future__ import annotations

from collections.abc import Iterable

from stretto.cel.quantities import signed_nano
from stretto.model.devices import Allocation
from stretto.placement.devices.inventory import DeviceId, PoolId


class DeviceUsage:
    """Counts of everything that claims have been given, or are about to be."""

    def __init__(self) -> None:
        self.whole: dict[DeviceId, int] = {}
        """How many allocations have a device for themselves; more than one is an error of
        someone."""
        self.shares: dict[DeviceId, int] = {}
        """How many shares are given out of a device that many may use."""
        self.consumed: dict[DeviceId, dict[str, int]] = {}
        """Capacity that shares consume, in nano."""

    def shift(self, allocation: Allocation, sign: int) -> set[PoolId]:
        """Count an allocation (+1) or take it back (-1); the pools whose devices it has."""
        touched = set()
        for result in allocation.results:
            if result.admin:
                continue
            id_ = DeviceId(result.driver, result.pool, result.device)
            touched.add(PoolId(result.driver, result.pool))
            if not result.share_id:
                _count(self.whole, id_, sign)
                continue
            _count(self.shares, id_, sign)
            amounts = self.consumed.setdefault(id_, {})
            for name, text in result.consumed:
                amounts[name] = amounts.get(name, 0) + sign * signed_nano(text)
            if id_ not in self.shares:
                del self.consumed[id_]
        return touched

    def in_use(self, id_: DeviceId) -> bool:
        """Whether anyone has the device or a share of it."""
        return id_ in self.whole or id_ in self.shares

    def state(self, ids: Iterable[DeviceId]) -> tuple[object, ...]:
        """A value that is equal when an allocator would find these devices equally taken."""
        whole, shares = self.whole, self.shares
        return tuple(
            1 if id_ in whole else
            (tuple(sorted(self.consumed.get(id_, {}).items())) if id_ in shares else 0)
            for id_ in ids
        )  # fmt: skip


def _count(counts: dict[DeviceId, int], id_: DeviceId, sign: int) -> None:
    left = counts.get(id_, 0) + sign
    assert left >= 0, f"device {id_} is given back more often than it was taken"
    if left:
        counts[id_] = left
    else:
        del counts[id_]
