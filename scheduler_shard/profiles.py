"""Profiles for schedulerNames that a shard was not told in advance."""

from __future__ import annotations

from collections.abc import Mapping

from stretto.placement.profiles import Profile, Profiles


class AnyProfiles(Profiles):
    """The default profile under whatever name the dispatcher serves."""

    def __init__(self, gates: Mapping[str, bool] | None = None) -> None:
        super().__init__([])
        self._gates = gates
        self._made: dict[str, Profile | None] = {}

    def get(self, name: str) -> Profile | None:
        """The profile of a schedulerName, made when it is first asked for."""
        if name not in self._made:
            self._made[name] = Profiles.default((name,), gates=self._gates).get(name)
        return self._made[name]
