"""What has been seen of each object, and so what a list or a watch line means. No I/O.

A server tells the state of objects, a consumer wants changes, each once and in order. What is kept
for that is, per name, the uid and the version that was passed on last; the objects themselves are
not kept.

* **Order.** A line whose version is not above the one passed on for that object is dropped. So is a
  line about an object we do not know that is not above the list's version, because the list would
  have had it, or not above the last deletion's, because that may have been its own.
* **Delete and recreate under one name** may reach a slow watcher as one change of the name: it is
  split into the deletion of the old uid and the addition of the new one.
* **A list read anew** is the truth: what it lacks was deleted, what it has in another version
  changed, even if that version is lower (etcd was restored from a backup).
* **What cannot be decoded is there.** It is seen like any other object, so that its deletion is
  told, and that a list read anew does not take it for deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

from stretto.kube.readers import Unreadable
from stretto.kube.reflections import Event, EventKind

T = TypeVar("T")
Name = tuple[str, str]


class Seen(NamedTuple):
    """What was passed on last under a name."""

    uid: str
    version: int


class Sightings(Generic[T]):
    """The memory of one reflector. Feed it list items and watch lines; it answers events."""

    def __init__(self) -> None:
        self._seen: dict[Name, Seen] = {}
        self._listed: set[Name] | None = None
        self._floor = 0
        self._deleted: set[Name] | None = None
        """Names of what was deleted lately, if somebody asked for them."""
        self.dropped = 0
        """Lines that told nothing new."""

    def __len__(self) -> int:
        return len(self._seen)

    def seen(self, name: Name) -> Seen | None:
        """What was passed on last under a name; None: nothing is there."""
        return self._seen.get(name)

    def names(self) -> list[Name]:
        """Of all that is there."""
        return list(self._seen)

    def note_deletions(self) -> set[Name]:
        """A set to which the names are added that DELETED lines tell from now on, until this is
        asked for again or :meth:`note_no_more` is called."""
        noted: set[Name] = set()
        self._deleted = noted
        return noted

    def note_no_more(self) -> None:
        """Nobody looks at the names of what is deleted any more."""
        self._deleted = None

    def begin_list(self) -> None:
        """A list starts from its first page; an earlier one that was not finished is void."""
        self._listed = set()

    def listed(
        self, out: list[Event[T]], name: Name, uid: str, version: int, item: T | Unreadable
    ) -> None:
        """An item of the list."""
        assert self._listed is not None, "a list item outside a list"
        self._listed.add(name)
        old = self._seen.get(name)
        if old is not None and old == (uid, version):
            return
        self._pass_on(out, name, old, Seen(uid, version), item)

    def end_list(self, version: int) -> list[Event[T]]:
        """The list is complete and shows ``version``: the deletions found out, then SYNCED."""
        assert self._listed is not None, "the end of a list that did not begin"
        gone = self._seen.keys() - self._listed
        out: list[Event[T]] = [_deletion(name, self._seen.pop(name)) for name in sorted(gone)]
        self._listed = None
        self._floor = version
        out.append(Event(kind=EventKind.SYNCED, resource_version=version))
        return out

    def changed(
        self, out: list[Event[T]], name: Name, uid: str, version: int, item: T | Unreadable
    ) -> None:
        """An ADDED or MODIFIED line; which of the two is judged by what was seen, not by the
        line."""
        old = self._seen.get(name)
        if version <= (self._floor if old is None else old.version):
            self.dropped += 1
            return
        self._pass_on(out, name, old, Seen(uid, version), item)

    def deleted(
        self, out: list[Event[T]], name: Name, uid: str, version: int, item: T | Unreadable
    ) -> None:
        """A DELETED line: the object is gone, or has left the selectors."""
        old = self._seen.get(name)
        if old is None or old.uid != uid or version < old.version:
            self.dropped += 1
            return
        del self._seen[name]
        if self._deleted is not None:
            self._deleted.add(name)
        # Lines come in the order of their versions: an older one of this object, told again, must
        # not bring it back to life.
        self._floor = max(self._floor, version)
        out.append(
            Event(
                kind=EventKind.DELETED,
                namespace=name[0],
                name=name[1],
                uid=uid,
                resource_version=version,
                new=None if isinstance(item, Unreadable) else item,
            )
        )

    def caught_up(self, listed: Mapping[Name, Seen], *, list_version: int, position: int) -> bool:
        """Whether all that a list shows was passed on; ``position``: how far the watch is."""
        for name, there in listed.items():
            here = self._seen.get(name)
            if here is None and position < there.version:
                return False  # else it was told, and its end as well
            if here is not None and here.version < there.version:
                return False
        unlisted = self._seen.keys() - listed.keys()
        return all(self._seen[name].version > list_version for name in unlisted)

    def _pass_on(
        self, out: list[Event[T]], name: Name, old: Seen | None, new: Seen, item: T | Unreadable
    ) -> None:
        if old is not None and old.uid != new.uid:
            out.append(_deletion(name, old))
            old = None
        self._seen[name] = new
        if isinstance(item, Unreadable):
            out.append(_unreadable(name, new, item))
            return
        out.append(
            Event(
                kind=EventKind.ADDED if old is None else EventKind.MODIFIED,
                namespace=name[0],
                name=name[1],
                uid=new.uid,
                resource_version=new.version,
                new=item,
            )
        )


def _unreadable(name: Name, seen: Seen, item: Unreadable) -> Event[T]:
    """An object that is there and cannot be decoded."""
    return Event(
        kind=EventKind.UNREADABLE,
        namespace=name[0],
        name=name[1],
        uid=seen.uid,
        resource_version=seen.version,
        problem=item.problem,
        raw=item.raw,
    )


def _deletion(name: Name, old: Seen) -> Event[T]:
    """A deletion that nobody told about."""
    return Event(kind=EventKind.DELETED, namespace=name[0], name=name[1], uid=old.uid)
