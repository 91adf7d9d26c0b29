"""Who keeps what tentative pods would do to objects."""

from __future__ import annotations

from typing import Protocol

from stretto.model.shape import Shape


class Assumer(Protocol):
    """Keeps what tentative pods would do to objects beside their nodes, as long as they are
    counted."""

    def assume(self, shape: Shape, row: int) -> None:
        """A tentative pod is about to be counted on a row."""

    def forget(self, shape: Shape, row: int) -> None:
        """One of them no longer is."""
