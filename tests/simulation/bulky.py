"""Pods of very many terms that keep apart, under faults: none is lost in the slow lane.

As in :mod:`tests.simulation.apart`, but most of what has terms has hundreds. The one that counts
stands among others about labels that nobody has, and over keys that no node carries. Some of these
pods are too large to be read at once, and a read takes a while, in which pods go and others come.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.simulation.apart import SETS, Apart, term_about
from tests.simulation.cluster import Settings

FEW_BULKY = dataclasses.replace(SETS, singles=8, deletes=6, patience_s=400.0)
"""Two sets of four, and less comes and goes: what is bulky waits for its turn, a second or more."""
TERMS = 101
"""Beyond what the fast lane takes."""
LARGE = 400
"""The same of what is read at once."""


class Bulky(Apart):
    """One run; see the module docstring."""

    def __init__(self, seed: int, settings: Settings = FEW_BULKY) -> None:
        super().__init__(seed, settings)
        self.through_lane = 0
        """Units that the last dispatcher sent by the slow lane."""

    def terms(self, name: str, own: str) -> list[dict[str, Any]]:
        """Very many of most pods, with the one that counts among them."""
        number = int(name[1:])
        count = (TERMS, LARGE, 1)[number // 2 % 3]
        found = [
            term_about(f"nobody-{n}", over=f"nowhere-{n}") if n % 2 else term_about(f"nobody-{n}")
            for n in range(count - 1)
        ]
        found.insert(len(found) * number // 12, term_about(own))
        return found

    async def _rest(self) -> None:
        """To rest, and again with one more bulky pod: the lane works for the last dispatcher."""
        await super()._rest()
        self._delete("p0")
        self.create_pod("p0")
        await super()._rest()
        self.through_lane = self.processes["dispatcher"].core.machine.slow.sent
