"""What the API server and its admission plugins fill into a new pod."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stretto.simulator.answers import Refusal, invalid
from stretto.simulator.records import Body

Priorities = Callable[[str], tuple[int, str] | None]
"""Value and preemption policy of a priority class by name; "" asks for the cluster's default."""

_SPEC = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "enableServiceLinks": True,
}
_CONTAINER = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_TOLERATED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Taints that every pod bears for five minutes (admission plugin DefaultTolerationSeconds)."""
SYSTEM_PRIORITIES = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}


def set_pod_defaults(body: Body, *, priorities: Priorities, now: str) -> None:
    """Complete a new pod in place and give it the status of a pending one.

    Raises:
        Refusal: 403 or 422.
    """
    name, spec = body["metadata"]["name"], body.get("spec")
    set_spec_defaults(spec, name=name)
    assert isinstance(spec, dict), "checked just before"
    _set_priority(spec, name=name, priorities=priorities)
    _add_tolerations(spec)
    body["metadata"]["generation"] = 1
    body["status"] = {"phase": "Pending", "qosClass": _quality(spec)}
    if spec.get("schedulingGates"):
        body["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": now,
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]


def set_spec_defaults(spec: Any, *, name: str) -> None:
    """Complete a pod's spec in place, as every write of it does.

    Raises:
        Refusal: 422, it has no containers.
    """
    containers = spec.get("containers") if isinstance(spec, dict) else None
    if not isinstance(containers, list) or not containers:
        raise invalid("Pod", name, "spec.containers: Required value")
    for container in (*containers, *(spec.get("initContainers") or ())):
        if not isinstance(container, dict) or not container.get("name"):
            raise invalid("Pod", name, "spec.containers[0].name: Required value")
        _complete_container(container)
    if not spec.get("schedulerName"):
        spec["schedulerName"] = "default-scheduler"
    for key, value in _SPEC.items():
        spec.setdefault(key, value)


def _complete_container(container: Body) -> None:
    for key, value in _CONTAINER.items():
        container.setdefault(key, value)
    if "imagePullPolicy" not in container:
        image = str(container.get("image", "")).rpartition("/")[2]
        tagged = ":" in image and not image.endswith(":latest")
        container["imagePullPolicy"] = "IfNotPresent" if tagged else "Always"
    resources = container["resources"] or {}
    if limits := resources.get("limits"):  # absent requests are as large as the limits
        resources["requests"] = {**limits, **(resources.get("requests") or {})}


def _set_priority(spec: Body, *, name: str, priorities: Priorities) -> None:
    wanted = str(spec.get("priorityClassName") or "")
    found = priorities(wanted)
    if found is None:
        raise _forbidden(name, f"no PriorityClass with name {wanted} was found")
    for what, key, value in (
        ("integer value of priority", "priority", found[0]),
        ("string value of PreemptionPolicy", "preemptionPolicy", found[1]),
    ):
        given = spec.get(key)
        if given is not None and given != value:
            raise _forbidden(
                name,
                f"the {what} ({given}) must not be provided in pod spec; priority admission "
                f"controller computed {value} from the given PriorityClass name",
            )
        spec[key] = value
    if spec.get("overhead") and not spec.get("runtimeClassName"):
        raise _forbidden(
            name,
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        )


def _forbidden(name: str, why: str) -> Refusal:
    return Refusal(403, "Forbidden", f'pods "{name}" is forbidden: {why}')


def _add_tolerations(spec: Body) -> None:
    tolerations = list(spec.get("tolerations") or ())
    for key in _TOLERATED:
        if not any(
            one.get("key", "") in ("", key) and one.get("effect", "") in ("", "NoExecute")
            for one in tolerations
        ):
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
            )
    spec["tolerations"] = tolerations


def _quality(spec: Body) -> str:
    """The quality of service class, by the requests and limits of cpu and memory."""
    containers = (*spec["containers"], *(spec.get("initContainers") or ()))
    pairs = [
        ((one["resources"].get("requests") or {}).get(key),
         (one["resources"].get("limits") or {}).get(key))
        for one in containers
        for key in ("cpu", "memory")
    ]  # fmt: skip
    if not any(request or limit for request, limit in pairs):
        return "BestEffort"
    return (
        "Guaranteed" if all(limit and request == limit for request, limit in pairs) else "Burstable"
    )
