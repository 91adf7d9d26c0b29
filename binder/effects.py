"""What the Binder's brain wants done."""

from __future__ import annotations

from dataclasses import dataclass, field

from binder.bindings import Binding, Stage
from stretto.snapshot.delta import Delta


@dataclass(slots=True)
class Scheduled:
    """A pod that has been bound, for its event."""

    namespace: str
    name: str
    uid: str
    node: str
    profile: str


@dataclass(slots=True)
class Effects:
    """What is to be done, in this order: publish, write to the ledger, tell, note."""

    deltas: list[Delta] = field(default_factory=list)
    outcomes: bool = False
    """The outcome log has grown."""
    scheduled: list[Scheduled] = field(default_factory=list)
    ended: list[tuple[Binding, Stage]] = field(default_factory=list)
    """Reservations that have come to an end, for the audit log: BOUND, or OVER when freed."""
