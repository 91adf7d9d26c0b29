"""Which devices a node can see: slices gathered into pools (upstream's GatherPools).

A pool is usable when all of its slices of one generation are known. Pools are tried in the order of
their names, those with binding conditions last; slices in the order of their names; devices as
listed. That order decides which device is chosen, so drivers use it, and it is kept exactly.
Source: k8s.io/dynamic-resource-allocation/structured (the incubating allocator of 1.37).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from stretto.cel.quantities import signed_nano
from stretto.model.devices import DeviceRow, DeviceTaint, NodeChoice, SliceRow, TaintRuleRow

Matches = Callable[[NodeChoice], bool]
"""Whether something is on the node in question."""


class PoolId(NamedTuple):
    """A pool is a driver's."""

    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class DeviceId(NamedTuple):
    """A device is a pool's."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class Device(msgspec.Struct, frozen=True):
    """A device with the taints of rules added."""

    id: DeviceId
    row: DeviceRow
    taints: tuple[DeviceTaint, ...]
    content: int
    """Equal for devices that selectors cannot tell apart."""
    per_device: bool
    """Its own node choice counts, not its slice's."""
    slice_where: NodeChoice


class Slice(msgspec.Struct, frozen=True):
    """A slice, its devices made."""

    row: SliceRow
    devices: tuple[Device, ...]

    @property
    def pool(self) -> PoolId:
        """Where it belongs."""
        return PoolId(self.row.driver, self.row.pool)


class Pool(msgspec.Struct, frozen=True):
    """A pool as one node sees it."""

    id: PoolId
    incomplete: bool = False
    """Slices are missing: nothing can be allocated."""
    invalid: bool = False
    """The driver's data contradicts itself: nothing can be allocated."""
    slices: tuple[Slice, ...] = ()
    """Those with devices for the node."""
    elsewhere: tuple[Slice, ...] = ()
    """The rest, whose devices may consume the same counters."""
    counters: Mapping[str, Mapping[str, int]] | None = None
    """Counter set → counter → amount in nano; None: the pool has none."""

    @property
    def usable(self) -> bool:
        """Whether devices of it can be allocated."""
        return not self.incomplete and not self.invalid

    @property
    def binds(self) -> bool:
        """Whether a device of it has binding conditions."""
        return any(d.row.binding_conditions for s in self.slices for d in s.devices)


def tainted(
    row: DeviceRow, id_: DeviceId, rules: Iterable[TaintRuleRow]
) -> tuple[DeviceTaint, ...]:
    """The taints of a device, its own and those that rules add."""
    added = tuple(
        rule.taint
        for rule in rules
        if rule.selects
        and rule.driver in (None, id_.driver)
        and rule.pool in (None, id_.pool)
        and rule.device in (None, id_.device)
    )
    return row.taints + added


def gather(candidates: Iterable[Slice], everything: Callable[[PoolId], Iterable[Slice]],
           matches: Matches) -> tuple[Pool, ...]:  # fmt: skip
    """The pools that one node sees.

    ``candidates``: slices of the node itself and those of no single node; ``everything``: all
    slices of a pool, wherever they are.
    """
    found: dict[PoolId, list[Slice]] = {}
    for each in candidates:
        if each.row.grouped or not _relevant(each, matches):
            continue
        there = found.get(each.pool)
        if there is None or each.row.generation > there[0].row.generation:
            found[each.pool] = [each]
        elif each.row.generation == there[0].row.generation:
            there.append(each)
    pools = []
    for id_, slices in found.items():
        pool = _pool(id_, slices, everything)
        if pool is not None:
            pools.append(pool)
    return tuple(sorted(pools, key=lambda pool: (pool.binds, pool.id)))


def _relevant(found: Slice, matches: Matches) -> bool:
    where = found.row.where
    if where.node_name or where.all_nodes or where.selector is not None:
        return matches(where)
    return found.row.per_device and any(matches(d.row.where) for d in found.devices)


def _pool(
    id_: PoolId, slices: list[Slice], everything: Callable[[PoolId], Iterable[Slice]]
) -> Pool | None:
    """None: a newer generation makes what the node sees obsolete."""
    count, generation = slices[0].row.slice_count, slices[0].row.generation
    elsewhere: list[Slice] = []
    if len(slices) != count:
        known = {each.row.name for each in slices}
        everywhere = [each for each in everything(id_) if each.row.generation >= generation]
        if any(each.row.generation > generation for each in everywhere):
            return None
        everywhere = [each for each in everywhere if not each.row.grouped]
        if len(everywhere) != count:
            return Pool(id_, incomplete=True)
        elsewhere = [each for each in everywhere if each.row.name not in known]
    return _built(id_, sorted(slices, key=lambda each: each.row.name), elsewhere)


def _built(id_: PoolId, slices: list[Slice], elsewhere: list[Slice]) -> Pool:
    sets = [each for each in (*slices, *elsewhere) if each.row.counters]
    here = tuple(each for each in slices if not each.row.counters)
    there = tuple(each for each in elsewhere if not each.row.counters)
    names = [device.id.device for each in here for device in each.devices]
    if len(set(names)) < len(names):
        return Pool(id_, invalid=True)
    counters: dict[str, dict[str, int]] = {}
    for each in sets:
        for name, amounts in each.row.counters:
            if name in counters:
                return Pool(id_, invalid=True)
            counters[name] = {counter: signed_nano(text) for counter, text in amounts}
    for each in (*here, *there):
        for device in each.devices:
            for name, amounts in device.row.consumes:
                known = counters.get(name)
                if known is None or any(counter not in known for counter, _ in amounts):
                    return Pool(id_, invalid=True)
    return Pool(id_, slices=here, elsewhere=there, counters=counters or None)
