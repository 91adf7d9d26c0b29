"""What an API server refuses in a pod or a node although its JSON has the right types: 422.

Checked against a real one by tests/contract: the same bodies, the same codes and words.
"""

from __future__ import annotations

from collections.abc import Iterator

from stretto.simulator.field_types import AnyObject, Container, Node, Pod, PodSpec
from stretto.simulator.findings import Findings, key_fault, name_fault, value_fault
from stretto.simulator.kinds import Kind
from stretto.simulator.quantity_rules import amounts_of, check_resources
from stretto.simulator.selector_rules import (
    EFFECTS,
    check_affinity,
    check_spread,
    check_tolerations,
)

_RESTART = ("Always", "OnFailure", "Never")
_PULL = ("Always", "IfNotPresent", "Never")
_DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PROTOCOLS = ("SCTP", "TCP", "UDP")


def check_rules(kind: Kind, body: AnyObject, *, name: str) -> None:
    """Check a body that is complete: names given, defaults filled in.

    Raises:
        Refusal: 400 (a quantity that is none) or 422.
    """
    findings = Findings()
    if body.metadata is not None:
        findings.labels("metadata.labels", body.metadata.labels)
    if isinstance(body, Pod):
        _check_pod(body.spec or PodSpec(), kind=kind, findings=findings)
    elif isinstance(body, Node):
        _check_node(body, kind=kind, findings=findings)
    findings.raise_for(kind.name, name)


def _check_pod(spec: PodSpec, *, kind: Kind, findings: Findings) -> None:
    for field, container in _containers(spec):
        _check_container(container, field, kind=kind, findings=findings)
    _check_uniqueness(spec, findings)
    if spec.resources is not None:
        for part, quantities in (
            ("requests", spec.resources.requests), ("limits", spec.resources.limits),
        ):  # fmt: skip
            amounts_of(quantities, field=f"spec.resources.{part}[*]", kind=kind, findings=findings)
    for key, value in (spec.node_selector or {}).items():
        findings.invalid("spec.nodeSelector", key, key_fault(key))
        findings.invalid("spec.nodeSelector", value, value_fault(value or ""))
    check_affinity(spec.affinity, findings=findings)
    check_tolerations(spec.tolerations, findings=findings)
    check_spread(spec.topology_spread_constraints, findings=findings)
    _check_gates(spec, findings)
    findings.one_of("spec.restartPolicy", spec.restart_policy, _RESTART)
    findings.one_of("spec.dnsPolicy", spec.dns_policy, _DNS)
    findings.within("spec.activeDeadlineSeconds", spec.active_deadline_seconds, 1, 2**31 - 1)
    if spec.os is not None:
        findings.one_of("spec.os", spec.os.name or "", ("linux", "windows"))
    for at, volume in enumerate(spec.volumes or []):
        kinds = [key for key, value in volume.items() if key != "name" and value is not None]
        for key in kinds[1:]:
            findings.forbidden(
                f"spec.volumes[{at}].{key}", "may not specify more than 1 volume type"
            )


def _containers(spec: PodSpec) -> Iterator[tuple[str, Container]]:
    for part, containers in (
        ("containers", spec.containers), ("initContainers", spec.init_containers),
    ):  # fmt: skip
        for at, container in enumerate(containers or []):
            yield f"spec.{part}[{at}]", container


def _check_container(container: Container, field: str, *, kind: Kind, findings: Findings) -> None:
    findings.invalid(f"{field}.name", container.name, name_fault(container.name or "", dots=False))
    if not container.image:
        findings.required(f"{field}.image")
    findings.one_of(f"{field}.imagePullPolicy", container.image_pull_policy, _PULL)
    findings.one_of(
        f"{field}.restartPolicy", container.restart_policy, ("Always", "Never", "OnFailure")
    )
    check_resources(container.resources, field=f"{field}.resources", kind=kind, findings=findings)
    for at, port in enumerate(container.ports or []):
        where = f"{field}.ports[{at}]"
        if not port.container_port:
            findings.required(f"{where}.containerPort")
        else:
            findings.within(f"{where}.containerPort", port.container_port, 1, 65_535)
        findings.within(f"{where}.hostPort", port.host_port or None, 1, 65_535)
        findings.one_of(f"{where}.protocol", port.protocol or None, _PROTOCOLS)


def _check_uniqueness(spec: PodSpec, findings: Findings) -> None:
    names: set[str | None] = set()
    taken: set[str] = set()
    for field, container in _containers(spec):
        if container.name in names:
            findings.duplicate(f"{field}.name", str(container.name))
        names.add(container.name)
        if field.startswith("spec.initContainers"):
            continue
        for at, port in enumerate(container.ports or []):
            where = f"{field}.ports[{at}].hostPort"
            if spec.host_network and port.host_port and port.host_port != port.container_port:
                findings.invalid(
                    where, port.host_port, "must match `containerPort` when `hostNetwork` is true"
                )
            one = f"{port.protocol or 'TCP'}/{port.host_ip or ''}/{port.host_port}"
            if port.host_port and one in taken:
                findings.duplicate(where, one)
            taken.add(one)


def _check_gates(spec: PodSpec, findings: Findings) -> None:
    names: set[str] = set()
    for at, gate in enumerate(spec.scheduling_gates or []):
        name = gate.name or ""
        findings.invalid(f"spec.schedulingGates[{at}]", name, key_fault(name))
        if name in names:
            findings.duplicate(f"spec.schedulingGates[{at}]", name)
        names.add(name)
    if not spec.node_name:
        return
    findings.invalid("spec.nodeName", spec.node_name, name_fault(spec.node_name, dots=True))
    if names:
        findings.forbidden(
            "spec.nodeName", "cannot be set until all schedulingGates have been cleared"
        )


def _check_node(node: Node, *, kind: Kind, findings: Findings) -> None:
    if node.status is not None:
        for part, quantities in (
            ("capacity", node.status.capacity), ("allocatable", node.status.allocatable),
        ):  # fmt: skip
            amounts_of(quantities, field=f"status.{part}.*", kind=kind, findings=findings)
    seen: set[tuple[str | None, str | None]] = set()
    for at, taint in enumerate((node.spec.taints if node.spec else None) or []):
        field = f"metadata.taints[{at}]"
        findings.invalid(f"{field}.key", taint.key or "", key_fault(taint.key or ""))
        findings.invalid(f"{field}.value", taint.value, value_fault(taint.value or ""))
        if not taint.effect:
            findings.required(f"{field}.effect")
        else:
            findings.one_of(f"{field}.effect", taint.effect, EFFECTS)
        if (taint.key, taint.effect) in seen:
            findings.duplicate(field, f"{taint.key}:{taint.effect}")
        seen.add((taint.key, taint.effect))
