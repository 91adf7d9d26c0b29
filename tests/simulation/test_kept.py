"""Pods that come and go leave nothing behind in any role (R26)."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

import pytest

from tests.simulation.degraded import Degraded, Wrong
from tests.simulation.kept import kept

BEFORE, PODS = 300, 600
"""Pods that are bound and gone before the first look, and between it and the second."""
SLACK = PODS // 4
"""How much more or fewer of a thing there may be at a moment, at 150 pods that wait."""


class Flowing(Degraded):
    """As many pods as are bound come anew; two looks at what is kept."""

    def __init__(self) -> None:
        super().__init__(1, Wrong.NOTHING)
        self.looks: list[Counter[str]] = []

    async def _workload(self) -> None:
        for _ in range(150):
            self._next()
        for binds in (BEFORE, BEFORE + PODS):
            while self._binds < binds:
                await asyncio.sleep(0.05)
            self.looks.append(kept())
        self._on = False


@pytest.mark.timeout(600)
def test_what_is_kept_does_not_grow_with_the_pods_that_have_been() -> None:
    logging.disable(logging.CRITICAL)
    try:
        run = Flowing()
        run.run()
    finally:
        logging.disable(logging.NOTSET)
    first, second = run.looks
    more = {name: n - first[name] for name, n in second.items() if n - first[name] > SLACK}
    assert not more
    assert sum(first.values()) > 1_000, "nothing was looked at"
