"""What a shape asks of the nodes' definitions alone, shared by every shape that asks the same.

Tolerations, selectors and names make the mask; untolerated soft taints and preferred terms make raw
scores that are normalised later over the nodes that are feasible for the whole shape. All-different
pods usually share one of these, so a new shape costs its resources only. Pods coming and going
leave it as it is.
"""

from __future__ import annotations

import numpy as np

from stretto.model.shape import Shape
from stretto.placement.framework import Bools, Filter, Int64s, Scorer, View
from stretto.placement.node_selector import named_nodes
from stretto.placement.profiles import Profile
from stretto.snapshot.columns import Snapshot


class StaticPart:
    """Mask and raw scores over all rows, refreshed by the rows whose nodes changed."""

    def __init__(self, shape: Shape, *, profile: Profile, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.filters: dict[str, Filter] = {}
        for plugin in profile.filters:
            found = plugin.filter(shape, snapshot) if plugin.static else None
            if found is not None:
                self.filters[plugin.name] = found
        self.scorers: list[tuple[Scorer, int]] = []
        for plugin, weight in profile.scorers:
            if plugin.static and plugin.name != "ImageLocality":
                scorer = plugin.scorer(shape, snapshot)
                if scorer is not None:
                    self.scorers.append((scorer, weight))
        self.named = _narrowed(shape, profile)
        """PreFilter's node set with the plugins that narrowed it; None: all nodes."""
        self.version = 0
        """Grows whenever mask or raw scores may have changed."""
        self._stamp = -1
        self.mask: Bools = np.zeros(0, dtype=np.bool_)
        """bool[rows]: live, not frozen, and passing every static filter."""
        self.raws: list[Int64s | None] = []
        """Raw scores in the order of ``scorers``, int64[rows]; None: 0 on every row."""

    @property
    def nbytes(self) -> int:
        """Bytes in arrays."""
        return self.mask.nbytes + sum(raw.nbytes for raw in self.raws if raw is not None)

    def refresh(self) -> None:
        """Bring mask and raw scores up to date; O(nodes changed) where that is known."""
        stamp = self._snapshot.node_changes.stamp
        if stamp == self._stamp:
            return
        changed = self._snapshot.node_changes.since(self._stamp) if self._stamp >= 0 else None
        rows = self._snapshot.rows
        if changed is None or len(self.mask) != rows or len(changed) * 4 > rows:
            self._rebuild()
        else:
            self._update(np.array(changed, dtype=np.int64))
        self._stamp = stamp
        self.version += 1

    def _mask(self, view: View) -> Bools:
        mask = view.of(self._snapshot.live) & ~view.of(self._snapshot.frozen)
        for static in self.filters.values():
            passes = static.passes(view)
            if passes is not None:
                mask &= passes
        return mask

    def _rebuild(self) -> None:
        view = View(self._snapshot)
        self.mask = self._mask(view)
        self.raws = [_or_none(scorer.raw(view)) for scorer, _ in self.scorers]

    def _update(self, rows: Int64s) -> None:
        view = View(self._snapshot, rows)
        self.mask[rows] = self._mask(view)
        for i, (scorer, _) in enumerate(self.scorers):
            fresh, known = scorer.raw(view), self.raws[i]
            if known is None and (fresh is None or not fresh.any()):
                continue
            if known is None:
                known = self.raws[i] = np.zeros(self._snapshot.rows, dtype=np.int64)
            known[rows] = 0 if fresh is None else fresh


def _or_none(raw: np.ndarray | None) -> Int64s | None:
    return raw if raw is not None and raw.any() else None


def static_key(shape: Shape) -> tuple[object, ...]:
    """Equal for shapes that ask the same of the nodes' definitions."""
    return (
        shape.profile,
        shape.tolerations,
        shape.node_selector,
        shape.required_node_terms,
        shape.preferred_node_terms,
        shape.node_name,
    )


class Narrowed:
    """PreFilter's node set: names, and the plugins that returned it."""

    def __init__(self, names: frozenset[str], plugins: tuple[str, ...]) -> None:
        self.names = names
        self.plugins = plugins

    def rows(self, snapshot: Snapshot) -> list[int]:
        """Rows of the named nodes that exist."""
        found = (snapshot.row_of_name(name) for name in sorted(self.names))
        return [row for row in found if row is not None]


def _narrowed(shape: Shape, profile: Profile) -> Narrowed | None:
    enabled = {plugin.name for plugin in profile.prefilters}
    names: frozenset[str] | None = None
    plugins = []
    if shape.node_name and "NodeName" in enabled:
        names = frozenset((shape.node_name,))
        plugins.append("NodeName")
    if "NodeAffinity" in enabled:
        wanted = named_nodes(shape.required_node_terms)
        if wanted == frozenset():
            return Narrowed(wanted, ("NodeAffinity",))  # it rejects before sets are merged
        if wanted is not None:
            names = wanted if names is None else names & wanted
            plugins.append("NodeAffinity")
    return None if names is None else Narrowed(names, tuple(sorted(plugins)))
