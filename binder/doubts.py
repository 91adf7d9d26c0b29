"""When binds that were answered 201, and that no watch shows, are read.

Such a pod may have been bound and deleted in a gap of the watch: then neither the list after the
gap nor the watch ever speaks of it, and its room is kept for nobody. All such binds are read every
:data:`DOUBT_BEATS`, and soon after each list, since a list means that there was a gap. *Soon* is
two beats: the first notes who waits for the watch by then, the second reads who still does, so that
a bind that is merely young costs no read.
"""

from __future__ import annotations

DOUBT_BEATS = 30
"""How long a bind may stay unseen at the most before its pod is read: once or twice this."""
AFTER_LIST = 2


class Doubts:
    """Counts beats."""

    def __init__(self) -> None:
        self._beats = 0
        self._lists = 0
        self._soon = 0

    def beat(self, *, lists: int) -> bool:
        """Whether it is time; ``lists``: how many lists of bound pods were completed so far."""
        self._beats += 1
        if lists != self._lists:
            self._lists, self._soon = lists, AFTER_LIST
        due = self._soon > 0 or self._beats % DOUBT_BEATS == 0
        self._soon = max(0, self._soon - 1)
        return due
