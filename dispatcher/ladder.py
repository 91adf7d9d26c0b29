"""The starvation ladder: a unit that loses again and again, or waits for too long, gets fewer
rivals and in the end room of its own.

1. From the second conflict in a row on it is decided by another shard than the one it lost at, in
   that shard's own partitions first.
2. From the fourth on all such units are decided by one and the same shard, so that they do not race
   each other; what is left to lose to is what others place in that shard's partitions.
3. After the fifth, or when it has waited for ``stake_after_s`` and fits nowhere, it asks for a
   stake: room on named nodes that is kept for it as it comes free (see binder/stakes.py). Of a pool
   (units that may go to the same nodes) the unit of the highest priority asks, the one that waits
   for the longest time among equals, while no other of at least its priority has a stake.

Units that no empty node would take are not asked for: what is said of them by the last decision
tells them apart. Who was refused, or whose stake came to nothing, lets others go first for a while.
"""

from __future__ import annotations

import enum
import zlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from dispatcher.contention import PartitionMode
from dispatcher.pods import PodRecord
from dispatcher.shape_records import Mode, ShapeRecord
from dispatcher.shapes import ShapeTable
from stretto.model.diagnosis import Diagnosis
from stretto.snapshot.stakes import StakeRow, pool_of, stake_key


class Rung(enum.IntEnum):
    """How far a unit has come."""

    PLAIN = 0
    OTHER_SHARD = 1
    ONE_SHARD = 2
    STAKE = 3


class LadderLimits(msgspec.Struct, frozen=True, kw_only=True):
    """When a unit climbs."""

    other_shard: int = 2
    """Conflicts in a row."""
    one_shard: int = 4
    stake: int = 5
    stake_after_s: float = 60.0
    """A unit that fits nowhere has waited for so long; 0: nobody asks for stakes."""
    again_s: float = 60.0
    """After a fruitless request; others come first meanwhile."""
    scan_s: float = 1.0


class Ladder:
    """See the module docstring."""

    def __init__(self, *, shapes: ShapeTable, limits: LadderLimits) -> None:
        self._shapes = shapes
        self._limits = limits
        self._scanned_s = self._read_anew_s = float("-inf")
        self.stakes: Mapping[str, StakeRow] = {}
        """By key, as the Binder's log shows them."""
        self.asked = 0
        """Requests for stakes."""

    def read_anew(self, now: float) -> None:
        """The log was read from a full state: a Binder may have died with its stakes. Whoever had
        one and has none now need not wait to ask again."""
        self._read_anew_s = now

    # ------------------------------------------------------------------------------- where it goes
    def rung(self, record: PodRecord) -> Rung:
        """How far a unit has come by its conflicts."""
        limits, conflicts = self._limits, record.conflicts
        if conflicts < limits.other_shard:
            return Rung.PLAIN
        if conflicts < limits.one_shard:
            return Rung.OTHER_SHARD
        return Rung.ONE_SHARD if conflicts < limits.stake else Rung.STAKE

    def may_go(self, record: PodRecord, shard: str, names: Sequence[str]) -> bool:
        """Whether this shard may decide the unit; one of the living shards ``names`` always may."""
        contention = record.shape.contention
        if not record.conflicts and (
            contention is None or contention.mode is not PartitionMode.SINGLE
        ):
            return True
        rung = self.rung(record)
        if rung >= Rung.ONE_SHARD:
            return shard == _chosen("", names)
        if rung is Rung.OTHER_SHARD:
            others = [name for name in names if name != record.sent_to]
            return shard == _chosen(record.uid, others or names)
        if contention is not None and contention.mode is PartitionMode.SINGLE:
            return shard == _chosen(str(record.shape.number), names)
        return True

    def keeps_to_own(self, record: PodRecord) -> bool:
        """Whether the shard is to look in its own partitions first."""
        contention = record.shape.contention
        own = contention is not None and contention.mode is PartitionMode.OWN
        return own or self.rung(record) > Rung.PLAIN

    # -------------------------------------------------------------------------------------- stakes
    def asks(self, record: PodRecord, now: float) -> bool:
        """The unit is sent to a shard: whether it asks for a stake with this attempt."""
        assert record.attempt > 0, f"{record!r} asks for a stake before it is sent"
        wants = record.wants_stake or (
            self._enabled
            and self.rung(record) is Rung.STAKE
            and now - record.asked_s >= self._limits.again_s
        )
        record.wants_stake = False
        if wants:
            assert record.asked_s <= now, "the clock went back"
            record.asked_s = now
            self.asked += 1
        return wants

    @property
    def _enabled(self) -> bool:
        return self._limits.stake_after_s > 0

    def scan(self, now: float) -> list[PodRecord]:
        """Units that are to ask for a stake now, at most one a pool."""
        if not self._enabled or now - self._scanned_s < self._limits.scan_s:
            return []
        self._scanned_s = now
        held: dict[str, int] = {}
        for row in self.stakes.values():
            if row.seats:
                held[row.pool] = max(row.priority, held.get(row.pool, row.priority))
        best: dict[str, tuple[int, float, PodRecord]] = {}
        for record in self._starving(self._shapes.by_number.values(), now):
            assert record.shape.shape is not None
            pool = pool_of(record.shape.shape)
            if pool in held and held[pool] >= record.shape.priority:
                continue
            rank = -record.shape.priority, record.first_queued, record
            if pool not in best or rank[:2] < best[pool][:2]:
                best[pool] = rank
        return [record for *_, record in best.values()]

    def _starving(self, shapes: Iterable[ShapeRecord], now: float) -> Iterable[PodRecord]:
        """The first of each line that has waited for too long and may be helped."""
        limits = self._limits
        for shape in shapes:
            if shape.mode not in (Mode.PARKED, Mode.BACKOFF) or not len(shape):
                continue
            record = next(shape.waiting())
            if now - record.first_queued < limits.stake_after_s or shape.shape is None:
                continue
            if shape.shape.nominated_node:
                continue  # room is being made for it
            asked_s = record.asked_s
            if asked_s >= self._read_anew_s and now - asked_s < limits.again_s:
                continue
            if not _hopeful(shape.diagnosis):
                continue
            stake = self.stakes.get(stake_key(record.uid, shape.shape))
            if stake is None or not stake.seats:
                yield record


def _hopeful(diagnosis: Diagnosis | None) -> bool:
    """Whether pods that end may help: some node was not rejected for good."""
    if diagnosis is None or diagnosis.error or diagnosis.prefilter:
        return False
    return any(each.nodes > each.unresolvable for each in diagnosis.rejected)


def _chosen(salt: str, names: Sequence[str]) -> str:
    """One of the names, the same for the same salt while it is there (rendezvous hashing)."""
    return max(names, key=lambda name: (zlib.crc32(f"{salt}/{name}".encode()), name), default="")
