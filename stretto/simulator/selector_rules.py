"""Rules for the selectors of a pod: node selectors, affinity, spread, tolerations."""

from __future__ import annotations

from collections.abc import Callable

from stretto.simulator.field_types import (
    Affinity,
    LabelSelector,
    NodeTerm,
    PodAffinity,
    PodTerm,
    Requirement,
    Spread,
    Toleration,
)
from stretto.simulator.findings import Findings, key_fault, value_fault

HARD = "requiredDuringSchedulingIgnoredDuringExecution"
SOFT = "preferredDuringSchedulingIgnoredDuringExecution"
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def check_affinity(affinity: Affinity | None, *, findings: Findings) -> None:
    """All three kinds."""
    if affinity is None:
        return
    field, nodes = "spec.affinity.nodeAffinity", affinity.node_affinity
    if nodes is not None:
        hard = nodes.required_during_scheduling_ignored_during_execution
        if hard is not None:
            terms = hard.node_selector_terms or []
            if not terms:
                findings.required(
                    f"{field}.{HARD}.nodeSelectorTerms",
                    "must have at least one node selector term",
                )
            for at, term in enumerate(terms):
                _node_term(term, f"{field}.{HARD}.nodeSelectorTerms[{at}]", findings)
        soft = nodes.preferred_during_scheduling_ignored_during_execution or []
        for at, preferred in enumerate(soft):
            where = f"{field}.{SOFT}[{at}]"
            _weight(preferred.weight, where, findings)
            _node_term(preferred.preference or NodeTerm(), f"{where}.preference", findings)
    _pod_affinity(affinity.pod_affinity, "spec.affinity.podAffinity", findings)
    _pod_affinity(affinity.pod_anti_affinity, "spec.affinity.podAntiAffinity", findings)


def _weight(weight: int | None, field: str, findings: Findings) -> None:
    if not 1 <= (weight or 0) <= 100:
        findings.invalid(f"{field}.weight", weight or 0, "must be in the range 1-100")


def _node_term(term: NodeTerm, field: str, findings: Findings) -> None:
    for at, one in enumerate(term.match_expressions or []):
        where = f"{field}.matchExpressions[{at}]"
        if _values(one, where, findings, single=("Gt", "Lt")):
            findings.invalid(f"{where}.key", one.key or "", key_fault(one.key or ""))
            for number, value in enumerate(one.values or []):
                findings.invalid(f"{where}.values[{number}]", value, value_fault(value))
    for at, one in enumerate(term.match_fields or []):
        where = f"{field}.matchFields[{at}]"
        if one.operator not in ("In", "NotIn"):
            findings.invalid(
                f"{where}.operator", one.operator or "", "not a valid selector operator"
            )
        elif len(one.values or []) != 1:
            findings.required(
                f"{where}.values",
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
            )
        if one.key != "metadata.name":
            findings.invalid(f"{where}.key", one.key or "", "not a valid field selector key")


def _values(
    one: Requirement, field: str, findings: Findings, *, single: tuple[str, ...] = ()
) -> bool:
    """Whether the operator is one, and the values are as it wants them."""
    values, operator = one.values or [], one.operator or ""
    before = len(findings.found)
    if operator in ("In", "NotIn"):
        if not values:
            findings.required(
                f"{field}.values", "must be specified when `operator` is 'In' or 'NotIn'"
            )
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            findings.forbidden(
                f"{field}.values",
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )
    elif operator in single:
        if len(values) != 1:
            findings.required(
                f"{field}.values",
                "must be specified single value when `operator` is 'Lt' or 'Gt'",
            )
    else:
        findings.invalid(f"{field}.operator", operator, "not a valid selector operator")
    return len(findings.found) == before


def check_label_selector(selector: LabelSelector | None, *, field: str, findings: Findings) -> None:
    """Of pods or namespaces."""
    if selector is None:
        return
    findings.labels(f"{field}.matchLabels", selector.match_labels)
    for at, one in enumerate(selector.match_expressions or []):
        where = f"{field}.matchExpressions[{at}]"
        if _values(one, where, findings):
            findings.invalid(f"{where}.key", one.key or "", key_fault(one.key or ""))


