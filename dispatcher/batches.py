"""What goes out next: batches of pods in turn, by priority and age.

A batch is made for a shard that has asked for so many units. It is of one shape if that has enough
pods; gangs, bulky pods, and pods that shards died with twice go alone. Here a pod meets the last
things that may hold it back: a patch of its own condition that is in flight, the slow lane, and its
queue's quota.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dispatcher.groups import Groups
from dispatcher.lanes import Lanes
from dispatcher.pods import Place, PodRecord, PodTable
from dispatcher.queue import Queue
from dispatcher.shape_cycle import ShapeCycle
from dispatcher.shape_records import Mode, ShapeRecord
from dispatcher.slow_lane import SlowLane
from stretto.placement.hints import QUOTA


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What a shard asks for."""

    limit: int
    """Units at most."""
    enough: int
    """With so many no other shape is looked at."""
    now: float
    """Monotonic seconds."""
    may_go: Callable[[PodRecord], bool] = lambda _: True
    """Whether a pod may go to this shard."""


class Batches:
    """See the module docstring."""

    def __init__(
        self,
        *,
        pods: PodTable,
        groups: Groups,
        queue: Queue,
        cycle: ShapeCycle,
        lanes: Lanes,
        slow: SlowLane,
    ) -> None:
        self._pods = pods
        self._groups = groups
        self._queue = queue
        self._cycle = cycle
        self._lanes = lanes
        self.slow = slow
        self.over_quota: list[tuple[PodRecord, str, bool]] = []
        """(pod, why, whether that is news) of what the gate has refused."""

    def active(self) -> bool:
        """True if there may be something to take.

        When nothing is, and no shard is deciding anything, the shape that comes out of its backoff
        next is tried early. Pods that back off by themselves, after errors, stay out.
        """
        if not self._lanes and not self._pods.counts[Place.DISPATCHED]:
            self._cycle.probe_early()
        return bool(self._lanes)

    def take(self, wish: Wish) -> list[PodRecord]:
        """The next pods by priority and age, of one shape if that has enough of them.

        A line whose first pod may not go (to the shard that asks) waits for another shard.
        A pod whose condition patch is in flight is set aside (PATCHING) until the reply.
        """
        taken: list[PodRecord] = []
        aside: list[ShapeRecord] = []
        while len(taken) < wish.enough and (entry := self._lanes.pop()) is not None:
            shape = entry[3]
            if shape.heap_key != entry[:2]:
                continue
            shape.heap_key = None
            alone = self._take_from(shape, taken, wish)
            if len(shape) and not wish.may_go(shape.head()):
                aside.append(shape)
            else:
                self._lanes.offer(shape)
            if alone:
                break
        for shape in aside:
            self._lanes.offer(shape)
        return taken

    def _take_from(self, shape: ShapeRecord, taken: list[PodRecord], wish: Wish) -> bool:
        """Move pods from a line into ``taken``; True if the batch must end here."""
        gate = self._lanes.gate
        room = min(wish.limit - len(taken), shape.takeable())
        probing = shape.mode is Mode.PROBING
        while room > 0 and len(shape) and wish.may_go(shape.head()):
            record = shape.pop()
            if self._groups.waits_for_patch(record):
                self._pods.move(record, Place.PATCHING, wish.now)
                continue
            bulky = shape.bulky or self._of_bulky(record)
            if bulky and not self.slow.open:  # a member of the gang is
                shape.push_back(record)
                return False
            alone = bulky or record.blamed >= 2 or self._groups.leads(record)
            if alone and taken:
                shape.push_back(record)
                return True
            if gate and (why := gate.admit(self._groups.unit_of(record))):
                shape.push_back(record)
                if gate.lets_ahead(shape, record, most=room):
                    continue
                self._hold(record, why, wish.now)
                return False
            assert not record.patching, f"{record!r} goes out while its patch is in flight"
            taken.append(record)
            if bulky:
                self.slow.goes(record, wish.now)
            if probing:
                shape.probes.add(record.uid)
            if alone:
                return True
            room -= 1
        return False

    def _of_bulky(self, lead: PodRecord) -> bool:
        """Whether a gang has a bulky member; its line is in the slow lane from then on."""
        if self._groups.leads(lead):
            lead.shape.bulky = any(pod.shape.bulky for pod in self._groups.unit_of(lead))
        return lead.shape.bulky

    def _hold(self, record: PodRecord, why: str, now: float) -> None:
        """Quota has no room for a pod: its shape waits as one that fits nowhere."""
        version = max(self._cycle.last_version, record.shape.min_version)
        news = self._queue.unplaceable(record, version=version, plugins=(QUOTA,), now=now)
        self.over_quota.append((record, why, news))
