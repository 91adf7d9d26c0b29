"""The default plugins of kube-scheduler 1.37.2: their order, weights and extension points, as the
running framework lists them."""

from __future__ import annotations

from types import MappingProxyType

DEFAULT_ORDER = (
    "SchedulingGates", "PrioritySort", "NodeName", "NodeUnschedulable", "TaintToleration",
    "NodeAffinity", "NodePorts", "NodeResourcesFit", "VolumeRestrictions", "NodeVolumeLimits",
    "VolumeBinding", "VolumeZone", "PodTopologySpread", "InterPodAffinity", "DynamicResources",
    "DefaultPreemption", "NodeResourcesBalancedAllocation", "ImageLocality", "DefaultBinder",
    "NodeDeclaredFeatures",
)  # fmt: skip
"""The default multiPoint list."""
DEFAULT_WEIGHTS = MappingProxyType({
    "TaintToleration": 3, "NodeAffinity": 2, "PodTopologySpread": 2, "InterPodAffinity": 2,
    "DynamicResources": 2,
})  # fmt: skip
"""Weights of the default multiPoint list; plugins that score and are not here weigh 1."""
POINTS = MappingProxyType({
    "preEnqueue": (
        "SchedulingGates", "DynamicResources", "DefaultPreemption",
    ),
    "queueSort": (
        "PrioritySort",
    ),
    "preFilter": (
        "NodeName", "NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodePorts",
        "NodeResourcesFit", "VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone",
        "PodTopologySpread", "InterPodAffinity", "DynamicResources", "NodeDeclaredFeatures",
    ),
    "filter": (
        "NodeName", "NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodePorts",
        "NodeResourcesFit", "VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone",
        "PodTopologySpread", "InterPodAffinity", "DynamicResources", "NodeDeclaredFeatures",
    ),
    "postFilter": (
        "DynamicResources", "DefaultPreemption",
    ),
    "preScore": (
        "TaintToleration", "NodeAffinity", "NodeResourcesFit", "VolumeBinding", "PodTopologySpread",
        "InterPodAffinity", "NodeResourcesBalancedAllocation",
    ),
    "score": (
        "TaintToleration", "NodeAffinity", "NodeResourcesFit", "VolumeBinding", "PodTopologySpread",
        "InterPodAffinity", "DynamicResources", "NodeResourcesBalancedAllocation", "ImageLocality",
    ),
    "reserve": (
        "VolumeBinding", "DynamicResources",
    ),
    "permit": (),
    "preBind": (
        "VolumeBinding", "DynamicResources",
    ),
    "bind": (
        "DefaultBinder",
    ),
    "postBind": (),
    "placementGenerate": (),
    "placementScore": (
        "NodeResourcesFit",
    ),
    "podGroupPostFilter": (
        "DynamicResources", "DefaultPreemption",
    ),
})  # fmt: skip
"""Which plugins implement an extension point; multiPoint expands to these."""
