"""Faults that a test asks for: what goes wrong between an API server and its clients.

A rule names requests and an effect; each time it strikes it counts, so that a test can prove that
its fault happened. Watches can be cut and held back besides.
"""

from __future__ import annotations

import enum
import random
from typing import Any

import msgspec

from stretto.simulator.answers import Answer, Refusal, bad_request
from stretto.simulator.kinds import Route, route_of
from stretto.simulator.request import Request


class Effect(enum.StrEnum):
    """What a rule does to a request."""

    REFUSE = "refuse"
    """Answer ``status`` (5xx); not carried out."""
    THROTTLE = "throttle"
    """Answer 429 with Retry-After; not carried out."""
    DROP_REPLY = "drop-reply"
    """Carry it out, then break the connection instead of answering."""
    LATE = "late"
    """Break the connection at once, and carry it out ``delay_s`` later."""
    DELAY = "delay"
    """Carry it out ``delay_s`` later, then answer."""


class FaultRule(msgspec.Struct, kw_only=True):
    """Which requests suffer what."""

    effect: Effect
    method: str = ""
    """"POST", …; empty: any. Watches are "WATCH"."""
    resource: str = ""
    """"pods/binding", "leases", …; empty: any."""
    name: str = ""
    """Of the object; empty: any."""
    probability: float = 1.0
    limit: int = -1
    """How often it strikes at most; -1: no limit."""
    status: int = 503
    retry_after_s: int = 1
    delay_s: float = 0.0
    struck: int = 0
    """How often it did."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if not 500 <= self.status <= 599:
            raise ValueError(f"status {self.status}: take 500 to 599")
        if not 0 <= self.probability <= 1 or self.delay_s < 0 or self.retry_after_s < 0:
            raise ValueError("probability is 0 to 1; delays are not negative")

    def matches(self, method: str, route: Route) -> bool:
        """Whether it is about such a request."""
        resource = route.kind.resource + (f"/{route.subresource}" if route.subresource else "")
        return (
            self.struck != self.limit
            and self.method in ("", method)
            and self.resource in ("", resource)
            and self.name in ("", route.name)
        )

    def answer(self) -> Answer:
        """What REFUSE and THROTTLE answer."""
        if self.effect is Effect.THROTTLE:
            text = "Too many requests, please try again later."
            refusal = Refusal(429, "TooManyRequests", text, retry_after_s=self.retry_after_s)
        else:
            refusal = Refusal(self.status, "InternalError", "an injected fault")
        return refusal.answer


class Faults:
    """The rules in force. Randomness is passed in."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.rules: list[FaultRule] = []
        self._held: set[str] = set()
        self.cut = 0
        """Watches cut so far."""
        self.held = 0
        """How often a watch had lines and was held back."""

    @property
    def active(self) -> bool:
        """Whether any rule is in force."""
        return bool(self.rules)

    def add(self, effect: Effect, **fields: Any) -> FaultRule:
        """Put a rule in force; the first that matches decides. Raises ValueError."""
        rule = FaultRule(effect=effect, **fields)
        self.rules.append(rule)
        return rule

    def remove(self, rule: FaultRule) -> None:
        """End a rule."""
        self.rules.remove(rule)

    def clear(self) -> None:
        """End all rules, and hold nothing any more."""
        self.rules.clear()
        self._held.clear()

    def choose(self, request: Request) -> FaultRule | None:
        """The rule that strikes a request, counted, or None."""
        if not request.path.startswith(("/api/", "/apis/")):
            return None
        try:
            route = route_of(request.path)
        except Refusal:
            return None
        method = "WATCH" if request.is_watch else request.method
        for rule in self.rules:
            if rule.matches(method, route) and self._rng.random() < rule.probability:
                rule.struck += 1
                return rule
        return None

    def hold(self, resource: str) -> None:
        """Hold the watches of a resource back: they stay open and grow stale."""
        self._held.add(resource)

    def release(self, resource: str = "") -> None:
        """Hold a resource (all of them) no longer; the caller has the watches flushed."""
        self._held = {held for held in self._held if resource not in ("", held)}

    def holds(self, resource: str) -> bool:
        """Whether the watches of a resource are held back; asked when one has lines to send."""
        if resource not in self._held:
            return False
        self.held += 1
        return True

    def statistics(self) -> dict[str, Any]:
        """The rules with their counts, and the watches."""
        return {
            "rules": msgspec.to_builtins(self.rules),
            "held_resources": sorted(self._held),
            "watches_cut": self.cut,
            "watches_held": self.held,
        }


class FaultOrder(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /simulator/faults; its parts are carried out in this order."""

    clear: bool = False
    rules: list[FaultRule] = []
    hold: list[str] = []
    """Resources whose watches are to be held back."""
    release: list[str] = []
    cut: list[str] = []
    """Resources whose watches are to be cut; "" stands for all."""
    compact: bool = False
    """Forget all past changes, so that older watches and lists in pages get 410."""


def read_order(data: bytes) -> FaultOrder:
    """Decode an order. Raises Refusal: 400."""
    try:
        return msgspec.json.decode(data, type=FaultOrder)
    except (msgspec.DecodeError, ValueError) as error:
        raise bad_request(f"the order of faults cannot be read: {error}") from None
