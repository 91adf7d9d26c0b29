"""What is written to ResourceClaims: bodies in the API's form.

Patches are strategic merges, which add to and take from ``reservedFor`` and the finalizers without
knowing what else is there; each names the claim's uid. Once set, the API lets nobody change an
allocation; the one that sets it names the claim's version besides, so that it can be fenced off: no
patch on an older version than a fence's takes effect.
Source: bindClaim and the allocation result of kube-scheduler's DynamicResources plugin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from stretto.model.device_rows import EXTENDED_ANNOTATION
from stretto.model.devices import (
    Allocation,
    ClaimRow,
    ClassRow,
    Request,
    Result,
    SubRequest,
    Toleration,
)
from stretto.model.shape import NodeTerm, Requirement

FINALIZER = "resource.kubernetes.io/delete-protection"
FENCE = "stretto.io/allocation-fence"
"""Annotation whose change makes a new version of a claim."""
Json = dict[str, Any]


def finalizer_patch(uid: str) -> Json:
    """The claim cannot go while it has devices."""
    return {"metadata": {"uid": uid, "finalizers": [FINALIZER]}}


def fence_patch(uid: str, mark: str) -> Json:
    """No allocation that was sent before takes effect after this. ``mark``: another one each
    time."""
    return {"metadata": {"uid": uid, "annotations": {FENCE: mark}}}


def reserve_patch(
    uid: str, *, pod_name: str, pod_uid: str, allocation: Json | None = None, version: str = ""
) -> Json:
    """The pod may use the claim, which gets its devices if it has none and is at the version."""
    consumer = {"resource": "pods", "name": pod_name, "uid": pod_uid}
    body: Json = {"metadata": {"uid": uid}, "status": {"reservedFor": [consumer]}}
    if allocation is not None:
        body["metadata"]["resourceVersion"] = version
        body["status"]["allocation"] = allocation
    return body


def release_patch(uid: str, *, pod_uid: str, deallocate: bool) -> Json:
    """Take back that the pod may use the claim, and its devices if we gave them."""
    status: Json = {"reservedFor": [{"$patch": "delete", "uid": pod_uid}]}
    if deallocate:
        status["allocation"] = None
    return {"metadata": {"uid": uid}, "status": status}


def special_claim(
    requests: Sequence[Request], *, namespace: str, pod_name: str, pod_uid: str
) -> Json:
    """The claim that is made for extended resources of a pod, which owns it."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod_name, "uid": pod_uid,
             "controller": True}  # fmt: skip
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "namespace": namespace,
            "generateName": f"{pod_name}-extended-resources-",
            "annotations": {EXTENDED_ANNOTATION: "true"},
            "ownerReferences": [owner],
        },
        "spec": {"devices": {"requests": [_exact(r.name, r.exactly) for r in requests
                                          if r.exactly is not None]}},
    }  # fmt: skip


def _exact(name: str, form: SubRequest) -> Json:
    exactly = {"deviceClassName": form.class_name, "allocationMode": form.mode, "count": form.count}
    return {"name": name, "exactly": exactly}


def allocation_body(
    allocation: Allocation, claim: ClaimRow, *, classes: Sequence[ClassRow], now: str
) -> Json:
    """status.allocation. ``classes``: those of the requests; ``now``: RFC 3339."""
    devices: Json = {"results": [_result(result) for result in allocation.results]}
    config = _config(allocation, claim, {row.name: row for row in classes})
    if config:
        devices["config"] = config
    body: Json = {"devices": devices, "allocationTimestamp": now}
    if allocation.selector is not None:
        terms = [_term(term) for term in allocation.selector]
        body["nodeSelector"] = {"nodeSelectorTerms": terms}
    return body


def _result(result: Result) -> Json:
    body: Json = {"request": result.request, "driver": result.driver, "pool": result.pool,
                  "device": result.device}  # fmt: skip
    if result.admin:
        body["adminAccess"] = True
    if result.share_id:
        body["shareID"] = result.share_id
    if result.consumed:
        body["consumedCapacity"] = dict(result.consumed)
    if result.binding_conditions:
        body["bindingConditions"] = list(result.binding_conditions)
    if result.binding_failures:
        body["bindingFailureConditions"] = list(result.binding_failures)
    if result.tolerations:
        body["tolerations"] = [_toleration(each) for each in result.tolerations]
    return body


def _toleration(found: Toleration) -> Json:
    fields = {"key": found.key, "operator": found.operator, "value": found.value,
              "effect": found.effect, "tolerationSeconds": found.seconds}  # fmt: skip
    return {name: value for name, value in fields.items() if value not in ("", None)}


def _term(term: NodeTerm) -> Json:
    body: Json = {}
    if term.expressions:
        body["matchExpressions"] = [_requirement(each) for each in term.expressions]
    if term.fields:
        body["matchFields"] = [_requirement(each) for each in term.fields]
    return body


def _requirement(found: Requirement) -> Json:
    body: Json = {"key": found.key, "operator": found.operator}
    if found.values:
        body["values"] = list(found.values)
    return body


def _config(allocation: Allocation, claim: ClaimRow, classes: dict[str, ClassRow]) -> list[Json]:
    """Configuration of classes, once each with all requests that use it, then the claim's own as
    far as it concerns what was chosen; no names where it concerns all requests."""
    chosen = _chosen_forms(allocation, claim)
    found: list[Json] = []
    for name in dict.fromkeys(form.class_name for _, _, form in chosen):
        requests = [reference for reference, _, form in chosen if form.class_name == name]
        row = classes.get(name)
        items = _listed(row.config if row is not None else b"")
        found += [{**item, "source": "FromClass", "requests": requests} for item in items]
    for item in _listed(claim.config):
        wanted = item.get("requests") or []
        if not wanted or any(name in wanted for r, base, _ in chosen for name in (r, base)):
            found.append({**item, "source": "FromClaim", "requests": wanted})
    for item in found:
        wanted = item["requests"]
        if all(reference in wanted or base in wanted for reference, base, _ in chosen):
            item["requests"] = []
    return [{k: v for k, v in item.items() if k != "requests" or v} for item in found]


def _chosen_forms(allocation: Allocation, claim: ClaimRow) -> list[tuple[str, str, SubRequest]]:
    """(reference, name of the request, the form that was chosen), a request each."""
    used = {result.request for result in allocation.results}
    found = []
    for request in claim.requests:
        if request.exactly is not None:
            found.append((request.name, request.name, request.exactly))
        for alternative in request.alternatives:
            reference = f"{request.name}/{alternative.name}"
            if reference in used:
                found.append((reference, request.name, alternative))
    return found


def _listed(config: bytes) -> list[Json]:
    return msgspec.json.decode(config, type=list[Json]) if config else []
