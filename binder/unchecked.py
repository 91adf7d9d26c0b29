"""Resources that a profile's NodeResourcesFit does not check: an extender or nobody does.

Memory admits them beyond what a node has, so the ledger must, too; otherwise its refusal would look
like drift. Their account is unlimited.
"""

from __future__ import annotations

from collections.abc import Iterable

from stretto.model.shape import Shape
from stretto.placement.profiles import Profiles

UNLIMITED = 1 << 50
"""Below 2^53, the largest whole number that the ledger's script adds exactly, with room for
sums."""


class Unchecked:
    """Names of such resources that any pod was seen with."""

    def __init__(self, profiles: Profiles) -> None:
        self._profiles = profiles
        self._any = any(profile.fit.ignored or profile.fit.ignored_groups for profile in profiles)
        self.names: dict[str, None] = {}

    def learn(self, shapes: Iterable[Shape]) -> bool:
        """Look at shapes that are proposed; whether there are more names now."""
        if not self._any:
            return False
        before = len(self.names)
        for shape in shapes:
            profile = self._profiles.get(shape.profile)
            if profile is not None:
                for name, _ in shape.requests:
                    if profile.ignores(name):
                        self.names[name] = None
        return len(self.names) > before
