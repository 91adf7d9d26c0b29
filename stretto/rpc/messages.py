"""What travels on the four streams, as plain records; the wire modules turn them into columns.

Rules that both ends of a stream keep:

* The first message of a client says who it is; the server answers **at once** with a *greeting*: a
  message that carries its epoch (empty otherwise), or ``not_leader`` after which it ends the
  stream. The dialler takes the address that greets. Greetings: Work
  ``ToShard(dispatcher_epoch=…)``, Follow FULL_BEGIN, DELTA or HEARTBEAT, Propose
  ``VerdictBatch(binder_epoch=…)``, Outcomes ``OutcomeBatch(binder_epoch=…, owned=…)``.
* ``shape`` numbers (of members and of unplaceable answers) belong to the stream they travel on,
  except on Follow, where they belong to the Binder's epoch. A definition comes in the same message
  as its first use or in an earlier one.
* ``not_leader`` is None, or the identity or address of the active one ("" when unknown).
"""

from __future__ import annotations

import enum

import msgspec

from stretto.model.shape import Shape
from stretto.model.unit import (
    Attempt,
    HandBack,
    Outcome,
    Proposal,
    Release,
    Unit,
    UnitId,
    Unplaceable,
    Verdict,
    Version,
)
from stretto.placement.strict import DEFAULT_DIGEST
from stretto.snapshot.delta import Delta

PROTOCOL = 1
"""Version of the streams that this release speaks."""


class ShardHello(msgspec.Struct):
    """Who a shard is."""

    shard: str
    """Stable name, for metrics and people."""
    incarnation: str
    """Fresh uuid of the process."""
    protocol: int = PROTOCOL
    profiles: str = DEFAULT_DIGEST
    """Digest of the configuration that it decides by."""


# --------------------------------------------------------------------------------------------- Work
class FromShard(msgspec.Struct):
    """A shard to the dispatcher."""

    hello: ShardHello | None = None
    credits: int = 0
    """Units the shard will take beyond those it was granted so far."""
    unplaceable: list[Unplaceable] = msgspec.field(default_factory=list)
    handed_back: list[HandBack] = msgspec.field(default_factory=list)
    settled: list[tuple[UnitId, Attempt]] = msgspec.field(default_factory=list)
    """Units with a verdict, which the shard no longer holds."""
    draining: bool = False


class ToShard(msgspec.Struct):
    """The dispatcher to a shard."""

    dispatcher_epoch: int = 0
    shapes: list[tuple[int, Shape]] = msgspec.field(default_factory=list)
    units: list[Unit] = msgspec.field(default_factory=list)
    not_leader: str | None = None
    forgotten: list[int] = msgspec.field(default_factory=list)
    """Shape numbers that will not be used again on this stream."""


# ------------------------------------------------------------------------------------------- Follow
class FollowKind(enum.IntEnum):
    """What a message of the log means."""

    FULL_BEGIN = 1
    """Drop all state; chunks follow. Its delta is empty."""
    FULL_CHUNK = 2
    """Part of a full state, which is not consistent before FULL_END."""
    FULL_END = 3
    """The full state is complete at the delta's sequence. Its delta holds no rows."""
    DELTA = 4
    HEARTBEAT = 5
    """Nothing changed; the delta's sequence is current."""


class FollowRequest(msgspec.Struct):
    """A follower's only message; epoch 0 for a full state."""

    follower: str
    epoch: int = 0
    sequence: int = 0
    protocol: int = PROTOCOL


class FollowMessage(msgspec.Struct):
    """One message of the Binder's log."""

    kind: FollowKind
    delta: Delta
    """Empty but for epoch and sequence unless the kind is FULL_CHUNK or DELTA."""
    not_leader: str | None = None
    stamp_ms: int = 0
    """Sender's wall clock (milliseconds since 1970), for the lag metric only."""

    def gap(self, read: Version) -> str:
        """Why a step or a heartbeat does not continue a log that was read up to ``read``; empty if
        it does. Whoever missed a step has a wrong picture and asks for a full state."""
        epoch, sequence = self.delta.epoch, self.delta.sequence
        if epoch != read.epoch:
            return f"the log is of epoch {epoch}, what was read of it of {read.epoch}"
        expected = read.sequence + (self.kind is FollowKind.DELTA)
        if sequence != expected:
            what = "step" if self.kind is FollowKind.DELTA else "a heartbeat at step"
            return f"{what} {sequence} of the log came where {expected} was due"
        return ""


# ------------------------------------------------------------------------------------------ Propose
class ProposalBatch(msgspec.Struct):
    """A shard to the Binder."""

    hello: ShardHello | None = None
    binder_epoch: int = 0
    """Epoch that node numbers and ``decided_at`` belong to."""
    shapes: list[tuple[int, Shape]] = msgspec.field(default_factory=list)
    proposals: list[Proposal] = msgspec.field(default_factory=list)
    resent: bool = False
    """After a reconnect: may have been answered before."""
    forgotten: list[int] = msgspec.field(default_factory=list)
    """Shape numbers that will not be used again on this stream."""
    releases: list[Release] = msgspec.field(default_factory=list)


class VerdictBatch(msgspec.Struct):
    """The Binder to a shard."""

    binder_epoch: int = 0
    verdicts: list[Verdict] = msgspec.field(default_factory=list)
    not_leader: str | None = None


# ----------------------------------------------------------------------------------------- Outcomes
class OutcomeRequest(msgspec.Struct):
    """The dispatcher to the Binder."""

    dispatcher_epoch: int = 0
    dispatcher: str = ""
    """Identity, for logs."""
    acknowledged: int = 0
    """Every outcome with an index ≤ this is known."""
    withdraw: list[str] = msgspec.field(default_factory=list)
    """Pod uids that are gone or no longer ours."""
    ask: list[str] = msgspec.field(default_factory=list)
    """Pod uids whose owner the dispatcher wants to know (after a relist)."""
    profiles: str = DEFAULT_DIGEST
    """First message: digest of the configuration."""
    label_keys: list[str] = msgspec.field(default_factory=list)
    """Every label key that selectors of pending pods read, when there are new ones; the log has to
    show them (LabelKeys) before those pods are decided."""


class OwnedSet(msgspec.Struct):
    """What the Binder owns: the answer to a subscription and to ``ask``."""

    pod_uid: list[str] = msgspec.field(default_factory=list)
    """Owned now: reserved, binding or resolving."""
    bound_uid: list[str] = msgspec.field(default_factory=list)
    unknown_uid: list[str] = msgspec.field(default_factory=list)
    complete: bool = False
    """The whole owned set, not only what was asked for."""


class OutcomeBatch(msgspec.Struct):
    """The Binder to the dispatcher: outcome i has the index ``first_index`` + i."""

    binder_epoch: int = 0
    first_index: int = 0
    outcomes: list[Outcome] = msgspec.field(default_factory=list)
    owned: OwnedSet | None = None
    not_leader: str | None = None
