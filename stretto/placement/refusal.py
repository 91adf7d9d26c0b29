"""Pods that are refused because a hard constraint on them is not built (design §12.14).

Placing such a pod as if the constraint were absent would break a promise to its owner; so it waits
with a condition that names the constraint.
"""

from __future__ import annotations

from stretto.model.shape import Shape
from stretto.placement.profiles import Profile
from stretto.placement.registry import POINTS

LIVE_UNBUILT = frozenset({
    "DynamicResources",
})  # fmt: skip
"""Plugins that the kernel has and that pods of a cluster may not rely on yet."""


def refusal_of(shape: Shape, profile: Profile | None) -> str:
    """'' when the shape may be placed, otherwise a sentence that names the constraint."""
    if profile is None:
        return f"there is no profile for schedulerName {shape.profile}"
    if not shape.unbuilt_hard:
        return ""
    on = {*profile.unbuilt_filters, *(LIVE_UNBUILT & {p.name for p in profile.filters})}
    disabled = tuple(f"{name}:" for name in POINTS["filter"] if name not in on)
    asked = [text for text in shape.unbuilt_hard if not text.startswith(disabled)]
    return f"not supported by this release: {', '.join(asked)}" if asked else ""
