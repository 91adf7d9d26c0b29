"""A reservation's way to its bind, or back: the heart of the protocol (reliability §2.4).

                  ┌────────── 429 ──────────┐
                  ▼                         │
  POST ──► waiting for the answer ──────────┘
              │ 201            │ 409, unknown               │ 404            │ 403, 400
              ▼                ▼                            ▼                ▼
        wait for the watch    GET ──► bound as intended   free (gone)      free (failed)
              │                │  ──► bound elsewhere ──► free (gone; the watch tells of it)
              ▼                │  ──► gone, other uid ──► free (gone)
            BOUND              │  ──► unbound, newer version, an answered 409 ──► rebase, POST
                               └  ──► unbound otherwise ──► fence ──► free (failed)

Invariants. A reservation is freed only when the pod is seen gone, or bound and gone, or fenced by a
patch that succeeded while it was unbound: a GET alone proves nothing about a POST still in flight
(finding 4). A newer resourceVersion is used only after the ledger accepted it. After an *answered*
409 no POST of ours is in flight, so the pod needs no fence to be tried again under its new version;
after an unknown answer it does. The watch may tell the end at any moment and is believed.

A machine of plain methods: each answer goes in, the next :class:`Action` comes out.
"""

from __future__ import annotations

import enum

import msgspec

from binder.proposals import Reservation
from stretto.model.unit import Cause, OutcomeKind

MAX_REBASES = 5
"""A pod that changes faster than it can be bound is decided anew."""
FIRST_RETRY_S = 0.25
MAX_RETRY_S = 10.0


class Stage(enum.IntEnum):
    """Where a reservation is on its way."""

    RESERVED = 1
    """The bind has not been sent."""
    SENT = 2
    """A POST is in flight."""
    CONFIRMING = 3
    """201; the watch has not shown it yet."""
    READING = 4
    FENCING = 5
    REBASING = 6
    BOUND = 7
    OVER = 8
    """Freed, or about to be."""
    PREBIND = 9
    """Its claims are being bound; the bind has not been sent."""


_RESOLVING = (Stage.READING, Stage.FENCING, Stage.REBASING)
"""Made once: all open bindings are asked once a second."""
_ENDS = (Stage.BOUND, Stage.OVER)
"""Likewise: each step of a pod asks several times, and to look a member up is most of the cost."""


class ActionKind(enum.IntEnum):
    """What the shell is to do next for a pod."""

    POST = 1
    READ = 2
    FENCE = 3
    REBASE = 4
    NOTHING = 5
    """It waits for the watch, or is over."""


class Action(msgspec.Struct, frozen=True):
    """The next step, after ``delay_s`` seconds."""

    kind: ActionKind
    delay_s: float = 0.0
    resource_version: int = 0
    """FENCE: the version that the patch requires. REBASE: the version to accept."""


class Read(msgspec.Struct, frozen=True):
    """What a consistent read of the pod showed."""

    found: bool
    uid: str = ""
    node_name: str = ""
    resource_version: int = 0
    leaving: bool = False
    same_shape: bool = True
    """It still has the shape that was placed."""


class End(msgspec.Struct):
    """How it ended, for the ledger, the log and the dispatcher."""

    kind: OutcomeKind
    cause: Cause = Cause.NONE
    detail: str = ""
    resource_version: int = 0
    told: bool = False
    """It stands in the outcome log."""


NOTHING = Action(ActionKind.NOTHING)
POST = Action(ActionKind.POST)


