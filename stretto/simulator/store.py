"""The objects of one kind: current state, the window of past changes, and who watches.

Versions come from one counter for all kinds, as in etcd. A change is told to every watch at the
moment it happens, in order, so a watch is never behind the state; what may lag is the connection it
is written to.

A list in pages holds on to the records of its first page's moment: they never change, so that costs
a list of references. Such lists, like past changes, are kept in bounded number; asking for a
forgotten one is answered 410, as is a watch from before the window.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import NamedTuple

from stretto.simulator.answers import bad_request, expired, too_large
from stretto.simulator.kinds import Kind
from stretto.simulator.records import Record
from stretto.simulator.selectors import Predicate

FIRST_VERSION = 1000
"""Versions start here, so that a small number is too old even for a cluster that just began."""
KEPT_LISTS = 64
"""Lists in pages that may be under way per kind."""


_TOKEN = re.compile(r"(\d{1,19})\.(\d{1,19})\Z")


class Versions:
    """The resourceVersion counter of the cluster."""

    def __init__(self) -> None:
        self.current = FIRST_VERSION
        self.compacted = FIRST_VERSION
        """Nothing that happened up to here is remembered."""

    def next(self) -> int:
        """A version above all before it."""
        self.current += 1
        return self.current


class Change(NamedTuple):
    """One write: ``old`` is None for a creation, ``new`` for a removal."""

    version: int
    old: Record | None
    new: Record | None


class Page(NamedTuple):
    """A part of a list."""

    version: int
    records: list[Record]
    token: str
    """Asks for the next page; empty on the last."""
    remaining: int


class Watch:
    """One watcher's view: lines to send are gathered in ``lines`` until it is flushed."""

    def __init__(
        self,
        *,
        head: bytes,
        namespace: str,
        predicate: Predicate | None,
        wake: Callable[[], None],
    ) -> None:
        self._head = head
        self._namespace = namespace
        self._predicate = predicate
        self._wake = wake
        self.lines: list[bytes] = []

    def deliver(self, change: Change, encoded: dict[bytes, bytes]) -> None:
        """Queue the line this change is for this watcher, if any.

        ``encoded`` shares lines among the watchers of one change. An object that leaves the
        selection is told as it last was inside, under the version at which it left.
        """
        was, now = self._passes(change.old), self._passes(change.new)
        if not (was or now):
            return
        kind = b"DELETED" if not now else b"MODIFIED" if was else b"ADDED"
        line = encoded.get(kind)
        if line is None:
            record = change.new if now else change.old
            assert record is not None, "a change of nothing"
            if not now:
                record = record.at(change.version)
            line = encoded[kind] = self.line(kind, record)
        self.push(line)

    def push(self, line: bytes) -> None:
        """Queue a line as it is."""
        self.lines.append(line)
        if len(self.lines) == 1:
            self._wake()

    def line(self, kind: bytes, record: Record) -> bytes:
        """A line of a watch."""
        return b'{"type":"%b","object":%b%b}\n' % (kind, self._head, record.raw[1:])

    def bookmark(self, version: int, *, initial_end: bool = False) -> None:
        """Queue a bookmark: everything up to ``version`` has been told."""
        note = b',"annotations":{"k8s.io/initial-events-end":"true"}' if initial_end else b""
        self.push(
            b'{"type":"BOOKMARK","object":%b"metadata":{"resourceVersion":"%d"%b}}}\n'
            % (self._head, version, note)
        )

    def _passes(self, record: Record | None) -> bool:
        if record is None or (self._namespace and record.namespace != self._namespace):
            return False
        return self._predicate is None or self._predicate(record)


