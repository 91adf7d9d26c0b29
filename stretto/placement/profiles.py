"""Profiles: which plugins filter and score for a schedulerName, in which order, with which weight
and arguments.

Read from a KubeSchedulerConfiguration v1 with upstream's merge rules: a specific extension point
overrides multiPoint, ``*`` in disabled clears the defaults, a custom entry for a default plugin
re-weighs it in place, unknown fields and plugin names are errors. Plugins that are not built keep
their place in the list by name, so that the kernel can say what it does not obey.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from stretto.model.shape import Shape
from stretto.placement.framework import Gates, Plugin
from stretto.placement.plugin_args import (
    affinity_args,
    balanced_args,
    fit_args,
    interpod_args,
    spread_args,
)
from stretto.placement.plugins.balanced_allocation import BalancedAllocation
from stretto.placement.plugins.image_locality import ImageLocality
from stretto.placement.plugins.inter_pod_affinity import InterPodAffinity, InterPodArgs
from stretto.placement.plugins.node_affinity import AddedAffinity, NodeAffinity
from stretto.placement.plugins.node_name import NodeName
from stretto.placement.plugins.node_ports import NodePorts
from stretto.placement.plugins.node_resources_fit import FitArgs, NodeResourcesFit
from stretto.placement.plugins.node_unschedulable import NodeUnschedulable
from stretto.placement.plugins.pod_topology_spread import PodTopologySpread, SpreadArgs
from stretto.placement.plugins.taint_toleration import TaintToleration
from stretto.placement.postfilter import PreemptionArgs
from stretto.placement.registry import DEFAULT_ORDER, DEFAULT_WEIGHTS, POINTS
from stretto.placement.strict import ProfileError, integer, mapping, sequence, text
from stretto.snapshot.columns import Snapshot

BUILT = frozenset({
    "SchedulingGates", "PrioritySort", "DefaultBinder",
    "NodeName", "NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodePorts",
    "NodeResourcesFit", "NodeResourcesBalancedAllocation", "ImageLocality", "PodTopologySpread",
    "InterPodAffinity",
})  # fmt: skip
GATES = frozenset({"TaintTolerationComparisonOperators"})
"""Feature gates that are read; see :class:`~stretto.placement.framework.Gates`."""
_TOP = (
    "apiVersion", "kind", "parallelism", "leaderElection", "clientConnection", "enableProfiling",
    "enableContentionProfiling", "percentageOfNodesToScore", "podInitialBackoffSeconds",
    "podMaxBackoffSeconds", "delayCacheUntilActive", "profiles", "extenders",
)  # fmt: skip
_PROFILE = ("schedulerName", "percentageOfNodesToScore", "plugins", "pluginConfig")
_MAX_WEIGHT = 1 << 30


@dataclass(frozen=True, slots=True)
class Weighted:
    """An enabled plugin and the weight its entry gives; 0 stands for the plugin's default, 1."""

    name: str
    weight: int = 0


_PREEMPTION = PreemptionArgs()


