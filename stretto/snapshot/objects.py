"""Objects of the log by kind, and when each kind last changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from stretto.snapshot.delta import ObjectRow
from stretto.snapshot.object_log import ObjectLog

Place = TypeVar("Place")


class ObjectTable:
    """The objects that plugins read. Versions grow with each change, over all kinds together."""

    def __init__(self) -> None:
        self.version = 0
        self.by_kind: dict[str, dict[str, ObjectRow]] = {}
        self._in_namespace: dict[tuple[str, str], dict[str, ObjectRow]] = {}
        self._kind_versions: dict[str, int] = {}
        self._namespace_versions: dict[tuple[str, str], int] = {}
        self._log = ObjectLog()

    def payloads(self, kind: str) -> Mapping[str, bytes]:
        """Payloads of a kind by key."""
        return {key: row.payload for key, row in self.by_kind.get(kind, {}).items()}

    def payload(self, kind: str, key: str) -> bytes | None:
        """The payload of one object; None if there is none."""
        found = self.by_kind.get(kind, {}).get(key)
        return None if found is None else found.payload

    def inside(self, kind: str, namespace: str) -> Mapping[str, ObjectRow]:
        """The objects of a namespaced kind in one namespace, by key."""
        return self._in_namespace.get((kind, namespace), {})

    def kind_version(self, kind: str) -> int:
        """The version of the last change to an object of the kind; 0: there never was one."""
        return self._kind_versions.get(kind, 0)

    def namespace_version(self, kind: str, namespace: str) -> int:
        """The same for the kind in one namespace."""
        return self._namespace_versions.get((kind, namespace), 0)

    def changed(self, kind: str, version: int) -> list[str] | None:
        """Keys of a kind put or removed after a version; None: not known any more, treat as
        all."""
        return self._log.since(kind, version)

    def put(self, row: ObjectRow) -> None:
        """An object was added or changed, or is gone."""
        self.version += 1
        _put(self.by_kind, row.kind, row)
        self._kind_versions[row.kind] = self.version
        self._log.note(row.kind, row.key, self.version)
        namespace, slash, _ = row.key.partition("/")
        if slash:
            place = row.kind, namespace
            _put(self._in_namespace, place, row)
            self._namespace_versions[place] = self.version


def _put(table: dict[Place, dict[str, ObjectRow]], place: Place, row: ObjectRow) -> None:
    """Write an object, or take it out, where it belongs."""
    if not row.removed:
        table.setdefault(place, {})[row.key] = row
    elif place in table:
        table[place].pop(row.key, None)
        if not table[place]:
            del table[place]


class ObjectReading:
    """What readers of a snapshot ask of its objects."""

    _objects: ObjectTable

    def objects(self, kind: str) -> Mapping[str, bytes]:
        """Payloads of a kind by key."""
        return self._objects.payloads(kind)

    @property
    def object_version(self) -> int:
        """Grows with each change to an object."""
        return self._objects.version

    def kind_version(self, kind: str) -> int:
        """Grows with each change to an object of the kind; 0: there never was one."""
        return self._objects.kind_version(kind)

    def object_payload(self, kind: str, key: str) -> bytes | None:
        """The payload of one object; None if there is none."""
        return self._objects.payload(kind, key)

    def objects_changed(self, kind: str, version: int) -> list[str] | None:
        """Keys of a kind put or removed since ``object_version`` was ``version``; None: not known
        any more, treat as all."""
        return self._objects.changed(kind, version)

    def objects_in(self, kind: str, namespace: str) -> Mapping[str, ObjectRow]:
        """The objects of a namespaced kind in one namespace, by key."""
        return self._objects.inside(kind, namespace)

    def namespace_version(self, kind: str, namespace: str) -> int:
        """Grows with each change to an object of the kind in the namespace."""
        return self._objects.namespace_version(kind, namespace)
