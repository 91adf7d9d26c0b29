"""How shards share the nodes for a shape: three modes, moved by what its proposals are lost to.

Shards choose alone, so pods of one shape that are decided by several of them at once may choose the
same node. Own partitions make that rare as long as many nodes are equally good (TIES). Where few
are, each shard can keep to its own partitions (OWN), at the price of a lower score now and then.
If they are contended even so, one shard decides all pods of the shape (SINGLE): they do not race
each other any more.

In every mode the whole cluster is searched before a pod is said to fit nowhere (design §12.13).
"""

from __future__ import annotations

import enum

import msgspec

from stretto.model.unit import Cause

RACES = frozenset({Cause.CAPACITY, Cause.SPREAD, Cause.AFFINITY, Cause.VOLUMES, Cause.DEVICES})
"""Causes of conflicts that are lost to another commit."""


class PartitionMode(enum.IntEnum):
    """See the module docstring."""

    TIES = 0
    OWN = 1
    SINGLE = 2


class ContentionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """When a shape's mode moves."""

    window: int = 64
    """Decisions that are looked at together: one batch."""
    up: float = 0.05
    """Part of them lost to others above which the mode moves up."""
    down: float = 0.01
    """Part of them up to which a window is quiet."""
    quiet_s: float = 10.0
    """A mode is kept for so long before a quiet window moves it down."""


class Contention:
    """A shape's mode; made when its first proposal is lost to another commit."""

    __slots__ = ("_decided", "_limits", "_lost", "_moved_s", "mode", "ups")

    def __init__(self, limits: ContentionLimits, now: float) -> None:
        self.mode = PartitionMode.TIES
        self.ups = 0
        """How often it moved up."""
        self._limits = limits
        self._decided = 0
        self._lost = 0
        self._moved_s = now

    def decided(self, *, lost: bool, now: float) -> None:
        """A proposal of the shape was committed, or lost to another commit."""
        self._decided += 1
        self._lost += lost
        limits = self._limits
        if self._decided < limits.window:
            return
        assert 0 <= self._lost <= self._decided, "more was lost than was decided"
        part = self._lost / self._decided
        self._decided = self._lost = 0
        if part > limits.up and self.mode < PartitionMode.SINGLE:
            self._move(1, now)
            self.ups += 1
        elif part <= limits.down and self.mode and now - self._moved_s >= limits.quiet_s:
            self._move(-1, now)

    def _move(self, by: int, now: float) -> None:
        assert now >= self._moved_s, "the clock went back"
        self.mode = PartitionMode(self.mode + by)
        self._moved_s = now
