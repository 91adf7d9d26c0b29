"""In-tree disks as the CSI volumes they became (csi-translation-lib of 1.37), as far as counting
and reaching them needs."""

from __future__ import annotations

from typing import NamedTuple

from stretto.model.shape import Disk, NodeTerm, Requirement
from stretto.model.volumes import PersistentVolume

GA_ZONE, GA_REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION = "failure-domain.beta.kubernetes.io/region"
ZONES_DELIMITER = "__"
_UNSPECIFIED = "UNSPECIFIED"


class Migration(NamedTuple):
    """An in-tree plugin and the driver that replaces it."""

    plugin: str
    driver: str
    topology_key: str = ""
    """Node label that the driver's volumes are tied to; empty: affinities stay as they are."""


MIGRATIONS = {
    "gcePersistentDisk": Migration(
        "kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "topology.gke.io/zone"
    ),
    "awsElasticBlockStore": Migration(
        "kubernetes.io/aws-ebs", "ebs.csi.aws.com", "topology.ebs.csi.aws.com/zone"
    ),
    "azureDisk": Migration("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    "cinder": Migration(
        "kubernetes.io/cinder",
        "cinder.csi.openstack.org",
        "topology.cinder.csi.openstack.org/zone",
    ),
    "portworxVolume": Migration("kubernetes.io/portworx-volume", "pxd.portworx.com"),
}
"""By the field of the volume source. Azure files and vSphere disks are never counted."""
DRIVER_OF_PLUGIN = {m.plugin: m.driver for m in MIGRATIONS.values()}
NEVER_MIGRATED = frozenset(("kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"))


class Migrated(NamedTuple):
    """What an in-tree volume is where its plugin has been migrated."""

    plugin: str
    driver: str
    handle: str
    terms: tuple[NodeTerm, ...] | None


def migrated_disk(disk: Disk) -> tuple[Migration, str] | None:
    """The migration of an inline disk and its handle; None if it is not one that is counted."""
    migration = MIGRATIONS.get(disk.kind)
    if migration is None:
        return None
    if disk.kind == "gcePersistentDisk":
        return migration, gce_handle((), disk.ident[0])
    if disk.kind == "awsElasticBlockStore":
        return migration, ebs_handle(disk.ident[0])
    return migration, disk.ident[0]


def gce_handle(zones: tuple[str, ...], name: str) -> str:
    """projects/UNSPECIFIED/zones/Z/disks/NAME, or the regional form for several zones."""
    if len(zones) > 1:
        region = "-".join(zones[0].split("-")[:2])
        return f"projects/{_UNSPECIFIED}/regions/{region}/disks/{name}"
    zone = zones[0] if zones and zones[0] else _UNSPECIFIED
    return f"projects/{_UNSPECIFIED}/zones/{zone}/disks/{name}"


def ebs_handle(volume_id: str) -> str:
    """The bare id of aws://zone/vol-1234."""
    if not volume_id.startswith("aws://"):
        return volume_id
    return volume_id.removeprefix("aws://").partition("/")[2].strip("/")


def migrated_volume(
    volume: PersistentVolume, terms: tuple[NodeTerm, ...] | None
) -> Migrated | None:
    """The CSI volume that an in-tree one stands for; None if it is none of these."""
    spec, labels = volume.spec, volume.metadata.labels or {}
    if spec.gce_persistent_disk is not None:
        kind = "gcePersistentDisk"
        zones = labels.get(BETA_ZONE) or labels.get(GA_ZONE, "")
        handle = gce_handle(tuple(zones.split(ZONES_DELIMITER)), spec.gce_persistent_disk.pd_name)
    elif spec.aws_elastic_block_store is not None:
        kind = "awsElasticBlockStore"
        handle = ebs_handle(spec.aws_elastic_block_store.volume_id)
    elif spec.azure_disk is not None:
        kind, handle = "azureDisk", spec.azure_disk.disk_uri
    elif spec.cinder is not None:
        kind, handle = "cinder", spec.cinder.volume_id
    elif spec.portworx_volume is not None:
        kind, handle = "portworxVolume", spec.portworx_volume.volume_id
    else:
        return None
    plugin, driver, key = MIGRATIONS[kind]
    return Migrated(plugin, driver, handle, csi_terms(terms, labels, key) if key else terms)


def csi_terms(
    terms: tuple[NodeTerm, ...] | None, labels: dict[str, str], key: str
) -> tuple[NodeTerm, ...] | None:
    """Affinity with the zone under the driver's key, from in-tree terms or from labels."""
    zone, region = _topology_labels(terms or (), labels)
    if _values(terms or (), zone):
        terms = _renamed(terms or (), zone, key)
    elif zone in labels:
        values = {part.strip() for part in labels[zone].split(ZONES_DELIMITER)} - {""}
        if values:
            added = Requirement(key, "In", tuple(sorted(values)))
            terms = tuple(
                NodeTerm((*term.expressions, added), term.fields) for term in terms or (NodeTerm(),)
            )
    if region == BETA_REGION and _values(terms or (), region):
        terms = _renamed(terms or (), region, GA_REGION)
    return terms


def _topology_labels(terms: tuple[NodeTerm, ...], labels: dict[str, str]) -> tuple[str, str]:
    keys = {r.key for term in terms for r in term.expressions}
    for found in (keys, labels):
        if GA_ZONE in found:
            return GA_ZONE, GA_REGION
        if BETA_ZONE in found:
            return BETA_ZONE, BETA_REGION
    return GA_ZONE, GA_REGION


def _values(terms: tuple[NodeTerm, ...], key: str) -> bool:
    return any(r.key == key and r.values for term in terms for r in term.expressions)


def _renamed(terms: tuple[NodeTerm, ...], old: str, new: str) -> tuple[NodeTerm, ...]:
    return tuple(
        NodeTerm(
            tuple(
                Requirement(new, r.operator, r.values) if r.key == old else r
                for r in term.expressions
            ),
            term.fields,
        )
        for term in terms
    )
