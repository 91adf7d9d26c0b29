"""How long to wait before trying the API server again."""

from __future__ import annotations

import random

SPREAD = 0.1
"""Of a wait that the API server asked for, at most so much is added, by chance."""


def spread(retry_after_s: float, rng: random.Random) -> float:
    """How long to wait if the API server asked for so long: a bit longer, so that those put off
    together do not come back together."""
    return retry_after_s * (1 + SPREAD * rng.random())


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
        return max(wait, spread(at_least_s, self._rng)) if at_least_s else wait

    def reset(self) -> None:
        """It worked: begin anew."""
        self._next_s = self._first_s
