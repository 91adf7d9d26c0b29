"""Whether a watch has lost a line: what was told, held against a consistent read. No I/O.

A server promises that a watch tells everything, in order. When it does not (watch caches have had
such defects), a pod that nobody was told of waits for ever, and one whose end was not told keeps
its room for ever; neither is seen by anything that trusts the watch. So a read of its own is made
now and then, and each difference has to be explained by a line that comes later: until the watch is
as far as the read, it may merely be slow; from then on, what it has not told is lost.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from stretto.kube.sightings import Name, Sightings

T = TypeVar("T")


class Recheck(Generic[T]):
    """One read. It begins before the first page is asked for; the watch goes on beside it."""

    def __init__(self, sightings: Sightings[T]) -> None:
        self._sightings = sightings
        self._gone = sightings.note_deletions()
        self._before = sightings.names()
        self._listed: set[int] = set()
        """Hashes of names: a set of the names would double the memory of a large cluster."""
        self._missing: dict[Name, int] = {}
        """What the read shows, in a version that was not told."""
        self._surplus: list[Name] = []
        """What was told and the read does not show."""
        self._version = 0

    def listed(self, name: Name, version: int) -> None:
        """An object that the read shows."""
        self._listed.add(hash(name))
        if not self._told(name, version):
            self._missing[name] = version

    def end(self, version: int) -> None:
        """The read is complete, and shows this version."""
        assert version > 0, "a read of no version"
        self._version = version
        self._surplus = [name for name in self._before if hash(name) not in self._listed]

    def left(self) -> list[Name]:
        """What the read showed and no line has explained so far."""
        assert self._version > 0, "the read has not ended"
        missing = self._missing.items()
        self._missing = {name: v for name, v in missing if not self._told(name, v)}
        self._surplus = [name for name in self._surplus if self._still_there(name)]
        return [*self._missing, *self._surplus]

    def _told(self, name: Name, version: int) -> bool:
        seen = self._sightings.seen(name)
        return name in self._gone if seen is None else seen.version >= version

    def _still_there(self, name: Name) -> bool:
        seen = self._sightings.seen(name)
        return seen is not None and seen.version <= self._version
