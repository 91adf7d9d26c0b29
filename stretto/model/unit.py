"""The words that dispatcher, shards and Binder exchange, as plain records.

One place defines what a unit, an attempt, a proposal, a verdict and an outcome are, so that the
brains of the three processes and the wire format speak of the same things (design §2). Nothing
here does I/O.

Order matters in two of them. A :class:`Version` is the Binder's commit order: a snapshot "at v"
contains every commit ≤ v. An :class:`Attempt` is ordered as a pair, so that an answer to an
attempt of a dead Dispatcher never counts for one of its successor (design §12.4).
"""

from __future__ import annotations

import enum
from typing import NamedTuple, NewType

import msgspec

from stretto.model.diagnosis import Diagnosis as Diagnosis

PodUid = NewType("PodUid", str)
UnitId = NewType("UnitId", str)
"""The uid of the pod, or of the PodGroup, that the unit stands for."""
NodeId = NewType("NodeId", int)
"""A node incarnation in the Binder's epoch: given out once, never reused while the epoch lasts."""
ShapeId = NewType("ShapeId", int)
"""A shape in one interning scope (the Binder's log, or one stream); never compared across
scopes."""


class Version(NamedTuple):
    """A point in the Binder's commit order."""

    epoch: int
    sequence: int


class Attempt(NamedTuple):
    """One try at a unit, numbered by the Dispatcher; compared as a pair."""

    epoch: int
    number: int


class Member(msgspec.Struct, frozen=True, gc=False):
    """A pod of a unit, as much of it as a bind needs."""

    uid: PodUid
    namespace: str
    name: str
    resource_version: int
    """The version of the pod object that was read when the unit was formed; a precondition of its
    bind."""
    shape: int
    """A :data:`ShapeId` in the scope of whoever holds the record."""
    document: bytes = b""
    """JSON of the pod object; only where an extender is asked about it."""


class Unit(msgspec.Struct, frozen=True, gc=False):
    """What is decided at once: one pod, or a gang."""

    unit_id: UnitId
    attempt: Attempt
    members: tuple[Member, ...]
    min_sequence: int = 0
    """The snapshot must have reached this sequence (of the Binder's current epoch) before it is
    decided."""
    avoid: tuple[int, ...] = ()
    """Node ids that the last attempts lost on; the shard ranks them last among equals."""
    own: bool = False
    """The shard's own partitions first, others only if none of theirs fits (fewer rivals)."""
    stake: bool = False
    """If it fits nowhere, or is lost to others, the unit is to be given a stake."""


class Proposal(msgspec.Struct, frozen=True, gc=False):
    """A shard's answer for a unit that fits."""

    unit: Unit
    nodes: tuple[int, ...]
    """A :data:`NodeId` for each member, in the order of ``unit.members``."""
    spares: tuple[int, ...] = ()
    """Other nodes for a unit of one member, best first; tried by the Binder before it rejects."""
    decided_at: int = 0
    """The sequence of the snapshot that the decision was taken on."""
    victims: tuple[str, ...] = ()
    """Uids of pods that have to leave the node first, most important first: the unit is not to be
    bound but to be nominated there."""
    diagnosis: Diagnosis | None = None
    """With victims: why the unit fits nowhere as things are, preemption's part included."""


class Release(msgspec.Struct, frozen=True, gc=False):
    """A shard's request to give up a claim's devices, which keep a pod from where it could go.

    It has no answer: what becomes of it is in the log.
    """

    claim: str
    """namespace/name."""
    claim_uid: str
    pod: str
    """Uid; nobody else uses the claim."""


class VerdictKind(enum.IntEnum):
    """The Binder's answer to a proposal."""

    COMMITTED = 1
    """Reserved in the ledger, whole; the bind follows."""
    CONFLICT = 2
    """Does not hold any more. A normal result: the unit goes back to the front of the queue."""
    GONE = 3
    """A member no longer exists, or is bound already."""
    REFUSED = 4
    """Will not be tried again as it is: bad input or a constraint that is not built."""
    SUPERSEDED = 5
    """A later attempt at this unit is known, or the Dispatcher's epoch is over."""
    HELD = 6
    """A member already holds a reservation under another attempt; nothing was written."""
    NOMINATED = 7
    """The victims will be asked to go, and the room they leave is kept for the unit."""


