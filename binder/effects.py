"""What the Binder's brain wants done."""

from __future__ import annotations

import msgspec

from binder.bindings import Binding, Stage
from stretto.snapshot.delta import Delta


class Scheduled(msgspec.Struct):
    """A pod that has been bound, for its event."""

    namespace: str
    name: str
    uid: str
    node: str
    profile: str


class Effects(msgspec.Struct):
    """What is to be done, in this order: publish, write to the ledger, tell, note."""

    deltas: list[Delta] = msgspec.field(default_factory=list)
    outcomes: bool = False
    """The outcome log has grown."""
    scheduled: list[Scheduled] = msgspec.field(default_factory=list)
    ended: list[tuple[Binding, Stage]] = msgspec.field(default_factory=list)
    """Reservations that have come to an end, for the audit log: BOUND, or OVER when freed."""
