"""Which volumes the claims of a pod would get, over rows at once and on one row.

Upstream's FindPodVolumes of 1.37. Claims that wait for a consumer are served smallest first, each
by a free volume that no smaller one of the pod has got; those that find none, and those that a node
was selected for, are provisioned if their class can do it there.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from stretto.model.shape import Shape
from stretto.model.volumes import NO_PROVISIONER
from stretto.placement.framework import Bools, Int64s, View
from stretto.placement.storage_capacity import Capacities
from stretto.placement.volume_pool import NOTHING, Pool, VolumeIndex, could_hold, wish_of
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.volume_rows import NONE, ClaimRow, VolumeRow

OK, NO_VOLUME, NO_SPACE = 0, 1, 2
"""What a row says of the claims that wait."""


class Claims(msgspec.Struct):
    """The claims of a shape as they are now, in the order of the pod's volumes."""

    bound: list[ClaimRow] = msgspec.field(default_factory=list)
    waiting: list[ClaimRow] = msgspec.field(default_factory=list)
    """Unbound; their class waits for a consumer."""
    immediate: list[ClaimRow] = msgspec.field(default_factory=list)
    """Unbound, and not ours to bind."""


def claims_of(shape: Shape, snapshot: Snapshot) -> Claims:
    """Sort the claims of a shape; those that do not exist are left out."""
    book, found = snapshot.volumes, Claims()
    for claim in shape.claims:
        row = book.claims.get(f"{shape.namespace}/{claim.name}")
        if row is None:
            continue
        storage_class = book.classes.get(row.storage_class) if row.storage_class else None
        if row.bound:
            found.bound.append(row)
        elif storage_class is not None and storage_class.waits and not row.volume_name:
            found.waiting.append(row)
        else:
            found.immediate.append(row)
    return found


class Served(NamedTuple):
    """A claim over rows."""

    claim: ClaimRow
    static: Bools
    """A volume is there."""
    capacity: Int64s
    """Its bytes, where it is."""


class Provision(NamedTuple):
    """A claim that is provisioned on some rows."""

    claim: ClaimRow
    rows: Bools
    free: Int64s | None
    """Free bytes of the storage; None: nobody publishes them."""


class Outlook:
    """What the claims of a shape meet on the rows of a view."""

    def __init__(self, shape: Shape, snapshot: Snapshot, view: View) -> None:
        self._snapshot = snapshot
        self._view = view
        self.bound_elsewhere: Bools = np.zeros(view.size, dtype=np.bool_)
        """A bound volume cannot be reached."""
        self.volume_missing: Bools = np.zeros(view.size, dtype=np.bool_)
        """A bound volume does not exist."""
        self.state: Int64s = np.zeros(view.size, dtype=np.int64)
        """:data:`OK`, :data:`NO_VOLUME` or :data:`NO_SPACE` per row."""
        self.served: list[Served] = []
        self.provisions: list[Provision] = []
        claims = claims_of(shape, snapshot)
        self._look_at_bound(claims.bound)
        self._look_at_waiting(claims.waiting)

    @property
    def passes(self) -> Bools:
        """bool[view.size]."""
        passes: Bools = ~(self.bound_elsewhere | self.volume_missing) & (self.state == OK)
        return passes

    def _look_at_bound(self, claims: list[ClaimRow]) -> None:
        open_rows = np.ones(self._view.size, dtype=np.bool_)
        for claim in claims:
            volume = self._snapshot.volumes.volumes.get(claim.volume_name)
            if volume is None:
                self.volume_missing |= open_rows
                return
            bad = open_rows & ~reached(volume, self._view, self._snapshot)
            self.bound_elsewhere |= bad
            open_rows &= ~bad

    def _look_at_waiting(self, claims: list[ClaimRow]) -> None:
        book = self._snapshot.volumes
        selected: list[ClaimRow] = []
        to_match: list[ClaimRow] = []
        for claim in claims:
            node = book.selected_node(claim)
            (to_match if node is None else selected).append(claim)
            if node is not None:
                self.state[~self._only(node)] = NO_VOLUME
        for claim in sorted(to_match, key=lambda claim: max(claim.size, 0)):
            self._match(claim)
        for claim in selected:
            self._provision(claim, np.ones(self._view.size, dtype=np.bool_))
        for served in self.served:
            if not served.static.all():
                self._provision(served.claim, ~served.static)

    def _only(self, node: str) -> Bools:
        row = self._snapshot.row_of_name(node)
        rows = np.arange(self._view.size) if self._view.rows is None else self._view.rows
        found: Bools = rows == (-1 if row is None else row)
        return found

    # ------------------------------------------------------------------------------------- matching
    def _match(self, claim: ClaimRow) -> None:
        held = prebound(claim, self._snapshot)
        if held is not None:
            static = VolumeIndex.of(self._snapshot).matches(held.terms, self._view)
            capacity = np.full(self._view.size, held.capacity, dtype=np.int64)
            self.served.append(Served(claim, static, capacity))
            return
        pool = VolumeIndex.of(self._snapshot).pool(claim.storage_class)
        best = pool.best(wish_of(claim))
        capacity = self._view.of(best.capacity)
        static = capacity != NOTHING
        rivals = [s for s in self.served if s.claim.storage_class == claim.storage_class]
        if rivals and static.any():
            capacity, static = self._without_rivals(claim, pool, rivals, capacity, static)
        self.served.append(Served(claim, static, capacity))

    def _without_rivals(
        self, claim: ClaimRow, pool: Pool, rivals: list[Served], capacity: Int64s, static: Bools
    ) -> tuple[Int64s, Bools]:
        """Row by row where a smaller claim of the pod may have got the volume."""
        capacity, static = capacity.copy(), static.copy()
        shared = static & np.logical_or.reduce([rival.static for rival in rivals])
        smaller = [rival.claim for rival in rivals]
        for at in np.flatnonzero(shared).tolist():
            row = at if self._view.rows is None else int(self._view.rows[at])
            volume = match_on_row([*smaller, claim], row, self._snapshot)[-1]
            static[at] = volume is not None
            capacity[at] = NOTHING if volume is None else volume.capacity
        return capacity, static

    # --------------------------------------------------------------------------------- provisioning
    def _provision(self, claim: ClaimRow, needed: Bools) -> None:
        active = needed & (self.state == OK)
        if not active.any():
            return
        book = self._snapshot.volumes
        storage_class = book.classes.get(claim.storage_class)
        if storage_class is None or storage_class.provisioner in ("", NO_PROVISIONER):
            self.state[active] = NO_VOLUME
            return
        if storage_class.topologies is not None:
            there = VolumeIndex.of(self._snapshot).matches(storage_class.topologies, self._view)
            self.state[active & ~there] = NO_VOLUME
            active &= there
        driver = book.drivers.get(storage_class.provisioner)
        free = None
        if driver is not None and driver.storage_capacity and claim.size != NONE:
            free = self._view.of(
                Capacities.of(self._snapshot).free(claim.storage_class, claim.size)
            )
            self.state[active & (free < 0)] = NO_SPACE
            active &= free >= 0
        self.provisions.append(Provision(claim, active, free))


