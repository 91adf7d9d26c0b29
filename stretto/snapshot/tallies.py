"""Tallies: for a question about pods, the weights of the matching pods on each row.

A :class:`Question` gives every kin a weight (0: does not match). The tally keeps the sums per row
as pods come and go, at the cost of the tallies a pod counts in, and a short log of what changed, so
that sums over topology domains (``stretto.placement.domains``) follow without a pass over the rows.

Tallies are bounded in number: one that nobody asked for lately is dropped, and counted afresh from
the kins when asked for again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from stretto.snapshot.kins import Kin, KinTable
from stretto.snapshot.resources import MutableCells, grown

TALLY_BYTES = 24 << 20
"""Memory for the counts of tallies: 350 tallies at 10,000 nodes."""
_LOG = 2048
"""Changes that a tally remembers."""


class Question(Protocol):
    """What a tally counts; hashable, equal questions share a tally."""

    @property
    def namespaces(self) -> Iterable[str] | None:
        """Only kins of these namespaces can have a weight; None: of any."""

    def weight(self, kin: Kin) -> int:
        """What one pod of a kin counts."""

    def weights(self, kins: Sequence[Kin]) -> Sequence[int]:
        """The same of many kins."""


class Tally:
    """The answers to one question, by row."""

    __slots__ = (
        "_base", "_log", "_members", "asked", "cells", "counts", "live", "question",
    )  # fmt: skip

    def __init__(self, question: Question, kins: KinTable, *, capacity: int) -> None:
        self.question = question
        self.live = True
        """Kept up to date; ask the table for another if it is not."""
        self.asked = 0
        """When it was last asked for."""
        self.counts: npt.NDArray[np.int32] = np.zeros(capacity, dtype=np.int32)
        """int32[capacity]: sums of weights by row."""
        self.cells = cast("MutableCells", self.counts.data)
        self._members: dict[Kin, int] = {}
        self._base = 0
        self._log: list[tuple[int, int]] = []
        enrolled = list(kins.enrolled(question.namespaces))
        for kin, weight in zip(enrolled, question.weights(enrolled), strict=True):
            self._admit(kin, weight)

    def admit(self, kin: Kin) -> None:
        """Count a kin's pods from now on."""
        self._admit(kin, self.question.weight(kin))

    def _admit(self, kin: Kin, weight: int) -> None:
        if weight:
            self._members[kin] = weight
            kin.tallies.append((self, weight))
            for row, pods in kin.rows.items():
                self.cells[row] += weight * pods

    def dismiss(self, kin: Kin) -> None:
        """Forget a kin that has no pods."""
        del self._members[kin]

    def end(self) -> None:
        """Count nothing any more."""
        self.live = False
        for kin in self._members:
            kin.tallies = [pair for pair in kin.tallies if pair[0] is not self]
        self._members.clear()

    def shift(self, row: int, by: int) -> None:
        """A row has ``by`` more."""
        self.cells[row] += by
        log = self._log
        log.append((row, by))
        if len(log) > _LOG:
            del log[: _LOG // 2]
            self._base += _LOG // 2

    @property
    def stamp(self) -> int:
        """Grows with each change."""
        return self._base + len(self._log)

    def since(self, stamp: int) -> list[tuple[int, int]] | None:
        """(row, by) of every change after ``stamp``; None when that is no longer known."""
        return None if stamp < self._base else self._log[stamp - self._base :]

    def grow(self, capacity: int) -> None:
        """Make room for ``capacity`` rows."""
        self.counts = grown(self.counts, capacity)
        self.cells = cast("MutableCells", self.counts.data)

    def validate(self, kins: Iterable[Kin]) -> None:
        """Assert that the counts are those of the kins."""
        expected = np.zeros_like(self.counts)
        for kin in kins:
            inside = self.question.namespaces is None or kin.namespace in self.question.namespaces
            weight = self.question.weight(kin) if inside else 0
            assert self._members.get(kin, 0) == weight
            assert [w for tally, w in kin.tallies if tally is self] == [weight] * bool(weight)
            for row, pods in kin.rows.items():
                expected[row] += weight * pods
        assert (expected == self.counts).all()


class TallyTable:
    """The tallies of a snapshot by question."""

    def __init__(self, kins: KinTable, *, capacity: int) -> None:
        self._kins = kins
        self._capacity = capacity
        self._tallies: dict[Question, Tally] = {}
        self._clock = 0

    def of(self, question: Question) -> Tally:
        """The tally of a question, counted afresh if it is not there."""
        found = self._tallies.get(question)
        if found is None:
            if len(self._tallies) >= max(64, TALLY_BYTES // (4 * self._capacity)):
                self._drop_oldest()
            found = self._tallies[question] = Tally(question, self._kins, capacity=self._capacity)
            self._kins.tallies.append(found)
        self.touch(found)
        return found

    def touch(self, tally: Tally) -> None:
        """Somebody needs this one."""
        self._clock += 1
        tally.asked = self._clock

    def _drop_oldest(self) -> None:
        """End a quarter of the tallies, those that were not asked for the longest time."""
        by_age = sorted(self._tallies.values(), key=lambda tally: tally.asked)
        for tally in by_age[: max(1, len(by_age) // 4)]:
            tally.end()
            del self._tallies[tally.question]
        self._kins.tallies[:] = self._tallies.values()

    def grow(self, capacity: int) -> None:
        """Make room for ``capacity`` rows."""
        self._capacity = capacity
        for tally in self._tallies.values():
            tally.grow(capacity)

    def __len__(self) -> int:
        return len(self._tallies)
