"""Rows of storage objects: what plugins read of them, in base units (bytes, counts).

The Binder and the golden cases make rows by :func:`storage_row`; they travel in the log as objects
(kind, key, payload) and are decoded once by :class:`stretto.snapshot.volumes.VolumeBook`.
"""

# Annotations are not put off as text here: msgspec would compile it again in each process.
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from stretto.model.csi_migration import (
    BETA_REGION,
    BETA_ZONE,
    GA_REGION,
    GA_ZONE,
    ZONES_DELIMITER,
    migrated_volume,
)
from stretto.model.errors import OperatorError
from stretto.model.quantity import Quantity, QuantityError, base_value
from stretto.model.selector import RawRequirement, requirements_of
from stretto.model.shape import NodeTerm, Requirement
from stretto.model.volumes import (
    BETA_CLASS,
    BIND_COMPLETED,
    MIGRATED_PLUGINS,
    SELECTED_NODE,
    WAIT,
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    NodeSelectorTerm,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)

VOLUME, CLAIM, CLASS = "PersistentVolume", "PersistentVolumeClaim", "StorageClass"
CSI_NODE, CSI_DRIVER = "CSINode", "CSIDriver"
CAPACITY, ATTACHMENT = "CSIStorageCapacity", "VolumeAttachment"
STORAGE_KINDS = (VOLUME, CLAIM, CLASS, CSI_NODE, CSI_DRIVER, CAPACITY, ATTACHMENT)
ZONE_LABELS = (BETA_ZONE, BETA_REGION, GA_ZONE, GA_REGION)
"""In the order in which upstream looks at them."""
NONE = -1
"""An amount that is not given."""


class StorageError(OperatorError, ValueError):
    """A storage object that cannot be read; names the object and the field."""