class Binding:
    """One pod's reservation."""

    __slots__ = ("end", "rebases", "reservation", "resource_version", "retry_s", "stage", "unsure")

    def __init__(self, reservation: Reservation) -> None:
        self.reservation = reservation
        self.resource_version = reservation.member.resource_version
        """The version that the next bind requires; one the ledger has accepted."""
        self.stage = Stage.RESERVED
        self.unsure = False
        """A POST of ours has got no answer that proves it was not carried out."""
        self.rebases = 0
        self.retry_s = FIRST_RETRY_S
        self.end: End | None = None
        """Set when it is known how this ends; told once."""

    @property
    def uid(self) -> str:
        """The pod."""
        return self.reservation.member.uid

    @property
    def over(self) -> bool:
        """Bound or freed: no step is left."""
        return self.stage in _ENDS

    @property
    def resolving(self) -> bool:
        """On the way of an unknown or refused bind."""
        return self.stage in _RESOLVING

    # ----------------------------------------------------------------------------------- prebind
    def prebind(self) -> None:
        """Before its turn in the pool its claims are bound (:mod:`binder.prebind`)."""
        assert self.stage is Stage.RESERVED
        self.stage = Stage.PREBIND

    def prebound(self) -> None:
        """Its claims are bound."""
        assert not self.unsure, "a POST was sent before the claims were bound"
        if self.stage is Stage.PREBIND:
            self.stage = Stage.RESERVED

    def moved(self, resource_version: int) -> None:
        """A write of ours has changed the pod, and the ledger has accepted its new version."""
        assert resource_version >= 0
        if self.stage is Stage.PREBIND:
            self.resource_version = resource_version

    def prebind_failed(self, text: str, resource_version: int = 0) -> None:
        """They cannot be, and what was written for it is taken back: it was never sent."""
        if self.stage is Stage.PREBIND:
            self._free(OutcomeKind.FAILED, Cause.VOLUMES, text, resource_version)

    # ----------------------------------------------------------------------------------- sending
    def send(self) -> Action:
        """The bind's turn in the pool."""
        if self.stage is not Stage.RESERVED:
            return NOTHING
        assert self.end is None, "sent though its end is known"
        assert not self.unsure, "sent again though it may be on its way"
        self.stage = Stage.SENT
        return POST

    def _retry_delay(self, *, at_least_s: float = 0.0) -> float:
        delay = self.retry_s
        self.retry_s = min(MAX_RETRY_S, delay * 2)
        assert 0 < delay <= self.retry_s, "retries come ever faster"
        return max(delay, at_least_s)

    def posted(self) -> Action:
        """201."""
        if self.over:
            return NOTHING
        assert self.stage is Stage.SENT, f"an answer to a POST at {self.stage.name}"
        self.stage = Stage.CONFIRMING
        self._finish(OutcomeKind.BOUND)
        return NOTHING

    def not_found(self) -> Action:
        """404: the pod does not exist."""
        return self._gone("deleted before its bind")

    def conflict(self) -> Action:
        """409: a read decides."""
        if self.over:
            return NOTHING
        assert self.stage is Stage.SENT, f"an answer to a POST at {self.stage.name}"
        self.stage = Stage.READING
        return Action(ActionKind.READ)

    def throttled(self, retry_after_s: float) -> Action:
        """429: not carried out; the same again later."""
        if self.over:
            return NOTHING
        assert self.stage is Stage.SENT, f"an answer to a POST at {self.stage.name}"
        assert retry_after_s > 0, "a storm of retries"
        return Action(ActionKind.POST, delay_s=retry_after_s)

    def refused(self, text: str) -> Action:
        """400, 403 …: not carried out, and no use in trying as it is. The watch may have shown it
        on its node meanwhile, sent there by somebody else: then its room is taken."""
        if self.over:
            return NOTHING
        assert self.stage is Stage.SENT or self.unsure, f"an answer to a POST at {self.stage.name}"
        if self.unsure:
            return self.unknown()
        return self._free(OutcomeKind.FAILED, Cause.BIND_FAILED, text)

    def not_sent(self) -> Action:
        """No connection: nothing was carried out; the same again later."""
        if self.over:
            return NOTHING
        assert self.stage is Stage.SENT, f"an answer to a POST at {self.stage.name}"
        return Action(ActionKind.POST, delay_s=self._retry_delay())

    def unknown(self) -> Action:
        """Any other answer, or none: resolve."""
        if self.over:
            return NOTHING
        assert self.stage in (Stage.SENT, Stage.READING), f"no answer at {self.stage.name}"
        self.unsure = True
        self.stage = Stage.READING
        return Action(ActionKind.READ, delay_s=self._retry_delay())

    # --------------------------------------------------------------------------------- resolving
    def doubt(self) -> Action:
        """201 came, but no watch shows it: it may have been bound and deleted unseen."""
        if self.stage is not Stage.CONFIRMING:
            return NOTHING
        self.stage = Stage.READING
        return Action(ActionKind.READ)

    def withdraw(self) -> Action:
        """The dispatcher says the pod is gone or not ours: find out, unless a step is under way."""
        if self.stage is Stage.RESERVED:
            self.stage = Stage.READING
            return Action(ActionKind.READ)
        return NOTHING

    def read(self, answer: Read | None, *, retry_after_s: float = 0.0) -> Action:
        """What the consistent read showed; None: it failed, and the server may have asked for a
        wait."""
        if self.over:
            return NOTHING
        assert self.stage is Stage.READING, f"read at {self.stage.name}"
        if answer is None:
            return Action(ActionKind.READ, delay_s=self._retry_delay(at_least_s=retry_after_s))
        if not answer.found or answer.uid != self.uid:
            return self._gone("the pod is gone")
        if answer.node_name:
            return self._bound_at(answer.node_name)
        if answer.leaving:
            return self._free(OutcomeKind.GONE, Cause.POD_GONE, "the pod is being deleted")
        changed = answer.resource_version != self.resource_version
        may_rebase = not self.unsure and answer.same_shape and self.rebases < MAX_REBASES
        if changed and may_rebase:
            self.stage = Stage.REBASING
            return Action(ActionKind.REBASE, resource_version=answer.resource_version)
        self.stage = Stage.FENCING
        return Action(ActionKind.FENCE, resource_version=answer.resource_version)

    def rebased(self, resource_version: int, *, accepted: bool) -> Action:
        """The ledger has taken the newer version, or no longer has the entry."""
        if self.over:
            return NOTHING
        assert self.stage is Stage.REBASING, f"rebased at {self.stage.name}"
        assert not self.unsure, "bound anew while an earlier bind may land"
        if not accepted:
            return self._free(OutcomeKind.FAILED, Cause.LEDGER, "the reservation is gone")
        self.rebases += 1
        assert self.rebases <= MAX_REBASES
        self.resource_version = resource_version
        self.stage = Stage.SENT
        return POST

    def fenced(self, resource_version: int) -> Action:
        """The fencing patch succeeded while the pod was unbound: no bind of ours can land."""
        if self.over:
            return NOTHING
        assert self.stage is Stage.FENCING, f"fenced at {self.stage.name}"
        self.unsure = False
        return self._free(
            OutcomeKind.FAILED, Cause.BIND_FAILED, "the bind failed and the pod was fenced",
            resource_version,
        )  # fmt: skip

    def fence_failed(self, *, gone: bool, retry_after_s: float = 0.0) -> Action:
        """404 or another uid (``gone``), or 409 and anything else: look again."""
        if self.over:
            return NOTHING
        assert self.stage is Stage.FENCING, f"a fence failed at {self.stage.name}"
        if gone:
            return self._gone("the pod is gone")
        self.stage = Stage.READING
        return Action(ActionKind.READ, delay_s=self._retry_delay(at_least_s=retry_after_s))

    # -------------------------------------------------------------------------------- the watch
    def seen_bound(self, node_name: str) -> None:
        """The watch shows it on a node."""
        if not self.over:
            self._bound_at(node_name)

    def seen_gone(self) -> None:
        """The watch shows that it is gone, or ended."""
        if self.stage is not Stage.OVER:
            self._gone("deleted")

    def _bound_at(self, node_name: str) -> Action:
        assert node_name, "bound to no node"
        self.unsure = False
        if node_name == self.reservation.node_name:
            self.stage = Stage.BOUND
            self._finish(OutcomeKind.BOUND)
            return NOTHING
        return self._free(
            OutcomeKind.GONE, Cause.POD_CHANGED, f"somebody else bound it to {node_name}"
        )

    def _gone(self, detail: str) -> Action:
        return self._free(OutcomeKind.GONE, Cause.POD_GONE, detail)

    def _free(
        self, kind: OutcomeKind, cause: Cause, detail: str, resource_version: int = 0
    ) -> Action:
        if self.stage is not Stage.OVER:
            assert not self.unsure or kind is OutcomeKind.GONE, "freed while a bind may land"
            self.stage = Stage.OVER
            self._finish(kind, cause, detail, resource_version)
        return NOTHING

    def _finish(
        self, kind: OutcomeKind, cause: Cause = Cause.NONE, detail: str = "", version: int = 0
    ) -> None:
        if self.end is None:
            assert kind is not OutcomeKind.BOUND or cause is Cause.NONE
            self.end = End(kind, cause, detail, version)
