"""Stakes at the Binder: who gets one, how long it lasts, and how it is used up.

A unit that the dispatcher has found starving proposes nodes and does not fit them. Instead of a
conflict that changes nothing, the room that comes free there is kept for it from the next step of
the log on. The bounds:

* One unit a pool has a stake: the one of the highest priority, the first of equals. One of higher
  priority takes its place; so no two units of a pool ever wait for each other.
* Who is nominated gets none: its room is being made.
* A stake names no more than a share of the pool's nodes, and all stakes together no more than that
  share of all nodes (one stake is always allowed).
* For MATURE_S what is kept may be used by units that its own can make leave.
* A stake on whose nodes nothing comes free for EXPIRE_S is over; the unit's next one tries others.

A stake ends when its unit is reserved (in the same step, so that nobody else sees the room in
between), is gone or withdrawn, or has been overtaken. It holds no capacity, so nothing can be given
twice by losing it: it is not in the ledger. A Binder that dies takes its stakes along; the
dispatcher sees that in the log and asks anew at once, and the nodes where most has come free by
then are chosen again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from binder.cluster import Cluster
from binder.proposals import Incoming
from stretto.placement.kernel import Kernel
from stretto.snapshot.stakes import STAKE, Seat, StakeRow, encode_stake, pool_of, stake_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stretto.model.shape import Shape

SHARE = 0.3
"""Of a pool's nodes that one stake may name; of all nodes that all stakes may."""
MATURE_S = 30.0
EXPIRE_S = 120.0
FORGET_S = 3600.0
"""How long fruitless nodes are remembered: their unit may be gone, and nobody have told us."""
PASSED_NODES = 256
"""Names of fruitless nodes that are remembered for a unit."""


class Stake(msgspec.Struct):
    """A unit's stake."""

    row: StakeRow
    members: frozenset[str]
    """Uids of the pods that asked."""
    born_s: float | None = None
    """Monotonic; the first tick sets it."""
    grown_s: float = 0.0
    """When room last came free on its nodes."""
    free: float = 0.0
    """How much was free then, in nodes."""


