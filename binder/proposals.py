"""What passes through a commit: proposals as they arrive, a batch of them while the ledger is
asked, and what it came to."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from stretto.ledger.types import Charge, LedgerUnit, Lines
from stretto.model.shape import Shape
from stretto.model.unit import Attempt, Member, Outcome, Proposal, UnitId, Verdict
from stretto.placement.devices.plan import NO_DEVICES, DevicePlan
from stretto.placement.volume_plan import NO_VOLUMES, VolumePlan


def lines_of(shape: Shape, *, met: tuple[str, ...] = ()) -> Lines:
    """What a pod of the shape takes of its node's ledger account; ``met``: resources that devices
    stand in for, which the account does not know."""
    if met:
        return (*(line for line in shape.requests if line[0] not in met), ("pods", 1))
    return (*shape.requests, ("pods", 1))


class Incoming(NamedTuple):
    """A proposal as it arrived."""

    shard: str
    """Who proposed, for people."""
    stream: int
    """Where the verdict goes."""
    binder_epoch: int
    proposal: Proposal
    shapes: tuple[Shape, ...]
    """One a member."""


class Reservation(NamedTuple):
    """A committed member: what its bind needs."""

    member: Member
    shape: Shape
    node_uid: str
    node_name: str
    unit_id: UnitId
    attempt: Attempt
    shard: str
    volumes: VolumePlan = NO_VOLUMES
    """What is done to the pod's claims before its bind."""
    devices: DevicePlan = NO_DEVICES
    """The same for its claims to devices."""

    met: tuple[str, ...] = ()
    """Extended resources that devices stand in for: the node itself has none."""

    @property
    def lines(self) -> Lines:
        """What it takes of its node's ledger account."""
        return lines_of(self.shape, met=self.met)

    @property
    def prebinds(self) -> bool:
        """Whether anything is done before its bind."""
        return self.volumes != NO_VOLUMES or self.devices != NO_DEVICES


class Tentative(msgspec.Struct):
    """A unit that memory accepted."""

    incoming: Incoming
    nodes: list[int]
    """Node ids of the members."""
    rows: list[int]
    """Their rows at that time."""
    volumes: list[VolumePlan]
    """What their claims need there."""
    devices: list[DevicePlan]
    charges: list[tuple[Charge, ...]]
    """What they take beside their room."""


class Batch(msgspec.Struct):
    """Proposals between memory's word and the ledger's."""

    verdicts: list[tuple[int, Verdict]] = msgspec.field(default_factory=list)
    """(stream, verdict), decided already."""
    tentative: list[Tentative] = msgspec.field(default_factory=list)
    units: list[LedgerUnit] = msgspec.field(default_factory=list)
    """What the ledger is asked, one a tentative."""


class Settled(msgspec.Struct):
    """What a batch came to."""

    verdicts: list[tuple[int, Verdict]] = msgspec.field(default_factory=list)
    reservations: list[Reservation] = msgspec.field(default_factory=list)
    outcomes: list[Outcome] = msgspec.field(default_factory=list)
    free: list[str] = msgspec.field(default_factory=list)
    """Pod uids that the ledger granted and memory cannot take any more."""
    drift: list[str] = msgspec.field(default_factory=list)
    """Accounts to audit."""
