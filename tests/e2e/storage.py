"""Storage for end-to-end tests: classes, volumes, claims, and a provisioner that is played here."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Self

from tests.e2e.api import MERGE, Api

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
STATEFUL_SETS = "/apis/apps/v1/namespaces/default/statefulsets"
DRIVER = "csi.example.com"
SELECTED = "volume.kubernetes.io/selected-node"
CONTROLLERS = (
    "persistentvolume-binder-controller", "statefulset-controller", "ephemeral-volume-controller",
    "persistentvolume-protection-controller",
)  # fmt: skip


def storage_class(name: str, provisioner: str) -> dict[str, Any]:
    """A class that waits for the first consumer."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "reclaimPolicy": "Retain",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def volume(name: str, *, node: str, cls: str = "local", size: str = "1Gi") -> dict[str, Any]:
    """A volume that one node reaches."""
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": cls,
            "local": {"path": f"/{name}"},
            "nodeAffinity": {"required": terms},
        },
    }


def claim_spec(*, cls: str = "local", size: str = "1Gi", mode: str = "ReadWriteOnce") -> Any:
    """spec of a claim."""
    return {
        "accessModes": [mode],
        "storageClassName": cls,
        "resources": {"requests": {"storage": size}},
    }


def with_claim(name: str) -> dict[str, Any]:
    """Fields of a pod's spec."""
    return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]}


async def create_claim(api: Api, name: str, **spec: Any) -> None:
    """A claim in namespace default."""
    body = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": claim_spec(**spec),
    }
    await api.call("POST", CLAIMS, body)


async def clear_storage(api: Api) -> None:
    """Nothing of storage is left."""
    await api.call("DELETE", STATEFUL_SETS)
    await api.call("DELETE", "/api/v1/namespaces/default/pods", {"gracePeriodSeconds": 0})
    for path in (CLAIMS, VOLUMES):
        await api.call("DELETE", path)
        for item in (await api.call("GET", path))["items"]:
            where = f"{path}/{item['metadata']['name']}"
            await api.answer("PATCH", where, {"metadata": {"finalizers": None}}, kind=MERGE)
    await api.call("DELETE", CLASSES)
    await api.call("DELETE", "/apis/storage.k8s.io/v1/csinodes")


class Provisioner:
    """Makes a volume on the selected node for each claim of class ``fast``; on nodes in ``full`` it
    gives up, as an external provisioner does: it takes the annotation away."""

    def __init__(self, api: Api, *, full: tuple[str, ...] = ()) -> None:
        self._api = api
        self.full = set(full)
        self.paused = False
        self.gave_up: list[str] = []
        self.made: dict[str, str] = {}
        """Claim → node."""

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        while True:
            for claim in [] if self.paused else (await self._api.call("GET", CLAIMS))["items"]:
                await self._look(claim)
            await asyncio.sleep(0.1)

    async def _look(self, claim: dict[str, Any]) -> None:
        meta, spec = claim["metadata"], claim["spec"]
        name = meta["name"]
        node = (meta.get("annotations") or {}).get(SELECTED)
        if spec.get("storageClassName") != "fast" or spec.get("volumeName") or not node:
            return
        if node in self.full:
            self.gave_up.append(node)
            body = {"metadata": {"annotations": {SELECTED: None}}}
            await self._api.call("PATCH", f"{CLAIMS}/{name}", body, kind=MERGE)
            return
        if name in self.made:
            return
        body = volume(f"pvc-{meta['uid']}", node=node, cls="fast")
        del body["spec"]["local"]
        body["spec"]["accessModes"] = spec["accessModes"]
        body["spec"]["csi"] = {"driver": DRIVER, "volumeHandle": name}
        body["spec"]["claimRef"] = {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default",
            "name": name, "uid": meta["uid"],
        }  # fmt: skip
        body["metadata"]["annotations"] = {"pv.kubernetes.io/provisioned-by": DRIVER}
        await self._api.call("POST", VOLUMES, body)
        self.made[name] = node


@contextlib.asynccontextmanager
async def storage_on(api: Api) -> AsyncIterator[Api]:
    """The two classes, and nothing else of storage before and after."""
    await clear_storage(api)
    await api.call("POST", CLASSES, storage_class("local", "kubernetes.io/no-provisioner"))
    await api.call("POST", CLASSES, storage_class("fast", DRIVER))
    yield api
    await clear_storage(api)
