"""Whether a pod's own rules allow a node: nodeSelector and required node affinity, as the kubelet
checks them again at admission; written apart from the scheduler's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Labels = Mapping[str, str]


def chooses(spec: Mapping[str, Any], *, labels: Labels, name: str) -> bool:
    """True if nodeSelector and required node affinity accept the node."""
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(
        _term_accepts(term, labels=labels, name=name)
        for term in required.get("nodeSelectorTerms") or ()
    )


def _term_accepts(term: Mapping[str, Any], *, labels: Labels, name: str) -> bool:
    expressions = term.get("matchExpressions") or ()
    fields = term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(_accepts(one, labels) for one in expressions) and all(
        _accepts(one, {"metadata.name": name}) for one in fields
    )


def _accepts(requirement: Mapping[str, Any], labels: Labels) -> bool:
    value = labels.get(requirement["key"])
    test = _OPERATORS.get(requirement["operator"])
    return test is not None and test(value, requirement.get("values") or [])


def _compare(value: str | None, wanted: list[str], *, sign: int) -> bool:
    try:
        return value is not None and sign * int(value) > sign * int(wanted[0])
    except (ValueError, IndexError):
        return False


_OPERATORS: dict[str, Callable[[str | None, list[str]], bool]] = {
    "In": lambda value, wanted: value in wanted,
    "NotIn": lambda value, wanted: value not in wanted,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, wanted: _compare(value, wanted, sign=1),
    "Lt": lambda value, wanted: _compare(value, wanted, sign=-1),
}
