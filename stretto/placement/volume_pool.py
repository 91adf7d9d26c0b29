"""Which free volume a claim would get on each node (component-helpers FindMatchingVolume of 1.37).

A claim gets the smallest volume of its class that is large enough, has its modes, matches its
selector and can be reached from the node. Naive form: go through all volumes for each node. Its
fault is nodes × volumes a decision. Here volumes with the same affinity form a *site*; a site knows
its free volumes by size, so its best one for a *wish* (what a claim asks for) is found without
looking at nodes. A site that names its hosts is kept per host; of the others ("wide": a zone, or
everywhere) there are few, and they are combined by one vector step each.

Ties of size break by name; upstream takes any.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from stretto.model.selector import requirements_match
from stretto.model.shape import NodeTerm, Requirement
from stretto.placement.framework import Int64s, View
from stretto.placement.live_mask import LiveMask, Terms
from stretto.snapshot.changes import ChangeLog
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.volume_rows import ClaimRow, VolumeRow
from stretto.snapshot.volumes import VolumeBook

HOSTNAME = "kubernetes.io/hostname"
AVAILABLE = "Available"
NOTHING = np.iinfo(np.int64).max
"""Rank of no volume."""
_WISHES = 256
"""Wishes whose best volumes are kept per class."""


class Wish(NamedTuple):
    """What a claim asks of a volume, beside its class; claims with one wish are interchangeable."""

    size: int
    access_modes: tuple[str, ...]
    volume_mode: str
    attributes_class: str
    selector: tuple[Requirement, ...] | None


def wish_of(claim: ClaimRow) -> Wish:
    """The wish of a claim."""
    return Wish(
        max(claim.size, 0),
        claim.access_modes,
        claim.volume_mode,
        claim.attributes_class,
        claim.selector,
    )


def could_hold(volume: VolumeRow, wish: Wish) -> bool:
    """Whether size, modes and attributes allow it; what is asked of pre-bound volumes too."""
    return (
        volume.capacity >= wish.size
        and volume.volume_mode == wish.volume_mode
        and volume.attributes_class == wish.attributes_class
        and not volume.deleting
    )


def suits(volume: VolumeRow, wish: Wish) -> bool:
    """Whether a free volume of the class can serve the wish, the node aside."""
    return (
        could_hold(volume, wish)
        and set(wish.access_modes) <= set(volume.access_modes)
        and (wish.selector is None or requirements_match(wish.selector, dict(volume.labels)))
    )


class Site:
    """The free volumes of a class that can be reached from the same nodes."""

    def __init__(self, number: int, terms: tuple[NodeTerm, ...] | None, snapshot: Snapshot) -> None:
        self.number = number
        self.hosts = _hosts(terms)
        """Values of the hostname label, if the affinity says no more than that."""
        self._terms = Terms(terms, snapshot)
        self.mask = LiveMask(snapshot, self._terms.passes)
        self._free: list[tuple[int, str, VolumeRow]] = []
        """Sorted by (capacity, name)."""

    def add(self, volume: VolumeRow) -> None:
        """A volume is free."""
        bisect.insort(self._free, (volume.capacity, volume.name, volume), key=_order)

    def remove(self, volume: VolumeRow) -> None:
        """It no longer is."""
        at = bisect.bisect_left(self._free, (volume.capacity, volume.name), key=_order)
        assert self._free[at][1] == volume.name
        del self._free[at]

    def fitting(self, wish: Wish) -> Iterator[VolumeRow]:
        """Free volumes for a wish, smallest first."""
        start = bisect.bisect_left(self._free, (wish.size, ""), key=_order)
        for at in range(start, len(self._free)):
            volume = self._free[at][2]
            if suits(volume, wish):
                yield volume

    def covers(self, row: int) -> bool:
        """Whether a row can reach the site."""
        return self._terms.passes_row(row)


def _order(entry: tuple[int, str, VolumeRow] | tuple[int, str]) -> tuple[int, str]:
    return entry[0], entry[1]


def _hosts(terms: tuple[NodeTerm, ...] | None) -> tuple[str, ...] | None:
    if terms is None or len(terms) != 1 or terms[0].fields or len(terms[0].expressions) != 1:
        return None
    requirement = terms[0].expressions[0]
    if requirement.key != HOSTNAME or requirement.operator != "In":
        return None
    return requirement.values


class Pool:
    """The volumes of one class."""

    def __init__(self, name: str, snapshot: Snapshot) -> None:
        self.name = name
        self.snapshot = snapshot
        self.sites: list[Site] = []
        self.log = ChangeLog[int]()
        """Sites whose free volumes changed, by number."""
        self.by_host: dict[str, list[Site]] = {}
        self.wide: list[Site] = []
        self._by_terms: dict[tuple[NodeTerm, ...] | None, Site] = {}
        self._free: dict[str, VolumeRow] = {}
        self._wishes: dict[Wish, Best] = {}
        book = snapshot.volumes
        for volume in book.volumes.values():
            if volume.storage_class == name:
                self.changed(volume.name, volume)

    def changed(self, name: str, volume: VolumeRow | None) -> None:
        """A volume is so now, or has gone to another class or altogether."""
        before = self._free.pop(name, None)
        if before is not None:
            site = self._by_terms[before.terms]
            site.remove(before)
            self.log.note(site.number)
        if volume is not None and is_free(volume, self.snapshot.volumes):
            self._free[name] = volume
            site = self._site(volume.terms)
            site.add(volume)
            self.log.note(site.number)

    def _site(self, terms: tuple[NodeTerm, ...] | None) -> Site:
        site = self._by_terms.get(terms)
        if site is None:
            site = self._by_terms[terms] = Site(len(self.sites), terms, self.snapshot)
            self.sites.append(site)
            if site.hosts is None:
                self.wide.append(site)
            for host in site.hosts or ():
                self.by_host.setdefault(host, []).append(site)
        return site

    def best(self, wish: Wish) -> Best:
        """The best free volume of each row for a wish."""
        found = self._wishes.pop(wish, None)
        if found is None:
            if len(self._wishes) >= _WISHES:
                del self._wishes[next(iter(self._wishes))]
            found = Best(self, wish)
        self._wishes[wish] = found
        found.refresh()
        return found

    def on_row(self, row: int, wish: Wish) -> list[VolumeRow]:
        """Free volumes for a wish that a row can reach, smallest first."""
        column = self.snapshot.label_column(HOSTNAME)
        host = column.values[column.ids[row]] if column.ids[row] else None
        sites = [site for site in self.wide if site.covers(row)]
        if host is not None:
            sites += self.by_host.get(host, ())
        found = [volume for site in sites for volume in site.fitting(wish)]
        return sorted(found, key=lambda volume: (volume.capacity, volume.name))


def is_free(volume: VolumeRow, book: VolumeBook) -> bool:
    """Nobody's, and ready to be somebody's."""
    return volume.phase == AVAILABLE and not volume.deleting and not book.holder(volume)


class Best:
    """For one wish: the best volume's capacity (int64[rows], :data:`NOTHING` where there is none)
    and its number in ``volumes``."""

    def __init__(self, pool: Pool, wish: Wish) -> None:
        self._pool = pool
        self._wish = wish
        self._snapshot = pool.snapshot
        self._stamp = -1
        self._node_stamp = -1
        self._site_best: dict[int, VolumeRow] = {}
        self.any = False
        """Some row has a volume."""
        self.capacity: Int64s = np.zeros(0, dtype=np.int64)
        self.choice: Int64s = np.zeros(0, dtype=np.int64)
        """Site number + 1 whose best volume is meant; 0: none."""
        self._local_capacity: Int64s = self.capacity
        self._local_choice: Int64s = self.choice

    def volume(self, row: int) -> VolumeRow | None:
        """The best volume of a row."""
        site = int(self.choice[row])
        return self._site_best[site - 1] if site else None

    def refresh(self) -> None:
        """Bring the arrays up to date; O(what changed), beside one vector step a wide site."""
        log, nodes = self._pool.log, self._snapshot.node_changes
        if log.stamp == self._stamp and nodes.stamp == self._node_stamp:
            return
        sites = log.since(self._stamp) if self._stamp >= 0 else None
        rows = nodes.since(self._node_stamp) if self._node_stamp >= 0 else None
        size = self._snapshot.rows
        whole = sites is None or rows is None or len(self.capacity) != size
        if whole or len(rows or ()) * 4 > size:
            sites = list(range(len(self._pool.sites)))
            self._local_capacity = np.full(size, NOTHING, dtype=np.int64)
            self._local_choice = np.zeros(size, dtype=np.int64)
            rows = []
        for number in sites or ():
            self._rate(self._pool.sites[number])
        touched = set(rows or ())
        for number in sites or ():
            touched |= self._rows_of(self._pool.sites[number])
        for row in touched:
            self._set_local(row)
        self._combine()
        self._stamp, self._node_stamp = log.stamp, nodes.stamp

    def _rate(self, site: Site) -> None:
        best = next(site.fitting(self._wish), None)
        if best is None:
            self._site_best.pop(site.number, None)
        else:
            self._site_best[site.number] = best

    def _rows_of(self, site: Site) -> set[int]:
        """Rows of a local site."""
        rows: set[int] = set()
        column = self._snapshot.label_column(HOSTNAME)
        for host in site.hosts or ():
            number = column.id_of(host)
            if number > 0:
                rows.update(np.flatnonzero(column.ids[: self._snapshot.rows] == number).tolist())
        return rows

    def _set_local(self, row: int) -> None:
        column = self._snapshot.label_column(HOSTNAME)
        host = column.values[column.ids[row]]
        best, choice = None, 0
        for site in self._pool.by_host.get(host, ()) if column.ids[row] else ():
            volume = self._site_best.get(site.number)
            if volume is not None and (best is None or _rank(volume) < _rank(best)):
                best, choice = volume, site.number + 1
        self._local_capacity[row] = NOTHING if best is None else best.capacity
        self._local_choice[row] = choice

    def _combine(self) -> None:
        capacity, choice = self._local_capacity, self._local_choice
        for site in self._pool.wide:
            volume = self._site_best.get(site.number)
            if volume is None:
                continue
            if capacity is self._local_capacity:
                capacity, choice = capacity.copy(), choice.copy()
            better = site.mask.get() & (capacity >= volume.capacity)
            equal = better & (capacity == volume.capacity)
            for other in np.unique(choice[equal]).tolist() if equal.any() else ():
                if self._site_best[other - 1].name < volume.name:
                    better &= ~(equal & (choice == other))
            capacity[better] = volume.capacity
            choice[better] = site.number + 1
        self.capacity, self.choice = capacity, choice
        self.any = bool(self._site_best)


def _rank(volume: VolumeRow) -> tuple[int, str]:
    return volume.capacity, volume.name


class VolumeIndex:
    """Pools and masks of a snapshot's volumes, made when they are asked for; one a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._pools: dict[str, Pool] = {}
        self._masks: dict[tuple[NodeTerm, ...] | None, LiveMask] = {}
        snapshot.volumes.volume_changed = self._volume_changed

    @classmethod
    def of(cls, snapshot: Snapshot) -> VolumeIndex:
        """The index of a snapshot."""
        found = snapshot.derived.get(("volumes",))
        if not isinstance(found, cls):
            found = snapshot.derived[("volumes",)] = cls(snapshot)
        return found

    def pool(self, storage_class: str) -> Pool:
        """The volumes of a class."""
        found = self._pools.get(storage_class)
        if found is None:
            found = self._pools[storage_class] = Pool(storage_class, self._snapshot)
        return found

    def mask(self, terms: tuple[NodeTerm, ...] | None) -> LiveMask:
        """Where terms match."""
        found = self._masks.get(terms)
        if found is None:
            if len(self._masks) >= _MASKS:
                del self._masks[next(iter(self._masks))]
            found = LiveMask(self._snapshot, Terms(terms, self._snapshot).passes)
            self._masks[terms] = found
        return found

    def matches(self, terms: tuple[NodeTerm, ...] | None, view: View) -> np.ndarray:
        """bool[view.size]: where terms match."""
        return view.of(self.mask(terms).get())

    def _volume_changed(self, name: str, before: VolumeRow | None, after: VolumeRow | None) -> None:
        for row in (before, after):
            pool = None if row is None else self._pools.get(row.storage_class)
            if pool is not None and row is not None:
                mine = after is not None and after.storage_class == pool.name
                pool.changed(name, after if mine else None)


_MASKS = 512
