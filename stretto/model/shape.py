"""A shape: everything about a pod that scheduling looks at (design §2, §12.10–11).

Two pods of one shape are interchangeable for every plugin; that is what makes reuse, parking and
batching per shape right. The record holds *resolved* values in Kubernetes' base units; names that
merely parametrise a pod (spec.nodeName, nominated node) are kept as fields because they change
what is feasible. ``digest`` is a content hash over the canonical encoding, equal in every process.
"""

from __future__ import annotations

import hashlib
from functools import cached_property

import msgspec


class Toleration(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One toleration, defaults applied (operator Equal, empty effect = every effect)."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Requirement(msgspec.Struct, frozen=True, array_like=True):
    """key operator values: of a node selector term or of a label selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeTerm(msgspec.Struct, frozen=True, array_like=True):
    """A nodeSelectorTerm: labels AND fields; an empty one matches nothing."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


class PreferredNodeTerm(msgspec.Struct, frozen=True, array_like=True):
    """A preferred scheduling term with its weight 1..100."""

    weight: int
    term: NodeTerm


class HostPort(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A host port a container asks for; ip "0.0.0.0" and protocol TCP are the defaults, applied."""

    protocol: str
    ip: str
    port: int


class PodTerm(msgspec.Struct, frozen=True, array_like=True):
    """A required anti-affinity term of a pod, as much as refusing needs until inter-pod affinity
    is built."""

    topology_key: str
    namespaces: tuple[str, ...] = ()
    """Resolved list; the pod's own namespace when the term names none."""
    namespace_selector: tuple[Requirement, ...] | None = None
    """None: only ``namespaces`` count; (): every namespace."""
    selector: tuple[Requirement, ...] | None = None
    """None matches no pod; () matches every pod."""


class Shape(msgspec.Struct, frozen=True, dict=True):
    """What scheduling looks at; see the module docstring."""

    profile: str
    """schedulerName: selects the profile."""
    namespace: str
    priority: int = 0
    requests: tuple[tuple[str, int], ...] = ()
    """(resource, amount) sorted by name; cpu in milli, the rest in base units (bytes, counts).
    Zero amounts kept only where upstream tells an explicit 0 from absence."""
    nonzero_cpu_milli: int = 0
    nonzero_memory: int = 0
    """Bytes; the scoring defaults of upstream's NonZeroRequested applied, node-side sum."""
    score_requests: tuple[int, int] = (0, 0)
    """(cpu milli, memory bytes) as the pod-side scorer sees them (pod-level resources differ,
    upstream §1.2)."""
    tolerations: tuple[Toleration, ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    required_node_terms: tuple[NodeTerm, ...] | None = None
    """None: no required node affinity; (): present but empty, matches nothing."""
    preferred_node_terms: tuple[PreferredNodeTerm, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    images: tuple[str, ...] = ()
    """Normalised image names of init and regular containers and image volumes, with repeats, in
    order."""
    image_containers: int = 0
    """The count that scales ImageLocality's upper threshold."""
    node_name: str = ""
    nominated_node: str = ""
    preemption_policy: str = "PreemptLowerPriority"
    labels: tuple[tuple[str, str], ...] = ()
    """Only labels whose key is in ``label_keys``."""
    label_keys: tuple[str, ...] = ()
    """The sorted key set (keys some live selector reads) that ``labels`` was projected on."""
    anti_affinity: tuple[PodTerm, ...] = ()
    """Own required anti-affinity terms: others that match are refused while inter-pod affinity is
    not built."""
    unbuilt_hard: tuple[str, ...] = ()
    """Hard constraints present in the pod that no plugin of this release checks, named for the
    condition."""
    unbuilt_soft: tuple[str, ...] = ()
    """Soft ones; counted, named once in the log, not obeyed."""

    @cached_property
    def encoded(self) -> bytes:
        """The canonical bytes (msgpack); what travels and what is hashed."""
        return _encoder.encode(self)

    @cached_property
    def digest(self) -> bytes:
        """16 bytes, the identity of the shape in every process."""
        return hashlib.blake2b(self.encoded, digest_size=16).digest()


_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder(Shape)


def decode_shape(data: bytes) -> Shape:
    """Read a shape from its canonical bytes.

    Raises:
        msgspec.ValidationError: the bytes are not a shape.
    """
    return _decoder.decode(data)
