"""What a reflector tells its consumer."""

from __future__ import annotations

import enum
from typing import Generic, NamedTuple, TypeVar

import msgspec

T = TypeVar("T")


class EventKind(enum.IntEnum):
    """What happened to an object, as seen through the watch's selectors."""

    ADDED = 1
    MODIFIED = 2
    DELETED = 3
    """It was deleted, or no longer matches the selectors (then it has no deletionTimestamp)."""
    SYNCED = 4
    """Everything before it is a consistent picture: the first list, or a list read anew, is
    complete."""
    UNREADABLE = 5
    """It exists, but cannot be decoded; what was known of it stands. ``problem`` says why."""


class ObjectKey(NamedTuple):
    """One incarnation of an object."""

    namespace: str
    """'' for cluster-wide kinds."""
    name: str
    uid: str


class Event(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One change. Of one object, events come in the order of their versions, none twice."""

    kind: EventKind
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: int = 0
    """Of this change. 0 for a deletion that was found out by comparing lists, and for SYNCED."""
    new: T | None = None
    """The object. DELETED: as last sent by the watch, or None if the deletion was found out by
    comparing lists (or if the name was taken by a new object before the watch told)."""
    problem: str = ""
    raw: bytes = b""
    """UNREADABLE: its JSON, of which a part may be read all the same."""

    @property
    def key(self) -> ObjectKey:
        """Which object; also right when ``new`` is None."""
        return ObjectKey(self.namespace, self.name, self.uid)
