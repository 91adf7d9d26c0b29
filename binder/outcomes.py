"""The outcome log: how units ended, kept until the dispatcher has acknowledged them (design §12.5).

Indexes start at 1 in each epoch and never have gaps, so that "everything up to n is known" says
all. A dispatcher that connects again is sent what it has not acknowledged.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from stretto.model.unit import Outcome, OutcomeKind


class OutcomeLog:
    """Outcomes in order, the acknowledged ones forgotten."""

    def __init__(self) -> None:
        self._entries: deque[Outcome] = deque()
        self.acknowledged = 0
        """Every outcome with an index up to this is known to the dispatcher."""

    @property
    def last(self) -> int:
        """Index of the newest outcome."""
        return self.acknowledged + len(self._entries)

    def append(self, outcome: Outcome) -> int:
        """Add an outcome; its index."""
        assert outcome.kind is not OutcomeKind.BOUND or outcome.node, "bound to no node"
        self._entries.append(outcome)
        return self.last

    def acknowledge(self, index: int) -> list[Outcome]:
        """The dispatcher knows everything up to ``index``; what is forgotten by that."""
        count = min(index, self.last) - self.acknowledged
        done = [self._entries.popleft() for _ in range(max(0, count))]
        self.acknowledged += len(done)
        assert self.acknowledged <= self.last or not self._entries
        return done

    def after(self, index: int, *, limit: int = 256) -> tuple[int, list[Outcome]]:
        """(index of the first, outcomes) that follow ``index`` and are not acknowledged yet."""
        start = max(index, self.acknowledged) - self.acknowledged
        return self.acknowledged + start + 1, list(islice(self._entries, start, start + limit))
