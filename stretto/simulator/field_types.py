"""The JSON types of the fields that the simulator and schedulers read, as the API declares them.

A body in which one of them has another type is answered 400, as a real API server does. Null is
taken everywhere and means absent; what is not named here may be anything.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from stretto.simulator.answers import Refusal
from stretto.simulator.kinds import Kind

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Texts = dict[str, str | None]
Quantities = dict[str, str | int | float | None]


class _Typed(msgspec.Struct, rename="camel", gc=False):
    """Fields by their JSON names."""


class ObjectMeta(_Typed):
    """Metadata of any object."""

    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    labels: Texts | None = None
    annotations: Texts | None = None
    finalizers: list[str] | None = None


class Requirement(_Typed):
    """A line of a selector."""

    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class LabelSelector(_Typed):
    """Of pods."""

    match_labels: Texts | None = None
    match_expressions: list[Requirement] | None = None


class NodeTerm(_Typed):
    """Of a node selector."""

    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeSelector(_Typed):
    """Terms of which one has to hold."""

    node_selector_terms: list[NodeTerm] | None = None


class PreferredNodes(_Typed):
    """A node term with a weight."""

    weight: Int32 | None = None
    preference: NodeTerm | None = None


class NodeAffinity(_Typed):
    """Hard and soft."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredNodes] | None = None


class PodTerm(_Typed):
    """Of inter-pod affinity."""

    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    topology_key: str | None = None


class PreferredPods(_Typed):
    """A pod term with a weight."""

    weight: Int32 | None = None
    pod_affinity_term: PodTerm | None = None


class PodAffinity(_Typed):
    """Hard and soft, for affinity and its opposite."""

    required_during_scheduling_ignored_during_execution: list[PodTerm] | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredPods] | None = None


class Affinity(_Typed):
    """All three kinds."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(_Typed):
    """Of taints."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: Int64 | None = None


class Spread(_Typed):
    """A topologySpreadConstraint."""

    max_skew: Int32 | None = None
    topology_key: str | None = None
    when_unsatisfiable: str | None = None
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class Resources(_Typed):
    """Of a container or of a pod as a whole."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class Port(_Typed):
    """Of a container."""

    container_port: Int32 | None = None
    host_port: Int32 | None = None
    host_ip: str | None = msgspec.field(name="hostIP", default=None)
    protocol: str | None = None


class Container(_Typed):
    """Of a pod."""

    name: str | None = None
    image: str | None = None
    image_pull_policy: str | None = None
    restart_policy: str | None = None
    resources: Resources | None = None
    ports: list[Port] | None = None


class Gate(_Typed):
    """A scheduling gate."""

    name: str | None = None


class PodSpec(_Typed):
    """What is asked for."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    node_name: str | None = None
    scheduler_name: str | None = None
    node_selector: Texts | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    topology_spread_constraints: list[Spread] | None = None
    scheduling_gates: list[Gate] | None = None
    priority: Int32 | None = None
    priority_class_name: str | None = None
    preemption_policy: str | None = None
    restart_policy: str | None = None
    termination_grace_period_seconds: Int64 | None = None
    active_deadline_seconds: Int64 | None = None
    dns_policy: str | None = None
    host_network: bool | None = None
    overhead: Quantities | None = None
    resources: Resources | None = None
    volumes: list[dict[str, Any]] | None = None
    os: Gate | None = None


class Condition(_Typed):
    """Of a pod or a node."""

    type: str | None = None
    status: str | None = None
    reason: str | None = None
    message: str | None = None


class PodStatus(_Typed):
    """What has become of it."""

    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    nominated_node_name: str | None = None
    conditions: list[Condition] | None = None


class Taint(_Typed):
    """Of a node."""

    key: str | None = None
    value: str | None = None
    effect: str | None = None


class NodeSpec(_Typed):
    """What a node is told."""

    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class NodeStatus(_Typed):
    """What a node says of itself."""

    capacity: Quantities | None = None
    allocatable: Quantities | None = None
    conditions: list[Condition] | None = None


class AnyObject(_Typed):
    """An object of a kind that is only kept."""

    metadata: ObjectMeta | None = None


class Pod(AnyObject):
    """A pod."""

    spec: PodSpec | None = None
    status: PodStatus | None = None


class Node(AnyObject):
    """A node."""

    spec: NodeSpec | None = None
    status: NodeStatus | None = None


_TYPES: dict[str, type[AnyObject]] = {"pods": Pod, "nodes": Node}


def typed(kind: Kind, body: dict[str, Any]) -> AnyObject:
    """The body read by the types of its kind.

    Raises:
        Refusal: 400, a field has another type.
    """
    named = body.get("kind")
    if named and named != kind.name and kind.resource in _TYPES:
        raise Unreadable(kind, "unknown conversion", of=str(named)[:300])
    try:
        return msgspec.convert(body, _TYPES.get(kind.resource, AnyObject))
    except (msgspec.ValidationError, RecursionError) as error:
        raise Unreadable(kind, f"json: cannot unmarshal: {error}") from None


class Unreadable(Refusal):
    """400: the body cannot be read as its kind."""

    def __init__(self, kind: Kind, why: str, *, of: str = "") -> None:
        super().__init__(
            400,
            "BadRequest",
            f'{of or kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: '
            f"{why}",
        )
        self.why = why

    @property
    def of_patch(self) -> Refusal:
        """What is answered when the body is the outcome of a patch."""
        return Refusal(422, "Invalid", f' "" is invalid: patch: Invalid value: {self.why}')


def quantity_fault(kind: Kind) -> Unreadable:
    """The answer to a quantity that is none."""
    return Unreadable(
        kind,
        "quantities must match the regular expression "
        "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
    )
