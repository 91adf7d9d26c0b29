"""Rows of dynamic resource allocation: what plugins read of slices, classes, claims and rules.

A row is what travels as the payload of an object (design §12.18). Amounts stay texts as the API
server wrote them, because an allocation repeats them; who computes with them reads them by
:func:`stretto.cel.quantities.signed_nano`, which remembers. Bookkeeping that no decision reads
(resource version, finalizers) is left out: a row changes only when a decision may.
"""

# Annotations are not put off as text here: msgspec would compile it again in each process.
import msgspec

from stretto.model.shape import NodeTerm

SLICE = "ResourceSlice"
"""Object kind; key: the slice's name."""
CLASS = "DeviceClass"
"""Object kind; key: the class's name."""
CLAIM = "ResourceClaim"
"""Object kind; key: namespace/name."""
TAINT_RULE = "DeviceTaintRule"
"""Object kind; key: the rule's name."""
KINDS = frozenset({SLICE, CLASS, CLAIM, TAINT_RULE})

Texts = tuple[tuple[str, str], ...]
"""Sorted pairs, mostly of a name and a quantity."""


class DeviceTaint(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A taint of a device: NoSchedule, NoExecute or None (which keeps nobody away)."""

    key: str
    value: str
    effect: str


class CapacityRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A capacity of a device and which amounts of it may be consumed."""

    name: str
    value: str
    has_policy: bool = False
    default: str | None = None
    valid_values: tuple[str, ...] = ()
    has_range: bool = False
    minimum: str | None = None
    maximum: str | None = None
    step: str | None = None


class NodeChoice(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """On which nodes something is: a name, a selector, or all. None of them: not known."""

    node_name: str = ""
    all_nodes: bool = False
    selector: tuple[NodeTerm, ...] | None = None


class DeviceRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A device of a slice."""

    name: str
    attributes: tuple[tuple[str, bool | int | str], ...] = ()
    """Sorted by name."""
    versions: Texts = ()
    """Attributes that are semantic versions."""
    capacity: tuple[CapacityRow, ...] = ()
    allow_multiple: bool = False
    taints: tuple[DeviceTaint, ...] = ()
    consumes: tuple[tuple[str, Texts], ...] = ()
    """(counter set, ((counter, amount), …)), …"""
    where: NodeChoice = NodeChoice()
    """Read only if the slice says that each device has its own nodes."""
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failures: tuple[str, ...] = ()


class SliceRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A slice of a pool."""

    name: str
    driver: str
    pool: str
    generation: int
    slice_count: int
    """Slices that the pool has in this generation."""
    where: NodeChoice = NodeChoice()
    per_device: bool = False
    """Each device has its own nodes."""
    devices: tuple[DeviceRow, ...] = ()
    counters: tuple[tuple[str, Texts], ...] = ()
    """Counter sets that devices of the pool share: (set, ((counter, amount), …)), …"""
    grouped: bool = False
    """A device declares compatibility groups, which are alpha: the slice is not looked at."""


class ClassRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A device class."""

    name: str
    selectors: tuple[str, ...] = ()
    """CEL expressions; "" for a selector of a kind that is not known."""
    extended_resource: str = ""
    created: str = ""
    """RFC 3339; of two classes for one extended resource the younger counts."""
    config: bytes = b""
    """JSON list, copied into allocations."""


class Toleration(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A toleration of device taints; ``seconds`` only travels into the allocation."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    seconds: int | None = None


class SubRequest(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An exact request, or one of several alternatives."""

    name: str
    class_name: str
    mode: str = "ExactCount"
    count: int = 1
    admin: bool = False
    selectors: tuple[str, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    capacity: Texts = ()


class Request(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A request: one exact form, or alternatives in order of preference."""

    name: str
    exactly: SubRequest | None = None
    alternatives: tuple[SubRequest, ...] = ()


class Constraint(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Devices of these requests (all, if none is named) share a value of an attribute, or differ
    in it."""

    requests: tuple[str, ...]
    attribute: str
    distinct: bool = False


class Result(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A device that was allocated for a request."""

    request: str
    driver: str
    pool: str
    device: str
    admin: bool = False
    share_id: str = ""
    """Set for a share of a device that many may use."""
    consumed: Texts = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failures: tuple[str, ...] = ()
    tolerations: tuple[Toleration, ...] = ()


class Allocation(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What a claim was given."""

    results: tuple[Result, ...] = ()
    selector: tuple[NodeTerm, ...] | None = None
    """Nodes on which the claim can be used; None: all."""
    timestamp: str = ""
    pending: bool = False
    """Chosen by the Binder and not yet written to the API server."""


class DeviceCondition(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A condition that is True of an allocated device."""

    driver: str
    pool: str
    device: str
    type: str


class ClaimRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A claim."""

    namespace: str
    name: str
    uid: str
    requests: tuple[Request, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    config: bytes = b""
    """JSON list, copied into the allocation."""
    owner_uid: str = ""
    """Uid of the controlling owner."""
    deleting: bool = False
    extended: bool = False
    """Made by a scheduler for extended resources of its owner."""
    allocation: Allocation | None = None
    reserved_for: tuple[str, ...] = ()
    """Uids."""
    conditions: tuple[DeviceCondition, ...] = ()
    """Of devices with binding conditions."""

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"


class TaintRuleRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A taint that an administrator puts on devices; None: any."""

    name: str
    taint: DeviceTaint
    selects: bool = False
    """Without a selector a rule is about no device."""
    driver: str | None = None
    pool: str | None = None
    device: str | None = None


DeviceObjectRow = SliceRow | ClassRow | ClaimRow | TaintRuleRow
_encoder = msgspec.msgpack.Encoder(order="deterministic")
_slices = msgspec.msgpack.Decoder(SliceRow)
_classes = msgspec.msgpack.Decoder(ClassRow)
_claims = msgspec.msgpack.Decoder(ClaimRow)
_rules = msgspec.msgpack.Decoder(TaintRuleRow)


def encode_row(row: DeviceObjectRow) -> bytes:
    """The canonical bytes of a row."""
    return _encoder.encode(row)


def decode_slice(payload: bytes) -> SliceRow:
    """Read the payload of a ResourceSlice object."""
    return _slices.decode(payload)


def decode_class(payload: bytes) -> ClassRow:
    """Read the payload of a DeviceClass object."""
    return _classes.decode(payload)


def decode_claim(payload: bytes) -> ClaimRow:
    """Read the payload of a ResourceClaim object."""
    return _claims.decode(payload)


def decode_taint_rule(payload: bytes) -> TaintRuleRow:
    """Read the payload of a DeviceTaintRule object."""
    return _rules.decode(payload)
