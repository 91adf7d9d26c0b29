"""Pods that are refused because a hard constraint on them is not built (design §12.14).

Placing such a pod as if the constraint were absent would break a promise to its owner; so it waits
with a condition that names the constraint.
"""

from __future__ import annotations

from stretto.model.shape import Shape
from stretto.placement.profiles import Profile


def refusal_of(shape: Shape, profile: Profile | None) -> str:
    """'' when the shape may be placed, otherwise a sentence that names the constraint."""
    if profile is None:
        return f"there is no profile for schedulerName {shape.profile}"
    asked = ", ".join(shape.unbuilt_hard)
    return f"not supported by this release: {asked}" if asked else ""
