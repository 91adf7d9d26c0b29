"""Arguments of the plugins that are built, read from ``pluginConfig`` with upstream's defaults and
validation."""

from __future__ import annotations

from collections.abc import Mapping

from stretto.model.shape import NodeTerm, PreferredNodeTerm, Requirement, SpreadConstraint
from stretto.placement.plugins.inter_pod_affinity import InterPodArgs
from stretto.placement.plugins.node_affinity import AddedAffinity
from stretto.placement.plugins.node_resources_fit import FitArgs
from stretto.placement.plugins.pod_topology_spread import SpreadArgs
from stretto.placement.resource_scoring import Strategy, StrategyType, WeightedResource
from stretto.placement.strict import ProfileError, integer, mapping, qualified_name, sequence, text

_META = ("apiVersion", "kind")
_MAX_INT = (1 << 31) - 1
_DEFAULT_RESOURCES = (WeightedResource("cpu", 1), WeightedResource("memory", 1))


def fit_args(raw: object, *, where: str) -> FitArgs:
    """NodeResourcesFitArgs."""
    allowed = (*_META, "ignoredResources", "ignoredResourceGroups", "scoringStrategy")
    args = mapping(raw, allowed, where=where)
    groups = _names(args.get("ignoredResourceGroups"), where=f"{where}.ignoredResourceGroups")
    if any("/" in group for group in groups):
        raise ProfileError(f"{where}.ignoredResourceGroups: a group has no '/'")
    strategy, resources = _strategy(args.get("scoringStrategy"), where=f"{where}.scoringStrategy")
    return FitArgs(
        strategy=strategy,
        resources=resources,
        ignored=_names(args.get("ignoredResources"), where=f"{where}.ignoredResources"),
        ignored_groups=groups,
    )


def _names(raw: object, *, where: str) -> frozenset[str]:
    return frozenset(qualified_name(item, where=where) for item in sequence(raw, where=where))


def _strategy(raw: object, *, where: str) -> tuple[Strategy, tuple[WeightedResource, ...]]:
    fields = mapping(raw, ("type", "resources", "requestedToCapacityRatio"), where=where)
    try:
        kind = StrategyType("LeastAllocated" if raw is None else fields.get("type"))
    except ValueError:
        known = ", ".join(sorted(t.value for t in StrategyType))
        given = fields.get("type")
        raise ProfileError(f"{where}.type: {given!r} is not one of {known}") from None
    resources = _resources(fields.get("resources"), highest=100, where=f"{where}.resources")
    ratio = fields.get("requestedToCapacityRatio")
    path = f"{where}.requestedToCapacityRatio"
    if kind is StrategyType.RATIO:
        return Strategy(kind, _points(ratio, where=path)), resources
    if ratio is not None:
        raise ProfileError(f"{path}: only for type RequestedToCapacityRatio")
    return Strategy(kind), resources


def _points(raw: object, *, where: str) -> tuple[tuple[int, int], ...]:
    listed = sequence(mapping(raw, ("shape",), where=where).get("shape"), where=f"{where}.shape")
    points: list[tuple[int, int]] = []
    for i, item in enumerate(listed):
        path = f"{where}.shape[{i}]"
        fields = mapping(item, ("utilization", "score"), where=path)
        used = integer(fields.get("utilization", 0), where=f"{path}.utilization", low=0, high=100)
        score = integer(fields.get("score", 0), where=f"{path}.score", low=0, high=10)
        if points and points[-1][0] >= used:
            raise ProfileError(f"{path}.utilization: must increase from point to point")
        points.append((used, score))
    if not points:
        raise ProfileError(f"{where}.shape: at least one point must be given")
    return tuple(points)


def _resources(raw: object, *, highest: int, where: str) -> tuple[WeightedResource, ...]:
    listed = sequence(raw, where=where)
    if not listed:
        return _DEFAULT_RESOURCES
    found = []
    for i, item in enumerate(listed):
        path = f"{where}[{i}]"
        fields = mapping(item, ("name", "weight"), where=path)
        weight = integer(fields.get("weight") or 1, where=f"{path}.weight", low=1, high=highest)
        found.append(WeightedResource(text(fields.get("name"), where=f"{path}.name"), weight))
    return tuple(found)


def balanced_args(raw: object, *, where: str) -> tuple[WeightedResource, ...]:
    """NodeResourcesBalancedAllocationArgs: the resources; every weight is 1 there."""
    args = mapping(raw, (*_META, "resources"), where=where)
    resources = _resources(args.get("resources"), highest=1, where=f"{where}.resources")
    if len({name for name, _ in resources}) < len(resources):
        raise ProfileError(f"{where}.resources: a name is given twice")
    return resources


