"""Objects beside nodes and pods that plugins read, and how each becomes a row of the log.

A kind is one entry of :data:`KINDS`; the Binder lists and watches it (its role in deploy/ must
allow that), and publishes what its maker keeps as (kind, key, payload), design §12.18. An optional
kind belongs to an API that not every server serves: it is looked for again now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from binder.storage import HELD_KINDS
from stretto.model import device_rows
from stretto.model.devices import CLAIM as DEVICE_CLAIM
from stretto.model.devices import CLASS as DEVICE_CLASS
from stretto.model.devices import SLICE, TAINT_RULE, encode_row
from stretto.model.groups import LEGACY_GROUPS, POD_GROUP, PodGroup, encode_group, group_row_of
from stretto.quota.rows import QUEUE, QUOTA_API, Queue, encode_quota, queue_row_of
from stretto.snapshot.volume_rows import (
    ATTACHMENT,
    CAPACITY,
    CLAIM,
    CLASS,
    CSI_DRIVER,
    CSI_NODE,
    VOLUME,
    encode_storage,
    storage_row,
)
from stretto.snapshot.volume_rows import KINDS as STORAGE
from stretto.snapshot.workloads import (
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    SERVICE,
    STATEFUL_SET,
    Workload,
    decode_selector,
    encode_selector,
    workload_row_of,
)

DEVICE_API = "resource.k8s.io/v1"
DEVICE_RESOURCES = {
    SLICE: "resourceslices",
    DEVICE_CLASS: "deviceclasses",
    DEVICE_CLAIM: "resourceclaims",
    TAINT_RULE: "devicetaintrules",
}
"""Kind → plural name in the API's paths."""


class ObjectKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of object that is watched."""

    kind: str
    """Of its rows in the log."""
    api: str
    """"v1", or group/version."""
    resource: str
    """Plural name in the API's paths."""
    decode: type[Any]
    """msgspec Struct with ``metadata`` (name, namespace, uid, resource_version)."""
    payload: Callable[[Any], bytes]
    key_suffix: str = ""
    """Tells kinds apart that share rows."""
    optional: bool = False
    label_keys: Callable[[bytes], Iterable[str]] | None = None
    """From a payload: the labels of pods that the object's selector reads."""

    @property
    def root(self) -> str:
        """Path that lists the resources of the API."""
        return f"/api/{self.api}" if self.api == "v1" else f"/apis/{self.api}"

    @property
    def path(self) -> str:
        """Path of the list over all namespaces."""
        return f"{self.root}/{self.resource}"

    def key(self, namespace: str, name: str) -> str:
        """Of an object's row: namespace/name, or the name of what has no namespace."""
        return (f"{namespace}/{name}" if namespace else name) + self.key_suffix


def _devices(kind: str, resource: str) -> ObjectKind:
    """Dynamic resource allocation: an API that may be switched off."""
    api, row_of = device_rows.KINDS[kind]
    return ObjectKind(
        kind=kind,
        api=DEVICE_API,
        resource=resource,
        decode=api,
        payload=lambda found: encode_row(row_of(found)),
        optional=True,
    )


def _workload(kind: str, *, api: str, resource: str) -> ObjectKind:
    """A kind whose selectors make default spread constraints."""
    return ObjectKind(
        kind=kind,
        api=api,
        resource=resource,
        decode=Workload,
        payload=lambda workload: encode_selector(workload_row_of(kind, workload)),
        label_keys=lambda payload: (r.key for r in decode_selector(payload)),
    )


def _storage(kind: str, resource: str) -> ObjectKind:
    return ObjectKind(
        kind=kind,
        api="v1" if kind in HELD_KINDS else "storage.k8s.io/v1",
        resource=resource,
        decode=STORAGE[kind].api,
        payload=lambda obj: encode_storage(storage_row(kind, obj)[1]),
    )


KINDS: tuple[ObjectKind, ...] = (
    _workload(SERVICE, api="v1", resource="services"),
    _workload(REPLICATION_CONTROLLER, api="v1", resource="replicationcontrollers"),
    _workload(REPLICA_SET, api="apps/v1", resource="replicasets"),
    _workload(STATEFUL_SET, api="apps/v1", resource="statefulsets"),
    _storage(VOLUME, "persistentvolumes"),
    _storage(CLAIM, "persistentvolumeclaims"),
    _storage(CLASS, "storageclasses"),
    _storage(CSI_NODE, "csinodes"),
    _storage(CSI_DRIVER, "csidrivers"),
    _storage(CAPACITY, "csistoragecapacities"),
    _storage(ATTACHMENT, "volumeattachments"),
    ObjectKind(
        kind=POD_GROUP,
        api="scheduling.k8s.io/v1beta1",
        resource="podgroups",
        decode=PodGroup,
        payload=lambda group: encode_group(group_row_of(group)),
        optional=True,
    ),
    ObjectKind(
        kind=POD_GROUP,
        api="scheduling.x-k8s.io/v1alpha1",
        resource="podgroups",
        decode=PodGroup,
        payload=lambda group: encode_group(group_row_of(group)),
        key_suffix=LEGACY_GROUPS,
        optional=True,
    ),
    ObjectKind(
        kind=QUEUE,
        api=QUOTA_API,
        resource="queues",
        decode=Queue,
        payload=lambda queue: encode_quota(queue_row_of(queue)),
        optional=True,
    ),
    *(_devices(kind, resource) for kind, resource in DEVICE_RESOURCES.items()),
)
