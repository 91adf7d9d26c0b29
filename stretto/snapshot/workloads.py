"""Services and controllers: whose selectors make default spread constraints.

PodTopologySpread's default constraints count the pods that the Services of a pod select and that
its ReplicationController, ReplicaSet or StatefulSet manages (upstream's helper.DefaultSelector). Of
each such object only the selector travels.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from stretto.model.errors import OperatorError
from stretto.model.objects import RAW_NOTHING, ObjectMeta
from stretto.model.selector import RawSelector, requirements_of
from stretto.model.shape import Requirement

SERVICE = "Service"
REPLICATION_CONTROLLER = "ReplicationController"
REPLICA_SET = "ReplicaSet"
STATEFUL_SET = "StatefulSet"
KINDS = (SERVICE, REPLICATION_CONTROLLER, REPLICA_SET, STATEFUL_SET)
"""Object kinds; key: namespace/name, payload: the selector's requirements."""
_PLAIN = (SERVICE, REPLICATION_CONTROLLER)
"""Kinds whose selector is a map of labels."""


class _Spec(msgspec.Struct, frozen=True):
    selector: Raw = RAW_NOTHING


class Workload(msgspec.Struct, frozen=True):
    """A Service or controller, as far as it is read."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()


class WorkloadError(OperatorError, ValueError):
    """A selector that cannot be read; names the object."""


def workload_row_of(kind: str, workload: Workload) -> tuple[Requirement, ...]:
    """The selector of a Service or controller; () if it selects nothing, or anything: neither adds
    a requirement.

    Raises:
        WorkloadError: the selector is not one.
    """
    raw = workload.spec.selector
    if not raw:
        return ()
    try:
        if kind in _PLAIN:
            labels = msgspec.json.decode(raw, type=dict[str, str] | None)
            selector = None if labels is None else RawSelector(match_labels=labels)
        else:
            selector = msgspec.json.decode(raw, type=RawSelector | None)
        return requirements_of(selector) or ()
    except (msgspec.DecodeError, ValueError) as error:
        meta = workload.metadata
        raise WorkloadError(f"{kind} {meta.namespace}/{meta.name}: selector: {error}") from None


def encode_selector(selector: tuple[Requirement, ...]) -> bytes:
    """Payload of the four kinds."""
    return _encoder.encode(selector)


def decode_selector(payload: bytes) -> tuple[Requirement, ...]:
    """Read the payload of the four kinds."""
    return _decoder.decode(payload)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[Requirement, ...])
