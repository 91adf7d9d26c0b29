"""The half of a shard's brain that deals with extenders: whom to ask, what follows from replies.

It works on the same parts as the other half (:mod:`scheduler_shard.worker`), which owns them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter

import msgspec
import numpy as np

from scheduler_shard.answers import Answers
from scheduler_shard.asking import (
    EXTENDER,
    MAX_ASKED,
    Asking,
    Doomed,
    Question,
    Reply,
    doomed_of,
    rows_left,
    rows_refused,
    with_failed,
)
from scheduler_shard.claims import Claims
from scheduler_shard.desk import Batch, Desk
from scheduler_shard.overlay import Overlay
from scheduler_shard.picture import Picture
from scheduler_shard.proposed import Proposed
from scheduler_shard.shapes import ShapeEntry
from scheduler_shard.units import bare, seed_of
from stretto.model.unit import Diagnosis, Proposal, Unit
from stretto.placement.extenders import Extender, preempting
from stretto.placement.kernel import Kernel
from stretto.placement.postfilter import condition_message


class Consulting:
    """See the module docstring."""

    kernel: Kernel
    picture: Picture
    counts: Counter[str]
    _extenders: tuple[Extender, ...]
    _asking: Asking
    _answers: Answers
    _claims: Claims
    _desk: Desk
    _overlay: Overlay
    _proposed: Proposed

    @abstractmethod
    def _no_room(self, batch: Batch, units: list[Unit], now: float) -> None: ...

    @abstractmethod
    def _unplaceable(self, entry: ShapeEntry, units: list[Unit], diagnosis: Diagnosis) -> None: ...

    @abstractmethod
    def _preempt(self, entry: ShapeEntry, proposal: Proposal, now: float) -> None: ...

    @abstractmethod
    def _propose(
        self,
        entries: tuple[ShapeEntry, ...],
        unit: Unit,
        nodes: tuple[int, ...],
        spares: tuple[int, ...],
        now: float,
    ) -> None: ...

    def take_questions(self) -> list[Question]:
        """What the shell is to ask extenders now."""
        return self._asking.take_new()

    def answered(self, question: Question, reply: Reply) -> None:
        """Extenders have answered."""
        self._asking.answer(question, reply)

    def _ask(
        self, batch: Batch, extenders: tuple[Extender, ...], now: float, *, asked: int = 1
    ) -> None:
        """Ask about each unit on the nodes that it fits by the plugins."""
        snapshot = self.picture.snapshot
        rows = np.flatnonzero(self.kernel.filter(batch.entry.shape)).tolist()
        if not rows:
            self._no_room(batch, batch.units, now)
            return
        nodes = tuple((int(snapshot.node_id[row]), snapshot.node(row)) for row in rows)
        for unit in batch.units:
            if len(unit.members) > 1 or not unit.members[0].document:
                text = "extenders are not asked about units of several pods in this release"
                diagnosis = Diagnosis(text, (EXTENDER,), snapshot.node_count)
                self._unplaceable(batch.entry, [unit], diagnosis)
                continue
            self.counts["asked"] += 1
            self._asking.ask(Question(unit, batch.entry, extenders, nodes, asked))

    def _conclude(self, question: Question, reply: Reply, now: float) -> None:
        """Choose among what the extenders left, as things are now."""
        entry, unit, snapshot = question.entry, question.unit, self.picture.snapshot
        if reply.error:
            nodes = snapshot.node_count
            failed = Diagnosis(reply.error, (EXTENDER,), nodes, error=True)
            self._unplaceable(entry, [unit], failed)
            return
        if question.doomed:
            self._conclude_doomed(question, reply, now)
            return
        left, bonus = rows_left(question, reply, snapshot)
        best = self.kernel.place_chosen(entry.shape, left, bonus=bonus, seed=seed_of(unit))
        if best is not None:
            self._propose((entry,), bare(unit), (int(snapshot.node_id[best]),), (), now)
        elif reply.allowed and question.asked < MAX_ASKED:
            again = Batch(entry=entry, units=[unit], held_before=False)
            self._ask(again, question.extenders, now, asked=question.asked + 1)
        elif reply.allowed:
            self._answers.hand_back([unit], "the nodes that extenders left were taken meanwhile")
        else:
            self._refused_by_all(question, reply, now)

    def _refused_by_all(self, question: Question, reply: Reply, now: float) -> None:
        """Preempt elsewhere, or say why no node is left; unless the unit fits on others by now than
        extenders were asked about. Own proposals are left aside: only the committed state may say
        so (design §12.2)."""
        self._overlay.lift()
        room = self._room_since(question)
        undecided = [] if room else self._preempt_elsewhere(question, reply, now)
        self._overlay.put_back()
        if room:
            self._ask_later(question)
        elif undecided:
            self._desk.hold(question.entry, undecided, barrier=self._overlay.last_serial)

    def _ask_later(self, question: Question) -> None:
        """Ask about a unit again, when the own proposals of now are settled."""
        entry, unit = question.entry, question.unit
        if len(self._overlay):
            self._desk.hold(entry, [unit], barrier=self._overlay.last_serial)
        else:
            self._desk.add(entry, unit, sequence=self.picture.snapshot.version.sequence)

    def _room_since(self, question: Question) -> bool:
        """The unit fits a node that extenders have not been asked about."""
        fits = np.flatnonzero(self.kernel.filter(question.entry.shape))
        known = {node_id for node_id, _ in question.nodes}
        return not known.issuperset(self.picture.snapshot.node_id[fits].tolist())

    def _preempt_elsewhere(self, question: Question, reply: Reply, now: float) -> list[Unit]:
        """Extenders left no node of those with room. Returned as by the worker's ``_hopeless``."""
        entry, snapshot = question.entry, self.picture.snapshot
        units = self._ask_whom(entry, [question.unit], refused=reply)
        if not units:
            return []
        told = with_failed(self.kernel.diagnose(entry.shape), reply, snapshot.node_count)
        refused = rows_refused(reply, snapshot)
        decided = self._claims.decide(self.kernel, entry.shape, units, told=told, refused=refused)
        for proposal in decided.proposals:
            self._preempt(entry, proposal, now)
        self._proposed.release(decided.releases)
        if decided.hopeless:
            self._unplaceable(entry, decided.hopeless, decided.diagnosis)
        return decided.undecided

    def _ask_whom(
        self, entry: ShapeEntry, units: list[Unit], *, refused: Reply | None = None
    ) -> list[Unit]:
        """Ask extenders whom to preempt; those that they need not be asked about are returned.
        ``refused``: what they said to the nodes where the shape does fit."""
        rows = None if refused is None else rows_refused(refused, self.picture.snapshot)
        extenders = preempting(self._extenders, entry.shape)
        rest = []
        for unit in units:
            doomed: tuple[Doomed, ...] = ()
            if extenders and unit.members[0].document:
                found = self.kernel.post_filter(
                    entry.shape, seed=seed_of(unit), by_name=True, refused=rows
                )
                doomed = doomed_of(found.candidates, self.picture.snapshot)
            if doomed:
                self.counts["asked"] += 1
                self._asking.ask(
                    Question(unit, entry, extenders, (), doomed=doomed, refused=refused)
                )
            else:
                rest.append(unit)
        return rest

    def _conclude_doomed(self, question: Question, reply: Reply, now: float) -> None:
        """Choose among the victims that extenders left, unless the unit fits by now. Own proposals
        do not count: they may lose."""
        refused = question.refused or Reply()
        self._overlay.lift()
        rows = np.flatnonzero(self.kernel.filter(question.entry.shape)).tolist()
        fits = any(self.picture.snapshot.name[row] not in refused.failed for row in rows)
        if not fits:
            self._preempt_among(question, reply, now)
        self._overlay.put_back()
        if fits:
            self._ask_later(question)

    def _preempt_among(self, question: Question, reply: Reply, now: float) -> None:
        entry, unit, snapshot = question.entry, question.unit, self.picture.snapshot
        ids = {each.name: each.node_id for each in question.doomed}
        rows = {snapshot.row_of(ids[name]): uids for name, uids in reply.doomed.items()}
        chosen = {row: uids for row, uids in rows.items() if row is not None}
        result = self.kernel.preempt_among(entry.shape, chosen, seed=seed_of(unit))
        diagnosis = self.kernel.diagnose(entry.shape)
        if question.refused is not None:
            diagnosis = with_failed(diagnosis, question.refused, snapshot.node_count)
        message = condition_message(diagnosis.message, result)
        diagnosis = msgspec.structs.replace(diagnosis, message=message)
        if result.victims:
            proposal = self._claims.claim(unit, entry.shape, result, diagnosis)
            self._preempt(entry, proposal, now)
        else:
            self._unplaceable(entry, [unit], diagnosis)
