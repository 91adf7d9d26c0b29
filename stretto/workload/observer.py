"""Watches the pods of a run and notes what becomes of them: the shell of ``observations``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from stretto.kube.client import KubeClient
from stretto.kube.reflections import Event, EventKind
from stretto.kube.reflector import Reflector
from stretto.workload.manifests import RUN_LABEL
from stretto.workload.observations import Observations, WatchedPod


class Observer:
    """One watch, filtered on the run's label."""

    def __init__(
        self,
        client: KubeClient,
        observations: Observations,
        *,
        run: str,
        namespace: str,
        clock: Callable[[], float],
        on_bound: Callable[[str], None] | None = None,
    ) -> None:
        """``on_bound`` is called with the name of each pod that is seen bound."""
        self._observations = observations
        self._clock = clock
        self.listed = asyncio.Event()
        """Set once the first list is complete."""
        self._on_bound = on_bound
        self._reflector: Reflector[WatchedPod] = Reflector(
            client,
            f"/api/v1/namespaces/{namespace}/pods",
            kind=WatchedPod,
            params={"labelSelector": f"{RUN_LABEL}={run}"},
        )

    @property
    def problem(self) -> str:
        """What keeps the watch from working; empty if nothing does."""
        return self._reflector.problem

    async def run(self) -> None:
        """Watch until cancelled."""
        async for batch in self._reflector.run():
            now = self._clock()
            for event in batch:
                self._note(event, now)

    def _note(self, event: Event[WatchedPod], now: float) -> None:
        if event.kind is EventKind.SYNCED:
            self.listed.set()
        elif event.kind is EventKind.DELETED:
            if event.new is not None:
                # A pod may be bound, end and go between two looks at the watch.
                self._observations.seen(event.new, now=now)
            self._observations.deleted(event.name, now=now)
        elif event.new is not None:
            bound = self._observations.seen(event.new, now=now)
            if bound and self._on_bound is not None:
                self._on_bound(event.name)
