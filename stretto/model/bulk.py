"""Pods of so many parts that reading or deciding one takes a while (reliability §4.4).

An object may be 1.5 MiB: ten thousand containers, or node terms, or tolerations. Such a pod is
scheduled like any other, but apart and in its turn, so that it takes time from no other pod; see
:mod:`dispatcher.slow_lane`. What is counted here is counted without decoding anything.
"""

from __future__ import annotations

from collections.abc import Iterable

from stretto.model.objects import Pod
from stretto.model.shape import Requirement, Shape

CONTAINERS = 1_000
TERMS = 100
"""Terms of affinity of every kind, spread constraints and keys of the node selector."""
VALUES = 10_000
"""In all terms: 100 terms of 100."""
OTHERS = 1_000
"""Tolerations, host ports, volumes, claims to devices, each."""
READ_BYTES = 32 << 10
"""What pods say of scheduling is below 2 KiB nearly always; 32 KiB take 2–3 ms to read."""


def bulky_to_read(pod: Pod) -> bool:
    """Whether the undecoded parts that a shape is made from are large."""
    spec = pod.spec
    size = (
        len(spec.affinity)
        + len(spec.tolerations)
        + len(spec.topology_spread_constraints)
        + len(spec.node_selector)
        + len(spec.resource_claims)
        + 64 * len(spec.volumes or ())
    )
    for containers in (spec.containers, spec.init_containers or ()):
        size += sum([len(c.resources) + len(c.ports) + 64 for c in containers])
    return size > READ_BYTES


def bulk_of(shape: Shape) -> str:
    """'' or which bound a shape is beyond, as "1200 containers (more than 1000)"."""
    terms = (
        len(shape.required_node_terms or ())
        + len(shape.preferred_node_terms)
        + len(shape.node_selector)
        + len(shape.affinity)
        + len(shape.anti_affinity)
        + len(shape.preferred_affinity)
        + len(shape.preferred_anti_affinity)
        + len(shape.spread)
    )
    counts = (
        ("containers", shape.image_containers, CONTAINERS),
        ("terms", terms, TERMS),
        ("tolerations", len(shape.tolerations), OTHERS),
        ("host ports", len(shape.host_ports), OTHERS),
        ("volumes", len(shape.claims) + len(shape.disks), OTHERS),
        ("claims to devices", len(shape.device_claims), OTHERS),
    )
    for what, count, limit in counts:
        if count > limit:
            return f"{count} {what} (more than {limit})"
    values = sum(map(_size, _requirements(shape))) if terms else 0
    return f"{values} values in terms (more than {VALUES})" if values > VALUES else ""


def _size(requirements: Iterable[Requirement]) -> int:
    return sum(max(1, len(requirement.values)) for requirement in requirements)


def _requirements(shape: Shape) -> Iterable[Iterable[Requirement]]:
    """Lists of requirements of every term."""
    for term in (*(shape.required_node_terms or ()), *(p.term for p in shape.preferred_node_terms)):
        yield term.expressions
        yield term.fields
    for each in (
        *shape.affinity,
        *shape.anti_affinity,
        *(weighted.term for weighted in shape.preferred_affinity),
        *(weighted.term for weighted in shape.preferred_anti_affinity),
    ):
        yield each.selector or ()
        yield each.namespace_selector or ()
    for constraint in shape.spread:
        yield constraint.selector or ()
