"""Conditions of the hints of plugins that look at other pods: topology spread, inter-pod affinity.

Upstream: podtopologyspread/plugin.go and interpodaffinity/plugin.go, isSchedulableAfter…. Where a
hint cannot know what upstream looks up (labels of namespaces, default constraints), or would leave
a pod waiting although the event may help, it says yes; each such place says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stretto.model.selector import requirements_match
from stretto.model.shape import PodTerm, Requirement, Shape, SpreadConstraint
from stretto.placement.events import ClusterEvent
from stretto.placement.hint_conditions import affinity_admits

Selector = tuple[Requirement, ...] | None
LOOKED_AT = 100
"""Anti-affinity terms of a pod that leaves which are looked at: all who wait look. Of one with more
any may be about them."""


def _selects(selector: Selector, pod: Shape) -> bool | None:
    """Whether a selector matches a pod; None if the pod's shape does not keep all its keys."""
    keys = {requirement.key for requirement in selector or ()}
    if not keys.issubset(pod.label_keys):
        return None
    return requirements_match(selector, dict(pod.labels))


# ---------------------------------------------------------------------------- PodTopologySpread
def _hard(shape: Shape) -> tuple[SpreadConstraint, ...]:
    return tuple(constraint for constraint in shape.spread if constraint.hard)


def spread_counts_pod(shape: Shape, event: ClusterEvent) -> bool:
    """A pod of the namespace came or left that a constraint counts, or its labels changed whether
    one does (isSchedulableAfterAssignedPodChange). Default constraints: any pod of the namespace.
    """
    pods = [pod for pod in (event.old_pod, event.new_pod) if pod is not None]
    if any(pod.namespace != shape.namespace for pod in pods):
        return False
    if not shape.spread:
        return True
    for constraint in _hard(shape):
        counted = [_selects(constraint.selector, pod) for pod in pods]
        if None in counted or counted == [True] or counted in ([True, False], [False, True]):
            return True
    return False


def spread_counts_node(shape: Shape, event: ClusterEvent) -> bool:
    """A node with every topology key came or left, or changed its domain, its taints or whether
    it has every key (isSchedulableAfterNodeChange).

    Beyond upstream: also when it changed whether the pod's node affinity admits it, since that
    decides whether it is counted. Default constraints: any node.
    """
    if not shape.spread:
        return True
    keys = [constraint.topology_key for constraint in _hard(shape)]
    nodes = [node for node in (event.old_node, event.new_node) if node is not None]
    domains = [[dict(node.labels).get(key) for key in keys] for node in nodes]
    counted = [None not in each for each in domains]
    if len(nodes) == 1 or not any(counted):
        return counted[0]
    old, new = nodes
    return (
        domains[0] != domains[1]
        or old.taints != new.taints
        or len(set(affinity_admits(shape, nodes))) == 2
    )


# ----------------------------------------------------------------------------- InterPodAffinity
def affinity_meets_pod(shape: Shape, event: ClusterEvent) -> bool:
    """A pod came that all affinity terms are about; one left that anti-affinity kept apart, either
    way; or labels changed to the same effect (isSchedulableAfterAssignedPodChange).

    Beyond upstream: when one leaves that all affinity terms are about and they are about the pod
    itself too, since it may then be the first of its kind. Selectors of namespaces say yes.
    """
    old, new = event.old_pod, event.new_pod
    if old is not None and new is not None:
        joins = _may_all(shape.affinity, new) and not _surely_all(shape.affinity, old)
        parts = _may_any(shape.anti_affinity, old) and not _surely_any(shape.anti_affinity, new)
        return joins or parts
    if new is not None:
        return _may_all(shape.affinity, new)
    assert old is not None
    first = _may_all(shape.affinity, old) and _may_all(shape.affinity, shape)
    return first or _may_any(shape.anti_affinity, old) or _may_any(old.anti_affinity, shape)


def affinity_meets_node(shape: Shape, event: ClusterEvent) -> bool:
    """A node came into a domain of an affinity term, or changed a domain
    (isSchedulableAfterNodeChange).

    A pod without terms of its own was rejected by others' anti-affinity, over keys that are not
    known here: any such node may help (upstream says no and leaves it to the other plugins).
    """
    assert event.new_node is not None
    if not shape.affinity and not shape.anti_affinity:
        return True
    new = dict(event.new_node.labels)
    if event.old_node is None:
        return bool(shape.anti_affinity) or any(t.topology_key in new for t in shape.affinity)
    old = dict(event.old_node.labels)
    moved = {t.topology_key for t in shape.affinity if t.topology_key in new}
    moved |= {t.topology_key for t in shape.anti_affinity if t.topology_key in old}
    return any(old.get(key) != new.get(key) for key in moved)


def _matches(term: PodTerm, pod: Shape) -> bool | None:
    """Whether a term is about a pod; None: it may be."""
    selected = _selects(term.selector, pod)
    if selected is False or pod.namespace in term.namespaces:
        return selected
    if term.namespace_selector == ():
        return selected
    return False if term.namespace_selector is None else None


def _may_all(terms: Iterable[PodTerm], pod: Shape) -> bool:
    found = [_matches(term, pod) for term in terms]
    return bool(found) and False not in found


def _surely_all(terms: Iterable[PodTerm], pod: Shape) -> bool:
    found = [_matches(term, pod) for term in terms]
    return bool(found) and all(found)


def _may_any(terms: Sequence[PodTerm], pod: Shape) -> bool:
    if len(terms) > LOOKED_AT:
        return True
    return any(_matches(term, pod) is not False for term in terms)


def _surely_any(terms: Iterable[PodTerm], pod: Shape) -> bool:
    return any(_matches(term, pod) for term in terms)
