"""Volumes of a pod that scheduling reads: its claims and its inline disks."""

from __future__ import annotations

from stretto.model.objects import DiskSource, Pod, Volume
from stretto.model.shape import Claim, Disk

_DISKS = {
    "gce_persistent_disk": "gcePersistentDisk",
    "aws_elastic_block_store": "awsElasticBlockStore",
    "azure_disk": "azureDisk",
    "azure_file": "azureFile",
    "cinder": "cinder",
    "iscsi": "iscsi",
    "rbd": "rbd",
    "portworx_volume": "portworxVolume",
    "vsphere_volume": "vsphereVolume",
}
"""Inline volumes that VolumeRestrictions or NodeVolumeLimits read, by field."""
_DEFAULT_POOL = "rbd"


def volumes_of(pod: Pod) -> tuple[tuple[Claim, ...], tuple[Disk, ...]]:
    """(claims, inline disks), each in the order of the pod's volumes."""
    claims: list[Claim] = []
    disks: list[Disk] = []
    for volume in pod.spec.volumes or ():
        if volume.free:
            continue
        if volume.persistent_volume_claim is not None:
            claims.append(Claim(volume.persistent_volume_claim.claim_name))
        elif volume.ephemeral is not None:
            meta = pod.metadata
            claims.append(Claim(f"{meta.name}-{volume.name}", meta.name, meta.uid))
        else:
            disks += _disks(volume)
    return tuple(claims), tuple(disks)


def _disks(volume: Volume) -> list[Disk]:
    found = []
    for field, kind in _DISKS.items():
        source: DiskSource | None = getattr(volume, field)
        if source is not None:
            read_only = bool(source.read_only)
            monitors = tuple(sorted(set(source.monitors or ())))
            found.append(Disk(kind, _ident(kind, source), read_only, monitors))
    return found


def _ident(kind: str, source: DiskSource) -> tuple[str, ...]:
    match kind:
        case "gcePersistentDisk":
            return (source.pd_name,)
        case "iscsi":
            return (source.iqn,)
        case "rbd":
            return source.pool or _DEFAULT_POOL, source.image
        case "azureDisk":
            return (source.disk_uri,)
        case "azureFile":
            return (source.share_name,)
        case "vsphereVolume":
            return (source.volume_path,)
    return (source.volume_id,)
