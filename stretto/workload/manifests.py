"""Records to Kubernetes objects."""

from __future__ import annotations

import re
from typing import Any

from stretto.workload.records import MODEL_LABEL, NodeRecord, PodRecord

RUN_LABEL = "stretto.io/run"
"""The run a pod or node was made for."""
DURATION = "stretto.io/duration-ms"
"""Annotation: how long the simulated kubelet runs the pod."""
IMAGE = "registry.k8s.io/pause:3.10"
_BAD = re.compile(r"[^a-z0-9.]+")


def object_name(*parts: str) -> str:
    """A valid object name (DNS subdomain) made of parts."""
    text = _BAD.sub("-", "-".join(parts).lower())
    return re.sub(r"\.+", ".", text).strip("-.")[:253].rstrip("-.") or "x"


def label_value(text: str) -> str:
    """A valid label value made of any text."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:63].strip("-._")


def pod_manifest(
    pod: PodRecord,
    *,
    run: str,
    namespace: str,
    scheduler_name: str,
    lifetime_s: float | None = None,
) -> dict[str, Any]:
    """A Pod of one container that sleeps.

    Extended resources need equal limits; cpu and memory are requests only. Grace is 0, so that
    deleting works where no kubelet answers.
    """
    requests: dict[str, str] = {}
    if pod.cpu_milli:
        requests["cpu"] = f"{pod.cpu_milli}m"
    if pod.memory:
        requests["memory"] = str(pod.memory)
    extra = {name: str(amount) for name, amount in pod.extra.items() if amount}
    metadata: dict[str, Any] = {
        "name": object_name(run, pod.name),
        "namespace": namespace,
        "labels": {**pod.labels, RUN_LABEL: run},
    }
    if lifetime_s is not None:
        metadata["annotations"] = {DURATION: str(max(1, round(lifetime_s * 1000)))}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "schedulerName": scheduler_name,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            **_models(pod.models),
            "containers": [
                {
                    "name": "main",
                    "image": IMAGE,
                    "resources": {
                        "requests": {**requests, **extra},
                        **({"limits": extra} if extra else {}),
                    },
                }
            ],
        },
    }


def _models(models: tuple[str, ...]) -> dict[str, Any]:
    """The affinity of a pod that needs one of some GPU models."""
    if not models:
        return {}
    wanted = {"key": MODEL_LABEL, "operator": "In", "values": list(models)}
    required = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    }


def node_manifest(node: NodeRecord, *, run: str = "") -> dict[str, Any]:
    """A ready Node with everything allocatable."""
    amounts = {
        "cpu": f"{node.cpu_milli}m",
        "memory": str(node.memory),
        "pods": str(node.pods),
        **{name: str(amount) for name, amount in node.extra.items() if amount},
    }
    name = object_name(node.name)
    labels = {"kubernetes.io/hostname": name[:63].rstrip("-."), **node.labels}
    if run:
        labels[RUN_LABEL] = run
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {
            "capacity": amounts,
            "allocatable": dict(amounts),
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }
