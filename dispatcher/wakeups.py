"""What is parked and what it waits for: shapes by the resources that their rejectors want to hear
of.

Naive form: every event wakes everything, or every event is put to every parked shape. Either costs
the number of parked shapes an event. The form chosen: a shape stands under the resources of its
interests (see stretto/placement/hints.py), so that an event is put only to those that registered
for its resource.

A decision that was taken at version v may have missed what happened later, so the steps of the log
are kept for a while and replayed when the answer comes. If they do not reach back to v, anything
may have happened. The same replay is the invariant that tests check: a parked shape has missed
nothing.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence

from dispatcher.pods import NO_VERSION
from dispatcher.shape_records import ShapeRecord
from stretto.model.unit import Version
from stretto.placement.events import ANYTHING, WILDCARD, ClusterEvent
from stretto.placement.hints import QUOTA, Interest, interests_of, may_help
from stretto.quota.rows import USAGE

KEPT_STEPS = 4096
"""Steps of the log that can be replayed; a decision is seldom more than a second old."""

Interests = tuple[Interest, ...] | None


class Wakeups:
    """See the module docstring."""

    def __init__(self, *, kept_steps: int = KEPT_STEPS) -> None:
        self.last_version = NO_VERSION
        """Of the last step with an event."""
        self._kept_steps = kept_steps
        self._steps: deque[tuple[Version, tuple[ClusterEvent, ...]]] = deque()
        self._complete_after = NO_VERSION
        """Every step later than this is in ``_steps``."""
        self._parked: OrderedDict[int, tuple[ShapeRecord, Interests]] = OrderedDict()
        """Longest parked first."""
        self._by_resource: dict[str, dict[int, ShapeRecord]] = {}
        """Resource → shape number → shape; WILDCARD: those that want to hear of everything."""

    def park(self, shape: ShapeRecord) -> None:
        """The shape waits for an event later than its decision."""
        interests = _interests(shape)
        assert self._parked.get(shape.number, (shape,))[0] is shape, "two shapes of one number"
        self._parked[shape.number] = shape, interests
        for resource in _resources(interests):
            self._by_resource.setdefault(resource, {})[shape.number] = shape

    def unpark(self, shape: ShapeRecord) -> None:
        """The shape does not wait any more."""
        self._unregister(shape, self._parked.pop(shape.number)[1])

    def decided_anew(
        self, shape: ShapeRecord, *, version: Version, plugins: tuple[str, ...]
    ) -> None:
        """A parked shape fits nowhere at a later version either; it keeps its turn.

        Events up to there count no longer, so from now on it must hear what helps *these* plugins:
        an event that has not come here yet may have put others in the place of the former ones.
        """
        assert version > shape.decided_at, f"{shape!r} was decided at a later version"
        self._unregister(shape, self._parked[shape.number][1])
        shape.decided_at, shape.plugins = version, plugins
        self.park(shape)

    def _unregister(self, shape: ShapeRecord, interests: Interests) -> None:
        for resource in _resources(interests):
            del self._by_resource[resource][shape.number]

    def holds(self, shape: ShapeRecord) -> bool:
        """Whether the shape is parked."""
        return shape.number in self._parked

    def parked_for_quota(self) -> list[ShapeRecord]:
        """The parked shapes that quota has refused; gangs too, which wait for anything."""
        return [shape for shape in self._waiting_for(USAGE) if QUOTA in shape.plugins]

    def oldest(self) -> ShapeRecord | None:
        """The shape that has been parked for the longest time."""
        return next(iter(self._parked.values()))[0] if self._parked else None

    def step(
        self, events: Sequence[ClusterEvent], *, version: Version
    ) -> list[tuple[ShapeRecord, ClusterEvent]]:
        """Note a step of the log; the parked shapes that it may help, each with the event."""
        if not events:
            return []
        self._keep(events, version)
        woken: dict[int, tuple[ShapeRecord, ClusterEvent]] = {}
        for event in events:
            for shape in self._candidates(event):
                if shape.number in woken or shape.decided_at >= version:
                    continue
                if _helps(shape, self._parked[shape.number][1], event):
                    woken[shape.number] = shape, event
        return list(woken.values())

    def missed(self, shape: ShapeRecord) -> ClusterEvent | None:
        """The first event later than the shape's decision that may help it."""
        decided = shape.decided_at
        if decided >= self.last_version:
            return None
        if decided < self._complete_after:
            return ANYTHING
        interests = _interests(shape)
        for version, events in reversed(self._steps):
            if version <= decided:
                return None
            for event in events:
                if _helps(shape, interests, event):
                    return event
        return None

    def _keep(self, events: Sequence[ClusterEvent], version: Version) -> None:
        if version.epoch != self.last_version.epoch:
            self._steps.clear()
            self._complete_after = Version(version.epoch, 0)
        assert not self._steps or version >= self._steps[-1][0], "the log went back"
        self.last_version = max(self.last_version, version)
        self._steps.append((version, tuple(events)))
        while len(self._steps) > self._kept_steps:
            self._complete_after = max(self._complete_after, self._steps.popleft()[0])
        assert self._complete_after <= self.last_version

    def _candidates(self, event: ClusterEvent) -> list[ShapeRecord]:
        if event.resource == WILDCARD:
            return [shape for shape, _ in self._parked.values()]
        return self._waiting_for(event.resource)

    def _waiting_for(self, resource: str) -> list[ShapeRecord]:
        """The parked shapes that want to hear of a resource, by its name or of everything."""
        found = list(self._by_resource.get(resource, {}).values())
        return found + list(self._by_resource.get(WILDCARD, {}).values())

    def validate(self) -> None:
        """Check that every parked shape stands under all its resources, and none other does."""
        expected = {
            (resource, number)
            for number, (_, interests) in self._parked.items()
            for resource in _resources(interests)
        }
        actual = {
            (resource, number) for resource, some in self._by_resource.items() for number in some
        }
        assert actual == expected, "the index of parked shapes disagrees with what is parked"


def _interests(shape: ShapeRecord) -> Interests:
    """What a shape waits for; None: for anything.

    A gang waits for anything: what rejected the member that found no room says nothing of the
    others, whose places decide where that one may go.
    """
    return None if shape.of_group else interests_of(shape.plugins)


def _resources(interests: Interests) -> frozenset[str]:
    return frozenset({WILDCARD} if interests is None else {i.resource for i in interests})


def _helps(shape: ShapeRecord, interests: Interests, event: ClusterEvent) -> bool:
    """A bulky shape is woken by whatever may concern it, and decided in its turn."""
    return shape.shape is None or may_help(shape.shape, interests, event, look=not shape.bulky)
