"""Metrics, health and stories of a dispatcher, served over HTTP."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

from prometheus_client import CollectorRegistry

from dispatcher.core import Core
from dispatcher.metrics import DispatcherCollector
from stretto.config.dispatcher import DispatcherSettings
from stretto.kube.client import KubeClient
from stretto.kube.leadership import Leadership
from stretto.kube.reviews import Reviews
from stretto.model.diagnosis import as_json
from stretto.model.unit import PodUid
from stretto.telemetry.guard import guard_of
from stretto.telemetry.http import TelemetryServer
from stretto.telemetry.story import StoryLog

WEDGED_S = 10.0
"""A loop that has not ticked for so long does no work."""


class Telemetry:
    """What people and monitors may ask."""

    def __init__(
        self, settings: DispatcherSettings, *, leadership: Leadership, client: KubeClient
    ) -> None:
        self._settings = settings
        self._client = client
        self._leadership = leadership
        self.stories = StoryLog(max(settings.stories, 0))
        self._core: Core | None = None

    def note(self, unit: str, event: str, text: str) -> None:
        """Add a line to the story of a unit."""
        self.stories.note(unit, event, text, at_s=time.monotonic())

    def ready(self) -> bool:
        """Dispatching, or standing by."""
        return self._leadership.standby or (self._core is not None and self._core.opened.is_set())

    def live(self) -> bool:
        """The event loop does its work."""
        core = self._core
        return core is None or not core.ticked_at or core.now() - core.ticked_at < WEDGED_S

    def diagnosis(self, unit: str) -> dict[str, Any] | None:
        """Why a unit's shape fitted nowhere when it was last decided, in structured form.

        Called on the server's threads: it reads records, one look-up each.
        """
        core = self._core
        record = None if core is None else core.machine.pods.get(PodUid(unit))
        shape = None if record is None else record.shape
        if shape is None or shape.diagnosis is None or shape.shape is None:
            return None
        return as_json(
            shape.diagnosis,
            shape=shape.key,
            profile=shape.shape.profile,
            epoch=shape.decided_at.epoch,
            sequence=shape.decided_at.sequence,
        )

    @contextlib.asynccontextmanager
    async def serving(self, core: Core, collector: DispatcherCollector) -> AsyncIterator[int]:
        """Serve over HTTP; gives the port."""
        self._core = core
        registry = CollectorRegistry()
        registry.register(collector)
        listen = self._settings.telemetry_listen
        server = TelemetryServer(
            listen,
            registry=registry,
            role="the dispatcher",
            guard=guard_of(self._settings, listen, review=Reviews(self._client).verdict),
            live=self.live,
            ready=self.ready,
            stories=self.stories,
            diagnosis=self.diagnosis,
        )
        try:
            yield server.port
        finally:
            server.close()
