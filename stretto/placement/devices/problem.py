"""One set of claims to be met, with its answer for every node, kept while nothing changes there.

Pods of a Deployment with a claim template each have claims of their own that ask for the same; they
share one problem. The answer of a node depends on what its devices are and on which of them are
taken, not on names, so nodes that are equal in both share the answer too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from stretto.placement.devices.allocator import (
    MAX_STEPS,
    AllocationError,
    Chosen,
    NodeUnusableError,
    TimedOutError,
    Wanted,
)
from stretto.placement.framework import Int64s, View

if TYPE_CHECKING:
    from stretto.placement.devices.world import DeviceWorld

UNKNOWN, FITS, SHORT, UNUSABLE, FAILED = range(5)
"""Answers: not asked since it changed; the claims can be met; they cannot; the node's pools cannot
be used; the attempt fails with a text."""
MAX_ALTERNATIVES = 8
"""FirstAvailableDeviceRequestMaxSize: the score of the first alternative."""
_REMEMBERED = 1 << 14

Answer = tuple[int, int, str]
"""(answer, score, text)."""


class Problem:
    """Answers by row; see the module docstring."""

    def __init__(self, wanted: tuple[Wanted, ...], world: DeviceWorld) -> None:
        self.wanted = wanted
        self._world = world
        self._codes: np.ndarray = np.zeros(0, dtype=np.int8)
        self._scores: Int64s = np.zeros(0, dtype=np.int64)
        self._texts: dict[int, str] = {}
        self._stamp = -1
        self._answers: dict[object, Answer] = {}
        self._steps = MAX_STEPS
        """After the first search that took too long the attempt fails anyway, so the others on the
        way may not take long."""

    def codes(self, view: View) -> np.ndarray:
        """int8[view.size]: the answers of the rows of a view."""
        self._refresh()
        unknown = view.of(self._codes) == UNKNOWN
        if unknown.any():
            rows = np.flatnonzero(unknown) if view.rows is None else view.rows[unknown]
            self._ask(rows.tolist())
        codes: np.ndarray = view.of(self._codes)
        return codes

    def code(self, row: int) -> int:
        """The answer of one row."""
        self._refresh()
        if self._codes[row] == UNKNOWN:
            self._ask((row,))
        return int(self._codes[row])

    def scores(self, view: View) -> Int64s:
        """int64[view.size]: Σ (8 − position of the chosen alternative), over requests with
        alternatives."""
        self.codes(view)
        return view.of(self._scores)

    def score(self, row: int) -> int:
        """The same for one row."""
        self.code(row)
        return int(self._scores[row])

    def text(self, row: int) -> str:
        """Why a row fails the attempt; claims appear by number."""
        return self._texts[row]

    @property
    def failing_rows(self) -> tuple[int, ...]:
        """Rows that fail the attempt, of those that were asked."""
        return tuple(self._texts)

    def choose(self, row: int) -> list[list[Chosen]] | None:
        """The devices that the claims would get on a row; None if they cannot be met."""
        try:
            return self._world.allocate(self.wanted, row)
        except (AllocationError, NodeUnusableError):
            return None

    def _refresh(self) -> None:
        world = self._world
        changes, rows = world.changes, world.snapshot.rows
        if len(self._codes) < rows:
            self._codes = np.zeros(world.snapshot.capacity, dtype=np.int8)
            self._scores = np.zeros(world.snapshot.capacity, dtype=np.int64)
            self._texts.clear()
        elif changes.stamp != self._stamp:
            changed = changes.since(self._stamp)
            if changed is None:
                self._codes.fill(UNKNOWN)
                self._texts.clear()
            else:
                self._codes[changed] = UNKNOWN
                for row in changed if self._texts else ():
                    self._texts.pop(row, None)
        self._stamp = changes.stamp

    def _ask(self, rows: Iterable[int]) -> None:
        self._steps = MAX_STEPS
        for row in rows:
            code, score, text = self._answer(row)
            self._codes[row] = code
            self._scores[row] = score
            if text:
                self._texts[row] = text

    def _answer(self, row: int) -> Answer:
        world = self._world
        if not world.snapshot.live.item(row):
            return SHORT, 0, ""
        key = world.state_of(row)
        known = self._answers.get(key)
        if known is None:
            known = self._search(row)
            if len(self._answers) >= _REMEMBERED:
                self._answers.clear()
            if known[0] != FAILED:  # its text names devices
                self._answers[key] = known
        return known

    def _search(self, row: int) -> Answer:
        try:
            found = self._world.allocate(self.wanted, row, steps=self._steps)
        except NodeUnusableError:
            return UNUSABLE, 0, ""
        except TimedOutError as error:
            self._steps = MAX_STEPS // 100
            return FAILED, 0, f"node {self._world.snapshot.name[row]}: {error}"
        except AllocationError as error:
            return FAILED, 0, str(error)
        if found is None:
            return SHORT, 0, ""
        names = (
            (wanted, {chosen.request for chosen in devices})
            for wanted, devices in zip(self.wanted, found, strict=True)
        )
        return FITS, sum(alternatives_score(wanted, chosen) for wanted, chosen in names), ""


def alternatives_score(wanted: Wanted, chosen: set[str]) -> int:
    """What the alternatives that were chosen for a claim are worth."""
    return sum(
        MAX_ALTERNATIVES - position
        for request in wanted.requests
        for position, alternative in enumerate(request.alternatives)
        if f"{request.name}/{alternative.name}" in chosen
    )
