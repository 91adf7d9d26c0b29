"""Queueing hints as a table: plugin × event × queued or not (upstream.md §2.2, every row).

The conditions are those of the plugins' isSchedulableAfter… functions of kube-scheduler 1.37.2.
"""

from __future__ import annotations

from typing import Any

import pytest

from stretto.model.diagnosis import Diagnosis, Rejected
from stretto.model.shape import (
    Claim,
    ClaimRef,
    Disk,
    HostPort,
    NodeTerm,
    PodTerm,
    Requirement,
    Shape,
    SpreadConstraint,
    Toleration,
)
from stretto.placement.events import ANYTHING, ASSIGNED_POD, NODE, Action, ClusterEvent
from stretto.placement.hints import INTERESTS, interests_of, may_help
from stretto.placement.registry import POINTS
from stretto.snapshot.delta import NodeRow, Taint

TAINT = Taint("key", "value", "NoSchedule")
SOFT = Taint("key", "value", "PreferNoSchedule")
TOLERATION = Toleration("key", "Equal", "value", "NoSchedule")
HARD_ROOM = (("cpu", 1000), ("memory", 100), ("pods", 10))


def pod(**fields: Any) -> Shape:
    return Shape(profile="stretto", namespace=fields.pop("namespace", "default"), **fields)


def node(**fields: Any) -> NodeRow:
    return NodeRow(name="n", uid="u", allocatable=fields.pop("allocatable", HARD_ROOM), **fields)


def left(gone: Shape | None = None) -> ClusterEvent:
    return ClusterEvent(ASSIGNED_POD, Action.DELETE, old_pod=gone or pod())


def came(new: Shape | None = None) -> ClusterEvent:
    return ClusterEvent(ASSIGNED_POD, Action.ADD, new_pod=new or pod())


def relabelled(**fields: Any) -> ClusterEvent:
    old, new = pod(**fields), pod(labels=(("a", "b"),), label_keys=("a",), **fields)
    return ClusterEvent(ASSIGNED_POD, Action.POD_LABEL, old_pod=old, new_pod=new)


def shrank(*, before: int, after: int, what: str = "cpu") -> ClusterEvent:
    old, new = pod(requests=((what, before),)), pod(requests=((what, after),))
    return ClusterEvent(ASSIGNED_POD, Action.POD_SCALE_DOWN, old_pod=old, new_pod=new)


def added(**fields: Any) -> ClusterEvent:
    return ClusterEvent(NODE, Action.ADD, new_node=node(**fields))


def changed(action: Action, old: NodeRow, new: NodeRow) -> ClusterEvent:
    return ClusterEvent(NODE, action, old_node=old, new_node=new)


def removed(**fields: Any) -> ClusterEvent:
    return ClusterEvent(NODE, Action.DELETE, old_node=node(**fields))


def thing(kind: str, action: Action, key: str = "", *, released: bool = False) -> ClusterEvent:
    return ClusterEvent(kind, action, key=key, released=released)


def labelled(app: str, **fields: Any) -> Shape:
    return pod(labels=(("app", app),) if app else (), label_keys=("app",), **fields)


def becomes(old: Shape, new: Shape) -> ClusterEvent:
    return ClusterEvent(ASSIGNED_POD, Action.POD_LABEL, old_pod=old, new_pod=new)


def app_is(app: str) -> tuple[Requirement, ...]:
    return (Requirement("app", "In", (app,)),)


def spreads(*keys: str, hard: bool = True, **fields: Any) -> Shape:
    constraints = (SpreadConstraint(1, key, hard=hard, selector=app_is("web")) for key in keys)
    return pod(spread=tuple(constraints), **fields)


def term(app: str, key: str = "zone", **fields: Any) -> PodTerm:
    return PodTerm(key, fields.pop("namespaces", ("default",)), selector=app_is(app), **fields)