def affinity_args(raw: object, *, where: str) -> AddedAffinity:
    """NodeAffinityArgs."""
    args = mapping(raw, (*_META, "addedAffinity"), where=where)
    path = f"{where}.addedAffinity"
    required_key = "requiredDuringSchedulingIgnoredDuringExecution"
    preferred_key = "preferredDuringSchedulingIgnoredDuringExecution"
    added = mapping(args.get("addedAffinity"), (required_key, preferred_key), where=path)
    required = None
    if added.get(required_key) is not None:
        inner = f"{path}.{required_key}"
        selector = mapping(added[required_key], ("nodeSelectorTerms",), where=inner)
        terms = sequence(selector.get("nodeSelectorTerms"), where=inner)
        required = tuple(_term(t, where=f"{inner}[{i}]") for i, t in enumerate(terms))
    preferred = []
    for i, item in enumerate(sequence(added.get(preferred_key), where=path)):
        inner = f"{path}.{preferred_key}[{i}]"
        fields = mapping(item, ("weight", "preference"), where=inner)
        weight = integer(fields.get("weight"), where=f"{inner}.weight", low=0, high=100)
        term = _term(fields.get("preference"), where=f"{inner}.preference")
        preferred.append(PreferredNodeTerm(weight, term))
    return AddedAffinity(required, tuple(preferred))


def _term(raw: object, *, where: str) -> NodeTerm:
    fields = mapping(raw, ("matchExpressions", "matchFields"), where=where)
    return NodeTerm(
        _requirements(fields.get("matchExpressions"), where=f"{where}.matchExpressions"),
        _requirements(fields.get("matchFields"), where=f"{where}.matchFields"),
    )


def _requirements(raw: object, *, where: str) -> tuple[Requirement, ...]:
    found = []
    for i, item in enumerate(sequence(raw, where=where)):
        path = f"{where}[{i}]"
        fields = mapping(item, ("key", "operator", "values"), where=path)
        values = sequence(fields.get("values"), where=f"{path}.values")
        found.append(
            Requirement(
                text(fields.get("key"), where=f"{path}.key"),
                text(fields.get("operator"), where=f"{path}.operator"),
                tuple(text(value, where=f"{path}.values") for value in values),
            )
        )
    return tuple(found)


def spread_args(raw: object, *, where: str) -> SpreadArgs:
    """PodTopologySpreadArgs."""
    args = mapping(raw, (*_META, "defaultConstraints", "defaultingType"), where=where)
    kind = args.get("defaultingType") or "System"
    listed = sequence(args.get("defaultConstraints"), where=f"{where}.defaultConstraints")
    if kind not in ("System", "List"):
        raise ProfileError(f"{where}.defaultingType: {kind!r} is not one of List, System")
    if kind == "System":
        if listed:
            raise ProfileError(f"{where}.defaultConstraints: only for defaultingType List")
        return SpreadArgs()
    constraints = tuple(
        _constraint(item, where=f"{where}.defaultConstraints[{i}]") for i, item in enumerate(listed)
    )
    if len({(c.topology_key, c.hard) for c in constraints}) < len(constraints):
        raise ProfileError(f"{where}.defaultConstraints: a topologyKey is given twice")
    return SpreadArgs(constraints, system=False)


def _constraint(raw: object, *, where: str) -> SpreadConstraint:
    names = (
        "maxSkew", "topologyKey", "whenUnsatisfiable", "labelSelector", "minDomains",
        "nodeAffinityPolicy", "nodeTaintsPolicy", "matchLabelKeys",
    )  # fmt: skip
    fields = mapping(raw, names, where=where)
    if fields.get("labelSelector") is not None:
        raise ProfileError(f"{where}.labelSelector: must be left out, it is derived from the pod")
    key = text(fields.get("topologyKey"), where=f"{where}.topologyKey")
    if not key:
        raise ProfileError(f"{where}.topologyKey: must not be empty")
    hard = _one_of(fields, "whenUnsatisfiable", ("DoNotSchedule", "ScheduleAnyway"), where=where)
    policies = [
        _one_of(fields, name, ("Honor", "Ignore"), where=where, default=default)
        for name, default in (("nodeAffinityPolicy", "Honor"), ("nodeTaintsPolicy", "Ignore"))
    ]
    minimum = fields.get("minDomains")
    if minimum is not None and hard != "DoNotSchedule":
        raise ProfileError(f"{where}.minDomains: only with whenUnsatisfiable DoNotSchedule")
    return SpreadConstraint(
        max_skew=integer(fields.get("maxSkew", 0), where=f"{where}.maxSkew", low=1, high=_MAX_INT),
        topology_key=key,
        hard=hard == "DoNotSchedule",
        selector=None,
        min_domains=integer(
            1 if minimum is None else minimum, where=f"{where}.minDomains", low=1, high=_MAX_INT
        ),
        honor_affinity=policies[0] == "Honor",
        honor_taints=policies[1] == "Honor",
    )


def _one_of(
    fields: Mapping[str, object],
    name: str,
    known: tuple[str, ...],
    *,
    where: str,
    default: str = "",
) -> str:
    value = fields.get(name)
    value = default if value is None else value
    if value not in known:
        raise ProfileError(f"{where}.{name}: {value!r} is not one of {', '.join(known)}")
    return str(value)


def interpod_args(raw: object, *, where: str) -> InterPodArgs:
    """InterPodAffinityArgs."""
    weight, ignore = "hardPodAffinityWeight", "ignorePreferredTermsOfExistingPods"
    args = mapping(raw, (*_META, weight, ignore), where=where)
    given = args.get(weight)
    ignored = args.get(ignore) or False
    if not isinstance(ignored, bool):
        raise ProfileError(f"{where}.{ignore}: {ignored!r} is not true or false")
    path = f"{where}.{weight}"
    return InterPodArgs(
        hard_weight=integer(1 if given is None else given, where=path, low=0, high=100),
        ignore_existing=ignored,
    )
