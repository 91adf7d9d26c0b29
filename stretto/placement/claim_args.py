"""Arguments of the plugins that claim something for a pod: preemption, volumes and devices."""

from __future__ import annotations

import msgspec

from stretto.placement.postfilter import PreemptionArgs
from stretto.placement.strict import ProfileError, duration_s, integer, mapping, sequence

_META = ("apiVersion", "kind")
_INT32 = (1 << 31) - 1
_INT64 = (1 << 63) - 1


class VolumeArgs(msgspec.Struct, frozen=True):
    """VolumeBindingArgs."""

    bind_timeout_s: int = 600
    shape: tuple[tuple[int, int], ...] = ((0, 10), (100, 0))
    """(utilisation in percent, score 0..10): how a node's storage is rated by how full it is."""


class DeviceArgs(msgspec.Struct, frozen=True):
    """DynamicResourcesArgs."""

    filter_timeout_s: float = 10.0
    """0: no limit."""
    binding_timeout_s: float = 600.0


def preemption_args(raw: object, *, where: str) -> PreemptionArgs:
    """DefaultPreemptionArgs."""
    names = ("minCandidateNodesPercentage", "minCandidateNodesAbsolute")
    args = mapping(raw, (*_META, *names), where=where)
    default = PreemptionArgs()
    percentage, absolute = (args.get(name) for name in names)
    if percentage is None:
        percentage = default.min_candidate_nodes_percentage
    if absolute is None:
        absolute = default.min_candidate_nodes_absolute
    found = PreemptionArgs(
        integer(percentage, where=f"{where}.{names[0]}", low=0, high=100),
        integer(absolute, where=f"{where}.{names[1]}", low=0, high=_INT32),
    )
    if found == PreemptionArgs(0, 0):
        raise ProfileError(f"{where}: {names[0]} and {names[1]} cannot both be 0")
    return found


def volume_args(raw: object, *, where: str) -> VolumeArgs:
    """VolumeBindingArgs."""
    args = mapping(raw, (*_META, "bindTimeoutSeconds", "shape"), where=where)
    default = VolumeArgs()
    given, path = args.get("bindTimeoutSeconds"), f"{where}.bindTimeoutSeconds"
    timeout = (
        default.bind_timeout_s if given is None else integer(given, where=path, low=0, high=_INT64)
    )
    shape = function_shape(args.get("shape"), where=f"{where}.shape")
    return VolumeArgs(bind_timeout_s=timeout, shape=shape or default.shape)


def function_shape(raw: object, *, where: str) -> tuple[tuple[int, int], ...]:
    """(utilisation 0..100, score 0..10) points, utilisation increasing; empty when absent."""
    points: list[tuple[int, int]] = []
    for i, item in enumerate(sequence(raw, where=where)):
        path = f"{where}[{i}]"
        fields = mapping(item, ("utilization", "score"), where=path)
        used = integer(fields.get("utilization", 0), where=f"{path}.utilization", low=0, high=100)
        score = integer(fields.get("score", 0), where=f"{path}.score", low=0, high=10)
        if points and points[-1][0] >= used:
            raise ProfileError(f"{path}.utilization: must increase from point to point")
        points.append((used, score))
    return tuple(points)


def device_args(raw: object, *, where: str) -> DeviceArgs:
    """DynamicResourcesArgs."""
    args = mapping(raw, (*_META, "filterTimeout", "bindingTimeout"), where=where)
    default = DeviceArgs()
    limit, binding = args.get("filterTimeout"), args.get("bindingTimeout")
    found = DeviceArgs(
        filter_timeout_s=default.filter_timeout_s
        if limit is None
        else duration_s(limit, where=f"{where}.filterTimeout"),
        binding_timeout_s=default.binding_timeout_s
        if binding is None
        else duration_s(binding, where=f"{where}.bindingTimeout"),
    )
    if found.filter_timeout_s < 0:
        raise ProfileError(f"{where}.filterTimeout: must be zero or positive")
    if found.binding_timeout_s < 1:
        raise ProfileError(f"{where}.bindingTimeout: must be at least 1s")
    return found
