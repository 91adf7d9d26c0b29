"""How long an answer to a list is waited for.

The longest time that a loaded API server may need for a page is a minute. Waiting so long for every
page would let one answer that was lost, on a connection that somebody swallowed, hold a start or a
takeover up for a minute; waiting for a few seconds only would ask a slow server again and again for
what it was about to give, and never read the list. So a list is waited for shortly at first, twice
as long after each time that nothing came, and no less than twice as long as a page of it took.

What was learnt stands for ten minutes, whatever is answered quickly meanwhile: the pages before one
that is slow are read again each time, and say nothing about it.
"""

from __future__ import annotations

LEARNT_FOR_S = 600.0


class Patience:
    """See the module docstring. Seconds between ``first_s`` and ``longest_s``, by list."""

    def __init__(self, *, first_s: float, longest_s: float) -> None:
        assert first_s > 0, "no patience at all"
        self._first_s = min(first_s, longest_s)
        self._longest_s = longest_s
        self._learnt: dict[str, tuple[float, float]] = {}
        """Lists that need more than the first → how much, until when that stands."""

    def of(self, name: str, *, now: float) -> float:
        """How long to wait for the next page of a list."""
        patience_s, until = self._learnt.get(name, (self._first_s, 0.0))
        return patience_s if now < until else self._first_s

    def failed(self, name: str, *, began: float, now: float) -> None:
        """No answer came; if it was waited for to the end, the next may take longer."""
        patience_s = self.of(name, now=began)
        if now - began >= patience_s:
            self._learn(name, 2 * patience_s, now=now)

    def answered(self, name: str, *, began: float, now: float) -> None:
        """An answer came."""
        needed_s = 2 * (now - began)
        if needed_s > self._first_s:
            self._learn(name, max(needed_s, self.of(name, now=now)), now=now)

    def _learn(self, name: str, patience_s: float, *, now: float) -> None:
        self._learnt[name] = min(patience_s, self._longest_s), now + LEARNT_FOR_S
