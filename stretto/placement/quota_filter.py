"""Quota among the filters of preemption, whose answer changes with the pods that are supposed
away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import msgspec
import numpy as np

from stretto.model.diagnosis import Diagnosis
from stretto.model.shape import Shape
from stretto.model.unit import Cause
from stretto.placement.framework import Bools, Filter, View
from stretto.placement.hints import QUOTA as NAME
from stretto.quota.accounts import NO_LEVEL
from stretto.snapshot.columns import Snapshot

ROOM_COMES = "not eligible: pods that are leaving make room in its queue."


class QuotaFilter(Filter):
    """Passes everywhere or nowhere: once those are gone who have been asked to go, is there room in
    the shape's queue and above it?"""

    name: ClassVar[str] = NAME
    cause: ClassVar[Cause] = Cause.QUOTA
    reason = "node(s) had no pods whose leaving makes room in the queue"
    unresolvable = False

    def __init__(self, shape: Shape, snapshot: Snapshot) -> None:
        self._shape = shape
        self._quota = snapshot.quota

    def passes_row(self, row: int) -> bool:
        """See the class."""
        return self._quota.fits_without_leaving(self._shape)

    def passes(self, view: View) -> Bools | None:
        """The same for every row of a view."""
        if self.passes_row(0):
            return None
        return np.zeros(view.size, dtype=np.bool_)


def in_queue(shape: Shape, snapshot: Snapshot) -> bool:
    """Whether pods of a shape are in a queue."""
    return snapshot.quota.on and snapshot.quota.assigned(shape).queue is not None


def queue_problem(shape: Shape, snapshot: Snapshot) -> str:
    """What is wrong with the queue that pods of a shape name; nobody goes for such a pod."""
    return snapshot.quota.assigned(shape).problem if snapshot.quota.on else ""


def with_quota(filters: Sequence[Filter], shape: Shape, snapshot: Snapshot) -> Sequence[Filter]:
    """The filters that decide who has to go for a shape."""
    return (*filters, QuotaFilter(shape, snapshot)) if in_queue(shape, snapshot) else filters


def refused_by_quota(shape: Shape, snapshot: Snapshot) -> str:
    """Why quota keeps a shape out whatever the node; '': it does not."""
    return snapshot.quota.refusal(shape) if snapshot.quota.on else ""


def with_quota_diagnosis(
    shape: Shape, snapshot: Snapshot, found: Callable[[], Diagnosis]
) -> Diagnosis:
    """Why a shape fits nowhere: because of quota, or as ``found`` says. If others may have to go
    for it because of a guarantee, it waits for them to come of age as well."""
    if not snapshot.quota.on:
        return found()
    text, nodes = snapshot.quota.refusal(shape), snapshot.node_count
    if text:
        return Diagnosis(text, (NAME,), nodes, plugin_nodes=((NAME, nodes),))
    diagnosis = found()
    if snapshot.quota.standing(shape).level == NO_LEVEL:
        return diagnosis
    return msgspec.structs.replace(diagnosis, plugins=(*diagnosis.plugins, NAME))
