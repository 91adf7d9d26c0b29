"""The ``plugins`` part of a profile: which plugins are enabled at which extension point.

Upstream's merge rules (apis/config/v1/default_plugins.go, framework/runtime/framework.go): a
specific extension point overrides multiPoint, ``*`` in disabled clears the defaults, a custom entry
for a default plugin re-weighs it in place. What kube-scheduler would refuse, or would let fail for
every pod, is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from stretto.placement.registry import DEFAULT_ORDER, DEFAULT_WEIGHTS, POINTS
from stretto.placement.strict import ProfileError, integer, mapping, sequence, text

MAX_WEIGHT = (1 << 31) - 1
_GATED = frozenset({
    "GangScheduling", "DeferredPodScheduling", "TopologyPlacementGenerator", "PodGroupPodsCount",
})  # fmt: skip
"""Plugins of kube-scheduler that are off without a feature gate."""
_STATELESS = frozenset({"NodeName", "NodeUnschedulable", "TaintToleration", "NodeAffinity"})
"""Their filters work without their PreFilter."""

Own = Mapping[str, tuple[str, ...]]
"""Plugins beside kube-scheduler's own: name → the extension points it implements."""


class Weighted(msgspec.Struct, frozen=True):
    """An enabled plugin and the weight its entry gives; 0 stands for the plugin's default, 1."""

    name: str
    weight: int = 0


class _Set(msgspec.Struct, frozen=True):
    enabled: tuple[Weighted, ...]
    disabled: frozenset[str]


def enabled_plugins(raw: object, *, own: Own, where: str) -> dict[str, list[Weighted]]:
    """The enabled plugins of every extension point, in upstream's order.

    Raises:
        ProfileError: an unknown field or plugin, or a set that cannot work; the message says where.
    """
    fields = mapping(raw, (*POINTS, "multiPoint"), where=where)
    sets = {
        point: _plugin_set(fields.get(point), own=own, where=f"{where}.{point}")
        for point in (*POINTS, "multiPoint")
    }
    multi = _merged(sets["multiPoint"])
    found = {
        point: _expanded(multi, sets[point], point=point, own=own, where=f"{where}.{point}")
        for point in POINTS
    }
    _check(found, where=where)
    return found


def _plugin_set(raw: object, *, own: Own, where: str) -> _Set:
    fields = mapping(raw, ("enabled", "disabled"), where=where)
    enabled = []
    for i, item in enumerate(sequence(fields.get("enabled"), where=f"{where}.enabled")):
        path = f"{where}.enabled[{i}]"
        entry = mapping(item, ("name", "weight"), where=path)
        name = known(entry.get("name"), own=own, where=path)
        given = entry.get("weight")
        low_high = {"low": 0, "high": MAX_WEIGHT}
        weight = 0 if given is None else integer(given, where=f"{path}.weight", **low_high)
        enabled.append(Weighted(name, weight))
    if len({w.name for w in enabled}) < len(enabled):
        raise ProfileError(f"{where}.enabled: a plugin is listed twice")
    disabled = set()
    for i, item in enumerate(sequence(fields.get("disabled"), where=f"{where}.disabled")):
        path = f"{where}.disabled[{i}]"
        entry = mapping(item, ("name", "weight"), where=path)
        # As upstream, a name that no plugin has may be disabled: nothing happens.
        disabled.add(text(entry.get("name"), where=f"{path}.name"))
    return _Set(tuple(enabled), frozenset(disabled))


def check_queue_sort(plugins: Sequence[object], *, own: Own) -> None:
    """One queue serves all profiles, so all must sort it alike.

    Raises:
        ProfileError: the queueSort sets of two profiles differ.
    """
    sets = []
    for i, raw in enumerate(plugins):
        where = f"profiles[{i}].plugins"
        fields = mapping(raw, (*POINTS, "multiPoint"), where=where)
        sets.append(_plugin_set(fields.get("queueSort"), own=own, where=f"{where}.queueSort"))
        if sets[i] != sets[0]:
            raise ProfileError(f"{where}.queueSort: must be the same in all profiles")


def known(raw: object, *, own: Own, where: str) -> str:
    """The name of a plugin that exists.

    Raises:
        ProfileError: it does not, or this release does not have it.
    """
    name = text(raw, where=f"{where}.name")
    if name in _GATED:
        raise ProfileError(f"{where}: plugin {name} is not built in this release")
    if name not in DEFAULT_ORDER and name not in own:
        installed = f"; installed besides: {', '.join(sorted(own))}" if own else ""
        raise ProfileError(f"{where}: there is no plugin {name!r}{installed}")
    return name


def _merged(custom: _Set) -> list[Weighted]:
    """multiPoint after upstream's mergePluginSet with the default list."""
    replacing = {w.name: w for w in custom.enabled}
    merged = []
    if "*" not in custom.disabled:
        for name in DEFAULT_ORDER:
            if name not in custom.disabled:
                default = Weighted(name, DEFAULT_WEIGHTS.get(name, 0))
                merged.append(replacing.pop(name, default))
    return merged + [w for w in custom.enabled if w.name in replacing]


def _expanded(
    multi: list[Weighted], custom: _Set, *, point: str, own: Own, where: str
) -> list[Weighted]:
    """The plugins of one extension point, in upstream's order: overrides, multiPoint, the rest."""
    implementing = {*POINTS[point], *(name for name, points in own.items() if point in points)}
    explicit = {w.name: w for w in custom.enabled}
    for name in explicit:
        if name not in implementing:
            raise ProfileError(f"{where}: plugin {name!r} does not extend this point")
    if "*" in custom.disabled:
        return list(custom.enabled)
    from_multi = [w for w in multi if w.name in implementing and w.name not in custom.disabled]
    names = {w.name for w in from_multi}
    overriding = [w for w in custom.enabled if w.name in names]
    rest = [w for w in custom.enabled if w.name not in names]
    return overriding + [w for w in from_multi if w.name not in explicit] + rest


def _check(found: Mapping[str, list[Weighted]], *, where: str) -> None:
    """Refuse profiles that could not bind, or whose every pod would fail in kube-scheduler."""
    names = {point: {w.name for w in enabled} for point, enabled in found.items()}
    if len(found["queueSort"]) != 1:
        raise ProfileError(f"{where}.queueSort: exactly one plugin sorts the queue")
    if not found["bind"]:
        raise ProfileError(f"{where}.bind: at least one plugin must bind")
    halves = (
        ("filter", "preFilter", names["filter"] - _STATELESS),
        ("score", "preScore", names["score"]),
        ("filter", "reserve", names["filter"]),
        ("filter", "preBind", names["filter"]),
    )
    for point, helper, enabled in halves:
        for name in sorted(enabled & set(POINTS[helper]) - names[helper]):
            raise ProfileError(
                f"{where}.{helper}: {name} is off here but on at {point}, which cannot work "
                "without it; disable both"
            )
