"""The reserve–bind–recover protocol as a small model, explored in every order of its steps.

One node with room for one pod, two pods that both want it, a Binder that may stop at any step, its
successor, an API server, a ledger, and a network that delivers binds late, in any order, or never.
``bindfence.pml`` is the same model in Spin's language; this one needs no program, knows what a lost
ledger is besides, and says by which steps a broken variant goes wrong.

A step is what happens in one atom: a request carried out by the API server or the ledger, or a
message given to the network. A Binder that stops for ever, or for long, is one whose next step does
not come (yet); so stopping needs no step of its own.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

PODS = (0, 1)
ROOM = 1
ATTEMPTS = 2
"""A Binder's tries."""
IN_FLIGHT = 3
"""Binds on their way at most."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variant:
    """How the Binders go about it."""

    fence: bool = True
    """A bind carries the resourceVersion that its pod must still have."""
    recovery: str = "touch"
    """What is done about a bind whose outcome is not known: "forget" the reservation, "get" the
    pod and release if it is unbound, or "touch" it by a write before the release."""
    expiry: bool = False
    """Reservations expire by themselves."""
    refresh: bool = False
    """After a refusal the bind is sent again under the pod's new version without the ledger."""
    loses_ledger: bool = False
    """The ledger may be emptied before the successor takes it."""
    touch_all: bool = True
    """A successor that finds an empty ledger touches every unbound pod."""


class Binder(NamedTuple):
    """Where a Binder is: the step it is about to take, and what it remembers."""

    at: str
    tries: int = 0
    pod: int = 0
    version: int = 0
    left: tuple[int, ...] = ()
    """Pods that recovery has still to look at."""


class State(NamedTuple):
    """Everything."""

    versions: tuple[int, ...]
    bound: tuple[bool, ...]
    reserved: tuple[int, ...]
    """By whom: 0 nobody, 1 or 2 the Binder."""
    epoch: int
    network: tuple[tuple[int, int], ...]
    """(pod, version) of each bind on its way."""
    binders: tuple[Binder, Binder]
    lost: bool = False


START = State((0, 0), (False, False), (0, 0), 1, (), (Binder("decide"), Binder("install")))
Step = tuple[str, State]
Move = tuple[str, State, Binder]
"""(what happens, everything after it, the Binder after it)."""


def put(values: tuple[int, ...], at: int, value: int) -> tuple[int, ...]:
    """The tuple with one place changed."""
    return (*values[:at], value, *values[at + 1 :])


