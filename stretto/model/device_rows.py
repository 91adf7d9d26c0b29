"""From objects of ``resource.k8s.io/v1`` to their rows; used by the Binder and by golden cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Raw

from stretto.model.device_objects import (
    ApiAllocation,
    ApiCapacity,
    ApiDevice,
    ApiDeviceRequest,
    ApiNodeSelector,
    ApiRequest,
    ApiRequestPolicy,
    ApiSelector,
    ApiTaint,
    ApiToleration,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from stretto.model.devices import (
    CLAIM,
    CLASS,
    SLICE,
    TAINT_RULE,
    Allocation,
    CapacityRow,
    ClaimRow,
    ClassRow,
    Constraint,
    DeviceCondition,
    DeviceObjectRow,
    DeviceRow,
    DeviceTaint,
    NodeChoice,
    Request,
    Result,
    SliceRow,
    SubRequest,
    TaintRuleRow,
    Texts,
    Toleration,
)
from stretto.model.quantity import Quantity
from stretto.model.shape import NodeTerm, Requirement

EXTENDED_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
"""Marks a claim that a scheduler made for extended resources."""


def slice_row_of(found: ResourceSlice) -> SliceRow:
    """The row of a ResourceSlice."""
    spec = found.spec
    devices = spec.devices or ()
    return SliceRow(
        name=found.metadata.name,
        driver=spec.driver,
        pool=spec.pool.name,
        generation=spec.pool.generation,
        slice_count=spec.pool.resource_slice_count,
        where=_choice(spec.node_name, spec.all_nodes, spec.node_selector),
        per_device=bool(spec.per_device_node_selection),
        devices=tuple(map(_device, devices)),
        counters=tuple(
            (s.name, _texts({name: c.value for name, c in (s.counters or {}).items()}))
            for s in spec.shared_counters or ()
        ),
        grouped=any(c.compatibility_groups for d in devices for c in d.consumes_counters or ()),
    )


def _device(found: ApiDevice) -> DeviceRow:
    attributes: list[tuple[str, bool | int | str]] = []
    versions: list[tuple[str, str]] = []
    for name, value in sorted((found.attributes or {}).items()):
        if value.version is not None:
            versions.append((name, value.version))
            continue
        for plain in (value.int_value, value.bool_value, value.string):
            if plain is not None:
                attributes.append((name, plain))
                break
    return DeviceRow(
        name=found.name,
        attributes=tuple(attributes),
        versions=tuple(versions),
        capacity=tuple(_capacity(n, c) for n, c in sorted((found.capacity or {}).items())),
        allow_multiple=bool(found.allow_multiple_allocations),
        taints=tuple(map(_taint, found.taints or ())),
        consumes=tuple(
            (c.counter_set, _texts({n: v.value for n, v in (c.counters or {}).items()}))
            for c in found.consumes_counters or ()
        ),
        where=_choice(found.node_name, found.all_nodes, found.node_selector),
        binds_to_node=bool(found.binds_to_node),
        binding_conditions=tuple(found.binding_conditions or ()),
        binding_failures=tuple(found.binding_failure_conditions or ()),
    )


def _capacity(name: str, found: ApiCapacity) -> CapacityRow:
    policy = found.request_policy or ApiRequestPolicy()
    limits = policy.valid_range
    return CapacityRow(
        name=name,
        value=_text(found.value),
        has_policy=found.request_policy is not None,
        default=_maybe(policy.default),
        valid_values=tuple(map(_text, policy.valid_values or ())),
        has_range=limits is not None,
        minimum=None if limits is None else _maybe(limits.min),
        maximum=None if limits is None else _maybe(limits.max),
        step=None if limits is None else _maybe(limits.step),
    )


def _choice(
    name: str | None, everywhere: bool | None, selector: ApiNodeSelector | None
) -> NodeChoice:
    return NodeChoice(name or "", bool(everywhere), _terms(selector))


def _terms(selector: ApiNodeSelector | None) -> tuple[NodeTerm, ...] | None:
    if selector is None:
        return None
    return tuple(
        NodeTerm(
            expressions=tuple(
                Requirement(r.key, r.operator, tuple(r.values or ()))
                for r in term.match_expressions or ()
            ),
            fields=tuple(
                Requirement(r.key, r.operator, tuple(r.values or ()))
                for r in term.match_fields or ()
            ),
        )
        for term in selector.node_selector_terms or ()
    )


def _taint(found: ApiTaint) -> DeviceTaint:
    return DeviceTaint(found.key, found.value or "", found.effect)


def _text(quantity: Quantity) -> str:
    return quantity if isinstance(quantity, str) else repr(quantity)


def _maybe(quantity: Quantity | None) -> str | None:
    return None if quantity is None else _text(quantity)


def _texts(amounts: Mapping[str, Quantity]) -> Texts:
    return tuple((name, _text(amount)) for name, amount in sorted(amounts.items()))


def class_row_of(found: DeviceClass) -> ClassRow:
    """The row of a DeviceClass."""
    return ClassRow(
        name=found.metadata.name,
        selectors=_selectors(found.spec.selectors),
        extended_resource=found.spec.extended_resource_name or "",
        created=found.metadata.creation_timestamp or "",
        config=_config(found.spec.config),
    )


def _selectors(found: list[ApiSelector] | None) -> tuple[str, ...]:
    return tuple("" if s.cel is None else s.cel.expression for s in found or ())


def _config(raw: Raw) -> bytes:
    data = bytes(raw)
    return b"" if data in (b"null", b"[]") else data


def claim_row_of(found: ResourceClaim) -> ClaimRow:
    """The row of a ResourceClaim."""
    meta, status, devices = found.metadata, found.status, found.spec.devices
    owners = meta.owner_references or ()
    return ClaimRow(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        requests=tuple(map(_request, devices.requests or ())),
        constraints=tuple(
            Constraint(
                tuple(c.requests or ()),
                c.match_attribute or c.distinct_attribute or "",
                distinct=not c.match_attribute and bool(c.distinct_attribute),
            )
            for c in devices.constraints or ()
        ),
        config=_config(devices.config),
        owner_uid=next((o.uid for o in owners if o.controller), ""),
        deleting=meta.deletion_timestamp is not None,
        extended=(meta.annotations or {}).get(EXTENDED_ANNOTATION) == "true",
        allocation=_allocation(status.allocation),
        reserved_for=tuple(sorted(consumer.uid for consumer in status.reserved_for or ())),
        conditions=_conditions(found),
    )


def _request(found: ApiRequest) -> Request:
    exactly = found.exactly
    return Request(
        name=found.name,
        exactly=None if exactly is None else _sub_request(exactly, found.name),
        alternatives=tuple(_sub_request(sub, sub.name) for sub in found.first_available or ()),
    )


def _sub_request(found: ApiDeviceRequest, name: str) -> SubRequest:
    wanted = found.capacity.requests if found.capacity is not None else None
    return SubRequest(
        name=name,
        class_name=found.device_class_name,
        mode=found.allocation_mode or "ExactCount",
        count=1 if found.count is None else found.count,
        admin=bool(found.admin_access),
        selectors=_selectors(found.selectors),
        tolerations=tuple(map(_toleration, found.tolerations or ())),
        capacity=_texts(wanted or {}),
    )


def _toleration(found: ApiToleration) -> Toleration:
    return Toleration(
        found.key or "",
        found.operator or "",
        found.value or "",
        found.effect or "",
        found.toleration_seconds,
    )


def _allocation(found: ApiAllocation | None) -> Allocation | None:
    if found is None:
        return None
    return Allocation(
        results=tuple(
            Result(
                request=r.request,
                driver=r.driver,
                pool=r.pool,
                device=r.device,
                admin=bool(r.admin_access),
                share_id=r.share_id or "",
                consumed=_texts(r.consumed_capacity or {}),
                binding_conditions=tuple(r.binding_conditions or ()),
                binding_failures=tuple(r.binding_failure_conditions or ()),
            )
            for r in found.devices.results or ()
        ),
        selector=_terms(found.node_selector),
        timestamp=found.allocation_timestamp or "",
    )


def _conditions(found: ResourceClaim) -> tuple[DeviceCondition, ...]:
    allocation = found.status.allocation
    if allocation is None or not any(
        r.binding_conditions for r in allocation.devices.results or ()
    ):
        return ()
    return tuple(
        DeviceCondition(device.driver, device.pool, device.device, condition.type)
        for device in found.status.devices or ()
        for condition in device.conditions or ()
        if condition.status == "True"
    )


def taint_rule_row_of(found: DeviceTaintRule) -> TaintRuleRow:
    """The row of a DeviceTaintRule."""
    selector = found.spec.device_selector
    taint = _taint(found.spec.taint)
    if selector is None:
        return TaintRuleRow(found.metadata.name, taint)
    return TaintRuleRow(
        found.metadata.name,
        taint,
        selects=True,
        driver=selector.driver,
        pool=selector.pool,
        device=selector.device,
    )


KINDS: Mapping[str, tuple[type[Any], Callable[[Any], DeviceObjectRow]]] = {
    SLICE: (ResourceSlice, slice_row_of),
    CLASS: (DeviceClass, class_row_of),
    CLAIM: (ResourceClaim, claim_row_of),
    TAINT_RULE: (DeviceTaintRule, taint_rule_row_of),
}
"""Kind → (its object of the API, what makes the row)."""


def key_of(row: DeviceObjectRow) -> str:
    """The key of a row in the log: namespace/name of a claim, else the name."""
    return row.key if isinstance(row, ClaimRow) else row.name
