"""Queueing hints as a table: plugin × event × queued or not (upstream.md §2.2, every row).

The conditions are those of the plugins' isSchedulableAfter… functions of kube-scheduler 1.37.2.
"""

from __future__ import annotations

from typing import Any

import pytest

from stretto.model.shape import HostPort, NodeTerm, Requirement, Shape, Toleration
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


def removed() -> ClusterEvent:
    return ClusterEvent(NODE, Action.DELETE, old_node=node())


def thing(kind: str, action: Action) -> ClusterEvent:
    return ClusterEvent(kind, action)


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
    ("PodTopologySpread", pod(), came(), True),
    ("PodTopologySpread", pod(), came(pod(namespace="other")), False),
    ("PodTopologySpread", pod(), left(), True),
    ("PodTopologySpread", pod(), left(pod(namespace="other")), False),
    ("PodTopologySpread", pod(), relabelled(), True),
    ("PodTopologySpread", pod(), relabelled(namespace="other"), False),
    ("PodTopologySpread", pod(), added(), True),
    ("PodTopologySpread", pod(), removed(), True),
    ("PodTopologySpread", pod(), changed(LABEL, IN_A, IN_B), True),
    ("PodTopologySpread", pod(), changed(TAINTED, node(), node(taints=(TAINT,))), True),
    ("PodTopologySpread", pod(), changed(ALLOCATABLE, node(), node(allocatable=BIG)), False),
    ("InterPodAffinity", pod(), came(), True),
    ("InterPodAffinity", pod(), left(pod(namespace="other")), True),
    ("InterPodAffinity", pod(), relabelled(), True),
    ("InterPodAffinity", pod(), added(), True),
    ("InterPodAffinity", pod(), changed(LABEL, IN_A, IN_B), True),
    ("InterPodAffinity", pod(), changed(TAINTED, node(), node(taints=(TAINT,))), False),
    ("InterPodAffinity", pod(), removed(), False),
    *(
        ("VolumeBinding", pod(), thing(kind, action), action is not DELETE)
        for kind in (
            "StorageClass", "PersistentVolumeClaim", "PersistentVolume", "CSINode", "CSIDriver",
            "CSIStorageCapacity",
        )
        for action in (ADD, UPDATE, DELETE)
    ),
    ("VolumeBinding", pod(), added(), True),
    ("VolumeBinding", pod(), changed(LABEL, IN_A, IN_B), True),
    ("VolumeBinding", pod(), left(), False),
    ("VolumeZone", pod(), thing("StorageClass", ADD), True),
    ("VolumeZone", pod(), thing("PersistentVolumeClaim", UPDATE), True),
    ("VolumeZone", pod(), thing("PersistentVolume", ADD), True),
    ("VolumeZone", pod(), thing("CSINode", ADD), False),
    ("VolumeZone", pod(), added(), True),
    ("VolumeZone", pod(), changed(LABEL, IN_A, IN_B), True),
    ("NodeVolumeLimits", pod(), thing("CSINode", ADD), True),
    ("NodeVolumeLimits", pod(), thing("CSINode", UPDATE), True),
    ("NodeVolumeLimits", pod(), left(), True),
    ("NodeVolumeLimits", pod(), thing("PersistentVolumeClaim", ADD), True),
    ("NodeVolumeLimits", pod(), thing("VolumeAttachment", DELETE), True),
    ("NodeVolumeLimits", pod(), thing("VolumeAttachment", ADD), False),
    ("NodeVolumeLimits", pod(), added(), False),
    ("VolumeRestrictions", pod(), left(), True),
    ("VolumeRestrictions", pod(), added(), True),
    ("VolumeRestrictions", pod(), thing("PersistentVolumeClaim", ADD), True),
    ("VolumeRestrictions", pod(), thing("PersistentVolumeClaim", UPDATE), False),
    ("DynamicResources", pod(), added(), True),
    ("DynamicResources", pod(), changed(LABEL, IN_A, IN_B), True),
    ("DynamicResources", pod(), thing("ResourceClaim", DELETE), True),
    ("DynamicResources", pod(), thing("DeviceClass", UPDATE), True),
    ("DynamicResources", pod(), thing("ResourceSlice", ADD), True),
    ("DynamicResources", pod(), thing("DeviceTaintRule", DELETE), True),
    ("DynamicResources", pod(), left(), False),
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
