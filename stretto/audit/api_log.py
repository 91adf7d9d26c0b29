"""The API server's history: changes of pods, nodes and Leases in the order of their versions.

A log is JSON lines as the recorder writes them: ``{"t": monotonic nanoseconds, "kind": "pods",
"type": "ADDED", "object": …}``, and for each list ``{"kind": "pods", "type": "LISTED", "after":
836, "until": 852, "gone": [uids], "gap": why}``: what happened between those versions was not
watched, and the list shows only what it led to. The first list of a kind is such a line from
version 0 on. ``gap`` says that something has been missed there. Changes of different kinds are
merged by resourceVersion, which one etcd counts for all.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

Object = dict[str, Any]
LISTED = "LISTED"
EVER = sys.maxsize
"""End of what is not known until the end."""


class Line(msgspec.Struct):
    """A line of the log."""

    t: int = 0
    kind: str = ""
    type: str = ""
    object: Object = msgspec.field(default_factory=dict)
    gap: str = ""
    after: int = 0
    until: int = EVER
    gone: list[str] = msgspec.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """An object as it was from a version on; ``gone`` with its deletion."""

    version: int
    at_ns: int
    """When the recorder saw it, by the host's monotonic clock: never before it happened."""
    kind: str
    object: Object
    gone: bool

    @property
    def uid(self) -> str:
        """Of the object."""
        return str(self.object["metadata"]["uid"])

    @property
    def name(self) -> str:
        """Of the object, for people."""
        return str(self.object["metadata"]["name"])


@dataclasses.dataclass(frozen=True, slots=True)
class Unseen:
    """Versions of a kind whose changes nobody watched.

    A change with a version ``after < version <= until`` is one that a list showed: there may have
    been others of the same object before it, and objects that came and went within.
    """

    kind: str
    after: int
    until: int
    at_ns: int = 0
    """When the list was read."""
    gone: frozenset[str] = frozenset()
    """Uids of what existed before and does not afterwards."""
    first: bool = False
    """The first list: everything before the recording began."""

    def covers(self, version: int) -> bool:
        """What became of a change with this version was not watched."""
        return self.after < version <= self.until

    def meets(self, first: int, last: int) -> bool:
        """Something from ``first`` to ``last`` may have been missed."""
        return self.after < last and first <= self.until


class Edge(NamedTuple):
    """Where the versions that nobody watched begin (behind ``after``) or end (behind ``until``)."""

    unseen: Unseen
    opens: bool


@dataclasses.dataclass(slots=True)
class ApiLog:
    """All changes in order, and what is missing."""

    changes: list[Change]
    gaps: list[str]
    unseen: list[Unseen] = dataclasses.field(default_factory=list)

    def of(self, kind: str) -> Iterator[Change]:
        """The changes of one kind."""
        return (change for change in self.changes if change.kind == kind)

    def timeline(self) -> list[Change | Edge]:
        """The changes in order, with the edges of what was not seen in their places."""
        steps: list[tuple[tuple[int, int], Change | Edge]] = [
            ((change.version, int(change.gone)), change) for change in self.changes
        ]
        for unseen in self.unseen:
            steps.append(((unseen.until, 2), Edge(unseen, opens=False)))
            steps.append(((unseen.after, 3), Edge(unseen, opens=True)))
        return [step for _, step in sorted(steps, key=lambda pair: pair[0])]

    def hidden(self, kind: str, version: int) -> Unseen | None:
        """What a change of this version was hidden in; None: it was watched, and so was what
        it replaced."""
        return next((u for u in self.unseen if u.kind == kind and u.covers(version)), None)

    def missed(self, kind: str, first: int, last: int) -> bool:
        """Changes of a kind between two versions may have been missed."""
        return any(u.kind == kind and u.meets(first, last) for u in self.unseen)

    def known_at_the_end(self, kind: str) -> bool:
        """What exists at the end is known: a list has closed every gap."""
        return not any(u.kind == kind and u.until == EVER for u in self.unseen)