class Model:
    """The steps of a variant."""

    def __init__(self, variant: Variant) -> None:
        self.variant = variant

    def steps(self, state: State) -> Iterator[Step]:
        """Every next state, each with what happened."""
        yield from self._network(state)
        for number in (1, 2):
            binder = state.binders[number - 1]
            for text, after, then in getattr(self, f"_{binder.at}")(state, number, binder):
                binders = list(after.binders)
                binders[number - 1] = then
                yield f"binder {number}: {text}", after._replace(binders=tuple(binders))
        if self.variant.loses_ledger and not state.lost and state.epoch == 1:
            yield "the ledger is emptied", state._replace(reserved=(0, 0), lost=True)

    def _network(self, state: State) -> Iterator[Step]:
        for at, (pod, version) in enumerate(state.network):
            rest = state._replace(network=(*state.network[:at], *state.network[at + 1 :]))
            yield f"a bind of pod {pod} is lost", rest
            if state.bound[pod] or (self.variant.fence and version != state.versions[pod]):
                continue  # refused, which is as good as lost
            bound = tuple(there or p == pod for p, there in enumerate(state.bound))
            versions = put(state.versions, pod, state.versions[pod] + 1)
            yield f"a bind of pod {pod} lands", rest._replace(bound=bound, versions=versions)

    # ------------------------------------------------------------------------- a Binder's steps
    def _install(self, state: State, number: int, binder: Binder) -> Iterator[Move]:
        left = tuple(pod for pod in PODS if state.reserved[pod])
        if state.lost and self.variant.touch_all:
            left = PODS
        yield "takes the ledger", state._replace(epoch=2), Binder("recover", left=left)

    def _recover(self, state: State, number: int, binder: Binder) -> Iterator[Move]:
        if not binder.left:
            # What is bound and has no entry gets one: the ledger is made from the API server.
            reserved = tuple(
                by or (number if state.bound[pod] else 0) for pod, by in enumerate(state.reserved)
            )
            yield "opens", state._replace(reserved=reserved), Binder("decide")
        else:
            pod, *left = binder.left
            yield (
                f"resolves pod {pod}",
                state,
                binder._replace(at="resolve", pod=pod, left=(*left,)),
            )

    def _decide(self, state: State, number: int, binder: Binder) -> Iterator[Move]:
        for pod in PODS if binder.tries < ATTEMPTS else ():
            seen = binder._replace(tries=binder.tries + 1, pod=pod, version=state.versions[pod])
            if not state.bound[pod]:
                yield f"sees pod {pod}", state, seen._replace(at="reserve")

    def _reserve(self, state: State, number: int, binder: Binder) -> Iterator[Move]:
        pod = binder.pod
        free = sum(map(bool, state.reserved)) < ROOM and not state.reserved[pod]
        known = number == 2 or not state.lost  # a ledger that lost writes refuses their writer
        if state.epoch == number and free and known:
            reserved = put(state.reserved, pod, number)
            yield (
                f"reserves pod {pod}",
                state._replace(reserved=reserved),
                binder._replace(at="send"),
            )
        else:
            yield f"is refused pod {pod}", state, binder._replace(at="decide")

    def _send(self, state: State, number: int, binder: Binder) -> Iterator[Move]:
        message = (binder.pod, binder.version)
        network = tuple(sorted((*state.network, message)))[:IN_FLIGHT]
        at = "again" if self.variant.refresh else "wait"
        sent = state._replace(network=network)
        yield f"sends a bind of pod {binder.pod}", sent, binder._replace(at=at)

    def _again(self, state: State, number: int, binder: Binder) -> Iterator[Move]:
        pod = binder.pod
        newer = binder._replace(version=state.versions[pod])
        if not state.bound[pod] and newer.version != binder.version:
            network = tuple(sorted((*state.network, (pod, newer.version))))[:IN_FLIGHT]
            text = f"sends a bind of pod {pod} again under its new version"
            yield text, state._replace(network=network), newer._replace(at="wait")
        yield "goes on", state, binder._replace(at="wait")

    def _wait(self, state: State, number: int, binder: Binder) -> Iterator[Move]:
        pod = binder.pod
        if state.bound[pod]:
            yield f"hears that pod {pod} is bound", state, binder._replace(at="decide")
        yield f"hears nothing of pod {pod}", state, binder._replace(at="resolve")
        if self.variant.expiry:
            freed = state._replace(reserved=put(state.reserved, pod, 0))
            yield f"the reservation of pod {pod} expires", freed, binder._replace(at="decide")

    def _resolve(self, state: State, number: int, binder: Binder) -> Iterator[Move]:
        pod = binder.pod
        if self.variant.recovery != "forget" and state.bound[pod]:
            yield f"reads that pod {pod} is bound", state, binder._replace(at=self._next(binder))
            return
        after = {"forget": "release", "get": "release", "touch": "touch"}[self.variant.recovery]
        read = binder._replace(at=after, version=state.versions[pod])
        yield f"takes pod {pod} for unbound", state, read

    def _touch(self, state: State, number: int, binder: Binder) -> Iterator[Move]:
        pod = binder.pod
        if state.versions[pod] != binder.version:
            yield f"fails to touch pod {pod}", state, binder._replace(at="resolve")
            return
        versions = put(state.versions, pod, binder.version + 1)
        yield f"touches pod {pod}", state._replace(versions=versions), binder._replace(at="release")

    def _release(self, state: State, number: int, binder: Binder) -> Iterator[Move]:
        ours = state.epoch == number
        reserved = put(state.reserved, binder.pod, 0) if ours else state.reserved
        freed = state._replace(reserved=reserved)
        yield f"releases pod {binder.pod}", freed, binder._replace(at=self._next(binder))

    def _next(self, binder: Binder) -> str:
        """A Binder that has not decided anything yet is still recovering."""
        return "decide" if binder.tries else "recover"


def wrong(state: State) -> str:
    """What is broken in a state, "" if nothing is."""
    if all(state.bound):
        return "both pods are bound to a node with room for one"
    successor = state.binders[1]
    if successor.at == "decide" and successor.tries == ATTEMPTS:
        left = [p for p in PODS if state.reserved[p] and not state.bound[p]]
        if left:
            return f"the reservation of pod {left[0]} is left over"
    return ""


@dataclasses.dataclass(frozen=True)
class Result:
    """What exploring a variant gave."""

    states: int
    problem: str = ""
    steps: tuple[str, ...] = ()
    """The shortest way to the problem."""


def explore(variant: Variant) -> Result:
    """Every state that can be reached, the nearest first; stops at the first that is wrong."""
    model = Model(variant)
    came_from: dict[State, tuple[State | None, str]] = {START: (None, "")}
    waiting = deque([START])
    while waiting:
        state = waiting.popleft()
        for text, after in model.steps(state):
            if after in came_from:
                continue
            came_from[after] = (state, text)
            if problem := wrong(after):
                return Result(len(came_from), problem, tuple(way_to(after, came_from)))
            waiting.append(after)
    return Result(len(came_from))


def way_to(state: State, came_from: dict[State, tuple[State | None, str]]) -> list[str]:
    """The steps from the start to a state."""
    steps: list[str] = []
    here: State | None = state
    while here is not None:
        here, text = came_from[here]
        if text:
            steps.append(text)
    return steps[::-1]