class Cause(enum.IntEnum):
    """What a verdict other than COMMITTED, or an outcome other than BOUND, was lost to. A closed
    set."""

    NONE = 0
    CAPACITY = 1
    """Another commit took the room."""
    NODE_GONE = 2
    """The node was deleted, or is another incarnation."""
    NODE_CHANGED = 3
    """The node's labels, taints, cordon or ports no longer admit the pod."""
    LABEL_KEYS = 4
    """The shape was formed before a selector that reads more label keys appeared."""
    LEDGER = 5
    """The ledger refused although memory agreed: drift; the node is frozen until it is audited."""
    FROZEN = 6
    """The node is frozen by an audit."""
    EPOCH = 7
    """The proposal names another epoch of the Binder's log."""
    STALE = 8
    """The Binder is not open, or its view of the cluster is older than its limit."""
    BIND_FAILED = 9
    """The API server refused the bind; the pod is fenced and free again."""
    POD_CHANGED = 10
    """The pod changed in flight; the unit must be formed anew."""
    POD_GONE = 11
    INVALID = 12
    """The message itself is malformed."""
    OVERLOAD = 13
    SPREAD = 14
    """Another commit took the last place that topology spread allowed there."""
    AFFINITY = 15
    """Pods there have changed: affinity or anti-affinity, own or others', no longer admits the
    pod."""
    VOLUMES = 16
    """The pod's claims, disks or volumes no longer allow the node."""
    DEVICES = 17
    """The pod's claims to devices can no longer be met there."""
    VICTIMS = 18
    """Preemption would need other victims by now, or none, or it could not be carried out."""
    STAKED = 19
    """There was no room; from now on what comes free on its nodes is kept for the unit."""
    QUOTA = 20
    """The pod's queue, or one above it, is at its limit, or cannot be used."""
    GANG = 21
    """With the unit its gang would still have fewer members than run together: some have left."""


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """What the Binder says to the shard that proposed."""

    unit_id: UnitId
    attempt: Attempt
    kind: VerdictKind
    cause: Cause = Cause.NONE
    sequence: int = 0
    """COMMITTED: the sequence that contains the reservation. CONFLICT: the one to reach before a
    new try."""
    nodes: tuple[int, ...] = ()
    """COMMITTED: where the members went (a spare may have been taken)."""


class OutcomeKind(enum.IntEnum):
    """How the Binder's ownership of a unit ended."""

    BOUND = 1
    CONFLICT = 2
    GONE = 3
    REFUSED = 4
    FAILED = 5
    """Was reserved, could not be bound, is fenced and free: to be decided again."""
    NOMINATED = 6
    """Its victims were asked to go; it waits for them."""


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """An entry of the Binder's outcome log, kept until the Dispatcher has acknowledged it."""

    unit_id: UnitId
    attempt: Attempt
    kind: OutcomeKind
    cause: Cause = Cause.NONE
    sequence: int = 0
    """Version to reach before the unit is decided again."""
    node: str = ""
    """BOUND: name of the node (of the first member)."""
    shard: str = ""
    """Who proposed it."""
    detail: str = ""
    """For people: what it was lost to, in a sentence."""
    members: tuple[str, ...] = ()
    """Pod uids the outcome is about; empty means all members."""
    resource_version: int = 0
    """FAILED: the pod's resourceVersion after the fence, NOMINATED: after the nomination; when
    known."""
    diagnosis: Diagnosis | None = None
    """NOMINATED: the proposal's."""


class Unplaceable(msgspec.Struct, frozen=True, gc=False):
    """A shard's answer for a unit that fits nowhere, decided on committed state only (design
    §12.2)."""

    unit_id: UnitId
    attempt: Attempt
    shape: int
    version: Version
    diagnosis: Diagnosis


class HandBack(msgspec.Struct, frozen=True, gc=False):
    """A unit that a shard returns without an answer (drain, new Binder epoch, unknown shape)."""

    unit_id: UnitId
    attempt: Attempt
    reason: str
