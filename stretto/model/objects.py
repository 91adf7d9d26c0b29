"""Pods and nodes as the API server sends them, as much of them as scheduling reads.

Parts that only a new shape looks at stay undecoded (``msgspec.Raw``): equal bytes mean equal
content, so they are also the cheap key under which a shape is remembered
(:mod:`stretto.model.shaping`). Unknown fields are dropped at parse. Quantities stay texts;
:mod:`stretto.model.quantity` reads them.
"""

from __future__ import annotations

import msgspec

from stretto.model.errors import OperatorError

RAW = msgspec.Raw
EMPTY = msgspec.Raw()


class ObjectError(OperatorError, ValueError):
    """A body that is not the object it should be."""


class OwnerReference(msgspec.Struct, rename="camel", gc=False):
    """Who owns an object."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(msgspec.Struct, rename="camel"):
    """Metadata that scheduling needs."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    generation: int = 0
    labels: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] = ()


class ContainerPort(msgspec.Struct, rename="camel", gc=False):
    """A port of a container; only host ports matter."""

    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")


class Container(msgspec.Struct, rename="camel"):
    """A container or init container; ``resources`` and ``ports`` undecoded."""

    name: str = ""
    image: str = ""
    restart_policy: str | None = None
    resources: RAW = EMPTY
    ports: RAW = EMPTY


class ImageVolume(msgspec.Struct, gc=False):
    """An image mounted as a volume."""

    reference: str = ""


class Volume(msgspec.Struct, rename="camel"):
    """A volume: the kinds that scheduling constrains. The others are free and not named here."""

    persistent_volume_claim: RAW = EMPTY
    ephemeral: RAW = EMPTY
    gce_persistent_disk: RAW = EMPTY
    aws_elastic_block_store: RAW = EMPTY
    azure_disk: RAW = EMPTY
    cinder: RAW = EMPTY
    portworx_volume: RAW = EMPTY
    vsphere_volume: RAW = EMPTY
    iscsi: RAW = EMPTY
    rbd: RAW = EMPTY
    csi: RAW = EMPTY
    image: ImageVolume | None = None


class NamedGate(msgspec.Struct, gc=False):
    """A scheduling gate."""

    name: str


class PodSpec(msgspec.Struct, rename="camel"):
    """The spec, its bulky parts undecoded."""

    node_name: str = ""
    scheduler_name: str = ""
    priority: int | None = None
    preemption_policy: str | None = None
    host_network: bool = False
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_selector: RAW = EMPTY
    affinity: RAW = EMPTY
    tolerations: RAW = EMPTY
    overhead: RAW = EMPTY
    resources: RAW = EMPTY
    topology_spread_constraints: RAW = EMPTY
    resource_claims: RAW = EMPTY
    volumes: tuple[Volume, ...] = ()
    scheduling_gates: tuple[NamedGate, ...] = ()


class PodCondition(msgspec.Struct, rename="camel", gc=False):
    """A condition of a pod."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


class PodStatus(msgspec.Struct, rename="camel"):
    """The status, as far as requests (in-place resize), nomination and phase go."""

    phase: str = ""
    nominated_node_name: str = ""
    start_time: str | None = None
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: RAW = EMPTY
    init_container_statuses: RAW = EMPTY
    resources: RAW = EMPTY
    allocated_resources: RAW = EMPTY


class Pod(msgspec.Struct, rename="camel"):
    """A pod."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def terminal(self) -> bool:
        """Finished: it holds nothing any more."""
        return self.status.phase in ("Succeeded", "Failed")


class NodeTaint(msgspec.Struct, rename="camel", gc=False):
    """A taint of a node."""

    key: str
    effect: str = ""
    value: str = ""


class NodeSpec(msgspec.Struct, rename="camel"):
    """The spec of a node."""

    unschedulable: bool = False
    taints: tuple[NodeTaint, ...] | None = None


class ContainerImage(msgspec.Struct, rename="camel"):
    """An image that a node holds."""

    names: tuple[str, ...] | None = None
    size_bytes: int = 0


class NodeStatus(msgspec.Struct, rename="camel"):
    """The status of a node."""

    allocatable: dict[str, str | int | float] | None = None
    images: tuple[ContainerImage, ...] | None = None
    declared_features: tuple[str, ...] | None = None


class Node(msgspec.Struct, rename="camel"):
    """A node."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


_pods = msgspec.json.Decoder(Pod)
_nodes = msgspec.json.Decoder(Node)


def decode_pod(body: bytes) -> Pod:
    """Read a pod from JSON.

    Raises:
        ObjectError: the body is not a pod.
    """
    try:
        return _pods.decode(body)
    except msgspec.DecodeError as error:
        raise ObjectError(f"a pod cannot be read: {error}") from None


def decode_node(body: bytes) -> Node:
    """Read a node from JSON.

    Raises:
        ObjectError: the body is not a node.
    """
    try:
        return _nodes.decode(body)
    except msgspec.DecodeError as error:
        raise ObjectError(f"a node cannot be read: {error}") from None
