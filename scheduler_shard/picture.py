"""The shard's picture of the cluster, kept by following the Binder's log.

A full state is built aside and replaces the old picture when it is complete, so that the old one
(still right at its version) can be read until then.
"""

from __future__ import annotations

import enum

from scheduler_shard.readable import Unreadable
from stretto.rpc.messages import FollowKind, FollowMessage
from stretto.snapshot.columns import Settling, Snapshot, SnapshotError


class Step(enum.Enum):
    """What a message of the log did to the picture."""

    NOTHING = enum.auto()
    ADVANCED = enum.auto()
    REPLACED = enum.auto()
    """``snapshot`` is another object now."""
    LOST = enum.auto()
    """The message does not continue the picture: ask for a full state."""


class Picture:
    """The snapshot and whether it may be decided on."""

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self.synced = False
        """A full state has arrived, and every step since."""
        self.problem = ""
        """Why the last message was LOST."""
        self.unreadable = Unreadable()
        self._building: Snapshot | None = None

    def take(self, message: FollowMessage, settling: Settling | None = None) -> Step:
        """Apply one message of the log. ``settling``: tentative pods of the snapshot that it names,
        which are counted no longer after this; see :meth:`Snapshot.apply`."""
        before, settling = self.snapshot, {} if settling is None else settling
        try:
            return self._take(message, settling)
        except SnapshotError as error:
            self.problem = str(error)
            self.synced = False  # a step may have been applied in part
            self._building = None
            return Step.LOST
        finally:
            before.uncount(settling)

    def _take(self, message: FollowMessage, settling: Settling) -> Step:
        delta = message.delta
        if delta.objects:
            self.unreadable.sort_out(delta)
        match message.kind:
            case FollowKind.FULL_BEGIN:
                self._building = Snapshot()
                self.unreadable.clear()
                return Step.NOTHING
            case FollowKind.FULL_CHUNK | FollowKind.FULL_END:
                if self._building is None:
                    raise SnapshotError("part of a full state without its beginning")
                self._building.apply(delta)
                if message.kind is FollowKind.FULL_CHUNK:
                    return Step.NOTHING
                self.snapshot, self._building = self._building, None
                self.synced = True
                return Step.REPLACED
            case FollowKind.DELTA | FollowKind.HEARTBEAT:
                if not self.synced:
                    raise SnapshotError("a step of the log without a state to apply it to")
                if gap := message.gap(self.snapshot.version):
                    raise SnapshotError(gap)
                if message.kind is FollowKind.HEARTBEAT:
                    return Step.NOTHING
                self.snapshot.apply(delta, settling)
                return Step.ADVANCED
