"""Objects of ``resource.k8s.io/v1`` as the API server writes them, as much as is read of them."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from stretto.model.objects import RAW_NOTHING, ObjectMeta
from stretto.model.quantity import Quantity
from stretto.model.selector import RawRequirement


class _Object(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """camelCase on the wire, snake_case here."""


class ApiNodeTerm(_Object, frozen=True, gc=False):
    """A term of a node selector."""

    match_expressions: list[RawRequirement] | None = None
    match_fields: list[RawRequirement] | None = None


class ApiNodeSelector(_Object, frozen=True, gc=False):
    """A node selector: terms ORed."""

    node_selector_terms: list[ApiNodeTerm] | None = None


class ApiAttribute(_Object, frozen=True, gc=False):
    """A value of one of four kinds."""

    int_value: int | None = msgspec.field(default=None, name="int")
    bool_value: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None


class ApiRange(_Object, frozen=True, gc=False):
    """A range of amounts that may be consumed."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class ApiRequestPolicy(_Object, frozen=True, gc=False):
    """Which amounts of a capacity may be consumed."""

    default: Quantity | None = None
    valid_values: list[Quantity] | None = None
    valid_range: ApiRange | None = None


class ApiCapacity(_Object, frozen=True, gc=False):
    """A capacity of a device."""

    value: Quantity = "0"
    request_policy: ApiRequestPolicy | None = None


class ApiTaint(_Object, frozen=True, gc=False):
    """A taint of a device."""

    key: str = ""
    value: str | None = None
    effect: str = ""


class ApiCounter(_Object, frozen=True, gc=False):
    """An amount of a shared counter."""

    value: Quantity = "0"


class ApiCounters(_Object, frozen=True, gc=False):
    """Counters that a device consumes of a set."""

    counter_set: str = ""
    counters: dict[str, ApiCounter] | None = None
    compatibility_groups: list[object] | None = None


class ApiCounterSet(_Object, frozen=True, gc=False):
    """A named set of counters that devices of a pool share."""

    name: str = ""
    counters: dict[str, ApiCounter] | None = None


class ApiDevice(_Object, frozen=True, gc=False):
    """A device of a slice."""

    name: str = ""
    attributes: dict[str, ApiAttribute] | None = None
    capacity: dict[str, ApiCapacity] | None = None
    consumes_counters: list[ApiCounters] | None = None
    node_name: str | None = None
    node_selector: ApiNodeSelector | None = None
    all_nodes: bool | None = None
    taints: list[ApiTaint] | None = None
    binds_to_node: bool | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None
    allow_multiple_allocations: bool | None = None


class ApiPool(_Object, frozen=True, gc=False):
    """Which pool a slice is a part of."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ApiSliceSpec(_Object, frozen=True, gc=False):
    """What a slice offers, and where."""

    driver: str = ""
    pool: ApiPool = ApiPool()
    node_name: str | None = None
    node_selector: ApiNodeSelector | None = None
    all_nodes: bool | None = None
    devices: list[ApiDevice] | None = None
    per_device_node_selection: bool | None = None
    shared_counters: list[ApiCounterSet] | None = None


class ResourceSlice(_Object, frozen=True, gc=False):
    """Devices that a driver publishes."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ApiSliceSpec = ApiSliceSpec()


class ApiCelSelector(_Object, frozen=True, gc=False):
    """A CEL expression."""

    expression: str = ""


class ApiSelector(_Object, frozen=True, gc=False):
    """A selector of devices."""

    cel: ApiCelSelector | None = None


class ApiClassSpec(_Object, frozen=True, gc=False):
    """What a class selects and configures."""

    selectors: list[ApiSelector] | None = None
    config: Raw = RAW_NOTHING
    extended_resource_name: str | None = None


class DeviceClass(_Object, frozen=True, gc=False):
    """A class of devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ApiClassSpec = ApiClassSpec()


class ApiToleration(_Object, frozen=True, gc=False):
    """A toleration of device taints; whole, as it is copied into an allocation."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class ApiCapacityRequests(_Object, frozen=True, gc=False):
    """Amounts that a request wants of a device's capacity."""

    requests: dict[str, Quantity] | None = None


class ApiDeviceRequest(_Object, frozen=True, gc=False):
    """An exact request or one of several alternatives."""

    name: str = ""
    device_class_name: str = ""
    selectors: list[ApiSelector] | None = None
    allocation_mode: str = "ExactCount"
    count: int | None = None
    admin_access: bool | None = None
    tolerations: list[ApiToleration] | None = None
    capacity: ApiCapacityRequests | None = None


class ApiRequest(_Object, frozen=True, gc=False):
    """A request: one exact form or a list of alternatives."""

    name: str = ""
    exactly: ApiDeviceRequest | None = None
    first_available: list[ApiDeviceRequest] | None = None


class ApiConstraint(_Object, frozen=True, gc=False):
    """What the devices of some requests must have in common, or not."""

    requests: list[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class ApiDevices(_Object, frozen=True, gc=False):
    """Everything that a claim asks for."""

    requests: list[ApiRequest] | None = None
    constraints: list[ApiConstraint] | None = None
    config: Raw = RAW_NOTHING


class ApiClaimSpec(_Object, frozen=True, gc=False):
    """What a claim asks for."""

    devices: ApiDevices = ApiDevices()


class ApiResult(_Object, frozen=True, gc=False):
    """A device that was allocated for a request."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, Quantity] | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None


class ApiAllocated(_Object, frozen=True, gc=False):
    """Devices of an allocation."""

    results: list[ApiResult] | None = None


class ApiAllocation(_Object, frozen=True, gc=False):
    """What a claim was given."""

    devices: ApiAllocated = ApiAllocated()
    node_selector: ApiNodeSelector | None = None
    allocation_timestamp: str | None = None


class ApiConsumer(_Object, frozen=True, gc=False):
    """Who may use a claim."""

    uid: str = ""
    name: str = ""
    resource: str = ""
    api_group: str | None = msgspec.field(default=None, name="apiGroup")


class ApiCondition(_Object, frozen=True, gc=False):
    """A condition of an allocated device."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


class ApiDeviceStatus(_Object, frozen=True, gc=False):
    """What a driver says of an allocated device."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    conditions: list[ApiCondition] | None = None


class ApiClaimStatus(_Object, frozen=True, gc=False):
    """What became of a claim."""

    allocation: ApiAllocation | None = None
    reserved_for: list[ApiConsumer] | None = None
    devices: list[ApiDeviceStatus] | None = None


class ApiClaimMeta(ObjectMeta, frozen=True, gc=False, rename="camel"):
    """Metadata with what only claims need."""

    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None


class ResourceClaim(_Object, frozen=True, gc=False):
    """A claim to devices."""

    metadata: ApiClaimMeta = ApiClaimMeta()
    spec: ApiClaimSpec = ApiClaimSpec()
    status: ApiClaimStatus = ApiClaimStatus()


class ApiRuleSelector(_Object, frozen=True, gc=False):
    """Devices that a taint rule is about; an absent part is any."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class ApiRuleSpec(_Object, frozen=True, gc=False):
    """A taint, and the devices it is put on."""

    device_selector: ApiRuleSelector | None = None
    taint: ApiTaint = ApiTaint()


class DeviceTaintRule(_Object, frozen=True, gc=False):
    """An administrator's taint on devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ApiRuleSpec = ApiRuleSpec()
