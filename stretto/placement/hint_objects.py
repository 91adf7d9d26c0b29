"""Conditions of the hints about volumes, claims and devices.

Upstream: isSchedulableAfter… of volumebinding, volumezone, volumerestrictions, nodevolumelimits and
dynamicresources. Rows of the log hold only what plugins read, so that an update is one of a field
that matters; what hints look at beyond that is the object's key.
"""

from __future__ import annotations

from stretto.model.shape import Shape
from stretto.placement.events import ClusterEvent


def own_claim(shape: Shape, event: ClusterEvent) -> bool:
    """The PersistentVolumeClaim is one of the pod's, of a generic ephemeral volume too.

    isSchedulableAfterPersistentVolumeClaimChange of volume_binding.go, and likewise elsewhere.
    """
    namespace, _, name = event.key.partition("/")
    return namespace == shape.namespace and any(claim.name == name for claim in shape.claims)


def held_volumes(_shape: Shape, event: ClusterEvent) -> bool:
    """The pod that left had volumes that count (csi.go isSchedulableAfterAssignedPodDeleted)."""
    assert event.old_pod is not None
    return bool(event.old_pod.claims or event.old_pod.disks)


def shared_volume(shape: Shape, event: ClusterEvent) -> bool:
    """The pod that left is of the namespace and had a claim or a disk that the pod wants.

    volume_restrictions.go isSchedulableAfterAssignedPodDeleted; whether two uses of a disk exclude
    each other is not looked at. Disks count in every namespace: upstream's filter does not ask for
    it either, so that its hint would leave a pod waiting.
    """
    assert event.old_pod is not None
    left = event.old_pod
    disks = {(disk.kind, disk.ident) for disk in left.disks}
    if any((disk.kind, disk.ident) in disks for disk in shape.disks):
        return True
    names = {claim.name for claim in left.claims}
    return left.namespace == shape.namespace and any(c.name in names for c in shape.claims)


def uses_volumes(shape: Shape, _event: ClusterEvent) -> bool:
    """The pod has volumes that are attached (csi.go isSchedulableAfterVolumeAttachmentDeleted)."""
    return bool(shape.claims or shape.disks)


def frees_or_own_device_claim(shape: Shape, event: ClusterEvent) -> bool:
    """The ResourceClaim had devices that it may have given back, or is one of the pod's.

    dynamicresources.go isSchedulableAfterClaimChange.
    """
    namespace, _, name = event.key.partition("/")
    if event.released:
        return True
    return namespace == shape.namespace and any(c.name == name for c in shape.device_claims)