def reaches(volume: VolumeRow, row: int, snapshot: Snapshot) -> bool:
    """Whether a row can reach a bound volume."""
    view = View(snapshot, np.array([row], dtype=np.int64))
    return bool(reached(volume, view, snapshot)[0])


def reached(volume: VolumeRow, view: View, snapshot: Snapshot) -> Bools:
    """Where a bound volume can be reached; as a CSI volume where its plugin is migrated."""
    index = VolumeIndex.of(snapshot)
    plain: Bools = index.matches(volume.terms, view)
    if volume.migrated is None or volume.migrated.terms == volume.terms:
        return plain
    there = index.matches(volume.migrated.terms, view)
    rows = range(view.size) if view.rows is None else view.rows.tolist()
    nodes, plugin = snapshot.volumes.nodes, volume.migrated.plugin
    found = (nodes.get(snapshot.name[row]) for row in rows)
    migrated = np.array([n is not None and plugin in n.migrated for n in found], dtype=np.bool_)
    return np.where(migrated, there, plain)


def prebound(claim: ClaimRow, snapshot: Snapshot) -> VolumeRow | None:
    """The volume whose claimRef names the claim, or that is assumed for it, if it could hold it."""
    book = snapshot.volumes
    assumed = book.assumed.get(claim.key)
    names = [assumed.volume] if assumed is not None and assumed.volume else []
    for name in (*names, *sorted(book.prebound.get(claim.key, ()))):
        volume = book.volumes.get(name)
        if volume is None or volume.storage_class != claim.storage_class:
            continue
        other = volume.claim is not None and volume.claim.uid not in ("", claim.uid)
        if not other and could_hold(volume, wish_of(claim)):
            return volume
    return None


def match_on_row(claims: list[ClaimRow], row: int, snapshot: Snapshot) -> list[VolumeRow | None]:
    """The volume of each claim on a row, smallest claims first; None where there is none."""
    index = VolumeIndex.of(snapshot)
    chosen: set[str] = set()
    found: list[VolumeRow | None] = []
    for claim in claims:
        held = prebound(claim, snapshot)
        if held is not None:
            there = index.mask(held.terms).get()[row]
            found.append(held if there else None)
            continue
        fitting = index.pool(claim.storage_class).on_row(row, wish_of(claim))
        volume = next((v for v in fitting if v.name not in chosen), None)
        if volume is not None:
            chosen.add(volume.name)
        found.append(volume)
    return found


class VolumePlan(NamedTuple):
    """What is done to the claims of a pod on a node that it fits."""

    static: tuple[tuple[str, str], ...] = ()
    """(claim key, volume)."""
    provision: tuple[str, ...] = ()
    """Claim keys."""


NO_VOLUMES = VolumePlan()


def plan(shape: Shape, row: int, snapshot: Snapshot) -> VolumePlan:
    """The plan for a row that passes the filter."""
    book = snapshot.volumes
    waiting = {claim.key: claim for claim in claims_of(shape, snapshot).waiting}
    selected = [key for key, claim in waiting.items() if book.selected_node(claim) is not None]
    to_match = sorted(
        (claim for key, claim in waiting.items() if key not in selected),
        key=lambda claim: max(claim.size, 0),
    )
    static, provision = [], selected
    for claim, volume in zip(to_match, match_on_row(to_match, row, snapshot), strict=True):
        if volume is None:
            provision.append(claim.key)
        else:
            static.append((claim.key, volume.name))
    return VolumePlan(tuple(static), tuple(provision))
