"""What admission keeps of a Job, and the writes to it."""

from __future__ import annotations

import enum
from typing import NamedTuple

import msgspec

from stretto.model.jobs import AdmissionCondition, JobSeen, Template
from stretto.quota.tree import QueueNode

WAITS, INVALID, NOT_SUSPENDED = "WaitingForQuota", "Invalid", "NotSuspended"
"""Reasons of the condition."""

Order = tuple[int, str, str]
"""(minus priority, creation, uid)."""


class JobResult(enum.Enum):
    """What became of a write."""

    WRITTEN = enum.auto()
    STALE = enum.auto()
    """Not carried out: the Job has changed, or is gone."""
    REFUSED = enum.auto()
    """Not carried out, and the same again would not be either."""
    UNKNOWN = enum.auto()


class JobOrder(msgspec.Struct, frozen=True):
    """A write: the Job is resumed if ``condition`` is None, else it is told that."""

    uid: str
    namespace: str
    name: str
    version: int
    condition: AdmissionCondition | None = None
    transition: bool = False
    """The condition's status changes."""


LineKey = tuple[str, str, tuple[str, ...]]
"""(namespace, queue label, names of the resources that a member asks for)."""


class JobRecord:
    """A Job that asks for admission."""

    __slots__ = (
        "came", "in_flight", "line", "missed_since", "not_before", "order", "ordered", "problem",
        "seen", "tell_after", "template", "told", "was_suspended",
    )  # fmt: skip

    def __init__(self, seen: JobSeen, template: Template) -> None:
        self.seen = seen
        self.template = template
        self.problem = ""
        """Found out while it was looked at."""
        self.line: LineKey | None = None
        """Where it waits."""
        self.order: Order = (0, "", "")
        self.ordered = 0
        """The version that it is being resumed at, 0: it is not."""
        self.in_flight = False
        """A write is."""
        self.not_before = 0.0
        self.tell_after = 0.0
        self.told = seen.told
        """The condition as last seen or written."""
        self.was_suspended = seen.suspended
        """It has been, since it was first seen."""
        self.came = -1
        """What :meth:`Promises.came` said at the last look; -1: it has been suspended since."""
        self.missed_since = 0.0
        """Since when members have no pod, and none appears."""

    @property
    def ever_suspended(self) -> bool:
        """It has been suspended at some time. Else nobody has admitted it: it was created running,
        and its pods are to queues as those of nobody."""
        told = self.told is not None and self.told.reason != NOT_SUSPENDED
        return self.was_suspended or self.seen.was_suspended or told

    @property
    def runs(self) -> bool:
        """It is, or is being, resumed."""
        return not self.seen.suspended or self.ordered > 0


class Waiting(NamedTuple):
    """What a line says for the status of its queue."""

    queue: QueueNode
    members: int
    why: str
    since: float
