"""One step of the Binder's log, and the rows it is made of (design §4, §12.18).

A :class:`Delta` is applied in a fixed order: shapes, nodes, pods, removed nodes, objects. Shape and
node numbers belong to the Binder's epoch. A full state is the same record in chunks.
"""

# Annotations are not put off as text here: msgspec would compile it again in each process.
import msgspec

from stretto.model.shape import Shape

LABEL_KEYS = "LabelKeys"
"""Object kind; key "": the sorted label keys that live selectors read."""
API_SERVED = "ApiServed"
"""Object kind; key: group/version of an optional API that the API server serves; no payload."""
NAMESPACE = "Namespace"
"""Object kind; key: the namespace's name, payload: its labels."""


class Taint(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A taint of a node; ``effect`` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str
    effect: str


class ImageRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An image that a node holds, under all its names; ``size`` in bytes."""

    names: tuple[str, ...]
    size: int


class NodeRow(msgspec.Struct, frozen=True):
    """Everything about a node that plugins read, resolved to base units (bytes, counts, cpu in
    milli)."""

    name: str
    uid: str
    labels: tuple[tuple[str, str], ...] = ()
    """Sorted by key."""
    taints: tuple[Taint, ...] = ()
    """In the node's order."""
    unschedulable: bool = False
    allocatable: tuple[tuple[str, int], ...] = ()
    """Sorted by name; includes "pods"."""
    images: tuple[ImageRow, ...] = ()
    declared_features: tuple[str, ...] = ()

    @property
    def encoded(self) -> bytes:
        """The canonical bytes (msgpack); what travels."""
        return _encoder.encode(self)


class NodeChange(msgspec.Struct, gc=False):
    """A node that was added (new id) or replaced (known id)."""

    node_id: int
    row: NodeRow
    frozen: bool = False
    """Takes no commits until it is audited."""


class ObjectRow(msgspec.Struct, gc=False):
    """An object that plugins read, named by (kind, key)."""

    kind: str
    key: str
    version: int = 0
    """Sequence at which it became so."""
    payload: bytes = b""
    """msgpack; the meaning depends on the kind."""
    removed: bool = False


class Delta(msgspec.Struct):
    """One step of the log; also the builder of one. The pod columns are parallel lists."""

    epoch: int = 0
    sequence: int = 0
    """The state after this step contains every commit ≤ sequence."""
    shapes: list[tuple[int, Shape]] = msgspec.field(default_factory=list)
    nodes: list[NodeChange] = msgspec.field(default_factory=list)
    pod_sign: list[int] = msgspec.field(default_factory=list)
    """+1: came to the node, -1: left it, 0: is there, with another start time or other flags."""
    pod_shape: list[int] = msgspec.field(default_factory=list)
    pod_node: list[int] = msgspec.field(default_factory=list)
    pod_uid: list[str] = msgspec.field(default_factory=list)
    """Empty strings (or an empty list) in aggregated rows."""
    pod_count: list[int] = msgspec.field(default_factory=list)
    """Pods that a row stands for; an empty list means one each."""
    pod_start: list[int] = msgspec.field(default_factory=list)
    """status.startTime in seconds since 1970, 0: not started; an empty list means 0 each."""
    pod_flags: list[int] = msgspec.field(default_factory=list)
    """See :mod:`stretto.snapshot.pod_records`; an empty list means 0 each."""
    removed_nodes: list[int] = msgspec.field(default_factory=list)
    objects: list[ObjectRow] = msgspec.field(default_factory=list)
    dropped_shapes: list[int] = msgspec.field(default_factory=list)
    """Numbers that mean nothing after this step: no pod, nomination or stake has them."""

    def add_pod(
        self,
        *,
        shape_id: int,
        node_id: int,
        uid: str,
        sign: int = 1,
        start_s: int = 0,
        flags: int = 0,
    ) -> None:
        """Append one pod that came (+1), left (-1) or has changed (0)."""
        assert not self.pod_count, "aggregated and single rows do not mix"
        for column, value in (self.pod_start, start_s), (self.pod_flags, flags):
            if value and not column:
                column += [0] * len(self.pod_sign)
            if column or value:
                column.append(value)
        self.pod_sign.append(sign)
        self.pod_shape.append(shape_id)
        self.pod_node.append(node_id)
        self.pod_uid.append(uid)

    @property
    def empty(self) -> bool:
        """Nothing changes but the sequence."""
        return not (
            self.shapes or self.nodes or self.pod_sign or self.removed_nodes or self.objects
            or self.dropped_shapes
        )  # fmt: skip


_encoder = msgspec.msgpack.Encoder(order="deterministic")
_row_decoder = msgspec.msgpack.Decoder(NodeRow)
_labels_decoder = msgspec.msgpack.Decoder(dict[str, str])
_keys_decoder = msgspec.msgpack.Decoder(tuple[str, ...])


def decode_node_row(data: bytes) -> NodeRow:
    """Read a node row from its canonical bytes.

    Raises:
        msgspec.ValidationError: the bytes are not a node row.
    """
    return _row_decoder.decode(data)


def encode_labels(labels: dict[str, str]) -> bytes:
    """Payload of a Namespace object."""
    return _encoder.encode(labels)


def decode_labels(payload: bytes) -> dict[str, str]:
    """Read the payload of a Namespace object."""
    return _labels_decoder.decode(payload)


def encode_label_keys(keys: tuple[str, ...]) -> bytes:
    """Payload of the LabelKeys object."""
    return _encoder.encode(keys)


def decode_label_keys(payload: bytes) -> tuple[str, ...]:
    """Read the payload of the LabelKeys object."""
    return _keys_decoder.decode(payload)
