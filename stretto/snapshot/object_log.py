"""Which objects of a kind changed, in order: what lets a reader of many objects follow them."""

from __future__ import annotations

_LIMIT = 1 << 15
"""Changes of a kind that are remembered; a reader that is further behind starts over."""


class ObjectLog:
    """Bounded journals by kind; versions are the snapshot's ``object_version``."""

    def __init__(self) -> None:
        self._changes: dict[str, list[tuple[int, str]]] = {}
        self._known_from: dict[str, int] = {}

    def note(self, kind: str, key: str, version: int) -> None:
        """An object was put or removed at a version."""
        changes = self._changes.setdefault(kind, [])
        changes.append((version, key))
        if len(changes) > _LIMIT:
            drop = _LIMIT // 2
            self._known_from[kind] = changes[drop - 1][0]
            del changes[:drop]

    def since(self, kind: str, version: int) -> list[str] | None:
        """Distinct keys changed after ``version``; None: not known any more, treat as all."""
        if version < self._known_from.get(kind, 0):
            return None
        found: dict[str, None] = {}
        for changed, key in reversed(self._changes.get(kind, ())):
            if changed <= version:
                break
            found[key] = None
        return list(found)
