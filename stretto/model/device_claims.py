"""What a pod says about claims to devices: by name, by template, and by extended resources."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from stretto.model.affinity import decoded
from stretto.model.objects import Container, Pod, Resources
from stretto.model.quantity import base_value
from stretto.model.shape import ClaimRef, DeviceContainer, Shape

DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
"""Extended resources by this prefix name a device class."""


class _PodClaim(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class _ClaimStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    resource_claim_name: str | None = None


def device_claims_of(pod: Pod) -> tuple[tuple[ClaimRef, ...], str, tuple[str, str]]:
    """The claims of a pod in its order, what is wrong with them ('' if nothing is), and the pod's
    (name, uid) if a claim must be its own.

    A template's claim is known once the controller has written its name into the pod's status; a
    null name there means that none is needed. Source: resourceclaim.Name of
    k8s.io/dynamic-resource-allocation.
    """
    claims, problem = _claims_of(pod)
    own = bool(problem) or any(claim.owned for claim in claims)
    return claims, problem, (pod.metadata.name, pod.metadata.uid) if own else ("", "")


def _claims_of(pod: Pod) -> tuple[tuple[ClaimRef, ...], str]:
    wanted = decoded(pod.spec.resource_claims, list[_PodClaim], where="spec.resourceClaims")
    if not wanted:
        return (), ""
    raw = pod.status.resource_claim_statuses
    made = decoded(raw, list[_ClaimStatus], where="status.resourceClaimStatuses") or ()
    names = {status.name: status.resource_claim_name for status in made}
    where = f'pod "{pod.metadata.namespace}/{pod.metadata.name}"'
    found = []
    for claim in wanted:
        if claim.resource_claim_name is not None:
            found.append(ClaimRef(claim.resource_claim_name))
        elif claim.resource_claim_template_name is None:
            text = "none of the supported fields are set"
            return tuple(found), f'{where}, spec.resourceClaim "{claim.name}": {text}'
        elif claim.name not in names:
            return tuple(found), f"{where}: ResourceClaim not created yet"
        elif names[claim.name] is not None:
            found.append(ClaimRef(names[claim.name] or "", owned=True))
    return tuple(found), ""


def device_containers_of(pod: Pod) -> tuple[DeviceContainer, ...]:
    """Containers in order (init containers first) with the resources that devices may back; empty
    if no container asks for any."""
    init = pod.spec.init_containers or []
    if not any(b"/" in bytes(each.resources) for each in (*init, *pod.spec.containers)):
        return ()
    found = [
        DeviceContainer(
            initial=i < len(init) and container.restart_policy != "Always",
            requests=tuple(_requests(container)),
        )
        for i, container in enumerate((*init, *pod.spec.containers))
    ]
    return tuple(found) if any(each.requests for each in found) else ()


def _requests(container: Container) -> Iterable[tuple[str, int, int]]:
    if b"/" not in bytes(container.resources):
        return
    parts = decoded(container.resources, Resources, where=f"resources of {container.name}")
    requests = (parts.requests if parts is not None else None) or {}
    for position, name in enumerate(sorted(requests)):
        if "/" in name and ("kubernetes.io/" not in name or name.startswith(DEVICE_CLASS_PREFIX)):
            amount = base_value(requests[name])
            if amount:
                yield name, amount, position


def met_by_devices(shape: Shape, allocatable: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    """Extended resources of a pod on a node that has none of them itself: devices stand in for
    them, and no account of the node knows them."""
    if not shape.device_containers:
        return ()
    wanted = {name for each in shape.device_containers for name, _, _ in each.requests}
    return tuple(sorted(wanted - {name for name, amount in allocatable if amount}))
