"""Queueing hints: which event may make a shape schedulable that certain plugins rejected.

For each plugin the events that it registers upstream (EventsToRegister of the plugin's file under
pkg/scheduler/framework/plugins) and the condition that narrows them. A hint may say yes too often,
which costs a decision; saying no wrongly would leave pods waiting, so whoever is not sure says yes.
What upstream calls TargetPod events needs no hint here: a pod whose labels, tolerations or requests
change gets another shape, and that shape has not been rejected yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from stretto.model.diagnosis import ALWAYS
from stretto.model.shape import Shape
from stretto.placement.events import ASSIGNED_POD, NODE, WILDCARD, Action, ClusterEvent
from stretto.placement.hint_conditions import (
    allocatable_admits,
    frees_host_port,
    labels_admit,
    scaled_down,
    taints_admit,
    uncordoned,
)
from stretto.placement.hint_objects import (
    frees_or_own_device_claim,
    held_volumes,
    own_claim,
    shared_volume,
    uses_volumes,
)
from stretto.placement.hint_pods import (
    affinity_meets_node,
    affinity_meets_pod,
    spread_counts_node,
    spread_counts_pod,
)

Condition = Callable[[Shape, ClusterEvent], bool]

QUOTA = "Quota"
"""Stands for queues among the plugins that rejected."""
ADD_UPDATE = Action.ADD | Action.UPDATE
ANY = Action.ADD | Action.UPDATE | Action.DELETE


class Interest(msgspec.Struct, frozen=True):
    """A resource and the actions on it that a plugin wants to hear of."""

    resource: str
    actions: Action
    condition: Condition | None = None
    """None: every such event may help."""


def _objects(actions: Action, *kinds: str) -> tuple[Interest, ...]:
    return tuple(Interest(kind, actions) for kind in kinds)


INTERESTS: dict[str, tuple[Interest, ...]] = {
    "NodeResourcesFit": (
        Interest(ASSIGNED_POD, Action.DELETE),
        Interest(ASSIGNED_POD, Action.POD_SCALE_DOWN, scaled_down),
        Interest(NODE, Action.ADD | Action.NODE_ALLOCATABLE, allocatable_admits),
        *_objects(ADD_UPDATE, "DeviceClass"),
    ),
    "NodeAffinity": (Interest(NODE, Action.ADD | Action.NODE_LABEL, labels_admit),),
    "TaintToleration": (Interest(NODE, Action.ADD | Action.NODE_TAINT, taints_admit),),
    "NodeUnschedulable": (Interest(NODE, Action.ADD | Action.NODE_TAINT, uncordoned),),
    "NodeName": (Interest(NODE, Action.ADD),),
    "NodePorts": (
        Interest(ASSIGNED_POD, Action.DELETE, frees_host_port),
        Interest(NODE, Action.ADD),
    ),
    "PodTopologySpread": (
        Interest(ASSIGNED_POD, Action.ADD | Action.DELETE | Action.POD_LABEL, spread_counts_pod),
        Interest(
            NODE,
            Action.ADD | Action.DELETE | Action.NODE_LABEL | Action.NODE_TAINT,
            spread_counts_node,
        ),
    ),
    "InterPodAffinity": (
        Interest(ASSIGNED_POD, Action.ADD | Action.DELETE | Action.POD_LABEL, affinity_meets_pod),
        Interest(NODE, Action.ADD | Action.NODE_LABEL, affinity_meets_node),
        *_objects(ADD_UPDATE, "Namespace"),
    ),
    "VolumeBinding": (
        Interest(NODE, Action.ADD | Action.NODE_LABEL),
        Interest("PersistentVolumeClaim", ADD_UPDATE, own_claim),
        *_objects(
            ADD_UPDATE, "StorageClass", "PersistentVolume", "CSINode", "CSIDriver",
            "CSIStorageCapacity",
        ),
    ),
    "VolumeZone": (
        Interest(NODE, Action.ADD | Action.NODE_LABEL),
        Interest("PersistentVolumeClaim", ADD_UPDATE, own_claim),
        *_objects(ADD_UPDATE, "StorageClass", "PersistentVolume"),
    ),
    "NodeVolumeLimits": (
        Interest(ASSIGNED_POD, Action.DELETE, held_volumes),
        Interest("PersistentVolumeClaim", ADD_UPDATE, own_claim),
        Interest("VolumeAttachment", Action.DELETE, uses_volumes),
        *_objects(ADD_UPDATE, "CSINode"),
    ),
    "VolumeRestrictions": (
        Interest(ASSIGNED_POD, Action.DELETE, shared_volume),
        Interest(NODE, Action.ADD),
        Interest("PersistentVolumeClaim", Action.ADD, own_claim),
    ),
    "DynamicResources": (
        Interest(NODE, Action.ADD | Action.NODE_LABEL | Action.NODE_ALLOCATABLE),
        Interest("ResourceClaim", ANY, frees_or_own_device_claim),
        *_objects(ANY, "DeviceTaintRule"),
        *_objects(ADD_UPDATE, "DeviceClass", "ResourceSlice"),
    ),
    "NodeDeclaredFeatures": (Interest(NODE, Action.ADD | Action.NODE_FEATURE),),
    "GangScheduling": _objects(ADD_UPDATE, "PodGroup"),
    "DefaultPreemption": (),
    QUOTA: _objects(ANY, "Queue", "QueueUsage", "Namespace"),
}  # fmt: skip
"""By plugin. DefaultPreemption registers only to gate: nothing wakes on its behalf."""


UNRESOLVABLE: dict[str, tuple[Interest, ...]] = {
    "NodeResourcesFit" + ALWAYS: tuple(
        interest for interest in INTERESTS["NodeResourcesFit"] if interest.resource != ASSIGNED_POD
    ),
}
"""Plugins whose every rejection was unresolvable, where that says more: who asks for more than any
node has at all gains nothing from pods that leave (upstream is woken by each)."""


def interests_of(plugins: Iterable[str]) -> tuple[Interest, ...] | None:
    """What pods that these plugins rejected want to hear of; None: of everything.

    A pod without a known rejector, or with one that registers nothing (an own plugin, an extender),
    is woken by any event, as upstream does.
    """
    found: list[Interest] = []
    for plugin in plugins:
        interests = UNRESOLVABLE.get(plugin) or INTERESTS.get(plugin.removesuffix(ALWAYS))
        if interests is None:
            return None
        found += interests
    return tuple(found) or None


def may_help(
    shape: Shape,
    interests: tuple[Interest, ...] | None,
    event: ClusterEvent,
    *,
    look: bool = True,
) -> bool:
    """Whether an event may make the shape schedulable.

    ``look``: put the conditions that narrow interests to the shape. An event is put to every shape
    that waits, and one of very many parts must not make each cost milliseconds.
    """
    if interests is None or event.resource == WILDCARD:
        return True
    for interest in interests:
        if interest.resource == event.resource and interest.actions & event.action:
            condition = interest.condition
            if condition is None or not look or condition(shape, event):
                return True
    return False
