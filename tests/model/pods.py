"""Pods for tests, as JSON of the API."""

from __future__ import annotations

from typing import Any

import msgspec

from stretto.model.objects import Pod, decode_pod


def container(requests: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    resources = {} if requests is None else {"requests": requests}
    return {"name": "main", "image": "app:v1", "resources": resources, **fields}


def sidecar(requests: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return container(requests, name="side", restartPolicy="Always", **fields)


def pod_of(*containers: dict[str, Any], **fields: Any) -> Pod:
    """A pod; ``status`` and ``metadata`` are taken out of ``fields``, the rest is spec."""
    meta = {"name": "a", "namespace": "default", "uid": "u", **fields.pop("metadata", {})}
    status = fields.pop("status", {})
    spec = {"containers": list(containers), "schedulerName": "stretto", **fields}
    return decode_pod(msgspec.json.encode({"metadata": meta, "spec": spec, "status": status}))
