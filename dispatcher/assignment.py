"""Which shard gets which units: credits, batches, and what each shard holds.

A shard grants credits (increments: units it is ready to take beyond those granted before) and gets
batches of at most 64 units of one shape where the queue allows it: a batch of one shape is placed
by one evaluation. Batches go to the shard that holds least, so that all are busy and a slow one is
not buried.

What a shard holds is kept by attempt. If its stream ends, those units go to others at once under a
new attempt; an answer to the old one that arrives later is recognised by its number.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from dispatcher.pods import PodRecord
from dispatcher.shape_records import ShapeRecord

BATCH_UNITS = 64
"""Beyond this a message gains nothing (measured: the knee of cost per unit)."""
BATCH_ENOUGH = 32
"""A batch that has as many units of one shape is not filled up with another."""


class ShardRecord:
    """One stream of a shard."""

    __slots__ = ("batches", "credits", "draining", "held", "incarnation", "known", "name", "stream")

    def __init__(self, *, stream: int, name: str, incarnation: str) -> None:
        self.stream = stream
        self.name = name
        self.incarnation = incarnation
        self.credits = 0
        self.draining = False
        self.batches = 0
        self.held: dict[str, tuple[int, int, float]] = {}
        """Unit → (attempt, batch, when sent), longest held first."""
        self.known: set[int] = set()
        """Shapes that were defined on this stream."""

    def __repr__(self) -> str:
        return (
            f"<shard {self.name} stream {self.stream} {len(self.held)} held {self.credits} credits>"
        )


class Batch:
    """Units for one shard: records in the order of their turns, and shapes it has not heard of
    yet.
    """

    __slots__ = ("records", "shapes", "shard")

    def __init__(
        self, *, shard: ShardRecord, records: list[PodRecord], shapes: list[ShapeRecord]
    ) -> None:
        self.shard = shard
        self.records = records
        self.shapes = shapes


class Assignment:
    """The shards and what they hold."""

    def __init__(self) -> None:
        self.shards: dict[int, ShardRecord] = {}

    def open(self, *, stream: int, name: str, incarnation: str) -> ShardRecord:
        """A shard has said hello on a new stream."""
        assert stream not in self.shards, f"stream {stream} is open"
        shard = ShardRecord(stream=stream, name=name, incarnation=incarnation)
        self.shards[stream] = shard
        return shard

    def others_of(self, shard: ShardRecord) -> list[int]:
        """Older streams of the same shard; only one can be alive."""
        return [s.stream for s in self.shards.values() if s.name == shard.name and s is not shard]

    def ready(self, *, busy: ShardRecord | None = None) -> list[ShardRecord]:
        """The shards that can take something, those that hold least first; last the one that is
        ``busy`` with what takes long."""
        able = [s for s in self.shards.values() if s.credits > 0 and not s.draining]
        return (
            sorted(able, key=lambda shard: (shard is busy, len(shard.held)))
            if len(able) > 1
            else able
        )

    def deciding(self) -> list[str]:
        """Names of the shards that decide: one without credits that holds nothing does not."""
        return [s.name for s in self.shards.values() if not s.draining and (s.credits or s.held)]

    def assign(
        self,
        *,
        shard: ShardRecord,
        records: list[PodRecord],
        shapes: Iterable[ShapeRecord],
        now: float,
    ) -> Batch:
        """Note that a shard is sent these records, whose attempt numbers are set; ``shapes`` are
        those of all members."""
        assert self.shards.get(shard.stream) is shard, f"{shard!r} is closed"
        shard.credits -= len(records)
        assert shard.credits >= 0, f"{shard!r} is sent more than it asked for"
        shard.batches += 1
        new = []
        for shape in shapes:
            if shape.number not in shard.known:
                shard.known.add(shape.number)
                new.append(shape)
        for record in records:
            assert record.attempt > 0, f"{record!r} is sent without an attempt"
            shard.held.pop(record.uid, None)
            shard.held[record.uid] = (record.attempt, shard.batches, now)
        return Batch(shard=shard, records=records, shapes=new)

    def settle(self, *, stream: int, unit: str, attempt: int) -> None:
        """A shard no longer holds an attempt at a unit."""
        shard = self.shards.get(stream)
        if shard is not None and (held := shard.held.get(unit)) and held[0] == attempt:
            del shard.held[unit]

    def close(self, stream: int) -> tuple[ShardRecord, list[tuple[str, int, bool]]] | None:
        """A stream has ended: (unit, attempt, blamed) of all it held; blamed are those of its
        oldest batch.

        A shard works through its batches in order, so a unit that kills it is in the oldest one
        that is not answered whole.
        """
        shard = self.shards.pop(stream, None)
        if shard is None:
            return None
        oldest = next(iter(shard.held.values()))[1] if shard.held else 0
        blamed = not shard.draining
        return shard, [
            (unit, attempt, blamed and batch == oldest)
            for unit, (attempt, batch, _) in shard.held.items()
        ]

    def overdue(
        self, *, now: float, age_s: float, limit: int
    ) -> list[tuple[ShardRecord, str, int]]:
        """(shard, unit, attempt) held for longer than ``age_s`` by living shards; no longer
        counted as held.
        """
        late = []
        for shard in self.shards.values():
            old = itertools.takewhile(lambda item: item[1][2] + age_s <= now, shard.held.items())
            late += [(shard, unit, held[0]) for unit, held in itertools.islice(old, limit)]
        for shard, unit, _ in late:
            del shard.held[unit]
        return late

    def forget_shapes(self, numbers: list[int]) -> list[tuple[int, list[int]]]:
        """These numbers mean nothing any more: (stream, those of them that it was told)."""
        told = []
        for shard in self.shards.values():
            if known := shard.known.intersection(numbers):
                shard.known -= known
                told.append((shard.stream, sorted(known)))
        return told

    def holders(self) -> Iterator[tuple[str, ShardRecord]]:
        """(unit, shard) for everything that is out."""
        for shard in self.shards.values():
            for unit in shard.held:
                yield unit, shard

    def validate(self, records: Iterable[PodRecord]) -> None:
        """Every dispatched pod is held by the shard it names, under its current attempt."""
        for record in records:
            if record.shard is not None:
                assert self.shards.get(record.shard.stream) is record.shard, (
                    f"{record!r} at a dead shard"
                )
                held = record.shard.held.get(record.uid)
                assert held is not None, f"{record!r} is not held by {record.shard!r}"
                assert held[0] == record.attempt, f"{record!r} is held as {held}"
        for shard in self.shards.values():
            assert shard.credits >= 0, f"{shard!r} was sent more than it asked for"
