"""The online audit of conservation: every pod that is ours is where something will find it (I4).

A pod that stands in no line, in a line that nobody looks at, or with a shard that does not hold it
would wait for ever, and nobody would notice. So all records are looked at once a period, a part of
them each second. What is found is a defect: it is counted, told in the pod's story, and the pod
begins anew at the head of its line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from dispatcher.groups import Groups
from dispatcher.outcomes import Outcomes
from dispatcher.pods import Place, PodRecord, PodTable
from dispatcher.queue import Queue
from dispatcher.shard_side import ShardSide

PERIOD_S = 30.0
TURN_S = 1.0
BACKOFF_MOST_S = 900.0
"""Longer than any quarantine."""


class ConservationAudit:
    """Whose turn it is, and who is lost."""

    def __init__(
        self,
        pods: PodTable,
        *,
        queue: Queue,
        groups: Groups,
        shards: ShardSide,
        outcomes: Outcomes,
        longest_backoff_s: float,
    ) -> None:
        """No pod backs off for longer than ``longest_backoff_s`` on account of errors or
        conflicts."""
        self.rounds = 0
        """How often all pods have been looked at."""
        self._pods = pods
        self._queue = queue
        self._groups = groups
        self._assignment = shards.assignment
        self._outcomes = outcomes
        self._backoff_most_s = max(BACKOFF_MOST_S, 2 * longest_backoff_s)
        self._line: list[PodRecord] = []
        self._a_turn = 0
        self._next_at = 0.0

    def lost(self, now: float) -> list[tuple[PodRecord, str]]:
        """Pods of this turn that nothing would find, each with the reason; none between turns."""
        return [(record, why) for record in self._due(now) if (why := self._misses(record, now))]

    def _due(self, now: float) -> Iterable[PodRecord]:
        if now < self._next_at:
            return ()
        self._next_at = now + TURN_S
        if not self._line:
            self._line = list(self._pods.records.values())
            self._a_turn = math.ceil(len(self._line) * TURN_S / PERIOD_S)
            self.rounds += 1
        taken = self._line[: self._a_turn]
        del self._line[: self._a_turn]
        return taken

    def _misses(self, record: PodRecord, now: float) -> str:
        """What is wrong with a record, "" if nothing is."""
        place = record.place
        if place is Place.WAITING:
            return self._queue.misplaced(record)
        if place is Place.GROUPED and record.group is None:
            return "it waits with its group and is in none"
        if place is Place.DISPATCHED:
            return self._not_held(record)
        if place in (Place.OWNED, Place.SETTLED) and record.uid not in self._pods.awaiting:
            return "the binder would never be asked about it"
        if place is Place.BACKOFF and record.since + self._backoff_most_s < now:
            return "its backoff does not end"
        if place is Place.PATCHING and not self._groups.waits_for_patch(record):
            return "it waits for a patch that is not in flight"
        if place is Place.REFUSED and record.uid not in self._outcomes.refused:
            return "it was refused and would never be tried again"
        return ""

    def _not_held(self, record: PodRecord) -> str:
        shard = record.shard
        if shard is None or self._assignment.shards.get(shard.stream) is not shard:
            return "it is with a shard that is gone"
        held = shard.held.get(record.uid)
        # A living shard that held it for too long is no longer counted as holding it, but then the
        # pod has been given to another in the same step.
        return "" if held is not None else "the shard that has it does not hold it"
