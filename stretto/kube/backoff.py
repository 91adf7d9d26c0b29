"""How long to wait before trying the API server again."""

from __future__ import annotations

import random


class Backoff:
    """Waits that double up to a limit, each shortened by a random part so that processes do not
    march in step."""

    def __init__(self, rng: random.Random, *, first_s: float = 0.2, limit_s: float = 10.0) -> None:
        assert 0 < first_s <= limit_s, (first_s, limit_s)
        self._rng = rng
        self._first_s = first_s
        self._limit_s = limit_s
        self._next_s = first_s

    def next_s(self, *, at_least_s: float = 0.0) -> float:
        """The seconds to wait now; ``at_least_s`` is what a Retry-After asked for."""
        wait = self._next_s * (0.5 + 0.5 * self._rng.random())
        self._next_s = min(self._next_s * 2, self._limit_s)
        return max(wait, at_least_s)

    def reset(self) -> None:
        """It worked: begin anew."""
        self._next_s = self._first_s
