"""Metrics, health and stories of a dispatcher, served over HTTP."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Sequence

from prometheus_client import CollectorRegistry

from dispatcher.core import Core
from dispatcher.follow import FollowClient
from dispatcher.metrics import DispatcherCollector
from dispatcher.outcomes_client import OutcomesClient
from dispatcher.watch import PodWatch
from stretto.config.dispatcher import DispatcherSettings
from stretto.kube.client import KubeClient
from stretto.kube.events import EventWriter
from stretto.telemetry.http import TelemetryServer
from stretto.telemetry.story import StoryLog

WEDGED_S = 10.0
"""A loop that has not ticked for so long does no work."""


class Telemetry:
    """What people and monitors may ask."""

    def __init__(self, settings: DispatcherSettings, *, client: KubeClient) -> None:
        self.standby = False
        """Waits for a leader that is alive: as ready as a standby can be."""
        self.stories = StoryLog(max(settings.stories, 0))
        self._listen = settings.telemetry_listen
        self._client = client
        self._core: Core | None = None
        self._follow: FollowClient | None = None
        self._outcomes: OutcomesClient | None = None
        self._watches: Sequence[PodWatch] = ()

    def note(self, unit: str, event: str, text: str) -> None:
        """Add a line to the story of a unit."""
        self.stories.note(unit, event, text, at_s=time.monotonic())

    def watch(
        self,
        *,
        watches: Sequence[PodWatch],
        follow: FollowClient,
        outcomes: OutcomesClient,
        collector: DispatcherCollector,
        events: Sequence[EventWriter],
    ) -> None:
        """Look at these while we lead."""
        self._watches, self._follow, self._outcomes = watches, follow, outcomes
        collector.events = events

    def ready(self) -> bool:
        """Dispatching, or standing by."""
        return self.standby or (self._core is not None and self._core.opened.is_set())

    def live(self) -> bool:
        """The event loop does its work."""
        core = self._core
        return core is None or not core.ticked_at or core.now() - core.ticked_at < WEDGED_S

    def problems(self) -> list[str]:
        """What keeps us from working, a line each."""
        lines = [watch.reflector.problem for watch in self._watches]
        lines += [peer.dialer.problem for peer in (self._follow, self._outcomes) if peer]
        return [line for line in lines if line]

    @contextlib.asynccontextmanager
    async def serving(self, core: Core, collector: DispatcherCollector) -> AsyncIterator[int]:
        """Serve over HTTP; gives the port."""
        self._core = core
        registry = CollectorRegistry()
        registry.register(collector)
        server = TelemetryServer(
            self._listen, registry=registry, live=self.live, ready=self.ready, stories=self.stories
        )
        try:
            yield server.port
        finally:
            server.close()
