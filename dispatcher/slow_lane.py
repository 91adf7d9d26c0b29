"""The slow lane: what takes long is done apart, one at a time, in a share of the time.

A pod of many parts (:mod:`stretto.model.bulk`) is read here when its turn comes, and decided when
no other of the kind is out to any shard. After one that took t seconds the next waits for nineteen
times as long: so whoever sends such pods without end takes a twentieth of the time of those that
work on them, and waits for his own pods only.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from dispatcher.pods import Place, PodRecord

if TYPE_CHECKING:
    from dispatcher.assignment import ShardRecord

T = TypeVar("T")


class SlowLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What the slow lane may take."""

    share: float = 0.05
    """Of the time. What a unit took is counted from sending it to the answer, waiting included, so
    it takes less where others have much to do."""
    longest_rest_s: float = 10.0
    """A unit that waited long at its shard does not hold up the lane for ever."""


class Share:
    """Time that may be taken; see the module docstring."""

    def __init__(self, limits: SlowLimits) -> None:
        self._limits = limits
        self.until = float("-inf")
        """Nothing may begin before."""

    def took(self, seconds: float, *, now: float) -> None:
        """Something that took so long has ended."""
        rest = max(0.0, seconds) * (1 / self._limits.share - 1)
        self.until = now + min(rest, self._limits.longest_rest_s)


class SlowLane:
    """Which bulky unit may go to a shard."""

    def __init__(self, limits: SlowLimits) -> None:
        self._share = Share(limits)
        self._out: PodRecord | None = None
        self._since_s = 0.0
        self.sent = 0
        """Units, for metrics."""
        self.open = True

    @property
    def shard(self) -> ShardRecord | None:
        """Who holds one; others' units go elsewhere as long as they can."""
        return None if self._out is None else self._out.shard

    @property
    def out(self) -> int:
        """Units that a shard holds: none or one."""
        return int(self._out is not None)

    def look(self, now: float) -> None:
        """Whether one may go now; to be asked before units are taken."""
        out = self._out
        if out is not None and out.place is not Place.DISPATCHED:
            self._out = None
            self._share.took(now - self._since_s, now=now)
        self.open = self._out is None and now >= self._share.until

    def goes(self, record: PodRecord, now: float) -> None:
        """A bulky unit is sent."""
        assert self._out is None, f"{record!r} goes while {self._out!r} is out"
        self._out, self._since_s = record, now
        self.open = False
        self.sent += 1


class Unread(Generic[T]):
    """Things to be read in their turn, the newest version of each, by uid."""

    def __init__(self, limits: SlowLimits) -> None:
        self._share = Share(limits)
        self._waiting: OrderedDict[str, T] = OrderedDict()
        self._reading: str | None = None
        """What is read now, unless something newer was heard of it."""
        self.reading = False
        """One is read now."""

    def __len__(self) -> int:
        return len(self._waiting) + self.reading

    def put(self, uid: str, thing: T) -> None:
        """To be read; in the place of an older version."""
        self._forget(uid)
        self._waiting[uid] = thing

    def drop(self, uid: str) -> None:
        """Not to be read."""
        self._forget(uid)
        self._waiting.pop(uid, None)

    def _forget(self, uid: str) -> None:
        if self._reading == uid:
            self._reading = None

    def wait_s(self, now: float) -> float:
        """How long until the next may be read."""
        return max(0.0, self._share.until - now)

    def pop(self) -> tuple[str, T]:
        """The one whose turn it is, with its uid; there must be one."""
        self.reading = True
        self._reading, thing = self._waiting.popitem(last=False)
        return self._reading, thing

    def done(self, uid: str) -> bool:
        """It has been read; whether that still counts."""
        counts = self._reading == uid
        self._reading, self.reading = None, False
        return counts

    def took(self, seconds: float, *, now: float) -> None:
        """Reading it took so long."""
        self._share.took(seconds, now=now)
