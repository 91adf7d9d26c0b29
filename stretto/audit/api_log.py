"""The API server's history: changes of pods, nodes and Leases in the order of their versions.

A log is JSON lines as the recorder writes them: ``{"t": monotonic nanoseconds, "kind": "pods",
"type": "ADDED", "object": …}``; ``{"gap": why}`` where the recorder lost the thread;
``{"end": version}`` where it stopped. Changes of different kinds are merged by resourceVersion,
which one etcd counts for all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

Object = dict[str, Any]


class Line(msgspec.Struct):
    """A line of the log."""

    t: int = 0
    kind: str = ""
    type: str = ""
    object: Object = msgspec.field(default_factory=dict)
    gap: str = ""


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


@dataclasses.dataclass(slots=True)
class ApiLog:
    """All changes in order, and what is missing."""

    changes: list[Change]
    gaps: list[str]

    def of(self, kind: str) -> Iterator[Change]:
        """The changes of one kind."""
        return (change for change in self.changes if change.kind == kind)


def read_api_log(lines: Iterable[bytes]) -> ApiLog:
    """Merge the recorder's lines.

    A version that was told twice (the first list and the watch after it) counts once.
    """
    decoder = msgspec.json.Decoder(Line)
    changes: dict[tuple[str, str, int, bool], Change] = {}
    gaps = []
    for raw in lines:
        if not raw.strip():
            continue
        try:
            line = decoder.decode(raw)
        except msgspec.DecodeError:
            gaps.append("a line of the API's log cannot be read")
            continue
        if line.gap:
            gaps.append(line.gap)
            continue
        if not line.kind:
            continue
        gone = line.type == "DELETED"
        version = int(line.object["metadata"]["resourceVersion"])
        change = Change(version, line.t, line.kind, line.object, gone)
        changes.setdefault((line.kind, change.uid, version, gone), change)
    ordered = sorted(changes.values(), key=lambda change: (change.version, change.gone))
    return ApiLog(ordered, gaps)


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
