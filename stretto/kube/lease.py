"""Leadership by a Lease, as pure rules: observations and clock readings in, the next step out.

Two processes may believe that they lead at the same time, whatever a Lease says; what makes that
harmless is the *epoch*, the resourceVersion that the acquiring write returned. It grows even if the
Lease is deleted and made anew, and everything that a leader writes elsewhere carries it. The Lease
keeps such overlaps rare:

* A standby takes over only after it has watched the Lease stand still for ``duration_s`` of its own
  monotonic clock; times in the Lease are for people, since wall clocks jump.
* A leader acts only until ``renew_deadline_s`` after the *start* of its last successful renewal,
  which is shorter. If it succeeds in renewing later than that, nobody else can have written
  meanwhile, and it goes on: an API server that was away for a minute does not restart the
  schedulers.
* Every write carries the version that was read, so of several that try one wins.
* A graceful stop blanks the holder, which a standby may take at once, and may leave the mark
  *clean*: all guarded work had ended. Acquiring clears the mark.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import msgspec

CLEAN = "stretto.io/clean"
"""Annotation: the last holder released the Lease with nothing in flight."""
ADDRESS = "stretto.io/address"
"""Annotation: where the holder serves, for a standby's "not leader" answer."""
EPOCH = "stretto.io/epoch"
"""Annotation: the epoch of the last holder that may have acted; written by its first renewal."""


LOOKS_A_RENEWAL = 4
"""Times that a standby reads the Lease while its leader renews it once."""


class LeaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which Lease, who we are, and the times (client-go's defaults)."""

    namespace: str
    name: str
    identity: str
    """Unique to this start of the process."""
    address: str = ""
    """HOST:PORT at which this process serves, or ''."""
    duration_s: float = 15.0
    """A Lease that stood still for this long may be taken."""
    renew_deadline_s: float = 10.0
    """A leader that could not renew for this long stops acting. Below ``duration_s``."""
    retry_s: float = 2.0
    """Between renewals, and between looks of a standby."""

    def __post_init__(self) -> None:
        if not 0 < self.retry_s < self.renew_deadline_s < self.duration_s:
            raise ValueError(
                "lease times must rise: retry < renew deadline < duration, are "
                f"{self.retry_s:g}, {self.renew_deadline_s:g}, {self.duration_s:g} s"
            )


class LeaseRecord(NamedTuple):
    """What was read of the Lease."""

    version: int
    """Its resourceVersion."""
    holder: str
    """Identity of the holder; '' after a release."""
    address: str
    clean: bool
    transitions: int
    epoch: int = 0
    """Of the last holder that may have acted; 0: not known."""


class Leader(NamedTuple):
    """Whom the Lease names."""

    identity: str
    address: str


class Tenure(NamedTuple):
    """What acquiring the Lease gave."""

    epoch: int
    """Fencing number: the resourceVersion that the acquiring write returned."""
    clean: bool
    """The predecessor stopped gracefully with nothing in flight."""
    first: bool
    """Nobody is known to have held this Lease before, or it was deleted by hand: which of the two
    cannot be told, so this proves nothing about what may be in flight."""
    previous_epoch: int = 0
    """Of the last holder that may have acted; 0: not known."""


class Step(enum.Enum):
    """What the shell has to do next."""

    READ = "read"
    CREATE = "create"
    TAKE = "take"
    """Write ourselves as the holder, on condition that the version read still stands."""
    RENEW = "renew"
    """Write the time again, on the same condition."""
    WAIT = "wait"
    LOST = "lost"


class LeaseMachine:
    """The rules for one process. ``now`` is always seconds of one monotonic clock."""

    def __init__(self, settings: LeaseSettings) -> None:
        assert settings.identity, "a lease needs an identity"
        self.settings = settings
        self.record: LeaseRecord | None = None
        self.tenure: Tenure | None = None
        self.announced = False
        """Our epoch stands in the Lease. A successor compares it with the ledger's, so nothing may
        be sent before."""
        self.lost = False
        """Whether we led and another may lead now. Final."""
        self._must_read = True
        self._stood_since = 0.0
        self._renewed_at = 0.0

    @property
    def leader(self) -> Leader | None:
        """Whom the Lease named when it was read last."""
        if self.record is None or not self.record.holder:
            return None
        return Leader(self.record.holder, self.record.address)

    def valid(self, now: float) -> bool:
        """Whether we may act right now. Ask immediately before each effect."""
        return (
            self.tenure is not None
            and not self.lost
            and now < self._renewed_at + self.settings.renew_deadline_s
        )

    def left_s(self, now: float) -> float:
        """Seconds for which we may act without a further renewal."""
        return self._renewed_at + self.settings.renew_deadline_s - now if self.valid(now) else 0.0

    def next_step(self, now: float) -> Step:
        """What to do now; the shell reports back what came of it."""
        if self.lost:
            return Step.LOST
        if self._must_read:
            return Step.READ
        if self.tenure is not None:
            due = not self.announced or now >= self._renewed_at + self.settings.retry_s
            return Step.RENEW if due else Step.WAIT
        if self.record is None:
            return Step.CREATE
        free = not self.record.holder or now - self._stood_since >= self.settings.duration_s
        return Step.TAKE if free else Step.WAIT

    def pause_s(self, now: float) -> float:
        """How long to wait at most after :attr:`Step.WAIT`.

        A standby looks more often than a leader renews: how late it sees the last renewal, and the
        release, adds to the time without a leader.
        """
        if self.tenure is not None or self.record is None:
            return self.settings.retry_s
        assert not self.lost, "a Lease that was lost is waited for"
        rest = self._stood_since + self.settings.duration_s - now
        return min(max(rest, 0.0), self.settings.retry_s / LOOKS_A_RENEWAL)

    def waited(self) -> None:
        """A wait is over; what a standby has read is old now."""
        self._must_read = self._must_read or self.tenure is None

    def failed(self) -> None:
        """A write was refused, or what came of it is unknown: only a read tells what holds now."""
        self._must_read = True

    def observed(self, record: LeaseRecord | None, now: float) -> None:
        """The Lease was read; None if it does not exist."""
        assert now >= self._stood_since, "the monotonic clock went back"
        before, self.record = self.record, record
        self._must_read = False
        if before is None or record is None or record.version != before.version:
            self._stood_since = now
        ours = record is not None and record.holder == self.settings.identity
        if self.tenure is not None:
            self.lost = self.lost or not ours
        elif record is not None and ours:
            # Our acquiring write was carried out though its answer was lost. We renew only as the
            # leader, so this is still the version it made. Since when it counts is not known: the
            # tenure begins expired, and the renewal that is due at once makes it valid.
            self._begin(record.version, before)
            self._renewed_at = now - self.settings.renew_deadline_s

    def wrote(self, record: LeaseRecord, *, started: float) -> None:
        """Our write of the Lease succeeded; ``started`` is when it was begun.

        Its condition held, so nobody has written since our last one: even a leader whose deadline
        had passed in between was the only one all the time, and goes on in the same epoch.
        """
        assert record.holder == self.settings.identity, "wrote a Lease in another's name"
        if self.tenure is None:
            self._begin(record.version, self.record)
        else:
            self.announced = True  # only now was the epoch known to be written
        assert not self.lost, "a Lease that was lost is renewed"
        assert started >= self._renewed_at, "renewed before the last renewal"
        self.record = record
        self._renewed_at = started

    def _begin(self, epoch: int, before: LeaseRecord | None) -> None:
        assert self.tenure is None, "a process has one tenure in its life"
        assert epoch > 0, "an epoch is a version that the API server gave"
        self.tenure = Tenure(
            epoch=epoch,
            clean=before is not None and before.clean,
            first=before is None or (not before.holder and before.transitions == 0),
            previous_epoch=before.epoch if before is not None else 0,
        )