class Stakes:
    """See the module docstring."""

    def __init__(self, cluster: Cluster, kernel: Kernel) -> None:
        self._cluster = cluster
        self._kernel = kernel
        self._stakes: dict[str, Stake] = {}
        """By key, those that came to nothing included: they have no seats."""
        self._of_pod: dict[str, str] = {}
        """Pod uid → key."""
        self.counts = {"granted": 0, "used": 0, "expired": 0, "overtaken": 0, "refused": 0}
        """How stakes began and ended."""

    def __len__(self) -> int:
        return sum(bool(stake.row.seats) for stake in self._stakes.values())

    @property
    def kept_nodes(self) -> int:
        """Nodes on which room is kept now."""
        return len({s.node for stake in self._stakes.values() for s in stake.row.seats})

    # ------------------------------------------------------------------------------- at the commit
    def ask(self, incoming: Incoming, nodes: Sequence[int]) -> bool:
        """A unit found no room on these nodes: keep it from now on; False if it may not have a
        stake."""
        snapshot, shapes = self._cluster.snapshot, incoming.shapes
        unit = incoming.proposal.unit
        rows = [snapshot.row_of(node) for node in nodes]
        names = [snapshot.name[row] for row in rows if row is not None]
        key = stake_key(unit.unit_id, shapes[0])
        pool = pool_of(shapes[0])
        rivals = [k for k, s in self._stakes.items() if s.row.pool == pool and s.row.seats]
        ahead = [k for k in rivals if self._stakes[k].row.priority >= shapes[0].priority]
        waits = any(member.uid in self._cluster.nominated for member in unit.members)
        known = len(names) == len(nodes)
        if waits or ahead or not known or not self._within_share(shapes[0], names, rivals):
            self.counts["refused"] += 1
            return False
        assert len(rivals) <= 1, f"two stakes in pool {pool}"
        for rival in rivals:
            self.counts["overtaken"] += 1
            self._end(rival)
        before = self._stakes.get(key)
        seats: dict[tuple[str, int], int] = {}
        for name, shape in zip(names, shapes, strict=True):
            seat = name, self._cluster.number_of(shape)
            seats[seat] = seats.get(seat, 0) + 1
        row = StakeRow(
            unit.unit_id, pool, shapes[0].priority,
            tuple(Seat(name, shape, count) for (name, shape), count in seats.items()),
            lends=len(shapes) == 1 and shapes[0].preemption_policy != "Never",
            passed=() if before is None else before.row.passed,
        )  # fmt: skip
        if before is not None:
            self._end(key)
        assert sum(seats.values()) == len(unit.members), "a member has no seat"
        self._put(key, Stake(row, frozenset(member.uid for member in unit.members)))
        self.counts["granted"] += 1
        return True

    def _within_share(self, shape: Shape, names: Sequence[str], rivals: Iterable[str]) -> bool:
        """Whether a stake on these nodes, in place of its rivals, keeps to the shares."""
        pool = int(np.count_nonzero(self._kernel.possible(shape)))
        wanted = set(names)
        if len(wanted) > max(1, int(pool * SHARE)):
            return False
        gone = set(rivals)
        others = {
            seat.node
            for key, stake in self._stakes.items()
            if key not in gone
            for seat in stake.row.seats
        }
        limit = max(1, int(self._cluster.snapshot.node_count * SHARE))
        return not others or len(wanted | others) <= limit

    def used(self, incoming: Incoming) -> None:
        """A unit was reserved: its stake ends in the same step."""
        for member, shape in zip(incoming.proposal.unit.members, incoming.shapes, strict=True):
            if self._stakes and self._end(stake_key(member.uid, shape)):
                self.counts["used"] += 1

    # ----------------------------------------------------------------------------------- the rest
    def gone(self, uid: str) -> None:
        """A pod is gone, bound by others, or no longer ours."""
        key = self._of_pod.get(uid)
        if key is not None:
            self._end(key)

    def tick(self, now: float) -> None:
        """Time has passed: stakes mature, and those that come to nothing end."""
        for key, stake in list(self._stakes.items()):
            if any(self._cluster.knows(uid) for uid in stake.members):
                self._end(key)  # bound by others
                continue
            if not stake.row.seats:
                if stake.born_s is not None and now - stake.born_s >= FORGET_S:
                    self._end(key)
                continue
            free = self._free(stake.row)
            if stake.born_s is None:
                stake.born_s = now
            if free > stake.free or not stake.grown_s:
                stake.free, stake.grown_s = free, now
            assert stake.grown_s <= now, "the clock went back"
            if now - stake.grown_s >= EXPIRE_S:
                self.counts["expired"] += 1
                names = (*stake.row.passed, *(seat.node for seat in stake.row.seats))
                passed = tuple(dict.fromkeys(names))[-PASSED_NODES:]
                row = msgspec.structs.replace(stake.row, seats=(), lends=False, passed=passed)
                self._put(key, Stake(row, stake.members, born_s=now))
            elif stake.row.lends and now - stake.born_s >= MATURE_S:
                stake.row = msgspec.structs.replace(stake.row, lends=False)
                self._cluster.object_seen(STAKE, key, encode_stake(stake.row))

    def _free(self, row: StakeRow) -> float:
        """What is free on a stake's nodes: the sum over nodes of the least free of cpu, memory and
        pods, each as a part of the node."""
        snapshot = self._cluster.snapshot
        rows = [r for seat in row.seats if (r := snapshot.row_of_name(seat.node)) is not None]
        found = np.array(rows, dtype=np.int64)
        least = np.ones(len(found), dtype=np.float64)
        for name in ("cpu", "memory", "pods"):
            column = snapshot.resources.column(name)
            alloc = np.maximum(column.alloc[found], 1)
            least = np.minimum(least, (alloc - column.used[found]) / alloc)
        return float(least.sum())

    def _put(self, key: str, stake: Stake) -> None:
        assert stake.members, "a stake of nobody"
        self._stakes[key] = stake
        self._of_pod |= dict.fromkeys(stake.members, key)
        self._cluster.object_seen(STAKE, key, encode_stake(stake.row))

    def _end(self, key: str) -> bool:
        stake = self._stakes.pop(key, None)
        if stake is None:
            return False
        for uid in stake.members:
            self._of_pod.pop(uid, None)
        self._cluster.object_seen(STAKE, key, None)
        return bool(stake.row.seats)

    def validate(self) -> None:
        """Assert the bounds."""
        pools = [stake.row.pool for stake in self._stakes.values() if stake.row.seats]
        assert len(pools) == len(set(pools)), f"two stakes in one pool: {pools}"
        for uid, key in self._of_pod.items():
            assert uid in self._stakes[key].members, f"{uid} has no stake"
