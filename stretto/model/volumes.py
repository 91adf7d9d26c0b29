"""Storage objects of the API, as far as scheduling reads them, decoded straight from JSON."""

from __future__ import annotations

import msgspec

from stretto.model.objects import DiskSource, OwnerReference
from stretto.model.quantity import Quantity
from stretto.model.selector import RawRequirement, RawSelector

SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""Annotation of a claim: the node that a provisioner is to make its volume for."""
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
WAIT = "WaitForFirstConsumer"


class _Object(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """camelCase on the wire, snake_case here."""


class StorageMeta(_Object, frozen=True, gc=False):
    """What identifies an object, with its annotations."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None
    owner_references: list[OwnerReference] | None = None

    def annotation(self, key: str) -> str | None:
        """The value of an annotation, None if it is absent."""
        return (self.annotations or {}).get(key)


class ObjectReference(_Object, frozen=True, gc=False):
    """spec.claimRef of a volume."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class NodeSelectorTerm(_Object, frozen=True, gc=False):
    """A term of a node selector."""

    match_expressions: list[RawRequirement] | None = None
    match_fields: list[RawRequirement] | None = None


class NodeSelector(_Object, frozen=True, gc=False):
    """Terms ORed."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class VolumeNodeAffinity(_Object, frozen=True, gc=False):
    """Where a volume can be reached from."""

    required: NodeSelector | None = None


class CsiSource(_Object, frozen=True, gc=False):
    """A volume of a CSI driver."""

    driver: str = ""
    volume_handle: str = ""


class VolumeSpec(_Object, frozen=True, gc=False):
    """spec of a PersistentVolume."""

    capacity: dict[str, Quantity] | None = None
    access_modes: list[str] | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    claim_ref: ObjectReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiSource | None = None
    gce_persistent_disk: DiskSource | None = None
    aws_elastic_block_store: DiskSource | None = None
    azure_disk: DiskSource | None = None
    cinder: DiskSource | None = None
    portworx_volume: DiskSource | None = None


class Phase(_Object, frozen=True, gc=False):
    """status of a volume or a claim."""

    phase: str = ""


class PersistentVolume(_Object, frozen=True, gc=False):
    """A volume."""

    metadata: StorageMeta = StorageMeta()
    spec: VolumeSpec = VolumeSpec()
    status: Phase = Phase()


class ClaimResources(_Object, frozen=True, gc=False):
    """What a claim asks for."""

    requests: dict[str, Quantity] | None = None


class ClaimSpec(_Object, frozen=True, gc=False):
    """spec of a PersistentVolumeClaim."""

    access_modes: list[str] | None = None
    resources: ClaimResources = ClaimResources()
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_name: str = ""
    volume_attributes_class_name: str | None = None
    selector: RawSelector | None = None


class PersistentVolumeClaim(_Object, frozen=True, gc=False):
    """A claim."""

    metadata: StorageMeta = StorageMeta()
    spec: ClaimSpec = ClaimSpec()
    status: Phase = Phase()


class TopologyRequirement(_Object, frozen=True, gc=False):
    """key In values."""

    key: str = ""
    values: list[str] | None = None


class TopologyTerm(_Object, frozen=True, gc=False):
    """Requirements ANDed."""

    match_label_expressions: list[TopologyRequirement] | None = None


class StorageClass(_Object, frozen=True, gc=False):
    """A class of storage."""

    metadata: StorageMeta = StorageMeta()
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologyTerm] | None = None


class DriverAllocatable(_Object, frozen=True, gc=False):
    """How many volumes a node takes."""

    count: int | None = None


class NodeDriver(_Object, frozen=True, gc=False):
    """A CSI driver on a node."""

    name: str = ""
    allocatable: DriverAllocatable | None = None


class CsiNodeSpec(_Object, frozen=True, gc=False):
    """Drivers that are installed."""

    drivers: list[NodeDriver] | None = None


class CsiNode(_Object, frozen=True, gc=False):
    """What CSI drivers say about a node; it has the node's name."""

    metadata: StorageMeta = StorageMeta()
    spec: CsiNodeSpec = CsiNodeSpec()


class CsiDriverSpec(_Object, frozen=True, gc=False):
    """What a driver wants from scheduling."""

    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CsiDriver(_Object, frozen=True, gc=False):
    """A CSI driver."""

    metadata: StorageMeta = StorageMeta()
    spec: CsiDriverSpec = CsiDriverSpec()


class CsiStorageCapacity(_Object, frozen=True, gc=False):
    """Free storage of a class in a part of the cluster."""

    metadata: StorageMeta = StorageMeta()
    storage_class_name: str = ""
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None
    node_topology: RawSelector | None = None


class AttachmentSource(_Object, frozen=True, gc=False):
    """What is attached."""

    persistent_volume_name: str | None = None


class AttachmentSpec(_Object, frozen=True, gc=False):
    """spec of a VolumeAttachment."""

    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource = AttachmentSource()


class VolumeAttachment(_Object, frozen=True, gc=False):
    """A volume that is, or is to be, attached to a node."""

    metadata: StorageMeta = StorageMeta()
    spec: AttachmentSpec = AttachmentSpec()