ALLOCATABLE, LABEL = Action.NODE_ALLOCATABLE, Action.NODE_LABEL
TAINTED, FEATURE = Action.NODE_TAINT, Action.NODE_FEATURE
ADD, UPDATE, DELETE = Action.ADD, Action.UPDATE, Action.DELETE
CPU = pod(requests=(("cpu", 500),))
ZONE = pod(node_selector=(("zone", "a"),))
ZONE_TERM = pod(required_node_terms=(NodeTerm((Requirement("zone", "In", ("a",)),)),))
IN_A, IN_B = node(labels=(("zone", "a"),)), node(labels=(("zone", "b"),))
PORT = pod(host_ports=(HostPort("TCP", "0.0.0.0", 80),))
LOCAL = pod(host_ports=(HostPort("TCP", "127.0.0.1", 80),))
OTHER_IP = pod(host_ports=(HostPort("TCP", "127.0.0.2", 80),))
OTHER_PORT = pod(host_ports=(HostPort("TCP", "0.0.0.0", 81),))
UDP = pod(host_ports=(HostPort("UDP", "0.0.0.0", 80),))
BIG = (("cpu", 2000), ("memory", 100), ("pods", 10))
MORE_MEMORY = (("cpu", 1000), ("memory", 200), ("pods", 10))
MORE_PODS = (("cpu", 1000), ("memory", 100), ("pods", 11))

WEB, DB, NONE = labelled("web"), labelled("db"), labelled("")
FAR_WEB = labelled("web", namespace="other")
SPREAD, TWO_KEYS, SOFT_SPREAD = (
    spreads("zone"),
    spreads("zone", "rack"),
    spreads("zone", hard=False),
)
IN_RACK = node(labels=(("rack", "r"), ("zone", "a")))
AND_MORE = node(labels=(("more", ""), ("zone", "a")))
NEAR = labelled("", affinity=(term("web"),))
NEAR_BOTH = pod(affinity=(term("web"), term("db")))
NEAR_SELF = labelled("web", affinity=(term("web"),))
NEAR_ALL = pod(affinity=(term("web", namespaces=(), namespace_selector=()),))
NEAR_SOME = pod(affinity=(term("web", namespaces=(), namespace_selector=app_is("x")),))
APART = pod(anti_affinity=(term("web"),))
APART_SOME = pod(
    anti_affinity=(term("web"), term("db", namespaces=(), namespace_selector=app_is("x")))
)
HATES_WEB = labelled("db", anti_affinity=(term("web"),))
MINE, OTHERS = "default/mine", "default/others"
CLAIMS = pod(claims=(Claim("mine"),))
CLAIMS_THERE = pod(claims=(Claim("mine"),), namespace="other")
DISK = pod(disks=(Disk("gcePersistentDisk", ("d",)),))
OTHER_DISK = pod(disks=(Disk("gcePersistentDisk", ("e",)),))
DEVICES = pod(device_claims=(ClaimRef("mine"),))

