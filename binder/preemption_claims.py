"""A unit's claim on nodes whose victims have yet to go: the records; see binder/preemptions.py."""

from __future__ import annotations

import enum

import msgspec

from stretto.model.shape import Shape
from stretto.model.unit import Diagnosis, Member, Unit


class ClaimStage(enum.IntEnum):
    """Where a claim is."""

    NOMINATING = 1
    """The nominations are not all known to be written."""
    EVICTING = 2
    OVER = 3


class Leaving(msgspec.Struct):
    """A victim."""

    uid: str
    namespace: str
    name: str
    deleted: bool
    """It is deleted and not evicted: its leaving violates a disruption budget, or more than one
    covers it, and then the API server refuses every eviction."""
    guarded: bool = False
    """A budget covers it, so the API server may refuse that it goes."""
    lot: frozenset[str] = frozenset()
    """Uids of the pods of its group that go with it, itself included; empty: it goes alone."""


class Seat(msgspec.Struct):
    """A member of the unit, and the node that is claimed for it."""

    member: Member
    shape: Shape
    """As the pod will have it on the node."""
    node_id: int
    node_name: str
    resource_version: int
    """Of the pod, newest known."""
    written: bool = False
    """The nomination is known to be in the pod's status."""


class Claim(msgspec.Struct):
    """A unit's claim: all of its members, or nobody."""

    unit: Unit
    seats: list[Seat]
    """One a member, in the unit's order."""
    victims: list[Leaving]
    shard: str
    sequence: int
    """Of the log: contains the claim."""
    diagnosis: Diagnosis | None = None
    stage: ClaimStage = ClaimStage.NOMINATING
    withdrawn: bool = False
    """A member is gone or no longer ours: nobody else has to go for it."""
    waits: bool = False
    """Some of its victims are for an earlier claim to ask, which has not asked them yet."""

    @property
    def priority(self) -> int:
        """Of all members."""
        return self.seats[0].shape.priority

    @property
    def name(self) -> str:
        """For keeping things about it beside it."""
        return self.seats[0].member.uid

    @property
    def nodes(self) -> set[str]:
        """Names of the claimed nodes."""
        return {seat.node_name for seat in self.seats}

    def seat_of(self, uid: str) -> Seat:
        """The seat of a member."""
        return next(seat for seat in self.seats if seat.member.uid == uid)
