"""The part of a shard's brain that decides gangs: all members at once, or nobody.

It works on the same parts as the rest (:mod:`scheduler_shard.worker`), which owns them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence

import numpy as np

from scheduler_shard.answers import Answers
from scheduler_shard.claims import Claims
from scheduler_shard.desk import Batch, Desk
from scheduler_shard.overlay import Overlay
from scheduler_shard.picture import Picture
from scheduler_shard.proposed import Proposed
from scheduler_shard.shapes import ShapeBook, ShapeEntry
from scheduler_shard.units import seed_of, uids_of
from stretto.model.shape import Shape
from stretto.model.unit import Diagnosis, Unit
from stretto.placement.gang import GangPlacer
from stretto.placement.kernel import Kernel


class Gangs:
    """See the module docstring."""

    kernel: Kernel
    picture: Picture
    counts: Counter[str]
    _answers: Answers
    _book: ShapeBook
    _claims: Claims
    _desk: Desk
    _gangs: GangPlacer
    _overlay: Overlay
    _proposed: Proposed

    @abstractmethod
    def _unplaceable(self, entry: ShapeEntry, units: list[Unit], diagnosis: Diagnosis) -> None: ...

    @abstractmethod
    def _propose(
        self,
        entries: tuple[ShapeEntry, ...],
        unit: Unit,
        nodes: tuple[int, ...],
        spares: tuple[int, ...],
        now: float,
    ) -> None: ...

    @abstractmethod
    def _stake(self, unit: Unit, entries: tuple[ShapeEntry, ...], now: float) -> bool: ...

    def _place_gang(self, batch: Batch, unit: Unit, now: float) -> None:
        """Propose nodes for all members of a unit, or find out why there are none.

        As for single pods, only the committed state may say so: with own proposals open the unit is
        held, and the second time the overlay is lifted to ask.
        """
        entries = tuple(self._book.ours(member.shape) for member in unit.members)
        shapes = [entry.shape for entry in entries]
        for shape in dict.fromkeys(shapes):
            refusal = self.kernel.refusal(shape)
            if refusal:
                nodes = self.picture.snapshot.node_count
                self._unplaceable(batch.entry, [unit], Diagnosis(refusal, (), nodes))
                return
        rows = self._gangs.place(
            shapes, uids=uids_of(unit), seed=seed_of(unit), avoid=unit.avoid, own_first=unit.own
        )
        if rows:
            self._propose(entries, unit, self._node_ids(rows), (), now)
            return
        settled = False
        if not len(self._overlay):
            settled = self._out(entries, unit, now)
        elif batch.held_before:
            self._overlay.lift()
            if not self._fits_committed(shapes, unit):
                settled = self._out(entries, unit, now, lifted=True)
            self._overlay.put_back()
        if not settled:
            self.counts["held"] += 1
            self._desk.hold(batch.entry, [unit], barrier=self._overlay.last_serial)

    def _fits_committed(self, shapes: list[Shape], unit: Unit) -> bool:
        """Whether the gang fits, the overlay being lifted."""
        rows = self._gangs.place(shapes, uids=uids_of(unit), seed=seed_of(unit), avoid=unit.avoid)
        for shape, row in zip(shapes, rows, strict=False):
            self.picture.snapshot.remove_pod(shape, row)
        return bool(rows)

    def _out(
        self,
        entries: tuple[ShapeEntry, ...],
        unit: Unit,
        now: float,
        *,
        lifted: bool = False,
    ) -> bool:
        """A gang does not fit on the committed state: propose whom to preempt for it, or say why
        that does not help; False if that cannot be said yet, because of a claim of our own that is
        open."""
        shapes, uids = [entry.shape for entry in entries], uids_of(unit)
        found = self._gangs.preempt(shapes, uids=uids, seed=seed_of(unit), avoid=unit.avoid)
        if found is None or not found.rows:
            if self._claims.open:
                return False
            if self._stake(unit, entries, now):
                return True
            self._unplaceable(entries[0], [unit], self._gangs.diagnosis)
            return True
        nodes = self._node_ids(found.rows)
        if not found.victims:  # its members had only been tried in another way
            self._propose(entries, unit, nodes, (), now)
            for shape, row in zip(shapes, () if lifted else found.rows, strict=False):
                self.picture.snapshot.add_pod(shape, row)
            return True
        proposal = self._claims.claim_all(
            unit, shapes, nodes, found.victims, diagnosis=self._gangs.diagnosis
        )
        self._proposed.add(proposal, entries=entries, at_s=now)
        self.counts["preempting"] += 1
        self._answers.note(unit.unit_id, unit.attempt, found.message)
        return True

    def _node_ids(self, rows: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.picture.snapshot.node_id[np.array(rows, dtype=np.int64)].tolist())
