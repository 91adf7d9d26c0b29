"""Rules for resource lists, of containers, of pods as a whole and of nodes."""

from __future__ import annotations

import re

from stretto.simulator.amounts import AmountError, amount
from stretto.simulator.field_types import Quantities, Resources, quantity_fault
from stretto.simulator.findings import Findings, key_fault
from stretto.simulator.kinds import Kind

_QUANTITY = re.compile(r"([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)\Z")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)")
_STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})
_OF_NODES = frozenset({"pods", "storage"})


def amounts_of(
    quantities: Quantities | None, *, field: str, kind: Kind, findings: Findings
) -> dict[str, int]:
    """The list in the simulator's units; what cannot be is found.

    Raises:
        Refusal: 400, one is no quantity.
    """
    read = {}
    for name, value in (quantities or {}).items():
        text = "0" if value is None else str(value)
        match = _NUMBER.match(text)
        if match is None or not _QUANTITY.match(text):
            raise quantity_fault(kind)
        where = field.replace("*", name)
        if text.startswith("-") and match[0].strip("-0."):
            findings.invalid(where, text, "must be greater than or equal to 0")
            continue
        try:
            read[name] = amount(text, milli=True)
        except AmountError:  # beyond what the kubelet of the simulator reads
            continue
        if read[name] % 1000 and is_counted(name):
            findings.invalid(where, f"{read[name]}m", "must be an integer")
    return read


def is_extended(name: str) -> bool:
    """A resource that somebody else than Kubernetes defines."""
    prefix, slash, _ = name.partition("/")
    return bool(slash) and not prefix.endswith("kubernetes.io")


def is_counted(name: str) -> bool:
    """A resource that comes in whole pieces."""
    return name == "pods" or is_extended(name) or name.startswith("attachable-volumes-")


def check_resources(
    resources: Resources | None, *, field: str, kind: Kind, findings: Findings
) -> None:
    """Requests and limits of a container.

    Raises:
        Refusal: 400, one is no quantity.
    """
    if resources is None:
        return
    limits, requests = resources.limits or {}, resources.requests or {}
    if not (limits or requests):
        return
    for part, quantities in (("limits", limits), ("requests", requests)):
        for name in quantities:
            _check_name(name, field=f"{field}.{part}[{name}]", findings=findings)
    most = amounts_of(limits, field=f"{field}.limits[*]", kind=kind, findings=findings)
    asked = amounts_of(requests, field=f"{field}.requests[*]", kind=kind, findings=findings)
    for name, value in asked.items():
        _check_pair(
            name, value, most.get(name), resources=resources, field=field, findings=findings
        )
    if any(name.startswith("hugepages-") for name in (*limits, *requests)) and not (
        {"cpu", "memory"} & {*limits, *requests}
    ):
        findings.forbidden(field, "HugePages require cpu or memory")


def _check_name(name: str, *, field: str, findings: Findings) -> None:
    if "/" in name:
        findings.invalid(field, name, key_fault(name))
    elif name not in _STANDARD and not name.startswith("hugepages-"):
        if name not in _OF_NODES:
            findings.invalid(field, name, "must be a standard resource type or fully qualified")
        findings.invalid(field, name, "must be a standard resource for containers")


def _check_pair(
    name: str, value: int, most: int | None, *, resources: Resources, field: str, findings: Findings
) -> None:
    """What is asked for beside its limit."""
    whole = is_extended(name) or name.startswith("hugepages-")
    if most is None:
        if whole:
            findings.required(
                f"{field}.limits", "Limit must be set for non overcommitable resources"
            )
        return
    shown = str((resources.requests or {}).get(name))
    limit = (resources.limits or {}).get(name)
    if whole and value != most:
        findings.invalid(f"{field}.requests", shown, f"must be equal to {name} limit of {limit}")
    elif value > most:
        findings.invalid(
            f"{field}.requests", shown, f"must be less than or equal to {name} limit of {limit}"
        )
