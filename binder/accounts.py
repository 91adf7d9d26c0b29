"""Accounts of the ledger beside nodes: what each has, and what the API says is taken of it.

Each belongs to something that is followed: a volume, a row of the picture (attachments of the
node's CSI drivers), a device, a pool of devices (sets of counters that its devices share). When
that changes, or what pods in flight are charged of it, its accounts are made anew; what the API
shows as taken and no charge accounts for is foreign.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from binder.storage import Storage
from stretto.ledger.types import Account, account_uid
from stretto.placement.attached import Attached
from stretto.placement.devices import amounts
from stretto.placement.devices.inventory import Device, DeviceId, PoolId
from stretto.placement.devices.world import DeviceWorld, world_of
from stretto.snapshot.changes import ChangeLog
from stretto.snapshot.columns import Snapshot

VOLUME = "volume"
ATTACHMENTS = "attachments"
DEVICE = "device"
COUNTERS = "counters"
"""Kinds of account; where one has a single resource, its name too."""

Source = tuple[str, Any]
"""(kind of account, what it belongs to)."""


def volume_account(uid: str) -> str:
    """The account of a volume."""
    return account_uid(VOLUME, uid)


def attachments_account(node_uid: str, driver: str) -> str:
    """The account of a driver on a node."""
    return account_uid(ATTACHMENTS, node_uid, driver)


def device_account(id_: DeviceId) -> str:
    """The account of a device."""
    return account_uid(DEVICE, *id_)


def counters_account(pool: PoolId, name: str) -> str:
    """The account of a set of counters that devices of a pool share."""
    return account_uid(COUNTERS, *pool, name)


class Accounts:
    """See the module docstring. ``taken``: account → resource → what it is charged."""

    def __init__(
        self, snapshot: Snapshot, storage: Storage, taken: Mapping[str, Mapping[str, int]]
    ) -> None:
        self.by_uid: dict[str, Account] = {}
        """As of the last :meth:`changes`."""
        self._snapshot = snapshot
        self._storage = storage
        self._taken = taken
        self._changed: dict[str, None] = {}
        self._stale: set[Source] = set()
        """What to look at though nothing of it has changed."""
        self._of: dict[Source, set[str]] = {}
        self._source: dict[str, Source] = {}
        """Account → what it belongs to."""
        self._read: dict[str, tuple[ChangeLog[Any], int]] = {}
        """Which change log has been read how far."""
        self._devices: dict[PoolId, dict[DeviceId, Device]] = {}

    def charged(self, account: str) -> None:
        """What an account is charged has changed."""
        source = self._source.get(account)
        if source is not None:
            self._stale.add(source)

    def changes(self) -> tuple[list[Account], list[str]]:
        """(accounts that changed, accounts that went) since the last call, of the picture as it has
        been published."""
        sources, self._stale = self._stale, set()
        for source in (*sources, *self._changed_sources()):
            self._put(source, self._made(source))
        changed, self._changed = self._changed, {}
        found = [self.by_uid[uid] for uid in changed if uid in self.by_uid]
        return found, [uid for uid in changed if uid not in self.by_uid]

    def _put(self, source: Source, accounts: list[Account]) -> None:
        before = self._of.pop(source, set())
        for account in accounts:
            if self.by_uid.get(account.uid) != account:
                self.by_uid[account.uid] = account
                self._changed[account.uid] = None
            self._source[account.uid] = source
        uids = {account.uid for account in accounts}
        assert len(uids) == len(accounts), f"{source} has an account twice"
        for uid in before - uids:
            if self._source.get(uid) == source:
                assert uid in self.by_uid, f"account {uid} belongs to something and is not there"
                del self._source[uid], self.by_uid[uid]
                self._changed[uid] = None
        if uids:
            self._of[source] = uids

    # ---------------------------------------------------------------------------- what has changed
    def _changed_sources(self) -> Iterable[Source]:
        found = {(VOLUME, name) for name in self._storage.take_touched_volumes()}
        rows = range(self._snapshot.rows)
        volumes, nodes = self._snapshot.volumes.row_changes, self._snapshot.node_changes
        for row in (*self._since("volumes", volumes, rows), *self._since("nodes", nodes, rows)):
            found.add((ATTACHMENTS, row))
        return found | self._changed_devices(world_of(self._snapshot))

    def _changed_devices(self, world: DeviceWorld) -> set[Source]:
        found: set[Source] = set()
        for pool in self._since("slices", world.slice_changes, world.pools()):
            before = self._devices.pop(pool, {})
            devices = {d.id: d for each in world.slices(pool) for d in each.devices}
            if devices:
                self._devices[pool] = devices
            found |= {(DEVICE, id_) for id_ in (*before, *devices)} | {(COUNTERS, pool)}
        everything = (id_ for devices in self._devices.values() for id_ in devices)
        for id_ in self._since("use", world.use_changes, everything):
            found |= {(DEVICE, id_), (COUNTERS, PoolId(id_.driver, id_.pool))}
        return found

    def _since(self, name: str, log: ChangeLog[Any], everything: Iterable[Any]) -> Iterable[Any]:
        known, stamp = self._read.get(name, (None, 0))
        assert known is not log or stamp <= log.stamp, f"changes of {name} were taken back"
        self._read[name] = log, log.stamp
        changed = log.since(stamp) if known is log else None
        return everything if changed is None else changed

    # ------------------------------------------------------------------------------------ accounts
    def _made(self, source: Source) -> list[Account]:
        kind, what = source
        if kind == VOLUME:
            return self._of_volume(what)
        if kind == ATTACHMENTS:
            return self._of_row(what)
        return self._of_device(what) if kind == DEVICE else self._of_counters(what)

    def _account(
        self, uid: str, capacity: Mapping[str, int], used: Mapping[str, int]
    ) -> list[Account]:
        taken = self._taken.get(uid, {})
        assert all(amount >= 0 for amount in used.values()), f"less than nothing is used of {uid}"
        foreign = {name: amount - taken.get(name, 0) for name, amount in used.items()}
        return [Account(uid, capacity, {name: n for name, n in foreign.items() if n > 0})]

    def _of_volume(self, name: str) -> list[Account]:
        """Only a free volume has one: else it is nobody's business but the API's."""
        volume = self._storage.volume(name)
        free = volume is not None and (volume.claim is None or not volume.claim.uid)
        return [Account(volume_account(volume.uid), {VOLUME: 1})] if volume and free else []

    def _of_row(self, row: int) -> list[Account]:
        snapshot, found = self._snapshot, []
        live = bool(snapshot.live[row])
        node = snapshot.volumes.nodes.get(snapshot.name[row]) if live else None
        for driver, limit in () if node is None else node.drivers:
            if limit >= 0:
                uid = attachments_account(snapshot.node_uid[row], driver)
                used = int(Attached.of(snapshot).used(driver)[row])
                found += self._account(uid, {ATTACHMENTS: limit}, {ATTACHMENTS: used})
        return found

    def device(self, id_: DeviceId) -> Device | None:
        """A device that there is."""
        return self._devices.get(PoolId(id_.driver, id_.pool), {}).get(id_)

    def _of_device(self, id_: DeviceId) -> list[Account]:
        device, usage = self.device(id_), world_of(self._snapshot).usage
        if device is None:
            return []
        uid = device_account(id_)
        if not device.row.allow_multiple:
            used = usage.whole.get(id_, 0) + usage.shares.get(id_, 0)
            return self._account(uid, {DEVICE: 1}, {DEVICE: used})
        capacity = amounts.capacity_of(device)
        return self._account(uid, capacity, amounts.consumed_of(id_, usage)) if capacity else []

    def _of_counters(self, pool: PoolId) -> list[Account]:
        world, found = world_of(self._snapshot), []
        sets = amounts.counters_of(world.slices(pool))
        used = amounts.drawn_of(self._devices.get(pool, {}).values(), world.usage) if sets else {}
        for name, capacity in sets.items():
            found += self._account(counters_account(pool, name), capacity, used.get(name, {}))
        return found
