"""What the book of quota keeps of each pod on a node."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from stretto.model.shape import Shape
from stretto.quota.accounts import NO_LEVEL
from stretto.quota.rows import Amounts
from stretto.quota.tree import QueueNode
from stretto.quota.view import flags_for


class Placed(NamedTuple):
    """What the book must know of a pod that is on a node."""

    shape: Shape
    start_s: int
    """status.startTime in seconds since 1970; 0: not known."""
    leaving: bool
    """It has been asked to go."""


Likes = tuple[str, int, Amounts]
"""(queue, level, amounts)."""


class Source:
    """The pods of one namespace with one label, all of which count in one queue."""

    __slots__ = ("label", "namespace", "pods", "queue")

    def __init__(self, namespace: str, label: str, queue: QueueNode | None) -> None:
        self.namespace = namespace
        self.label = label
        self.queue = queue
        """None: in none."""
        self.pods: dict[str, Counted] = {}

    @property
    def way(self) -> tuple[str, ...]:
        """Where they count, from the bottom up."""
        return () if self.queue is None else tuple(each.name for each in self.queue.path)


class Counted(msgspec.Struct):
    """A pod on a node."""

    uid: str
    source: Source
    amounts: Amounts
    order: int
    """Of its coming."""
    level: int = NO_LEVEL
    leaving: bool = False
    since_s: int = 0
    aged: bool = False

    @property
    def queue(self) -> QueueNode:
        """Where it counts."""
        assert self.source.queue is not None, f"{self.uid} counts nowhere"
        return self.source.queue

    @property
    def reclaimable(self) -> bool:
        """It has run for the minimum, and its own queue does not guarantee it."""
        return self.aged and self.level != self.queue.depth

    @property
    def flags(self) -> int:
        """What the log says of it."""
        return flags_for(self.level, aged=self.reclaimable)

    @property
    def likes(self) -> Likes:
        """What it has in common with pods that a guarantee covers as it does this one."""
        return self.queue.name, self.level, self.amounts
