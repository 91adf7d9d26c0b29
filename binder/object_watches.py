"""Lists and watches of the objects in :mod:`binder.kinds`, told to the cluster's log."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import msgspec

from binder.cluster import Cluster
from binder.kinds import ObjectKind
from stretto.kube.client import KubeClient
from stretto.kube.errors import KubeError
from stretto.kube.reflections import Event, EventKind
from stretto.kube.reflector import Reflector
from stretto.kube.usage import DENIED, right_to
from stretto.model.errors import OperatorError

logger = logging.getLogger(__name__)

ASK_AGAIN_S = 1.0
LOOK_AGAIN_S = 30.0
"""Pause before an API that was not served is looked for again."""


class _Resource(msgspec.Struct):
    name: str


class _Resources(msgspec.Struct):
    resources: list[_Resource] = []


class ObjectWatch:
    """One kind. ``synced`` is called once: when its first list is complete, or its API is found not
    to be served."""

    def __init__(
        self,
        kind: ObjectKind,
        *,
        client: KubeClient,
        cluster: Cluster,
        changed: Callable[[], None],
        synced: Callable[[], None],
    ) -> None:
        self.kind = kind
        self._client = client
        self._cluster = cluster
        self._changed = changed
        self._synced: Callable[[], None] | None = synced
        self._denied = False
        """The log has been told that the role lacks the right to look."""
        self._reflector: Reflector[Any] = Reflector(client, kind.path, kind=kind.decode)

    @property
    def healthy(self) -> bool:
        """Heard, or not served at all."""
        return self.kind.optional or not self._reflector.problem

    def heard_at(self) -> float:
        """Monotonic time at which the server was last heard."""
        return time.monotonic() if self.kind.optional else self._reflector.heard_at

    async def confirm(self) -> None:
        """See :meth:`Reflector.confirm`; what is not served has nothing to show."""
        if self._reflector.synced or not self.kind.optional:
            await self._reflector.confirm()

    @property
    def losses(self) -> int:
        """Times that the watch had lost something."""
        return self._reflector.losses

    async def recheck(self) -> None:
        """See :meth:`Reflector.recheck`; what is not served is not read."""
        await self._reflector.recheck()

    async def run(self) -> None:
        """Watch until cancelled."""
        if self.kind.optional:
            await self._until_served()
        async for batch in self._reflector.run():
            for event in batch:
                if event.kind is EventKind.SYNCED:
                    self._first_done()
                elif event.kind is EventKind.UNREADABLE:
                    logger.warning(
                        "%s %s/%s: %s",
                        self.kind.kind, event.namespace, event.name, event.problem,
                    )  # fmt: skip
                else:
                    self._take(event)
            self._changed()

    async def _until_served(self) -> None:
        while not (served := await self._served()):
            if served is None:  # what is not known is not absent: nothing opens without it
                await asyncio.sleep(ASK_AGAIN_S)
                continue
            self._first_done()
            await asyncio.sleep(LOOK_AGAIN_S)
        self._cluster.api_served(self.kind.api)
        logger.info("%s serves %s", self._client.url, self.kind.path)

    async def _served(self) -> bool | None:
        """Whether the API is served; None: the server has not said."""
        try:
            answer = await self._client.get(self.kind.root)
            if answer.ok:
                found = msgspec.json.decode(answer.body, type=_Resources)
                return any(r.name == self.kind.resource for r in found.resources)
            if answer.status == DENIED:  # nothing is said of what there is: the list says it
                answer = await self._client.list_page(self.kind.path, {}, limit=1)
        except (KubeError, msgspec.DecodeError) as error:
            logger.warning("looking for %s: %s", self.kind.path, error)
            return None
        if answer.status == DENIED and not self._denied:
            self._denied = True
            why = f"list {self.kind.path}: {answer.status} {answer.text}"
            logger.warning("%s; %s, and nothing opens before", why, right_to(self.kind.path))
        return True if answer.ok else False if answer.status == 404 else None

    def _first_done(self) -> None:
        if self._synced is not None:
            self._synced()
            self._synced = None

    def _take(self, event: Event[Any]) -> None:
        kind, key = self.kind, self.kind.key(event.namespace, event.name)
        payload: bytes | None = None
        if event.kind is not EventKind.DELETED and event.new is not None:
            try:
                payload = kind.payload(event.new)
            except OperatorError as error:
                logger.warning("%s %s is taken for absent: %s", kind.kind, key, error)
        if payload is not None and kind.label_keys is not None:
            self._cluster.read_labels(kind.label_keys(payload))
        self._cluster.object_seen(kind.kind, key, payload)
