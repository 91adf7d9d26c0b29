"""The ``pluginConfig`` part of a profile: the arguments of all plugins."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import structs

from stretto.placement.claim_args import (
    DeviceArgs,
    VolumeArgs,
    device_args,
    preemption_args,
    volume_args,
)
from stretto.placement.plugin_args import (
    affinity_args,
    balanced_args,
    fit_args,
    interpod_args,
    spread_args,
)
from stretto.placement.plugins.inter_pod_affinity import InterPodArgs
from stretto.placement.plugins.node_affinity import AddedAffinity
from stretto.placement.plugins.node_resources_fit import FitArgs
from stretto.placement.plugins.pod_topology_spread import SpreadArgs
from stretto.placement.postfilter import PreemptionArgs
from stretto.placement.resource_scoring import WeightedResource
from stretto.placement.strict import ProfileError, mapping, sequence, text

API = "kubescheduler.config.k8s.io/v1"
_KINDS = frozenset({
    "DefaultPreemption", "DynamicResources", "InterPodAffinity", "NodeAffinity",
    "NodeResourcesBalancedAllocation", "NodeResourcesFit", "PodTopologySpread", "VolumeBinding",
})  # fmt: skip
"""Plugins whose arguments have a kind; those of others are not read, as upstream."""


class Arguments(msgspec.Struct, frozen=True):
    """Arguments by plugin; upstream's defaults where nothing is said."""

    fit: FitArgs = msgspec.field(default_factory=FitArgs)
    balanced: tuple[WeightedResource, ...] = msgspec.field(
        default_factory=lambda: balanced_args(None, where="")
    )
    affinity: AddedAffinity = msgspec.field(default_factory=AddedAffinity)
    spread: SpreadArgs = msgspec.field(default_factory=SpreadArgs)
    interpod: InterPodArgs = msgspec.field(default_factory=InterPodArgs)
    preemption: PreemptionArgs = msgspec.field(default_factory=PreemptionArgs)
    volumes: VolumeArgs = msgspec.field(default_factory=VolumeArgs)
    devices: DeviceArgs = msgspec.field(default_factory=DeviceArgs)
    own: Mapping[str, tuple[object, str]] = msgspec.field(default_factory=dict)
    """Of plugins that are not kube-scheduler's: (arguments as they are, where), by name."""


def read_arguments(raw: object, *, where: str, ignored: frozenset[str] = frozenset()) -> Arguments:
    """Read ``pluginConfig``; ``ignored``: resources that extenders check instead of
    NodeResourcesFit, which then replace its own list, as upstream.

    Raises:
        ProfileError: an unknown field, or a value that cannot be used; the message says where.
    """
    found = Arguments()
    seen: set[str] = set()
    for i, item in enumerate(sequence(raw, where=where)):
        path = f"{where}[{i}]"
        entry = mapping(item, ("name", "args"), where=path)
        name = text(entry.get("name"), where=f"{path}.name")
        if name in seen:
            raise ProfileError(f"{path}: arguments of {name} are given twice")
        seen.add(name)
        args, path = entry.get("args"), f"{path}.args"
        _check_kind(args, name=name, where=path)
        found = _taken(found, args, name=name, where=path)
    return (
        structs.replace(found, fit=structs.replace(found.fit, ignored=ignored))
        if ignored
        else found
    )


def _taken(found: Arguments, args: object, *, name: str, where: str) -> Arguments:
    match name:
        case "NodeResourcesFit":
            return structs.replace(found, fit=fit_args(args, where=where))
        case "NodeResourcesBalancedAllocation":
            return structs.replace(found, balanced=balanced_args(args, where=where))
        case "NodeAffinity":
            return structs.replace(found, affinity=affinity_args(args, where=where))
        case "PodTopologySpread":
            return structs.replace(found, spread=spread_args(args, where=where))
        case "InterPodAffinity":
            return structs.replace(found, interpod=interpod_args(args, where=where))
        case "DefaultPreemption":
            return structs.replace(found, preemption=preemption_args(args, where=where))
        case "VolumeBinding":
            return structs.replace(found, volumes=volume_args(args, where=where))
        case "DynamicResources":
            return structs.replace(found, devices=device_args(args, where=where))
    return structs.replace(found, own={**found.own, name: (args, where)})


def _check_kind(args: object, *, name: str, where: str) -> None:
    """Arguments may say what they are, and then have to be the plugin's."""
    if name in _KINDS and isinstance(args, Mapping):
        if args.get("kind") not in (None, "", f"{name}Args"):
            raise ProfileError(f"{where}.kind: {args['kind']!r} is not {name}Args")
        if args.get("apiVersion") not in (None, "", API):
            raise ProfileError(f"{where}.apiVersion: {args['apiVersion']!r} is not {API}")