class Store:
    """All objects of one kind."""

    def __init__(self, kind: Kind, versions: Versions, *, window: int) -> None:
        self.kind = kind
        self._versions = versions
        self._objects: dict[tuple[str, str], Record] = {}
        self._keys: list[tuple[str, str]] | None = []
        """Sorted; None after a creation or a removal."""
        self._past: deque[Change] = deque(maxlen=window)
        self._floor = versions.compacted
        self._watch_floor = versions.compacted
        self._watches: dict[Watch, None] = {}
        """In the order of their beginning, in which they are told."""
        self._observers: list[Callable[[Change], None]] = []
        self._lists: dict[str, Page] = {}
        self._lists_begun = 0

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._objects.values())

    def get(self, namespace: str, name: str) -> Record | None:
        """The object as it is now."""
        return self._objects.get((namespace, name))

    @property
    def version(self) -> int:
        """The newest version of the cluster."""
        return self._versions.current

    # --- writes --------------------------------------------------------------------------------

    def create(self, record: Record) -> Record:
        """Store a new object under a fresh version, which is set in place."""
        assert record.key not in self._objects, f"{record.key} exists"
        record.version = self._versions.next()
        self._objects[record.key] = record
        self._keys = None
        self._tell(Change(record.version, None, record))
        return record

    def replace(self, old: Record, new: Record) -> Record:
        """Store a change under a fresh version, which is set in place in ``new``."""
        assert self._objects[old.key] is old, "the change of an old version"
        new.version = self._versions.next()
        self._objects[old.key] = new
        self._tell(Change(new.version, old, new))
        return new

    def remove(self, old: Record) -> Record:
        """Forget an object; what is returned is how it was, under the version of its removal."""
        assert self._objects.pop(old.key) is old, "the removal of an old version"
        self._keys = None
        version = self._versions.next()
        self._tell(Change(version, old, None))
        return old.at(version)

    def forget_oldest(self) -> None:
        """Remove the object that was created first (Events make room this way)."""
        self.remove(next(iter(self._objects.values())))

    def _tell(self, change: Change) -> None:
        if len(self._past) == self._past.maxlen:
            self._floor = self._past[0].version
        self._past.append(change)
        encoded: dict[bytes, bytes] = {}
        for watch in self._watches:
            watch.deliver(change, encoded)
        for observe in self._observers:
            observe(change)

    # --- reads ---------------------------------------------------------------------------------

    def records(self, *, namespace: str = "", predicate: Predicate | None = None) -> list[Record]:
        """What passes, in the order of keys."""
        if self._keys is None:
            self._keys = sorted(self._objects)
        return [
            record
            for record in map(self._objects.__getitem__, self._keys)
            if (not namespace or record.namespace == namespace)
            and (predicate is None or predicate(record))
        ]

    def at(self, version: int, *, namespace: str = "", predicate: Predicate | None) -> list[Record]:
        """What passed at a version, in the order of keys.

        Raises:
            Refusal: 410, it is before the window; 504, it is yet to come.
        """
        if version > self.version:
            raise too_large(version, self.version)
        if version < self._floor:
            raise expired("The provided resource version is too old.")
        then = dict(self._objects)
        for change in takewhile(lambda change: change.version > version, reversed(self._past)):
            if change.new is not None:
                del then[change.new.key]
            if change.old is not None:
                then[change.old.key] = change.old
        return [
            record
            for _, record in sorted(then.items())
            if (not namespace or record.namespace == namespace)
            and (predicate is None or predicate(record))
        ]

    def first_page(
        self, *, namespace: str, predicate: Predicate | None, limit: int, version: int = 0
    ) -> Page:
        """The beginning of a list, or all of it if ``limit`` is 0; of an earlier version if one is
        named.

        Raises:
            Refusal: see :meth:`at`.
        """
        if version:
            records = self.at(version, namespace=namespace, predicate=predicate)
        else:
            records = self.records(namespace=namespace, predicate=predicate)
        whole = Page(version or self.version, records, "", 0)
        if not limit or len(records) <= limit:
            return whole
        self._lists_begun += 1
        name = str(self._lists_begun)
        self._lists[name] = whole
        if len(self._lists) > KEPT_LISTS:
            del self._lists[next(iter(self._lists))]
        return self._cut(name, 0, limit)

    def next_page(self, token: str, *, limit: int) -> Page:
        """The page that a token asks for.

        Raises:
            Refusal: 410, the list is not remembered; 400, that is no token.
        """
        match = _TOKEN.match(token)
        if match is None:
            raise bad_request("invalid continue token: continue key is not valid")
        name, offset = match.groups()
        if name not in self._lists:
            raise expired(
                "The provided continue parameter is too old to display a consistent list result. "
                "You can start a new list without the continue parameter."
            )
        return self._cut(name, int(offset), limit or len(self))

    def _cut(self, name: str, offset: int, limit: int) -> Page:
        whole = self._lists[name]
        end = offset + limit
        left = len(whole.records) - end
        token = f"{name}.{end}" if left > 0 else ""
        return Page(whole.version, whole.records[offset:end], token, max(left, 0))

    # --- watching ------------------------------------------------------------------------------

    def watch(self, watch: Watch, *, since: int) -> None:
        """Tell everything after ``since``, from now on as it happens.

        Raises:
            Refusal: 410, ``since`` is before the window.
        """
        floor = max(self._floor, self._watch_floor)
        if since < floor:
            raise expired(f"too old resource version: {since} ({floor})")
        later = takewhile(lambda change: change.version > since, reversed(self._past))
        for change in reversed(list(later)):
            watch.deliver(change, {})
        self._watches[watch] = None

    def unwatch(self, watch: Watch) -> None:
        """Tell it nothing more."""
        self._watches.pop(watch, None)

    def observe(self, observer: Callable[[Change], None]) -> None:
        """Call a part of the simulator at each change, after the watches."""
        self._observers.append(observer)

    def forget_watched(self) -> None:
        """Forget the past as a server does that was started again: watches begin at the present,
        lists of earlier versions are still to be had."""
        self._watch_floor = self._versions.current

    def compact(self) -> None:
        """Forget the past: every older watch and list in pages gets 410."""
        self._past.clear()
        self._lists.clear()
        self._floor = self._versions.compacted
