"""Cluster events that may make a pod schedulable, under kube-scheduler's names.

Upstream: pkg/scheduler/framework/types.go (ClusterEvent, ActionType). An event here carries what
the hints look at: the shapes of pods that came or left, a node before and after.
"""

from __future__ import annotations

import enum

import msgspec

from stretto.model.shape import Shape
from stretto.snapshot.delta import NodeRow

ASSIGNED_POD = "AssignedPod"
NODE = "Node"
WILDCARD = "*"
"""Resource of an event that may have been anything."""


class Action(enum.IntFlag):
    """What happened to the resource."""

    ADD = enum.auto()
    DELETE = enum.auto()
    UPDATE = enum.auto()
    """An object other than a node or a pod changed."""
    NODE_ALLOCATABLE = enum.auto()
    NODE_LABEL = enum.auto()
    NODE_TAINT = enum.auto()
    """Taints or the cordon."""
    NODE_FEATURE = enum.auto()
    POD_LABEL = enum.auto()
    POD_SCALE_DOWN = enum.auto()


_LABELS = {
    Action.NODE_ALLOCATABLE: "UpdateAllocatable",
    Action.NODE_LABEL: "UpdateLabel",
    Action.NODE_TAINT: "UpdateTaint",
    Action.NODE_FEATURE: "UpdateDeclaredFeature",
    Action.POD_LABEL: "UpdateLabel",
    Action.POD_SCALE_DOWN: "UpdateScaleDown",
}


class ClusterEvent(msgspec.Struct, frozen=True):
    """One event; ``old`` and ``new`` are there as far as the action has a before and an after."""

    resource: str
    """ASSIGNED_POD, NODE, WILDCARD, or the kind of an object of the log."""
    action: Action
    old_pod: Shape | None = None
    new_pod: Shape | None = None
    old_node: NodeRow | None = None
    new_node: NodeRow | None = None
    key: str = ""
    """Of an object: its key in the log."""
    released: bool = False
    """Of a ResourceClaim: it was allocated before, and is not or is gone."""
    text: str = ""
    """The label, where it does not follow from the rest."""

    @property
    def label(self) -> str:
        """Upstream's event label, e.g. ``NodeUpdateTaint``."""
        if self.text:
            return self.text
        name = self.action.name or "UPDATE"
        verb = _LABELS.get(self.action, "Update" if "|" in name else name.capitalize())
        return f"{self.resource}{verb}"


ANYTHING = ClusterEvent(WILDCARD, Action.UPDATE, text="Wildcard")
"""The log was trimmed, or is another epoch's: anything may have happened."""
TIMEOUT = ClusterEvent(WILDCARD, Action.UPDATE, text="UnschedulableTimeout")
"""Too long without an event: a safety net, whose firing is a defect."""
QUOTA_CAME_BACK = ClusterEvent("QueueUsage", Action.UPDATE, text="QuotaReturned")
"""A unit that was sent is not placed: what it would have used is free again."""