class _Reading:
    """The log as far as it is read."""

    def __init__(self) -> None:
        self.changes: dict[tuple[str, str, int, bool], Change] = {}
        self.gaps: list[str] = []
        self.unseen: list[Unseen] = []
        self._last: dict[str, int] = {}
        """Kind → newest version told so far."""
        self._unlisted: dict[str, tuple[int, set[str]]] = {}
        """Kind → the list of a further recording that is being read (its number in ``unseen``), and
        the uids told before that it has not shown yet."""
        self._lost: list[dict[str, int]] = []
        """For each thing missing of which nothing is known: the same then."""

    def take(self, raw: bytes, decoder: msgspec.json.Decoder[Line]) -> None:
        try:
            line = decoder.decode(raw)
        except msgspec.DecodeError:
            self.gaps.append("a line of the API's log cannot be read")
            self._lost.append(dict(self._last))
            return
        if line.gap:
            self.gaps.append(line.gap)
        if not line.kind:
            if line.gap:
                self._lost.append({})
        elif line.type == LISTED:
            self._listed(line)
        else:
            self._change(line)

    def _listed(self, line: Line) -> None:
        """A list, whose objects follow. That of a further recording says nothing of what the one
        before has told: only what came after that is unseen, and what does not follow is gone."""
        self._end_list(line.kind)
        first, after = line.kind not in self._last, line.after
        if not first and not after:
            after = self._last[line.kind]
            self._unlisted[line.kind] = len(self.unseen), self._existing(line.kind)
        self._last[line.kind] = line.until
        gone = frozenset(line.gone)
        self.unseen.append(Unseen(line.kind, after, line.until, line.t, gone, first=first))

    def _change(self, line: Line) -> None:
        gone = line.type == "DELETED"
        version = int(line.object["metadata"]["resourceVersion"])
        change = Change(version, line.t, line.kind, line.object, gone)
        self.changes.setdefault((line.kind, change.uid, version, gone), change)
        if version > self._last.get(line.kind, 0):
            self._last[line.kind] = version
            self._end_list(line.kind)
        elif line.kind in self._unlisted:
            self._unlisted[line.kind][1].discard(change.uid)

    def _existing(self, kind: str) -> set[str]:
        """Uids of what was told of a kind, and not that it is gone."""
        told = [change for change in self.changes.values() if change.kind == kind]
        return {change.uid for change in told} - {change.uid for change in told if change.gone}

    def _end_list(self, kind: str) -> None:
        """All objects of the list of a further recording were read."""
        if kind in self._unlisted:
            number, gone = self._unlisted.pop(kind)
            self.unseen[number] = dataclasses.replace(self.unseen[number], gone=frozenset(gone))

    def whole(self) -> ApiLog:
        for kind in list(self._unlisted):
            self._end_list(kind)
        lost = [Unseen(kind, last.get(kind, 0), EVER) for last in self._lost for kind in self._last]
        ordered = sorted(self.changes.values(), key=lambda change: (change.version, change.gone))
        return ApiLog(ordered, self.gaps, self.unseen + lost)


def read_api_log(lines: Iterable[bytes]) -> ApiLog:
    """Merge the recorder's lines.

    A version that was told twice (the first list and the watch after it) counts once. Of a line
    that cannot be read nothing is known: from there on a change of any kind may be missing.
    """
    decoder, reading = msgspec.json.Decoder(Line), _Reading()
    for raw in lines:
        if raw.strip():
            reading.take(raw, decoder)
    return reading.whole()


def node_name_of(pod: Object) -> str:
    """Where it is bound; "" if it is not."""
    return str(pod["spec"].get("nodeName") or "")


def live(pod: Object) -> bool:
    """It still takes room on its node: a terminating pod does, an ended one does not."""
    return pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def condition_of(pod: Object, kind: str) -> Object:
    """A condition by type; empty if there is none."""
    found = [c for c in pod.get("status", {}).get("conditions") or () if c["type"] == kind]
    return dict(found[0]) if found else {}
