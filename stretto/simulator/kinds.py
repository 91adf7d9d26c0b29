"""Which resources there are, and what a request path means."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from stretto.simulator.answers import Refusal

_KINDS = {
    "bindings": "Binding",
    "configmaps": "ConfigMap",
    "csidrivers": "CSIDriver",
    "csinodes": "CSINode",
    "csistoragecapacities": "CSIStorageCapacity",
    "daemonsets": "DaemonSet",
    "deployments": "Deployment",
    "deviceclasses": "DeviceClass",
    "devicetaintrules": "DeviceTaintRule",
    "endpointslices": "EndpointSlice",
    "events": "Event",
    "jobs": "Job",
    "leases": "Lease",
    "limitranges": "LimitRange",
    "namespaces": "Namespace",
    "nodes": "Node",
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "persistentvolumes": "PersistentVolume",
    "poddisruptionbudgets": "PodDisruptionBudget",
    "podgroups": "PodGroup",
    "pods": "Pod",
    "priorityclasses": "PriorityClass",
    "runtimeclasses": "RuntimeClass",
    "replicasets": "ReplicaSet",
    "replicationcontrollers": "ReplicationController",
    "resourceclaims": "ResourceClaim",
    "resourceclaimtemplates": "ResourceClaimTemplate",
    "resourceslices": "ResourceSlice",
    "services": "Service",
    "statefulsets": "StatefulSet",
    "storageclasses": "StorageClass",
    "volumeattachments": "VolumeAttachment",
    "workloads": "Workload",
}


CLUSTER_WIDE = frozenset({
    "csidrivers", "csinodes", "deviceclasses", "devicetaintrules", "namespaces", "nodes",
    "persistentvolumes", "priorityclasses", "resourceslices", "runtimeclasses", "storageclasses",
    "volumeattachments",
})  # fmt: skip
"""Resources that have no namespace."""


@dataclass(frozen=True)
class Kind:
    """A resource type."""

    group: str
    version: str
    resource: str
    name: str = field(init=False)
    """The Kind, as "Pod"."""
    api_version: str = field(init=False)
    head: bytes = field(init=False)
    """How an object of it begins where it stands alone."""
    qualified: str = field(init=False)
    """As messages name it: "pods", "leases.coordination.k8s.io"."""
    namespaced: bool | None = field(init=False)
    """None: not a kind that is known here; both are taken."""

    def __post_init__(self) -> None:
        """Fill in what follows from the three parts."""
        name = _KINDS.get(self.resource) or self.resource.removesuffix("s").capitalize()
        api_version = f"{self.group}/{self.version}" if self.group else self.version
        qualified = f"{self.resource}.{self.group}" if self.group else self.resource
        set_field = object.__setattr__
        set_field(self, "name", name)
        set_field(self, "api_version", api_version)
        set_field(self, "head", f'{{"kind":"{name}","apiVersion":"{api_version}",'.encode())
        set_field(self, "qualified", qualified)
        known = self.resource in _KINDS
        set_field(self, "namespaced", self.resource not in CLUSTER_WIDE if known else None)


class Route(NamedTuple):
    """What a path names."""

    kind: Kind
    namespace: str
    """Empty: cluster-wide."""
    name: str
    """Empty: the collection."""
    subresource: str


@lru_cache(maxsize=1024)
def kind_of(group: str, version: str, resource: str) -> Kind:
    """The kind of a resource; any name is taken, as if its definition had been installed."""
    return Kind(group, version, resource)


def route_of(path: str) -> Route:
    """Read a path below /api or /apis.

    Raises:
        Refusal: 404, it names nothing.
    """
    parts = (unquote(path) if "%" in path else path).split("/")
    if parts[1] == "api" and len(parts) > 3:
        group, version, rest = "", parts[2], parts[3:]
    elif parts[1] == "apis" and len(parts) > 4:
        group, version, rest = parts[2], parts[3], parts[4:]
    else:
        raise no_such_path()
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    if not all(rest) or len(rest) > 3:
        raise no_such_path()
    rest += [""] * (3 - len(rest))
    return Route(kind_of(group, version, rest[0]), namespace, rest[1], rest[2])


def no_such_path() -> Refusal:
    """The answer to a path that names nothing."""
    return Refusal(404, "NotFound", "the server could not find the requested resource")
