"""What becomes of the status patches that the brain orders."""

from __future__ import annotations

import enum

PAUSE_S = 1.0
"""After a write that failed for reasons of the server, or is unknown, unless the server asks for
another."""
PATCH_TRIES = 3
"""Of a patch that failed for reasons of the server."""


class PatchResult(enum.StrEnum):
    """What became of a patch."""

    WRITTEN = "written"
    STALE = "stale"
    """409: the pod has changed; drop it and decide again."""
    GONE = "gone"
    """404, or 422 for another uid."""
    FAILED = "failed"
    """Not written, or unknown."""