class ClaimOfVolume(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """spec.claimRef; ``uid`` may be empty when a person wrote it."""

    namespace: str
    name: str
    uid: str = ""

    @property
    def key(self) -> str:
        """The claim's key."""
        return f"{self.namespace}/{self.name}"


class MigratedRow(msgspec.Struct, frozen=True, array_like=True):
    """The CSI volume that an in-tree one is where its plugin is migrated."""

    plugin: str
    driver: str
    handle: str
    terms: tuple[NodeTerm, ...] | None = None


class VolumeRow(msgspec.Struct, frozen=True):
    """A PersistentVolume."""

    name: str
    uid: str = ""
    storage_class: str = ""
    capacity: int = 0
    """Bytes."""
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    attributes_class: str = ""
    phase: str = ""
    deleting: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeTerm, ...] | None = None
    """Required node affinity; None: reachable from everywhere."""
    claim: ClaimOfVolume | None = None
    driver: str = ""
    handle: str = ""
    migrated: MigratedRow | None = None
    zones: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(label key, values) of the zone and region labels."""


class ClaimRow(msgspec.Struct, frozen=True):
    """A PersistentVolumeClaim."""

    namespace: str
    name: str
    uid: str = ""
    storage_class: str = ""
    volume_name: str = ""
    completed: bool = False
    """The volume controller has finished binding."""
    size: int = NONE
    """Requested bytes; -1: none given."""
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    attributes_class: str = ""
    selector: tuple[Requirement, ...] | None = None
    """Of volumes; None: any."""
    lost: bool = False
    deleting: bool = False
    selected_node: str | None = None
    owner_uid: str = ""
    """Uid of the controlling owner; generic ephemeral volumes are owned by their pod."""

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def bound(self) -> bool:
        """Fully bound."""
        return bool(self.volume_name) and self.completed


class ClassRow(msgspec.Struct, frozen=True):
    """A StorageClass."""

    name: str
    provisioner: str = ""
    mode: str = "Immediate"
    """Binding mode; empty: not set."""
    topologies: tuple[NodeTerm, ...] | None = None
    """Allowed topologies; None: everywhere."""

    @property
    def waits(self) -> bool:
        """Volumes are bound when a pod needs them."""
        return self.mode == WAIT


class CsiNodeRow(msgspec.Struct, frozen=True):
    """A CSINode."""

    node: str
    drivers: tuple[tuple[str, int], ...] = ()
    """(driver, how many volumes it takes on the node; -1: no limit)."""
    migrated: tuple[str, ...] = ()
    """In-tree plugins that are migrated there."""


class CsiDriverRow(msgspec.Struct, frozen=True):
    """A CSIDriver."""

    name: str
    storage_capacity: bool = False
    """Free storage is published and has to be looked at."""
    prevent_if_missing: bool = False
    """Nodes without the driver are rejected."""


class CapacityRow(msgspec.Struct, frozen=True):
    """A CSIStorageCapacity."""

    storage_class: str
    capacity: int = NONE
    """Free bytes; -1: not known."""
    largest: int = NONE
    """Bytes of the largest volume that can be made; -1: not known."""
    topology: tuple[Requirement, ...] | None = None
    """Labels of the nodes that can reach it; None: no node, (): every node."""


class AttachmentRow(msgspec.Struct, frozen=True, gc=False):
    """A VolumeAttachment."""

    node: str
    attacher: str
    volume: str


StorageRow = (
    VolumeRow | ClaimRow | ClassRow | CsiNodeRow | CsiDriverRow | CapacityRow | AttachmentRow
)


class StorageKind(NamedTuple):
    """How objects of a kind are read and kept."""

    api: type[Any]
    row: type[Any]
    make: Callable[[Any], Any]


def volume_row_of(volume: PersistentVolume) -> VolumeRow:
    """The row of a volume."""
    meta, spec = volume.metadata, volume.spec
    labels = meta.labels or {}
    affinity = spec.node_affinity
    terms = None
    if affinity is not None and affinity.required is not None:
        terms = tuple(map(_term, affinity.required.node_selector_terms or ()))
    migrated = migrated_volume(volume, terms) if spec.csi is None else None
    claim = spec.claim_ref
    return VolumeRow(
        name=meta.name,
        uid=meta.uid,
        storage_class=_first(meta.annotation(BETA_CLASS), spec.storage_class_name),
        capacity=max(0, _amount((spec.capacity or {}).get("storage"), "spec.capacity.storage")),
        access_modes=tuple(sorted(set(spec.access_modes or ()))),
        volume_mode=spec.volume_mode or "Filesystem",
        attributes_class=spec.volume_attributes_class_name or "",
        phase=volume.status.phase,
        deleting=meta.deletion_timestamp is not None,
        labels=tuple(sorted(labels.items())),
        terms=terms,
        claim=None if claim is None else ClaimOfVolume(claim.namespace, claim.name, claim.uid),
        driver=spec.csi.driver if spec.csi else "",
        handle=spec.csi.volume_handle if spec.csi else "",
        migrated=None if migrated is None else MigratedRow(*migrated),
        zones=tuple((key, zones) for key in ZONE_LABELS if (zones := _zones(labels.get(key)))),
    )


def claim_row_of(claim: PersistentVolumeClaim) -> ClaimRow:
    """The row of a claim."""
    meta, spec = claim.metadata, claim.spec
    requests = spec.resources.requests or {}
    owners = [o.uid for o in meta.owner_references or () if o.controller]
    return ClaimRow(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        storage_class=_first(meta.annotation(BETA_CLASS), spec.storage_class_name or ""),
        volume_name=spec.volume_name,
        completed=meta.annotation(BIND_COMPLETED) is not None,
        size=_amount(requests.get("storage"), "spec.resources.requests.storage"),
        access_modes=tuple(sorted(set(spec.access_modes or ()))),
        volume_mode=spec.volume_mode or "Filesystem",
        attributes_class=spec.volume_attributes_class_name or "",
        selector=requirements_of(spec.selector),
        lost=claim.status.phase == "Lost",
        deleting=meta.deletion_timestamp is not None,
        selected_node=meta.annotation(SELECTED_NODE),
        owner_uid=owners[0] if owners else "",
    )


def class_row_of(storage_class: StorageClass) -> ClassRow:
    """The row of a class; a term without requirements matches no node, as upstream."""
    terms = storage_class.allowed_topologies
    return ClassRow(
        name=storage_class.metadata.name,
        provisioner=storage_class.provisioner,
        mode=storage_class.volume_binding_mode or "",
        topologies=None
        if not terms
        else tuple(
            NodeTerm(
                tuple(
                    Requirement(r.key, "In", tuple(r.values or ()))
                    for r in term.match_label_expressions or ()
                )
            )
            for term in terms
        ),
    )


def csi_node_row_of(node: CsiNode) -> CsiNodeRow:
    """The row of a CSINode."""
    plugins = node.metadata.annotation(MIGRATED_PLUGINS) or ""
    return CsiNodeRow(
        node=node.metadata.name,
        drivers=tuple(
            (d.name, NONE if d.allocatable is None or (n := d.allocatable.count) is None else n)
            for d in node.spec.drivers or ()
        ),
        migrated=tuple(sorted(set(plugins.split(",")) - {""})),
    )


def csi_driver_row_of(driver: CsiDriver) -> CsiDriverRow:
    """The row of a CSIDriver."""
    return CsiDriverRow(
        name=driver.metadata.name,
        storage_capacity=bool(driver.spec.storage_capacity),
        prevent_if_missing=bool(driver.spec.prevent_pod_scheduling_if_missing),
    )


def capacity_row_of(capacity: CsiStorageCapacity) -> CapacityRow:
    """The row of a CSIStorageCapacity."""
    return CapacityRow(
        storage_class=capacity.storage_class_name,
        capacity=_amount(capacity.capacity, "capacity"),
        largest=_amount(capacity.maximum_volume_size, "maximumVolumeSize"),
        topology=requirements_of(capacity.node_topology),
    )


def attachment_row_of(attachment: VolumeAttachment) -> AttachmentRow:
    """The row of a VolumeAttachment."""
    spec = attachment.spec
    return AttachmentRow(spec.node_name, spec.attacher, spec.source.persistent_volume_name or "")


KINDS = {
    VOLUME: StorageKind(PersistentVolume, VolumeRow, volume_row_of),
    CLAIM: StorageKind(PersistentVolumeClaim, ClaimRow, claim_row_of),
    CLASS: StorageKind(StorageClass, ClassRow, class_row_of),
    CSI_NODE: StorageKind(CsiNode, CsiNodeRow, csi_node_row_of),
    CSI_DRIVER: StorageKind(CsiDriver, CsiDriverRow, csi_driver_row_of),
    CAPACITY: StorageKind(CsiStorageCapacity, CapacityRow, capacity_row_of),
    ATTACHMENT: StorageKind(VolumeAttachment, AttachmentRow, attachment_row_of),
}
_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoders = {kind: msgspec.msgpack.Decoder(of.row) for kind, of in KINDS.items()}


def storage_row(kind: str, obj: Any) -> tuple[str, StorageRow]:
    """(key, row) of an API object of one of :data:`KINDS`.

    Raises:
        StorageError: a quantity or a selector that cannot be read.
    """
    meta = obj.metadata
    key = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
    try:
        return key, KINDS[kind].make(obj)
    except (QuantityError, ValueError) as error:
        raise StorageError(f"{kind} {key}: {error}") from None


def encode_storage(row: StorageRow) -> bytes:
    """Payload of an object of the log."""
    return _encoder.encode(row)


def decode_storage(kind: str, payload: bytes) -> Any:
    """Read the payload of an object; the type is the kind's row.

    Raises:
        msgspec.ValidationError: the bytes are no such row.
    """
    return _decoders[kind].decode(payload)


def _first(annotation: str | None, field: str) -> str:
    return field if annotation is None else annotation


def _amount(quantity: Quantity | None, where: str) -> int:
    if quantity is None:
        return NONE
    try:
        return base_value(quantity)
    except QuantityError as error:
        raise StorageError(f"{where}: {error}") from None


def _term(term: NodeSelectorTerm) -> NodeTerm:
    return NodeTerm(_requirements(term.match_expressions), _requirements(term.match_fields))


def _requirements(raw: list[RawRequirement] | None) -> tuple[Requirement, ...]:
    return tuple(Requirement(r.key, r.operator, tuple(r.values or ())) for r in raw or ())


def _zones(value: str | None) -> tuple[str, ...]:
    """Zones of a label value; none if one of them is empty, as upstream ignores such a label."""
    if value is None:
        return ()
    zones = [zone.strip() for zone in value.split(ZONES_DELIMITER)]
    return () if "" in zones else tuple(sorted(set(zones)))
