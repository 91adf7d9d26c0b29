"""Profiles: which plugins filter and score for a schedulerName, in which order, with which weight
and arguments.

Plugins that are not built keep their place in the list by name, so that the kernel can say what it
does not obey.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from msgspec import structs

from stretto.model.shape import Shape
from stretto.placement.arguments import Arguments, read_arguments
from stretto.placement.extension import OwnPlugin, points_of
from stretto.placement.framework import Gates, Plugin, score_type
from stretto.placement.plugin_sets import check_queue_sort, enabled_plugins
from stretto.placement.plugins.balanced_allocation import BalancedAllocation
from stretto.placement.plugins.dynamic_resources import DynamicResources
from stretto.placement.plugins.image_locality import ImageLocality
from stretto.placement.plugins.inter_pod_affinity import InterPodAffinity
from stretto.placement.plugins.node_affinity import NodeAffinity
from stretto.placement.plugins.node_declared_features import NodeDeclaredFeatures
from stretto.placement.plugins.node_name import NodeName
from stretto.placement.plugins.node_ports import NodePorts
from stretto.placement.plugins.node_resources_fit import FitArgs, NodeResourcesFit
from stretto.placement.plugins.node_unschedulable import NodeUnschedulable
from stretto.placement.plugins.pod_topology_spread import PodTopologySpread
from stretto.placement.plugins.taint_toleration import TaintToleration
from stretto.placement.plugins.volume_binding import VolumeBinding
from stretto.placement.plugins.volume_limits import NodeVolumeLimits
from stretto.placement.plugins.volume_restrictions import VolumeRestrictions
from stretto.placement.plugins.volume_zone import VolumeZone
from stretto.placement.postfilter import PreemptionArgs
from stretto.placement.strict import ProfileError, integer, mapping, sequence, text
from stretto.snapshot.columns import Snapshot

BUILT = frozenset({
    "SchedulingGates", "PrioritySort", "DefaultBinder",
    "NodeName", "NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodePorts",
    "NodeResourcesFit", "NodeResourcesBalancedAllocation", "ImageLocality", "PodTopologySpread",
    "InterPodAffinity",
    "VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone", "DynamicResources",
    "NodeDeclaredFeatures",
})  # fmt: skip
"""Plugins whose decisions are compared with kube-scheduler's own."""
GATES = frozenset({"StrictDisruptionBudgets", "TaintTolerationComparisonOperators"})
"""Feature gates that are read; see :class:`~stretto.placement.framework.Gates`."""
_PROFILE = ("schedulerName", "percentageOfNodesToScore", "plugins", "pluginConfig")


_PREEMPTION = PreemptionArgs()
_FIT = FitArgs()


@dataclass(frozen=True, slots=True)
class Profile:
    """One profile, ready for the kernel."""

    name: str
    filters: tuple[Plugin, ...]
    """In order; each node stops at the first that rejects it."""
    scorers: tuple[tuple[Plugin, int], ...]
    prefilters: tuple[Plugin, ...] = ()
    """In order: those whose PreFilter is asked."""
    pre_enqueues: tuple[Plugin, ...] = ()
    """In order: those that may hold a pod back."""
    points: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of all enabled plugins by extension point, in order."""
    preemption: PreemptionArgs = _PREEMPTION
    fit: FitArgs = _FIT
    basis_kinds: tuple[str, ...] = field(init=False)
    """The kinds of objects that :meth:`basis` reads."""
    has_own: bool = field(init=False)
    """It has plugins that are not built in."""
    affinity_narrows: bool = field(init=False)
    """NodeAffinity narrows the search to the nodes that a pod names, and filters."""
    score_type: type[np.int16 | np.int64] = field(init=False)
    """What holds a total."""
    _based: tuple[Plugin, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Note which plugins have a basis, each once."""
        plugins = dict.fromkeys((*self.filters, *(plugin for plugin, _ in self.scorers)))
        based = tuple(plugin for plugin in plugins if type(plugin).basis is not Plugin.basis)
        kinds = frozenset().union(*(plugin.basis_kinds for plugin in based))
        narrows = all(
            any(isinstance(plugin, NodeAffinity) for plugin in some)
            for some in (self.filters, self.prefilters)
        )
        own = any(isinstance(plugin, OwnPlugin) for plugin in plugins)
        weights = sum(weight for _, weight in self.scorers)
        object.__setattr__(self, "score_type", score_type(weights))
        object.__setattr__(self, "_based", based)
        object.__setattr__(self, "has_own", own)
        object.__setattr__(self, "affinity_narrows", narrows)
        object.__setattr__(self, "basis_kinds", tuple(sorted(kinds)))

    def ignores(self, resource: str) -> bool:
        """Whether the profile lets pods on nodes whatever they request of a resource."""
        return self.fit.ignores(resource)

    def basis(self, shape: Shape, snapshot: Snapshot) -> tuple[object, ...]:
        """What plugins make filters and scorers of a shape from; see ``Plugin.basis``."""
        return tuple([plugin.basis(shape, snapshot) for plugin in self._based])


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

    @property
    def label_keys(self) -> frozenset[str]:
        """Keys of pod labels that own plugins read."""
        found: set[str] = set()
        for profile in self._by_name.values():
            for plugin in profile.filters:
                if isinstance(plugin, OwnPlugin):
                    found.update(plugin.label_keys)
        return frozenset(found)

    def __iter__(self) -> Iterator[Profile]:
        return iter(self._by_name.values())

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
        cls,
        raw: Mapping[str, object],
        *,
        gates: Mapping[str, bool] | None = None,
        ignored: frozenset[str] = frozenset(),
        own: Mapping[str, type[OwnPlugin]] | None = None,
    ) -> Profiles:
        """The profiles of a KubeSchedulerConfiguration v1 (already parsed from YAML or JSON).

        ``ignored``: resources that extenders check instead of NodeResourcesFit. ``own``: plugins
        beside kube-scheduler's, by name.
        :func:`stretto.placement.configuration.read_configuration` reads the rest.

        Raises:
            ProfileError: an unknown field, plugin or value; the message says where.
        """
        listed = sequence(raw.get("profiles"), where="profiles") or [{}]
        made = _gates(gates)
        found = []
        for i, item in enumerate(listed):
            where = f"profiles[{i}]"
            named = mapping(item, _PROFILE, where=where).get("schedulerName")
            if named is None and len(listed) > 1:
                raise ProfileError(f"{where}.schedulerName: must be set where there are several")
            found.append(_profile(item, gates=made, ignored=ignored, own=own or {}, where=where))
        plugins = [mapping(item, _PROFILE, where="").get("plugins") for item in listed]
        check_queue_sort(plugins, own={name: points_of(kind) for name, kind in (own or {}).items()})
        return cls(found)


