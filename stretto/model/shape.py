"""A shape: everything about a pod that scheduling looks at (design §2, §12.10–11).

Two pods of one shape are interchangeable for every plugin; that is what makes reuse, parking and
batching per shape right. The record holds *resolved* values in Kubernetes' base units; names that
merely parametrise a pod (spec.nodeName, nominated node, the one node of a DaemonSet's pod, claims)
are kept as fields because they change what is feasible, and told apart by whoever can share work
between pods that differ in them only. ``digest`` is a content hash over the canonical encoding,
equal in every process.
"""

# Annotations are not put off as text here: msgspec would compile it again in each process.
import hashlib
from functools import cached_property
from typing import Self

import msgspec

NAME_FIELD = "metadata.name"
"""The field of a node that node selector terms may ask for."""
LABEL_KEYS_LIMIT = 1000
"""Label keys that selectors may read in all: each counts for every pod of the cluster."""
QUEUE_LABEL = "scheduling.stretto.io/queue"
"""On a pod: its queue. On a namespace: the queue of its pods, or an ancestor of theirs."""


class Toleration(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One toleration, defaults applied (operator Equal, empty effect = every effect)."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Requirement(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """key operator values: of a node selector term or of a label selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeTerm(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A nodeSelectorTerm: labels AND fields; an empty one matches nothing."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


class PreferredNodeTerm(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A preferred scheduling term with its weight 1..100."""

    weight: int
    term: NodeTerm


class HostPort(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A host port a container asks for; ip "0.0.0.0" and protocol TCP are the defaults, applied."""

    protocol: str
    ip: str
    port: int


class PodTerm(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A pod affinity or anti-affinity term. The API server has folded matchLabelKeys and
    mismatchLabelKeys into the selector."""

    topology_key: str
    namespaces: tuple[str, ...] = ()
    """Resolved list; the pod's own namespace when the term names none."""
    namespace_selector: tuple[Requirement, ...] | None = None
    """None: only ``namespaces`` count; (): every namespace."""
    selector: tuple[Requirement, ...] | None = None
    """None matches no pod; () matches every pod."""


class WeightedPodTerm(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A preferred pod affinity or anti-affinity term with its weight 1..100."""

    weight: int
    term: PodTerm


class SpreadConstraint(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A topology spread constraint, defaults applied and matchLabelKeys folded into the
    selector."""

    max_skew: int
    topology_key: str
    hard: bool
    """DoNotSchedule; otherwise ScheduleAnyway."""
    selector: tuple[Requirement, ...] | None
    """None matches no pod."""
    min_domains: int = 1
    honor_affinity: bool = True
    """nodeAffinityPolicy: nodes that the pod's node affinity leaves out do not count."""
    honor_taints: bool = False
    """nodeTaintsPolicy: nodes with a hard taint that the pod does not tolerate do not count."""


class Claim(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A volume of the pod that is a PersistentVolumeClaim of its namespace."""

    name: str
    pod: str = ""
    """Of a generic ephemeral volume: the pod's name, else empty."""
    pod_uid: str = ""
    """Its uid, which must control the claim."""


class Disk(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An inline volume that VolumeRestrictions or NodeVolumeLimits read."""

    kind: str
    """The field of the volume, as gcePersistentDisk."""
    ident: tuple[str, ...] = ()
    """What names the disk within its kind."""
    read_only: bool = False
    monitors: tuple[str, ...] = ()
    """Of rbd: two are the same only if they have a monitor in common."""


class ClaimRef(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A ResourceClaim that a pod uses, in the pod's namespace."""

    name: str
    owned: bool = False
    """Made for the pod from a template: only its own will do."""


class DeviceContainer(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A container of a pod that asks for extended resources, which devices may back."""

    initial: bool
    """An init container that ends before others start."""
    requests: tuple[tuple[str, int, int], ...] = ()
    """(resource, amount, position of the resource among all that the container requests)."""


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
    """Required anti-affinity terms; they keep others away as well."""
    claims: tuple[Claim, ...] = ()
    """In the order of the pod's volumes."""
    disks: tuple[Disk, ...] = ()
    """Inline disks in the order of the pod's volumes."""
    unbuilt_hard: tuple[str, ...] = ()
    """Hard constraints present in the pod that no plugin of this release checks, named for the
    condition."""
    terminating: bool = False
    """On a node and being deleted: topology spread does not count it any more."""
    affinity: tuple[PodTerm, ...] = ()
    """Required pod affinity terms."""
    preferred_affinity: tuple[WeightedPodTerm, ...] = ()
    preferred_anti_affinity: tuple[WeightedPodTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    """The pod's own topology spread constraints, in its order."""
    controller: tuple[str, str] = ("", "")
    """(kind, name) of the ReplicationController, ReplicaSet or StatefulSet that manages the pod:
    default spread constraints use its selector. Empty when the pod has constraints of its own."""

    @cached_property
    def selectors(self) -> tuple[tuple[Requirement, ...], ...]:
        """Every label selector of the pod that reads labels of pods."""
        terms = (
            *self.affinity,
            *self.anti_affinity,
            *(weighted.term for weighted in self.preferred_affinity),
            *(weighted.term for weighted in self.preferred_anti_affinity),
        )
        found = (*(term.selector for term in terms), *(each.selector for each in self.spread))
        return tuple(selector for selector in found if selector)

    @cached_property
    def reads(self) -> frozenset[str]:
        """The label keys of other pods that its selectors read."""
        return frozenset(r.key for selector in self.selectors for r in selector)

    group: str = ""
    """namespace/name of the pod group; members of one are placed together."""

    device_claims: tuple[ClaimRef, ...] = ()
    """ResourceClaims in the pod's order. Pods with claims of their own are shapes of their own."""
    claim_problem: str = ""
    """Why the claims of the pod are not known yet."""
    owner: tuple[str, str] = ("", "")
    """(name, uid) of the pod if a claim must be its own."""
    device_containers: tuple[DeviceContainer, ...] = ()
    """All containers in order if one asks for an extended resource."""
    node_features: tuple[str, ...] = ()
    """Features that a node must declare, sorted."""
    queue: str = ""
    """What the pod's label says of its queue; see :mod:`stretto.quota`."""
    only_node: str = ""
    """The one node (metadata.name) that every required term names beside its expressions, as of the
    pods of a DaemonSet; it is then in no term, so that these differ in this parameter only."""

    @cached_property
    def anywhere(self) -> Self:
        """The shape without the parameter ``only_node``."""
        return msgspec.structs.replace(self, only_node="") if self.only_node else self

    @cached_property
    def claimless(self) -> Self:
        """The shape without its claims, to volumes and to devices, and whose they must be."""
        if not self.claims and not self.device_claims:
            return self
        return msgspec.structs.replace(self, claims=(), device_claims=(), owner=("", ""))

    @cached_property
    def spelled_out(self) -> Self:
        """The shape with ``only_node`` written into its required terms."""
        if not self.only_node:
            return self
        terms = self.required_node_terms
        fields = (Requirement(NAME_FIELD, "In", (self.only_node,)),)
        expressions = [()] if terms is None else [term.expressions for term in terms]
        return msgspec.structs.replace(
            self,
            required_node_terms=tuple(NodeTerm(each, fields) for each in expressions),
            only_node="",
        )

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