@dataclass(frozen=True, slots=True)
class Profile:
    """One profile, ready for the kernel."""

    name: str
    filters: tuple[Plugin, ...]
    """In order; each node stops at the first that rejects it."""
    scorers: tuple[tuple[Plugin, int], ...]
    prefilters: tuple[Plugin, ...] = ()
    """In order: those whose PreFilter is asked."""
    points: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of all enabled plugins, built or not, by extension point, in order."""
    preemption: PreemptionArgs = _PREEMPTION
    unbuilt_filters: tuple[str, ...] = ()
    """Enabled filter plugins that this release does not have."""
    unbuilt_scorers: tuple[str, ...] = ()
    unbuilt_hard: tuple[str, ...] = ()
    """Hard constraints that the configuration itself adds and that are not built: refuse its
    pods."""

    def basis(self, shape: Shape, snapshot: Snapshot) -> tuple[object, ...]:
        """What plugins make filters and scorers of a shape from; see ``Plugin.basis``."""
        return tuple(plugin.basis(shape, snapshot) for plugin in self._based)

    @property
    def _based(self) -> tuple[Plugin, ...]:
        """The plugins that have a basis, each once."""
        plugins = dict.fromkeys((*self.filters, *(plugin for plugin, _ in self.scorers)))
        return tuple(plugin for plugin in plugins if type(plugin).basis is not Plugin.basis)


class Profiles:
    """Profiles by schedulerName."""

    def __init__(self, profiles: Sequence[Profile]) -> None:
        self._by_name = {profile.name: profile for profile in profiles}
        if len(self._by_name) < len(profiles):
            raise ProfileError("profiles: two have the same schedulerName")

    @property
    def names(self) -> tuple[str, ...]:
        """The schedulerNames that are ours."""
        return tuple(self._by_name)

    def get(self, name: str) -> Profile | None:
        """The profile of a schedulerName."""
        return self._by_name.get(name)

    @classmethod
    def default(
        cls, names: Sequence[str] = ("stretto",), *, gates: Mapping[str, bool] | None = None
    ) -> Profiles:
        """The default configuration of kube-scheduler 1.37 under the given names."""
        return cls([_profile({"schedulerName": n}, gates=_gates(gates), where="") for n in names])

    @classmethod
    def from_configuration(
        cls, raw: Mapping[str, object], *, gates: Mapping[str, bool] | None = None
    ) -> Profiles:
        """Read a KubeSchedulerConfiguration v1 (already parsed from YAML or JSON).

        Raises:
            ProfileError: an unknown field, plugin or value; the message says where.
        """
        top = mapping(raw, _TOP, where="configuration")
        if top.get("kind", "KubeSchedulerConfiguration") != "KubeSchedulerConfiguration":
            raise ProfileError(f"configuration: kind {top['kind']!r} is not a scheduler's")
        if top.get("apiVersion", _API) != _API:
            raise ProfileError(f"configuration: apiVersion must be {_API}")
        if top.get("extenders"):
            raise ProfileError("configuration.extenders: extenders are not built in this release")
        listed = sequence(top.get("profiles"), where="profiles") or [{}]
        built = _gates(gates)
        return cls([_profile(p, gates=built, where=f"profiles[{i}]") for i, p in enumerate(listed)])


_API = "kubescheduler.config.k8s.io/v1"


def _gates(raw: Mapping[str, bool] | None) -> Gates:
    name = "TaintTolerationComparisonOperators"
    return Gates(taint_toleration_comparison_operators=bool((raw or {}).get(name, False)))


def _profile(raw: object, *, gates: Gates, where: str) -> Profile:
    fields = mapping(raw, _PROFILE, where=where)
    name = text(fields.get("schedulerName", "default-scheduler"), where=f"{where}.schedulerName")
    plugins = mapping(fields.get("plugins"), (*POINTS, "multiPoint"), where=f"{where}.plugins")
    sets = {
        point: _plugin_set(plugins.get(point), where=f"{where}.plugins.{point}")
        for point in (*POINTS, "multiPoint")
    }
    multi = _merged(sets["multiPoint"])
    enabled = {
        point: _expanded(multi, sets[point], point=point, where=f"{where}.plugins")
        for point in POINTS
    }
    points = {point: tuple(w.name for w in found) for point, found in enabled.items()}
    filters, scorers = points["filter"], enabled["score"]
    made = _instances(fields.get("pluginConfig"), gates=gates, where=f"{where}.pluginConfig")
    spread = made["PodTopologySpread"]
    assert isinstance(spread, PodTopologySpread)
    return Profile(
        name=name,
        filters=tuple(made[n] for n in filters if n in BUILT),
        scorers=tuple((made[w.name], w.weight or 1) for w in scorers if w.name in BUILT),
        prefilters=tuple(made[n] for n in points["preFilter"] if n in BUILT),
        points=MappingProxyType(points),
        unbuilt_filters=tuple(n for n in filters if n not in BUILT),
        unbuilt_scorers=tuple(w.name for w in scorers if w.name not in BUILT),
        unbuilt_hard=spread.hard_defaults if "PodTopologySpread" in filters else (),
    )


@dataclass(frozen=True, slots=True)
class _Set:
    enabled: tuple[Weighted, ...]
    disabled: frozenset[str]


def _plugin_set(raw: object, *, where: str) -> _Set:
    fields = mapping(raw, ("enabled", "disabled"), where=where)
    enabled = []
    for i, item in enumerate(sequence(fields.get("enabled"), where=where)):
        path = f"{where}.enabled[{i}]"
        entry = mapping(item, ("name", "weight"), where=path)
        name = _known(entry.get("name"), where=path)
        weight = integer(entry.get("weight") or 0, where=f"{path}.weight", low=0, high=_MAX_WEIGHT)
        enabled.append(Weighted(name, weight))
    if len({w.name for w in enabled}) < len(enabled):
        raise ProfileError(f"{where}.enabled: a plugin is listed twice")
    disabled = set()
    for i, item in enumerate(sequence(fields.get("disabled"), where=where)):
        entry = mapping(item, ("name", "weight"), where=f"{where}.disabled[{i}]")
        raw_name = entry.get("name")
        path = f"{where}.disabled[{i}]"
        disabled.add("*" if raw_name == "*" else _known(raw_name, where=path))
    return _Set(tuple(enabled), frozenset(disabled))


def _known(raw: object, *, where: str) -> str:
    name = text(raw, where=f"{where}.name")
    if name not in DEFAULT_ORDER:
        raise ProfileError(f"{where}: there is no plugin {name!r}")
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


def _expanded(multi: list[Weighted], custom: _Set, *, point: str, where: str) -> list[Weighted]:
    """The plugins of one extension point, in upstream's order: overrides, multiPoint, the rest."""
    implementing = POINTS[point]
    explicit = {w.name: w for w in custom.enabled}
    for name in explicit:
        if name not in implementing:
            raise ProfileError(f"{where}.{point}: plugin {name!r} does not extend this point")
    if "*" in custom.disabled:
        return list(custom.enabled)
    from_multi = [w for w in multi if w.name in implementing and w.name not in custom.disabled]
    names = {w.name for w in from_multi}
    overriding = [w for w in custom.enabled if w.name in names]
    rest = [w for w in custom.enabled if w.name not in names]
    return overriding + [w for w in from_multi if w.name not in explicit] + rest