def _gates(raw: Mapping[str, bool] | None) -> Gates:
    given = raw or {}
    return Gates(
        taint_toleration_comparison_operators=given.get(
            "TaintTolerationComparisonOperators", False
        ),
        strict_disruption_budgets=given.get("StrictDisruptionBudgets", False),
    )


def _profile(
    raw: object,
    *,
    gates: Gates,
    where: str,
    ignored: frozenset[str] = frozenset(),
    own: Mapping[str, type[OwnPlugin]] = MappingProxyType({}),
) -> Profile:
    fields = mapping(raw, _PROFILE, where=where)
    given = fields.get("schedulerName")
    name = "default-scheduler" if given is None else text(given, where=f"{where}.schedulerName")
    if not name:
        raise ProfileError(f"{where}.schedulerName: must not be empty")
    percentage(fields.get("percentageOfNodesToScore"), where=f"{where}.percentageOfNodesToScore")
    known = {name: points_of(kind) for name, kind in own.items()}
    enabled = enabled_plugins(fields.get("plugins"), own=known, where=f"{where}.plugins")
    points = {point: tuple(w.name for w in found) for point, found in enabled.items()}
    filters, scorers = points["filter"], enabled["score"]
    arguments = read_arguments(
        fields.get("pluginConfig"), where=f"{where}.pluginConfig", ignored=ignored
    )
    made = _plugins(arguments, gates=gates)
    mine = _own_plugins(own, arguments, points=points)
    made |= mine
    # One that only scores stands behind the filters too: it tells there that it failed.
    guards = tuple(plugin for name, plugin in mine.items() if name not in filters)
    return Profile(
        name=name,
        filters=(*(made[n] for n in filters), *guards),
        scorers=tuple((made[w.name], w.weight or 1) for w in scorers),
        prefilters=tuple(made[n] for n in points["preFilter"]),
        pre_enqueues=tuple(made[n] for n in points["preEnqueue"] if n in made),
        points=MappingProxyType(points),
        preemption=structs.replace(
            arguments.preemption, strict_budgets=gates.strict_disruption_budgets
        ),
        fit=arguments.fit,
    )


def _own_plugins(
    own: Mapping[str, type[OwnPlugin]],
    arguments: Arguments,
    *,
    points: Mapping[str, tuple[str, ...]],
) -> dict[str, Plugin]:
    """The enabled own plugins by name.

    Raises:
        ProfileError: one does not take its arguments.
    """
    enabled = {name for names in points.values() for name in names}
    found: dict[str, Plugin] = {}
    for name, kind in own.items():
        if name not in enabled:
            continue
        args, where = arguments.own.get(name, (None, "pluginConfig"))
        try:
            if not isinstance(args, Mapping | None):
                raise ProfileError("must be a mapping")
            plugin = kind(args or {})
        except Exception as error:
            raise ProfileError(f"{where}: {name}: {' '.join(str(error).split())}") from None
        plugin.filtering = name in points["filter"]
        found[name] = plugin
    return found


def percentage(raw: object, *, where: str) -> int | None:
    """percentageOfNodesToScore: checked and without effect, since all nodes are evaluated."""
    return None if raw is None else integer(raw, where=where, low=0, high=100)


def _plugins(arguments: Arguments, *, gates: Gates) -> dict[str, Plugin]:
    """The plugins that are built, by name."""
    plugins: list[Plugin] = [
        NodeName(), NodeUnschedulable(gates), TaintToleration(gates),
        NodeAffinity(arguments.affinity), NodePorts(), NodeResourcesFit(arguments.fit),
        BalancedAllocation(arguments.balanced), ImageLocality(),
        PodTopologySpread(arguments.spread, gates), InterPodAffinity(arguments.interpod),
        VolumeRestrictions(), NodeVolumeLimits(), VolumeBinding(arguments.volumes), VolumeZone(),
        DynamicResources(arguments.devices), NodeDeclaredFeatures(),
    ]  # fmt: skip
    return {plugin.name: plugin for plugin in plugins}
