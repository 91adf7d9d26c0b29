"""Where pods are, as metrics and people see it: a place, or the mode of the line it stands in."""

from __future__ import annotations

import enum

from dispatcher.pods import Place, PodRecord, PodTable
from dispatcher.shape_records import Mode
from dispatcher.shapes import ShapeTable


class State(enum.StrEnum):
    """The public name of where a pod is, as metrics and people see it."""

    GATED = "gated"
    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    REFUSED = "refused"
    PATCHING = "patching"
    DISPATCHED = "dispatched"
    OWNED = "owned"
    SETTLED = "settled"
    INCOMPLETE = "incomplete"
    """With a pod group that is not placed yet; upstream's name of that queue."""


def state_of(record: PodRecord) -> State:
    """The public name of where a pod is."""
    if record.place is Place.WAITING:
        return _MODE_STATES[record.shape.mode]
    return _PLACE_STATES[record.place]


def pending(pods: PodTable, shapes: ShapeTable) -> dict[State, int]:
    """How many pods are in each state."""
    counts = dict.fromkeys(State, 0)
    for place, state in _PLACE_STATES.items():
        counts[state] = pods.counts[place]
    for shape in shapes.by_number.values():
        counts[_MODE_STATES[shape.mode]] += len(shape)
    return counts


_PLACE_STATES = {
    Place.GATED: State.GATED,
    Place.BACKOFF: State.BACKOFF,
    Place.REFUSED: State.REFUSED,
    Place.PATCHING: State.PATCHING,
    Place.DISPATCHED: State.DISPATCHED,
    Place.OWNED: State.OWNED,
    Place.SETTLED: State.SETTLED,
    Place.GROUPED: State.INCOMPLETE,
}
_MODE_STATES = {
    Mode.OPEN: State.ACTIVE,
    Mode.PARKED: State.UNSCHEDULABLE,
    Mode.BACKOFF: State.BACKOFF,
    Mode.PROBING: State.BACKOFF,
    Mode.REFUSED: State.REFUSED,
    Mode.UNREAD: State.ACTIVE,
}