def _pod_affinity(affinity: PodAffinity | None, field: str, findings: Findings) -> None:
    if affinity is None:
        return
    for at, term in enumerate(affinity.required_during_scheduling_ignored_during_execution or []):
        _pod_term(term, f"{field}.{HARD}[{at}]", findings)
    soft = affinity.preferred_during_scheduling_ignored_during_execution or []
    for at, preferred in enumerate(soft):
        where = f"{field}.{SOFT}[{at}]"
        _weight(preferred.weight, where, findings)
        _pod_term(preferred.pod_affinity_term or PodTerm(), f"{where}.podAffinityTerm", findings)


def _pod_term(term: PodTerm, field: str, findings: Findings) -> None:
    if not term.topology_key:
        findings.required(f"{field}.topologyKey", "can not be empty")
    else:
        findings.invalid(f"{field}.topologyKey", term.topology_key, key_fault(term.topology_key))
    check_label_selector(term.label_selector, field=f"{field}.labelSelector", findings=findings)
    check_label_selector(
        term.namespace_selector, field=f"{field}.namespaceSelector", findings=findings
    )


def check_tolerations(tolerations: list[Toleration] | None, *, findings: Findings) -> None:
    """Operators, effects, and what may stand beside what."""
    for at, one in enumerate(tolerations or []):
        field = f"spec.tolerations[{at}]"
        if one.key:
            findings.invalid(f"{field}.key", one.key, key_fault(one.key))
        elif one.operator != "Exists":
            findings.invalid(
                f"{field}.operator",
                one.operator or "",
                'operator must be Exists when `key` is empty, which means "match all values and '
                'all keys"',
            )
        if one.toleration_seconds is not None and one.effect != "NoExecute":
            findings.invalid(
                f"{field}.effect",
                one.effect or "",
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            )
        if one.operator == "Exists":
            if one.value:
                findings.invalid(
                    f"{field}.operator",
                    one.value,
                    "value must be empty when `operator` is 'Exists'",
                )
        elif one.operator in ("", None, "Equal"):
            findings.invalid(f"{field}.operator", one.value, value_fault(one.value or ""))
        else:
            findings.one_of(f"{field}.operator", one.operator, ("Equal", "Exists"))
        findings.one_of(f"{field}.effect", one.effect or None, EFFECTS)


def check_spread(constraints: list[Spread] | None, *, findings: Findings) -> None:
    """Each topologySpreadConstraint by itself."""
    for at, one in enumerate(constraints or []):
        field = f"spec.topologySpreadConstraints[{at}]"
        positive(one.max_skew or 0, field=f"{field}.maxSkew", found=findings.invalid)
        if not one.topology_key:
            findings.required(f"{field}.topologyKey", "can not be empty")
        else:
            findings.invalid(f"{field}.topologyKey", one.topology_key, key_fault(one.topology_key))
        when = one.when_unsatisfiable or ""
        findings.one_of(f"{field}.whenUnsatisfiable", when, ("DoNotSchedule", "ScheduleAnyway"))
        if one.min_domains is not None:
            positive(one.min_domains, field=f"{field}.minDomains", found=findings.invalid)
            if when != "DoNotSchedule":
                findings.invalid(
                    f"{field}.minDomains",
                    one.min_domains,
                    f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {when}",
                )
        for name, policy in (
            ("nodeAffinityPolicy", one.node_affinity_policy),
            ("nodeTaintsPolicy", one.node_taints_policy),
        ):
            findings.one_of(f"{field}.{name}", policy, ("Honor", "Ignore"))
        check_label_selector(one.label_selector, field=f"{field}.labelSelector", findings=findings)


def positive(value: int, *, field: str, found: Callable[[str, object, str], None]) -> None:
    """A number above zero."""
    found(field, value, "" if value > 0 else "must be greater than zero")
