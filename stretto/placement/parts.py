"""The filters and scorers of a shape, put together from the plugins of its profile.

Where no two pods are alike, most still differ in their amounts only, and all that plugins say but
for those that read amounts is the same for them. So what is put together for one is kept as a
pattern: for the next, filters and scorers are :meth:`~stretto.placement.framework.Filter.resized`,
which costs a tenth of asking every plugin.
"""

from __future__ import annotations

import copy

import msgspec

from stretto.model.shape import Shape
from stretto.placement.framework import CrossScorer, Filter, Scorer
from stretto.placement.plugins.node_affinity import NodeAffinity
from stretto.placement.profiles import Profile
from stretto.placement.static_part import StaticPart
from stretto.snapshot.columns import Snapshot


class Parts:
    """What a shape is compiled to. Lists are the holder's own; what is in them may be shared."""

    def __init__(
        self, shape: Shape, *, profile: Profile, snapshot: Snapshot, static: StaticPart
    ) -> None:
        self.base = shape
        """What filters and scorers were made from."""
        self.profile = profile
        self.snapshot = snapshot
        self.static = static
        self.filters: list[Filter] = []
        """All filters in the profile's order."""
        self.dynamic: list[Filter] = []
        """Those of them that depend on pods of their row."""
        self.around: list[Filter] = []
        """Those of them that look at other rows."""
        self.affinity_at: int = 0
        """Where NodeAffinity's stands among the filters, or would."""
        self.scorers: list[tuple[Scorer, int]] = []
        """Scorers that depend on the row alone, with weights."""
        self.images: tuple[Scorer, int] | None = None
        self.cross_scorers: list[tuple[CrossScorer, int]] = []
        """Scorers that look at other rows, with weights."""
        kinds = self._add_filters() | self._add_scorers()
        self.prefilters = [p for p in profile.prefilters if p.has_prefilter(shape)]
        """Plugins whose PreFilter may reject the shape."""
        self.made_from = MadeFrom(shape, kinds, profile=profile, snapshot=snapshot)

    def _add_filters(self) -> frozenset[str]:
        """Make the filters; the kinds of objects whose change may make them others."""
        kinds: frozenset[str] = frozenset()
        for plugin in self.profile.filters:
            if plugin.static:
                found = self.static.filters.get(plugin.name)
            else:
                found = plugin.filter(self.base, self.snapshot)
                if found is not None:
                    (self.around if found.cross else self.dynamic).append(found)
            if isinstance(plugin, NodeAffinity):
                self.affinity_at = len(self.filters)
            if found is not None:
                self.filters.append(found)
            kinds |= plugin.silent_kinds if found is None else plugin.kinds
        return kinds

    def _add_scorers(self) -> frozenset[str]:
        """Make the scorers; the kinds of objects whose change may make them others."""
        kinds: frozenset[str] = frozenset()
        for plugin, weight in self.profile.scorers:
            if plugin.static and plugin.name != "ImageLocality":
                continue
            scorer = plugin.scorer(self.base, self.snapshot)
            kinds |= plugin.silent_kinds if scorer is None else plugin.kinds
            if scorer is None:
                continue
            if isinstance(scorer, CrossScorer):
                self.cross_scorers.append((scorer, weight))
            elif plugin.static:
                self.images = (scorer, weight)
            else:
                self.scorers.append((scorer, weight))
        return kinds

    @property
    def looks_around(self) -> bool:
        """Some filter or scorer looks at other rows."""
        return bool(self.around or self.cross_scorers)

    @property
    def a_pattern(self) -> bool:
        """Whether shapes that differ in amounts only can be made from these. Claims are parameters
        that filters are bound to, and an own plugin may read whatever it likes."""
        base = self.base
        claims = base.claims or base.device_claims or base.device_containers
        return not (claims or self.looks_around or self.profile.has_own)

    def resized(self, shape: Shape) -> Parts:
        """Those of a shape that has the same :func:`pattern_of`."""
        found = copy.copy(self)
        found.base = shape
        made = {id(each): each.resized(shape) for each in self.dynamic}
        found.dynamic = list(made.values())
        found.filters = [made.get(id(each), each) for each in self.filters]
        found.scorers = [(scorer.resized(shape), weight) for scorer, weight in self.scorers]
        return found


def pattern_of(shape: Shape) -> Shape:
    """Equal for shapes that differ in their amounts only. Which are 0 makes a difference."""
    return msgspec.structs.replace(
        shape,
        requests=tuple([(name, 1 if amount else 0) for name, amount in shape.requests]),
        nonzero_cpu_milli=0,
        nonzero_memory=0,
        score_requests=(0, 0),
    )


class MadeFrom:
    """What filters and scorers were made from, beside the shape: they are outdated when it has
    changed."""

    def __init__(
        self, shape: Shape, kinds: frozenset[str], *, profile: Profile, snapshot: Snapshot
    ) -> None:
        self._shape = shape
        self._profile = profile
        self._snapshot = snapshot
        self._kinds = tuple(sorted(kinds))
        self._kind_versions = tuple(map(snapshot.kind_version, self._kinds))
        self._basis = profile.basis(shape, snapshot)
        self._read = self._read_by_basis()
        self._stamp = self._now()

    def _now(self) -> tuple[int, int, int]:
        """Grows whenever anything that plugins were made from may have changed."""
        snapshot = self._snapshot
        return snapshot.object_version, snapshot.kins.terms_version, len(snapshot.carried_keys)

    def _read_by_basis(self) -> tuple[int, ...]:
        """Versions of what the plugins' basis depends on."""
        snapshot = self._snapshot
        kinds = map(snapshot.kind_version, self._profile.basis_kinds)
        return snapshot.kins.terms_version, len(snapshot.carried_keys), *kinds

    def outdated(self) -> bool:
        """Whether it has changed since."""
        snapshot, stamp = self._snapshot, self._now()
        if stamp == self._stamp:
            return False
        if self._kind_versions != tuple(map(snapshot.kind_version, self._kinds)):
            return True
        read = self._read_by_basis()
        if read != self._read:
            if self._basis != self._profile.basis(self._shape, snapshot):
                return True
            self._read = read
        self._stamp = stamp
        return False
