"""The fields of Kubernetes objects that scheduling reads, decoded straight from JSON.

Everything else is skipped while parsing, which is what makes a pod cost microseconds and what
keeps a pod's annotations and environment out of memory. Parts that are the same in every pod of a
shape (resources, affinity, tolerations, …) stay raw bytes: :mod:`stretto.model.shaping` uses them
as a key and decodes them once per shape, not once per pod.
"""

# Annotations are not put off as text here: msgspec would compile it again in each process.
from datetime import datetime

import msgspec
from msgspec import Raw

from stretto.model.quantity import Quantity

RAW_NOTHING = Raw()
"""An absent raw part."""


class _Object(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """camelCase on the wire, snake_case here."""


class OwnerReference(_Object, frozen=True, gc=False):
    """Who made an object; ``controller`` marks the one that manages it."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(_Object, frozen=True, gc=False):
    """What identifies an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: list[OwnerReference] | None = None


class PodMeta(ObjectMeta, frozen=True, gc=False):
    """What identifies a pod."""

    annotations: Raw = RAW_NOTHING


class Resources(_Object, frozen=True, gc=False):
    """Requests of a container or pod; limits do not matter once the API server has defaulted."""

    requests: dict[str, Quantity] | None = None


class Container(_Object, frozen=True, gc=False):
    """A regular or init container."""

    name: str = ""
    image: str | None = None
    resources: Raw = RAW_NOTHING
    """:class:`Resources`."""
    ports: Raw = RAW_NOTHING
    """A list of :class:`ContainerPort`."""
    restart_policy: str | None = None
    """"Always" on an init container makes it a sidecar."""
    restart_policy_rules: Raw = RAW_NOTHING


class ContainerPort(_Object, frozen=True, gc=False):
    """A port of a container; ``host_port`` 0 means none."""

    host_port: int | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")
    protocol: str | None = None


class Present(_Object, frozen=True, gc=False):
    """Something whose being there is all that matters."""


class ClaimSource(_Object, frozen=True, gc=False):
    """A volume that names a PersistentVolumeClaim."""

    claim_name: str = ""


class ImageSource(_Object, frozen=True, gc=False):
    """A volume that is an image."""

    reference: str = ""


class DiskSource(_Object, frozen=True, gc=False):
    """An inline disk: the fields of all kinds, of which each has some."""

    pd_name: str = ""
    volume_id: str = msgspec.field(default="", name="volumeID")
    disk_uri: str = msgspec.field(default="", name="diskURI")
    volume_path: str = ""
    share_name: str = ""
    iqn: str = ""
    monitors: tuple[str, ...] | None = None
    pool: str | None = None
    image: str = ""
    read_only: bool | None = None


class Volume(_Object, frozen=True, gc=False):
    """A volume, as far as it constrains where a pod can run or which images it pulls.

    configMap, secret, projected, emptyDir, downwardAPI and hostPath are free; so are CSI inline
    volumes, which no plugin counts. The named inline kinds are those that VolumeRestrictions or
    the volume limits read (design §12.14).
    """

    name: str = ""
    """First, see :attr:`free`: generated for token volumes, read of ephemeral ones only."""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: Present | None = None
    image: ImageSource | None = None
    gce_persistent_disk: DiskSource | None = None
    aws_elastic_block_store: DiskSource | None = None
    azure_disk: DiskSource | None = None
    azure_file: DiskSource | None = None
    cinder: DiskSource | None = None
    iscsi: DiskSource | None = None
    rbd: DiskSource | None = None
    portworx_volume: DiskSource | None = None
    vsphere_volume: DiskSource | None = None

    @property
    def free(self) -> bool:
        """Without any meaning for scheduling; one comparison, as most volumes are."""
        return msgspec.structs.astuple(self)[1:] == _FREE


_FREE = msgspec.structs.astuple(Volume())[1:]


class SchedulingGroup(_Object, frozen=True, gc=False):
    """The PodGroup that a pod belongs to."""

    pod_group_name: str = ""


class SchedulingGate(_Object, frozen=True, gc=False):
    """A reason to hold the pod back; gone when someone removes it."""

    name: str = ""


class PodSpec(_Object, frozen=True, gc=False):
    """What the pod asks for."""

    containers: list[Container] = []
    init_containers: list[Container] | None = None
    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    priority: int | None = None
    preemption_policy: str | None = None
    node_selector: Raw = RAW_NOTHING
    affinity: Raw = RAW_NOTHING
    tolerations: Raw = RAW_NOTHING
    topology_spread_constraints: Raw = RAW_NOTHING
    overhead: Raw = RAW_NOTHING
    resources: Raw = RAW_NOTHING
    resource_claims: Raw = RAW_NOTHING
    scheduling_gates: list[SchedulingGate] | None = None
    volumes: list[Volume] | None = None
    host_network: bool | None = None
    host_users: bool | None = None
    scheduling_group: SchedulingGroup | None = None
    """Membership of a PodGroup (1.36 and later)."""
    workload_ref: Present | None = None
    """The same in 1.35."""


class PodCondition(_Object, frozen=True, gc=False):
    """A condition in a pod's status."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


class ContainerStatus(_Object, frozen=True, gc=False):
    """What a kubelet says that a container has been given (in-place resize)."""

    name: str = ""
    resources: Raw = RAW_NOTHING
    allocated_resources: Raw = RAW_NOTHING


class PodStatus(_Object, frozen=True, gc=False):
    """What has become of the pod."""

    phase: str = ""
    nominated_node_name: str | None = None
    conditions: list[PodCondition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resource_claim_statuses: Raw = RAW_NOTHING
    """Names of the claims that were made from templates."""
    resources: Raw = RAW_NOTHING
    """Pod-level resources in effect."""
    allocated_resources: Raw = RAW_NOTHING
    start_time: str | None = None
    reason: str | None = None
    message: str | None = None


class Pod(_Object, frozen=True, gc=False):
    """A pod."""

    metadata: PodMeta = PodMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def gates(self) -> tuple[str, ...]:
        """Names of the scheduling gates that hold the pod back."""
        return tuple(gate.name for gate in self.spec.scheduling_gates or ())

    @property
    def leaving(self) -> bool:
        """Being deleted, or ended."""
        return self.metadata.deletion_timestamp is not None or self.ended

    @property
    def ended(self) -> bool:
        """In a terminal phase: takes no room any more."""
        return self.status.phase in ("Succeeded", "Failed")

    def condition(self, kind: str) -> PodCondition | None:
        """The condition of a type, if there is one."""
        for condition in self.status.conditions or ():
            if condition.type == kind:
                return condition
        return None


class NodeTaint(_Object, frozen=True, gc=False):
    """A taint."""

    key: str = ""
    value: str | None = None
    effect: str = ""


class NodeSpec(_Object, frozen=True, gc=False):
    """What an operator has set on a node."""

    unschedulable: bool | None = None
    taints: list[NodeTaint] | None = None


class NodeImage(_Object, frozen=True, gc=False):
    """An image that a node holds."""

    names: list[str] | None = None
    size_bytes: int | None = None


class NodeStatus(_Object, frozen=True, gc=False):
    """What a kubelet reports."""

    allocatable: dict[str, Quantity] | None = None
    images: list[NodeImage] | None = None
    declared_features: list[str] | None = None


class Node(_Object, frozen=True, gc=False):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Namespace(_Object, frozen=True, gc=False):
    """A namespace; its labels are read by namespace selectors."""

    metadata: ObjectMeta = ObjectMeta()


def seconds_of(time: str | None) -> int:
    """Seconds since 1970 of a time as the API writes it; 0 for none, or for one that cannot be
    read."""
    if not time:
        return 0
    try:
        return max(0, int(datetime.fromisoformat(time).timestamp()))
    except ValueError:
        return 0


_pod_decoder = msgspec.json.Decoder(Pod)
_node_decoder = msgspec.json.Decoder(Node)
TOO_DEEP = "JSON is nested too deeply"


def decode_pod(data: bytes | str) -> Pod:
    """Read a pod.

    Raises:
        msgspec.DecodeError: not JSON, or nested without end.
        msgspec.ValidationError: a field that is read has another type than the API's.
    """
    try:
        return _pod_decoder.decode(data)
    except RecursionError:
        raise msgspec.DecodeError(TOO_DEEP) from None


def decode_node(data: bytes | str) -> Node:
    """Read a node; raises as :func:`decode_pod` does."""
    try:
        return _node_decoder.decode(data)
    except RecursionError:
        raise msgspec.DecodeError(TOO_DEEP) from None