ROWS: list[tuple[str, Shape, ClusterEvent, bool]] = [
    ("NodeResourcesFit", CPU, left(), True),
    ("NodeResourcesFit", CPU, came(), False),
    ("NodeResourcesFit", CPU, shrank(before=2, after=1), True),
    ("NodeResourcesFit", CPU, shrank(before=2, after=1, what="memory"), False),
    ("NodeResourcesFit", pod(), shrank(before=2, after=1), False),
    ("NodeResourcesFit", CPU, relabelled(), False),
    ("NodeResourcesFit", CPU, added(), True),
    ("NodeResourcesFit", CPU, added(allocatable=(("cpu", 499), ("pods", 1))), False),
    ("NodeResourcesFit", CPU, added(allocatable=(("cpu", 500),)), False),
    ("NodeResourcesFit", CPU, changed(ALLOCATABLE, node(), node(allocatable=BIG)), True),
    ("NodeResourcesFit", CPU, changed(ALLOCATABLE, node(allocatable=BIG), node()), False),
    ("NodeResourcesFit", CPU, changed(ALLOCATABLE, node(), node(allocatable=MORE_MEMORY)), False),
    ("NodeResourcesFit", CPU, changed(ALLOCATABLE, node(), node(allocatable=MORE_PODS)), True),
    ("NodeResourcesFit", CPU, changed(LABEL, IN_B, IN_A), False),
    ("NodeResourcesFit", CPU, changed(TAINTED, node(taints=(TAINT,)), node()), False),
    ("NodeResourcesFit", CPU, removed(), False),
    ("NodeResourcesFit", CPU, thing("DeviceClass", ADD), True),
    ("NodeResourcesFit", CPU, thing("DeviceClass", UPDATE), True),
    ("NodeResourcesFit", CPU, thing("DeviceClass", DELETE), False),
    ("NodeResourcesFit", CPU, thing("PersistentVolumeClaim", ADD), False),
    ("NodeResourcesFit/unresolvable", CPU, left(), False),
    ("NodeResourcesFit/unresolvable", CPU, shrank(before=2, after=1), False),
    ("NodeResourcesFit/unresolvable", CPU, added(), True),
    ("NodeResourcesFit/unresolvable", CPU, changed(ALLOCATABLE, node(), node(allocatable=BIG)),
     True),
    ("NodeResourcesFit/unresolvable", CPU, thing("DeviceClass", ADD), True),
    ("NodeAffinity/unresolvable", ZONE, added(labels=(("zone", "a"),)), True),
    ("NodeAffinity", ZONE, added(labels=(("zone", "a"),)), True),
    ("NodeAffinity", ZONE, added(labels=(("zone", "b"),)), False),
    ("NodeAffinity", ZONE_TERM, added(labels=(("zone", "a"),)), True),
    ("NodeAffinity", ZONE_TERM, added(), False),
    ("NodeAffinity", ZONE, changed(LABEL, IN_B, IN_A), True),
    ("NodeAffinity", ZONE, changed(LABEL, IN_A, IN_A), False),
    ("NodeAffinity", ZONE, changed(LABEL, IN_A, IN_B), False),
    ("NodeAffinity", ZONE, changed(ALLOCATABLE, IN_A, IN_A), False),
    ("NodeAffinity", ZONE, left(), False),
    ("TaintToleration", pod(), added(), True),
    ("TaintToleration", pod(), added(taints=(TAINT,)), False),
    ("TaintToleration", pod(), added(taints=(SOFT,)), True),
    ("TaintToleration", pod(tolerations=(TOLERATION,)), added(taints=(TAINT,)), True),
    ("TaintToleration", pod(), changed(TAINTED, node(taints=(TAINT,)), node()), True),
    ("TaintToleration", pod(), changed(TAINTED, node(), node()), False),
    ("TaintToleration", pod(), changed(TAINTED, node(), node(taints=(TAINT,))), False),
    ("TaintToleration", pod(), changed(LABEL, IN_B, IN_A), False),
    ("TaintToleration", pod(), left(), False),
    ("NodeUnschedulable", pod(), added(), True),
    ("NodeUnschedulable", pod(), added(unschedulable=True), False),
    ("NodeUnschedulable", pod(), changed(TAINTED, node(unschedulable=True), node()), True),
    ("NodeUnschedulable", pod(), changed(TAINTED, node(), node()), False),
    ("NodeUnschedulable", pod(), changed(TAINTED, node(), node(unschedulable=True)), False),
    ("NodeUnschedulable", pod(), left(), False),
    ("NodeName", pod(node_name="n"), added(), True),
    ("NodeName", pod(node_name="n"), changed(LABEL, IN_A, IN_B), False),
    ("NodeName", pod(node_name="n"), left(), False),
    ("NodePorts", PORT, left(PORT), True),
    ("NodePorts", PORT, left(LOCAL), True),
    ("NodePorts", LOCAL, left(LOCAL), True),
    ("NodePorts", LOCAL, left(OTHER_IP), False),
    ("NodePorts", PORT, left(OTHER_PORT), False),
    ("NodePorts", PORT, left(UDP), False),
    ("NodePorts", PORT, left(), False),
    ("NodePorts", PORT, added(), True),
    ("NodePorts", PORT, changed(ALLOCATABLE, node(), node(allocatable=BIG)), False),
    ("PodTopologySpread", SPREAD, came(WEB), True),
    ("PodTopologySpread", SPREAD, came(DB), False),
    ("PodTopologySpread", SPREAD, came(FAR_WEB), False),
    ("PodTopologySpread", SPREAD, came(), True),  # its shape does not keep the label
    ("PodTopologySpread", SOFT_SPREAD, came(WEB), False),
    ("PodTopologySpread", SPREAD, left(WEB), True),
    ("PodTopologySpread", SPREAD, left(DB), False),
    ("PodTopologySpread", SPREAD, left(FAR_WEB), False),
    ("PodTopologySpread", SPREAD, becomes(WEB, DB), True),
    ("PodTopologySpread", SPREAD, becomes(NONE, WEB), True),
    ("PodTopologySpread", SPREAD, becomes(DB, NONE), False),
    ("PodTopologySpread", pod(), came(DB), True),  # default constraints
    ("PodTopologySpread", pod(), left(FAR_WEB), False),
    ("PodTopologySpread", pod(), added(), True),
    ("PodTopologySpread", SPREAD, added(labels=(("zone", "a"),)), True),
    ("PodTopologySpread", SPREAD, added(), False),
    ("PodTopologySpread", TWO_KEYS, added(labels=(("zone", "a"),)), False),
    ("PodTopologySpread", SPREAD, removed(), False),
    ("PodTopologySpread", SPREAD, removed(labels=(("zone", "a"),)), True),
    ("PodTopologySpread", SPREAD, changed(LABEL, IN_A, IN_B), True),
    ("PodTopologySpread", SPREAD, changed(LABEL, node(), IN_B), True),
    ("PodTopologySpread", SPREAD, changed(LABEL, IN_A, node()), True),
    ("PodTopologySpread", SPREAD, changed(LABEL, IN_A, AND_MORE), False),
    ("PodTopologySpread", TWO_KEYS, changed(LABEL, IN_A, IN_B), False),
    ("PodTopologySpread", TWO_KEYS, changed(LABEL, IN_A, IN_RACK), True),
    ("PodTopologySpread", spreads("zone", node_selector=(("more", ""),)),
     changed(LABEL, AND_MORE, IN_A), True),
    ("PodTopologySpread", SPREAD, changed(TAINTED, IN_A, node(labels=IN_A.labels, taints=(TAINT,))),
     True),
    ("PodTopologySpread", SPREAD, changed(TAINTED, node(taints=(TAINT,)), node()), False),
    ("PodTopologySpread", SPREAD, changed(TAINTED, IN_A, IN_A), False),
    ("PodTopologySpread", SPREAD, changed(ALLOCATABLE, IN_A, IN_A), False),
    ("InterPodAffinity", NEAR, came(WEB), True),
    ("InterPodAffinity", NEAR, came(DB), False),
    ("InterPodAffinity", NEAR, came(FAR_WEB), False),
    ("InterPodAffinity", NEAR_ALL, came(FAR_WEB), True),
    ("InterPodAffinity", NEAR_SOME, came(FAR_WEB), True),  # namespaces are not looked up
    ("InterPodAffinity", NEAR_SOME, came(DB), False),
    ("InterPodAffinity", NEAR_BOTH, came(WEB), False),  # one pod must match every term
    ("InterPodAffinity", APART, came(WEB), False),
    ("InterPodAffinity", pod(), came(WEB), False),
    ("InterPodAffinity", NEAR, becomes(DB, WEB), True),
    ("InterPodAffinity", NEAR, becomes(WEB, DB), False),
    ("InterPodAffinity", NEAR, becomes(pod(), WEB), True),  # what it was is not known
    ("InterPodAffinity", APART, becomes(WEB, DB), True),
    ("InterPodAffinity", APART, becomes(DB, WEB), False),
    ("InterPodAffinity", APART_SOME, becomes(WEB, DB), True),  # it may be in another namespace
    ("InterPodAffinity", APART, left(WEB), True),
    ("InterPodAffinity", APART, left(DB), False),
    ("InterPodAffinity", APART, left(FAR_WEB), False),
    ("InterPodAffinity", WEB, left(HATES_WEB), True),
    ("InterPodAffinity", DB, left(HATES_WEB), False),
    ("InterPodAffinity", NEAR, left(WEB), False),
    ("InterPodAffinity", NEAR_SELF, left(WEB), True),  # it may be the first of its kind now
    ("InterPodAffinity", NEAR, added(labels=(("zone", "a"),)), True),
    ("InterPodAffinity", NEAR, added(), False),
    ("InterPodAffinity", APART, added(), True),
    ("InterPodAffinity", pod(), added(), True),
    ("InterPodAffinity", NEAR, changed(LABEL, node(), IN_B), True),
    ("InterPodAffinity", NEAR, changed(LABEL, IN_A, IN_B), True),
    ("InterPodAffinity", NEAR, changed(LABEL, IN_A, node()), False),
    ("InterPodAffinity", NEAR, changed(LABEL, IN_A, AND_MORE), False),
    ("InterPodAffinity", APART, changed(LABEL, IN_A, IN_B), True),
    ("InterPodAffinity", APART, changed(LABEL, IN_A, node()), True),
    ("InterPodAffinity", APART, changed(LABEL, node(), IN_A), False),
    ("InterPodAffinity", APART, changed(LABEL, IN_A, AND_MORE), False),
    ("InterPodAffinity", pod(), changed(LABEL, IN_A, AND_MORE), True),  # others' terms
    ("InterPodAffinity", NEAR, changed(TAINTED, node(), node(taints=(TAINT,))), False),
    ("InterPodAffinity", NEAR, removed(), False),
    ("InterPodAffinity", NEAR_SOME, thing("Namespace", UPDATE), True),
    *(
        ("VolumeBinding", CLAIMS, thing(kind, action), action is not DELETE)
        for kind in (
            "StorageClass", "PersistentVolume", "CSINode", "CSIDriver", "CSIStorageCapacity",
        )
        for action in (ADD, UPDATE, DELETE)
    ),
    *(
        row
        for plugin, update in (
            ("VolumeBinding", True), ("VolumeZone", True), ("NodeVolumeLimits", True),
            ("VolumeRestrictions", False),
        )
        for row in (
            (plugin, CLAIMS, thing("PersistentVolumeClaim", ADD, MINE), True),
            (plugin, CLAIMS, thing("PersistentVolumeClaim", UPDATE, MINE), update),
            (plugin, CLAIMS, thing("PersistentVolumeClaim", ADD, OTHERS), False),
            (plugin, CLAIMS_THERE, thing("PersistentVolumeClaim", ADD, MINE), False),
            (plugin, pod(), thing("PersistentVolumeClaim", ADD, MINE), False),
            (plugin, CLAIMS, thing("PersistentVolumeClaim", DELETE, MINE), False),
        )
    ),
    ("VolumeBinding", CLAIMS, added(), True),
    ("VolumeBinding", CLAIMS, changed(LABEL, IN_A, IN_B), True),
    ("VolumeBinding", CLAIMS, left(), False),
    ("VolumeZone", CLAIMS, thing("StorageClass", ADD), True),
    ("VolumeZone", CLAIMS, thing("StorageClass", UPDATE), True),
    ("VolumeZone", CLAIMS, thing("PersistentVolume", ADD), True),
    ("VolumeZone", CLAIMS, thing("PersistentVolume", UPDATE), True),
    ("VolumeZone", CLAIMS, thing("CSINode", ADD), False),
    ("VolumeZone", CLAIMS, added(), True),
    ("VolumeZone", CLAIMS, changed(LABEL, IN_A, IN_B), True),
    ("NodeVolumeLimits", CLAIMS, thing("CSINode", ADD), True),
    ("NodeVolumeLimits", CLAIMS, thing("CSINode", UPDATE), True),
    ("NodeVolumeLimits", CLAIMS, left(CLAIMS_THERE), True),
    ("NodeVolumeLimits", CLAIMS, left(DISK), True),
    ("NodeVolumeLimits", CLAIMS, left(), False),
    ("NodeVolumeLimits", CLAIMS, thing("VolumeAttachment", DELETE), True),
    ("NodeVolumeLimits", pod(), thing("VolumeAttachment", DELETE), False),
    ("NodeVolumeLimits", CLAIMS, thing("VolumeAttachment", ADD), False),
    ("NodeVolumeLimits", CLAIMS, added(), False),
    ("VolumeRestrictions", CLAIMS, left(CLAIMS), True),
    ("VolumeRestrictions", CLAIMS, left(CLAIMS_THERE), False),
    ("VolumeRestrictions", CLAIMS, left(), False),
    ("VolumeRestrictions", DISK, left(DISK), True),
    ("VolumeRestrictions", DISK, left(OTHER_DISK), False),
    ("VolumeRestrictions", CLAIMS, added(), True),
    ("DynamicResources", DEVICES, added(), True),
    ("DynamicResources", DEVICES, changed(LABEL, IN_A, IN_B), True),
    ("DynamicResources", DEVICES, changed(ALLOCATABLE, node(), node(allocatable=BIG)), True),
    ("DynamicResources", DEVICES, changed(TAINTED, node(), node(taints=(TAINT,))), False),
    ("DynamicResources", DEVICES, thing("ResourceClaim", ADD, MINE), True),
    ("DynamicResources", DEVICES, thing("ResourceClaim", UPDATE, MINE), True),
    ("DynamicResources", DEVICES, thing("ResourceClaim", UPDATE, OTHERS), False),
    ("DynamicResources", DEVICES, thing("ResourceClaim", UPDATE, OTHERS, released=True), True),
    ("DynamicResources", DEVICES, thing("ResourceClaim", DELETE, OTHERS), False),
    ("DynamicResources", DEVICES, thing("ResourceClaim", DELETE, OTHERS, released=True), True),
    ("DynamicResources", DEVICES, thing("DeviceClass", ADD), True),
    ("DynamicResources", DEVICES, thing("DeviceClass", UPDATE), True),
    ("DynamicResources", DEVICES, thing("DeviceClass", DELETE), False),
    ("DynamicResources", DEVICES, thing("ResourceSlice", ADD), True),
    ("DynamicResources", DEVICES, thing("ResourceSlice", UPDATE), True),
    ("DynamicResources", DEVICES, thing("ResourceSlice", DELETE), False),
    ("DynamicResources", DEVICES, thing("DeviceTaintRule", ADD), True),
    ("DynamicResources", DEVICES, thing("DeviceTaintRule", UPDATE), True),
    ("DynamicResources", DEVICES, thing("DeviceTaintRule", DELETE), True),
    ("DynamicResources", DEVICES, left(), False),
    ("NodeDeclaredFeatures", pod(), added(), True),
    ("NodeDeclaredFeatures", pod(), changed(FEATURE, node(), node()), True),
    ("NodeDeclaredFeatures", pod(), changed(LABEL, IN_A, IN_B), False),
    ("GangScheduling", pod(), thing("PodGroup", ADD), True),
    ("GangScheduling", pod(), thing("PodGroup", UPDATE), True),
    ("GangScheduling", pod(), left(), False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("plugin", "shape", "event", "queued"),
    [pytest.param(*row, id=f"{row[0]}-{row[2].label}-{i}") for i, row in enumerate(ROWS)],
)
def test_what_wakes_whom(plugin: str, shape: Shape, event: ClusterEvent, queued: bool) -> None:
    assert may_help(shape, interests_of((plugin,)), event) is queued


def test_every_filter_plugin_has_a_row_that_wakes_and_one_that_does_not() -> None:
    for plugin in POINTS["filter"]:
        assert {queued for name, *_, queued in ROWS if name == plugin} == {True, False}, plugin


REGISTERED: dict[str, dict[str, tuple[Action, ...]]] = {
    "NodeResourcesFit": {
        ASSIGNED_POD: (DELETE, Action.POD_SCALE_DOWN), NODE: (ADD, ALLOCATABLE),
        "DeviceClass": (ADD, UPDATE),
    },
    "NodeAffinity": {NODE: (ADD, LABEL)},
    "TaintToleration": {NODE: (ADD, TAINTED)},
    "NodeUnschedulable": {NODE: (ADD, TAINTED)},
    "NodeName": {NODE: (ADD,)},
    "NodePorts": {NODE: (ADD,), ASSIGNED_POD: (DELETE,)},
    "PodTopologySpread": {
        ASSIGNED_POD: (ADD, Action.POD_LABEL, DELETE), NODE: (ADD, DELETE, LABEL, TAINTED),
    },
    "InterPodAffinity": {ASSIGNED_POD: (ADD, Action.POD_LABEL, DELETE), NODE: (ADD, LABEL)},
    "VolumeBinding": {
        "StorageClass": (ADD, UPDATE), "PersistentVolumeClaim": (ADD, UPDATE),
        "PersistentVolume": (ADD, UPDATE), NODE: (ADD, LABEL), "CSINode": (ADD, UPDATE),
        "CSIDriver": (UPDATE,), "CSIStorageCapacity": (ADD, UPDATE),
    },
    "VolumeZone": {
        "StorageClass": (ADD,), "PersistentVolumeClaim": (ADD, UPDATE),
        "PersistentVolume": (ADD, UPDATE), NODE: (ADD, LABEL),
    },
    "NodeVolumeLimits": {
        "CSINode": (ADD, UPDATE), ASSIGNED_POD: (DELETE,), "PersistentVolumeClaim": (ADD,),
        "VolumeAttachment": (DELETE,),
    },
    "VolumeRestrictions": {
        ASSIGNED_POD: (DELETE,), NODE: (ADD,), "PersistentVolumeClaim": (ADD,),
    },
    "DynamicResources": {
        NODE: (ADD, LABEL), "ResourceClaim": (ADD, UPDATE, DELETE), "DeviceClass": (ADD, UPDATE),
        "ResourceSlice": (ADD, UPDATE), "DeviceTaintRule": (ADD, UPDATE, DELETE),
    },
    "NodeDeclaredFeatures": {NODE: (ADD, FEATURE)},
    "GangScheduling": {"PodGroup": (ADD, UPDATE)},
    "DefaultPreemption": {},
}  # fmt: skip
"""What each plugin registers upstream (§2.2), but for events of the waiting pod itself and of its
group's other members: those give it another shape, or its group another line, in the dispatcher's
tests (tests/dispatcher/test_own_changes.py, test_groups.py)."""
TRIPLES = [
    (plugin, resource, action)
    for plugin, wanted in REGISTERED.items()
    for resource, actions in wanted.items()
    for action in actions
]


@pytest.mark.parametrize(("plugin", "resource", "action"), TRIPLES)
def test_every_event_that_upstream_registers_has_a_row_that_wakes(
    plugin: str, resource: str, action: Action
) -> None:
    assert any(
        name == plugin and event.resource == resource and event.action == action and queued
        for name, _, event, queued in ROWS
    )


@pytest.mark.parametrize("plugin", REGISTERED)
def test_what_a_plugin_hears_is_what_upstream_registers_or_has_a_row(plugin: str) -> None:
    """Nothing that we listen to beyond upstream is left without a row either."""
    events = {(e.resource, e.action): e for _, _, e, _ in ROWS}
    rows = {(e.resource, e.action) for name, _, e, queued in ROWS if name == plugin and queued}
    for event in events.values():
        wakes = (
            plugin in INTERESTS
            and bool(INTERESTS[plugin])
            and any(
                i.resource == event.resource and i.actions & event.action for i in INTERESTS[plugin]
            )
        )
        registered = event.action in REGISTERED[plugin].get(event.resource, ())
        if not wakes:
            assert not registered, event.label
        elif not registered:
            assert (event.resource, event.action) in rows, f"{event.label} is ours and not tested"


def test_preemption_registers_only_to_gate() -> None:
    """Beside a plugin that is not helped, a pod's end does not wake on preemption's behalf."""
    interests = interests_of(("NodeAffinity", "DefaultPreemption"))
    assert not may_help(ZONE, interests, left())


def test_a_plugin_whose_every_rejection_is_unresolvable_is_told_apart() -> None:
    def rejectors(*rejected: Rejected) -> tuple[str, ...]:
        return Diagnosis("", ("NodeResourcesFit",), 3, rejected).rejectors

    cpu = Rejected("NodeResourcesFit", "Insufficient cpu", 2, 2)
    assert rejectors(cpu) == ("NodeResourcesFit/unresolvable",)
    assert rejectors(cpu, Rejected("NodeResourcesFit", "Too many pods", 1)) == ("NodeResourcesFit",)
    assert rejectors() == ("NodeResourcesFit",)


def test_one_rejector_that_says_yes_is_enough() -> None:
    interests = interests_of(("TaintToleration", "NodeResourcesFit"))
    assert may_help(CPU, interests, left())
    assert not may_help(CPU, interests, changed(LABEL, IN_B, IN_A))


@pytest.mark.parametrize("plugins", [(), ("SomebodysOwn",), ("NodeName", "SomebodysOwn")])
def test_whoever_was_rejected_by_an_unknown_plugin_hears_of_everything(
    plugins: tuple[str, ...],
) -> None:
    for event in (left(), removed(), thing("Anything", DELETE)):
        assert may_help(pod(), interests_of(plugins), event)


@pytest.mark.parametrize("plugin", [name for name in INTERESTS if INTERESTS[name]])
def test_anything_wakes_everybody(plugin: str) -> None:
    assert may_help(pod(), interests_of((plugin,)), ANYTHING)


@pytest.mark.parametrize(
    ("event", "label"),
    [
        (left(), "AssignedPodDelete"),
        (came(), "AssignedPodAdd"),
        (shrank(before=2, after=1), "AssignedPodUpdateScaleDown"),
        (added(), "NodeAdd"),
        (removed(), "NodeDelete"),
        (changed(TAINTED, node(), node()), "NodeUpdateTaint"),
        (changed(LABEL, IN_A, IN_B), "NodeUpdateLabel"),
        (changed(ALLOCATABLE, node(), node()), "NodeUpdateAllocatable"),
        (thing("PersistentVolume", UPDATE), "PersistentVolumeUpdate"),
        (ANYTHING, "Wildcard"),
    ],
)
def test_labels_are_kube_schedulers(event: ClusterEvent, label: str) -> None:
    assert event.label == label