def _instances(raw: object, *, gates: Gates, where: str) -> dict[str, Plugin]:
    fit, balanced, added = FitArgs(), balanced_args(None, where=where), AddedAffinity()
    spread, interpod = SpreadArgs(), InterPodArgs()
    seen: set[str] = set()
    for i, item in enumerate(sequence(raw, where=where)):
        path = f"{where}[{i}]"
        entry = mapping(item, ("name", "args"), where=path)
        name = _known(entry.get("name"), where=path)
        if name in seen:
            raise ProfileError(f"{path}: arguments of {name} are given twice")
        seen.add(name)
        args, path = entry.get("args"), f"{path}.args"
        match name:
            case "NodeResourcesFit":
                fit = fit_args(args, where=path)
            case "NodeResourcesBalancedAllocation":
                balanced = balanced_args(args, where=path)
            case "NodeAffinity":
                added = affinity_args(args, where=path)
            case "PodTopologySpread":
                spread = spread_args(args, where=path)
            case "InterPodAffinity":
                interpod = interpod_args(args, where=path)
    plugins: list[Plugin] = [
        NodeName(), NodeUnschedulable(gates), TaintToleration(gates), NodeAffinity(added),
        NodePorts(), NodeResourcesFit(fit), BalancedAllocation(balanced), ImageLocality(),
        PodTopologySpread(spread, gates), InterPodAffinity(interpod),
    ]  # fmt: skip
    return {plugin.name: plugin for plugin in plugins}
