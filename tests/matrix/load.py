"""Pods that arrive while a row's fault is in force."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING

from tests.e2e.api import PODS, pod_manifest
from tests.e2e.stack import until

if TYPE_CHECKING:
    from tests.matrix.cluster import Cluster
    from tests.matrix.field import Field

CPUS = ("100m", "130m", "170m", "210m", "240m")
A_BATCH = 10
PAUSE_S = 0.1
ENOUGH = 200
"""Binds between the fault's beginning and the end that make a row count (reference §7)."""
MOST = 440
"""All of a row's pods fit at once."""


class Load:
    """One row's pods: ``start``, ``fault_begins``, and at the end ``finish``."""

    def __init__(self, field: Field, *, name: str) -> None:
        self._field = field
        self._name = name
        self.created: list[str] = []
        """Names; a scenario takes out those that it deletes for good."""
        self._numbers = itertools.count()
        self._task: asyncio.Task[None] | None = None
        self._over = False
        self.paused = False
        """No pods are created for the moment."""
        self._binds_before = 0
        self.began = 0.0

    @property
    def cluster(self) -> Cluster:
        """The field's."""
        return self._field.cluster

    @property
    def binds(self) -> int:
        """Pods bound since the fault began."""
        return self.cluster.binds - self._binds_before if self.began else 0

    async def start(self, *, bound_first: int = 40, pause_s: float = PAUSE_S) -> None:
        """Begin to pour; returns when binds are coming."""
        self._pause_s = pause_s
        before = self.cluster.binds
        self._task = asyncio.create_task(self._pour())
        await until(
            lambda: self.cluster.binds - before >= bound_first or self._failed(),
            timeout_s=40,
            what=f"the first {bound_first} binds of the load",
        )

    def _failed(self) -> bool:
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.result()
        return False

    def fault_begins(self) -> None:
        """From here on binds count as made under the fault; enough pods are still to come."""
        self.began = time.monotonic()
        self._binds_before = self.cluster.binds

    def pending(self) -> int:
        """Created and not seen bound."""
        return len(self.created) - len(self.cluster.nodes)

    async def _pour(self) -> None:
        while not self._over and len(self.created) < MOST:
            if self.paused:
                await asyncio.sleep(0.05)
                continue
            names = [f"{self._name}-{next(self._numbers)}" for _ in range(A_BATCH)]
            self.created += names
            await self.cluster.all(
                self.cluster.insist("POST", PODS, pod_manifest(name, cpu=CPUS[i % 5]))
                for i, name in enumerate(names)
            )
            await asyncio.sleep(self._pause_s if self.pending() < 150 else 0.5)

    async def enough(self) -> None:
        """Wait until the pods that make the row count have been created."""
        wanted = min(MOST, len(self.created) + ENOUGH)
        await until(
            lambda: len(self.created) >= wanted or self._failed(),
            timeout_s=120,
            what="the load's pods created",
        )

    async def finish(self, *, within_s: float = 60.0, missing: int = 0) -> None:
        """Pour until the row counts, then wait until every pod is bound.

        ``missing``: pods that the scenario has taken out itself.
        """
        assert self._task is not None
        await until(
            lambda: self._counts() or len(self.created) >= MOST or self._failed(),
            timeout_s=120,
            what="the load's pods created",
        )
        self._over = True
        await self._task
        last = ""

        def all_bound() -> bool:
            nonlocal last
            waiting = [name for name in self.created if name not in self.cluster.nodes]
            last = f"{len(waiting)} of {len(self.created)} wait, such as {waiting[:3]}"
            return len(waiting) <= missing

        try:
            await until(all_bound, timeout_s=within_s, what="every pod bound")
        except TimeoutError:
            raise AssertionError(f"not bound {within_s:.0f} s after the load: {last}") from None

    def _counts(self) -> bool:
        """Enough pods were created or still wait to be bound since the fault began."""
        waiting = sum(name not in self.cluster.nodes for name in self.created)
        return bool(self.began) and self.binds + waiting >= ENOUGH + A_BATCH

    async def cancel(self) -> None:
        """End it, whatever it is at."""
        self._over = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
