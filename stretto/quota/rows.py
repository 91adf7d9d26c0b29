"""Queues and their usage as they travel in the Binder's log, and how a Queue object becomes a row.

A queue with a field that makes no sense is kept, with the problem in words: nothing is placed
against it, and its status says why.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stretto.model.quantity import Quantity, QuantityError, amount_of, nano_value
from stretto.model.shape import Shape

QUEUE = "Queue"
"""Object kind in the log; key: the queue's name."""
USAGE = "QueueUsage"
"""Object kind in the log; key: the queue's name. Written by the Binder with what it commits."""
QUOTA_API = "scheduling.stretto.io/v1alpha1"
"""Where it is not served there are no queues, and the label means nothing."""
MAX_WEIGHT = 1_000_000
MAX_RUNTIME_S = 30 * 86_400

Amounts = tuple[tuple[str, int], ...]
"""(resource, amount in base units; cpu in milli) sorted by name."""


class QueueRow(msgspec.Struct, frozen=True, array_like=True):
    """A queue as scheduling reads it."""

    parent: str = ""
    guaranteed: Amounts = ()
    limit: Amounts = ()
    """Resources that are not listed are not limited."""
    weight: int = 1
    min_runtime_s: int = 0
    """A pod of the queue that borrows runs for so long before it may be reclaimed."""
    problem: str = ""
    """Why nothing may be placed against it, if one can tell from the queue alone."""
    uid: str = ""
    generation: int = 0
    told: bytes = b""
    """JSON of the status that it has, see :class:`stretto.quota.status.QueueStatus`."""

    @property
    def asks(self) -> QueueRow:
        """The row without what was told: what placing depends on."""
        return msgspec.structs.replace(self, told=b"", uid="", generation=0)


class UsageRow(msgspec.Struct, frozen=True, array_like=True):
    """What the pods of a queue and of all below it take."""

    used: Amounts = ()
    held: Amounts = ()
    """The part of it that is under a guarantee of this queue or of one below it."""
    leaving: Amounts = ()
    """The part of it whose pods have been asked to go."""
    aged: int = 0
    """Pods that have run for the minimum and are not under their own queue's guarantee."""


class _Api(msgspec.Struct, frozen=True, rename="camel"):
    """camelCase on the wire."""


class _Spec(_Api, frozen=True):
    parent: str | None = None
    guaranteed: dict[str, Quantity] | None = None
    limit: dict[str, Quantity] | None = None
    weight: int | None = None
    min_runtime_seconds: int | None = None


class QueueMeta(_Api, frozen=True):
    """What identifies a queue."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0


class Queue(_Api, frozen=True):
    """A Queue object."""

    metadata: QueueMeta = QueueMeta()
    spec: _Spec = _Spec()
    status: msgspec.Raw = msgspec.Raw(b"")


def queue_row_of(queue: Queue) -> QueueRow:
    """What scheduling reads of a queue."""
    spec, problems = queue.spec, []
    amounts: dict[str, Amounts] = {}
    for field, written in (("guaranteed", spec.guaranteed), ("limit", spec.limit)):
        try:
            amounts[field] = amounts_of(written or {})
        except QuantityError as error:
            problems.append(f"spec.{field}: {error}")
    weight = 1 if spec.weight is None else spec.weight
    if not 1 <= weight <= MAX_WEIGHT:
        problems.append(f"spec.weight: {weight} is not in 1..{MAX_WEIGHT}")
        weight = 1
    runtime_s = spec.min_runtime_seconds or 0
    if not 0 <= runtime_s <= MAX_RUNTIME_S:
        problems.append(f"spec.minRuntimeSeconds: {runtime_s} is not in 0..{MAX_RUNTIME_S}")
        runtime_s = 0
    return QueueRow(
        parent=spec.parent or "",
        guaranteed=amounts.get("guaranteed", ()),
        limit=amounts.get("limit", ()),
        weight=weight,
        min_runtime_s=runtime_s,
        problem="; ".join(problems),
        uid=queue.metadata.uid,
        generation=queue.metadata.generation,
        told=bytes(queue.status),
    )


def amounts_of(written: Mapping[str, Quantity]) -> Amounts:
    """Quantities by resource in the units that scheduling counts in.

    Raises:
        QuantityError: one is none, or negative; names the resource.
    """
    found = []
    for name, quantity in sorted(written.items()):
        try:
            found.append((name, amount_of(name, nano_value(quantity))))
        except QuantityError as error:
            raise QuantityError(f"{name}: {error}") from None
    return tuple(found)


def asked(shape: Shape) -> Amounts:
    """What a pod of a shape counts for: its effective requests, and itself."""
    return (*shape.requests, ("pods", 1))


_encoder = msgspec.msgpack.Encoder(order="deterministic")
_queue_decoder = msgspec.msgpack.Decoder(QueueRow)
_usage_decoder = msgspec.msgpack.Decoder(UsageRow)


def encode_quota(row: QueueRow | UsageRow) -> bytes:
    """Payload of a Queue or QueueUsage object."""
    return _encoder.encode(row)


def decode_queue(payload: bytes) -> QueueRow:
    """Read the payload of a Queue object.

    Raises:
        msgspec.ValidationError: the bytes are not a queue.
    """
    return _queue_decoder.decode(payload)


def decode_usage(payload: bytes) -> UsageRow:
    """Read the payload of a QueueUsage object.

    Raises:
        msgspec.ValidationError: the bytes are not a usage.
    """
    return _usage_decoder.decode(payload)
