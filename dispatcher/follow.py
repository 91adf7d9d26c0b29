"""The dispatcher as a follower of the Binder's log: the only source of what may wake parked pods.

Each step is diffed into cluster events at its version (design §12.1). A full state instead of a
resumption means that the log was trimmed: then anything may have happened.
"""

from __future__ import annotations

import logging
import random

from dispatcher.cluster_events import EventSource, decoded
from dispatcher.core import Core
from stretto.aside import put_in_order
from stretto.model.unit import Version
from stretto.placement.events import ANYTHING
from stretto.rpc.channels import Dialer
from stretto.rpc.errors import RpcError, WireError
from stretto.rpc.messages import FollowKind, FollowMessage, FollowRequest
from stretto.rpc.security import Security
from stretto.rpc.services import FOLLOW
from stretto.snapshot.delta import LABEL_KEYS, ObjectRow, decode_label_keys
from stretto.snapshot.quota_rows import QUOTA_KINDS

log = logging.getLogger(__name__)


class FollowClient:
    """Keeps a Follow stream to the Binder."""

    def __init__(
        self, core: Core, *, target: str, security: Security, name: str, rng: random.Random
    ) -> None:
        self._core = core
        self._name = name
        self.dialer = Dialer(target, security=security, rng=rng)
        self.version = Version(0, 0)
        """How far the log was read."""
        self._label_keys: tuple[str, ...] = ()
        self._source = EventSource()
        self._objects: list[ObjectRow] = []
        """Of a full state that is coming in, those that say something of quota."""
        self._placed: set[str] = set()
        """Of a full state, the pods of Jobs that it shows on nodes."""

    async def run(self) -> None:
        """Follow until cancelled."""
        machine = self._core.machine
        while True:
            stream, greeting = await self.dialer.connect(FOLLOW, self._request)
            try:
                machine.binder.connected(up=True, now=self._core.now())
                self.take(greeting)
                async for message in stream:
                    shapes = (shape for _, shape in message.delta.shapes)
                    await put_in_order(shapes, to_decide=False)
                    self.take(message)
                log.info("the binder at %s has ended the log", stream.peer)
            except WireError as error:
                log.warning("following the binder: %s; its log is read anew", error)
                self.version = Version(0, 0)
            except RpcError as error:
                log.warning("following the binder: %s", error)
            finally:
                machine.binder.connected(up=False, now=self._core.now())
                await stream.close()

    def take(self, message: FollowMessage) -> None:
        """Note one message of the log.

        Raises:
            WireError: a step was left out; what it said may have been what somebody waits for.
        """
        delta, machine, now = message.delta, self._core.machine, self._core.now()
        if message.kind is FollowKind.FULL_BEGIN:
            self.version = Version(0, 0)
            self._label_keys = ()
            self._source = EventSource()
            self._objects, self._placed = [], set()
            return
        follows = message.kind in (FollowKind.DELTA, FollowKind.HEARTBEAT)
        if follows and (gap := message.gap(self.version)):
            raise WireError(gap)
        for row in delta.objects:
            if row.kind == LABEL_KEYS:
                self._label_keys = () if row.removed else decoded(row, decode_label_keys)
        if message.kind in (FollowKind.FULL_CHUNK, FollowKind.FULL_END):
            self._source.learn(delta)
            self._objects += [row for row in delta.objects if row.kind in QUOTA_KINDS]
            self._placed |= machine.quota.promises.followed(delta.pod_uid)
        if message.kind is FollowKind.FULL_CHUNK:
            return
        machine.ladder.stakes = self._source.stakes
        version = Version(delta.epoch, delta.sequence)
        machine.label_keys(self._label_keys, now)
        machine.quota.totals = self._source.totals
        if message.kind is FollowKind.FULL_END:
            self._groups(anew=True)
            machine.ladder.read_anew(now)
            machine.quota.promises.log_anew(self._placed)
            machine.quota_anew(self._objects)
            machine.events([ANYTHING], version=version, now=now)
        elif message.kind is FollowKind.DELTA:
            machine.quota.promises.log(delta.pod_uid, delta.pod_sign)
            machine.quota_step(delta)
            machine.events(self._source.events(delta), version=version, now=now)
            self._groups()
        self.version = version
        self._core.changed()

    def _groups(self, *, anew: bool = False) -> None:
        """Tell what the log shows of pod groups; ``anew``: of all there are."""
        self._core.machine.groups.legacy_served(self._source.legacy_groups)
        groups = self._source.take_groups()
        if groups or anew:
            self._core.machine.group_states(groups, anew=anew)

    def _request(self) -> FollowRequest:
        return FollowRequest(self._name, self.version.epoch, self.version.sequence)
