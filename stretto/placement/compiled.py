"""A shape compiled for a profile, with the scores that are kept for it.

``total[row]`` is the weighted sum of normalised scores, or -1 where the shape does not fit. It is
kept alive by the snapshot's change log: a use refreshes the rows that changed since the last.
Scores that are normalised over the feasible nodes stand as long as their maxima do; when a maximum
changes, one vector pass moves every total.
"""

from __future__ import annotations

from collections.abc import Hashable

import msgspec
import numpy as np

from stretto.model.shape import Shape
from stretto.placement.cross import PLAIN, CrossPart
from stretto.placement.framework import (
    Bools,
    Code,
    Filter,
    Int64s,
    Status,
    View,
    Whole,
    mask_out,
    normalised,
)
from stretto.placement.nominated import claims_on, leave_claimed, rejecting, that_look
from stretto.placement.parts import Parts
from stretto.placement.plugins.node_affinity import NodeAffinity, NodeAffinityFilter
from stretto.placement.static_part import Narrowed

_FEW = 8
"""Up to this many changed rows are refreshed one by one: a vector pass costs about as much as
eight."""
_COMPILED_BYTES = 4096
"""What a compiled shape takes beside its arrays, roughly."""


class Counters(msgspec.Struct):
    """How often scores were reused, and what it took."""

    hits: int = 0
    """Uses that refreshed some rows, or none."""
    builds: int = 0
    """Uses that scored every row."""
    rows_refreshed: int = 0
    renormalised: int = 0
    """Vector passes because a normaliser's maximum changed."""
    evictions: int = 0


class CompiledShape:
    """Filters and scorers of a shape, and its scores over all rows once they were asked for."""

    key: Hashable = None
    """What the kernel keeps it under."""
    lent: bool = False
    """The pod's claims are parameters; see :mod:`stretto.placement.parameters`."""
    _only: NodeAffinityFilter | None = None
    """Where the pod's one node is a parameter: the filter that lets only that pass."""

    def __init__(self, shape: Shape, parts: Parts) -> None:
        self.shape = shape
        """The pod's; :meth:`bind` exchanges it for one that differs in parameters only."""
        self.base = shape
        """What filters and scorers were made from."""
        self.profile = parts.profile
        self.static = parts.static
        self.named = parts.static.named
        """PreFilter's node set with the plugins that narrowed it; None: all nodes."""
        self.snapshot = parts.snapshot
        self.filters = parts.filters
        """All filters in the profile's order."""
        self.dynamic = parts.dynamic
        """Those of them that depend on pods."""
        self.scorers = parts.scorers
        """Scorers that depend on the row alone, with weights."""
        self.images = parts.images
        self.looks_around = parts.looks_around
        """Some filter or scorer does look at other rows."""
        self.cross = CrossPart(parts.around, parts.cross_scorers) if self.looks_around else PLAIN
        """Filters and scorers that look at other rows; empty for plain shapes."""
        self.prefilters = parts.prefilters
        """Plugins whose PreFilter may reject the shape."""
        self.outdated = parts.made_from.outdated
        """Whether what its plugins were made from has changed since."""
        self._affinity_at = parts.affinity_at
        self._versioned = [f for f in self.dynamic if type(f).version is not Filter.version]
        self._versions: list[object] = []
        self._followed = [(f.follows, -1) for f in self.dynamic if f.follows is not None]
        """What filters follow, and how far it has been read."""
        self.spans = any(each.spans for each in self.dynamic)
        """Pods of the shape are placed one at a time."""
        self.total: Whole = _NO_TOTALS
        self._uses = 0
        self._fixed: Whole | int = 0
        self._maxima: list[int] = []
        self._stamp = -1
        self._static_version = -1
        self._image_version = -1

    @property
    def nbytes(self) -> int:
        """Bytes this takes, roughly."""
        fixed = 0 if isinstance(self._fixed, int) else self._fixed.nbytes
        if self.looks_around:
            return _COMPILED_BYTES + self.cross.nbytes
        return _COMPILED_BYTES + (self.total.nbytes if self.lasting else 0) + fixed

    @property
    def lasting(self) -> bool:
        """Its totals are kept from use to use; those of the first use are not."""
        return self._uses > 1

    def bind(self, shape: Shape, *, narrowed: bool, lent: bool) -> None:
        """Be about a pod's shape, which differs from the last in parameters only."""
        self.lent = lent
        if shape is self.shape:
            return
        self.shape = shape
        if narrowed:
            self._narrow(shape.only_node)
        if lent:
            for each in self.dynamic:
                each.bind(shape)
            for scorer, _ in (*self.scorers, *self.cross.scorers):
                scorer.bind(shape)

    def _narrow(self, name: str) -> None:
        """Only the node of this name passes."""
        if self._only is None:
            plugin = next(p for p in self.profile.filters if isinstance(p, NodeAffinity))
            self._only = plugin.filter_of_one(self.base, self.snapshot)
            at = self._affinity_at
            known = any(isinstance(each, NodeAffinityFilter) for each in self.filters)
            self.filters[at : at + known] = [self._only]
        self._only.only_node = name
        self.named = Narrowed(frozenset((name,)), (NodeAffinity.name,))

    @property
    def named_plugins(self) -> tuple[str, ...]:
        """Plugins that narrowed PreFilter's node set."""
        return self.named.plugins if self.named is not None else ()

    def fails(self) -> bool:
        """Whether a plugin fails on a row that passes the filters before it: upstream ends the
        attempt then, whatever other nodes say."""
        for i, each in enumerate(self.filters):
            for row in each.failing_rows():
                if self.snapshot.live.item(row) and all(
                    f.passes_row(row) for f in self.filters[:i]
                ):
                    return True
        return False

    def prefilter(self) -> Status | None:
        """Why a plugin rejects the pod on all nodes, as upstream reports it: the first that cannot
        be helped by preemption, else the first."""
        first = None
        for plugin in self.prefilters:
            status = plugin.prefilter(self.shape, self.snapshot)
            if status is not None and status.code is not Code.UNSCHEDULABLE:
                return status
            first = first or status
        return first

    def versions_changed(self) -> bool:
        """Whether something that filters depend on beside the rows has changed; notes it."""
        if not self._versioned:
            return False
        versions = [each.version() for each in self._versioned]
        if versions == self._versions:
            return False
        self._versions = versions
        return True

    def changed_since(self, stamp: int) -> list[int] | None:
        """Rows that have changed since this stamp of the snapshot, or in what filters follow since
        this was called last; None: too many to tell."""
        changed = self.snapshot.changes.since(stamp)
        for i, (log, seen) in enumerate(self._followed):
            more = log.since(seen) if seen >= 0 else None
            self._followed[i] = log, log.stamp
            if changed is None or more is None:
                changed = None
            elif more:
                changed = list({*changed, *more})
        return changed

    def refresh(self, counters: Counters) -> None:
        """Bring ``total`` up to date with the snapshot."""
        if self.looks_around:
            self.cross.refresh(self, counters)
            self.total = self.cross.total
            return
        self.static.refresh()
        snapshot = self.snapshot
        stamp = snapshot.changes.stamp
        current = self._static_version == self.static.version and (
            self.images is None or self._image_version == snapshot.images.version
        )
        self._uses += 1
        # The first use scores into a shared buffer: where no two pods are alike, keeping every
        # shape's scores would only flush those that are used again, and memory caches with them.
        stale = self.versions_changed() or not current
        changed = self.changed_since(self._stamp)
        if stale or self._uses <= 2:
            changed = None
        if changed is None or len(changed) * 4 > snapshot.rows:
            self._build()
            counters.builds += 1
        else:
            counters.hits += 1
            if changed:
                counters.rows_refreshed += len(changed)
                self._update(changed)
                self.renormalise(counters)
        self._stamp = stamp

    def _build(self) -> None:
        view = View(self.snapshot)
        mask = self.passes(view, self.static.mask)
        self._maxima = self.maxima_over(mask)
        self._fixed = self.fixed_scores(view, self._maxima)
        scores = self.row_scores(view)
        out = None if self.lasting else view.buffer("total", self.profile.score_type)
        self.total = np.add(scores, self._fixed, out=out)
        mask_out(self.total, mask)
        self._static_version = self.static.version
        self._image_version = self.snapshot.images.version

    def passes(self, view: View, mask: Bools) -> Bools:
        """Those of ``mask`` that pass every filter which depends on the row's own pods."""
        for dynamic in self.dynamic:
            passes = dynamic.passes(view)
            if passes is not None:
                mask = mask & passes
        if self.snapshot.nominations and not self.looks_around:
            mask = leave_claimed(self.filters, self.shape, mask, view=view, snapshot=self.snapshot)
        return mask

    def row_scores(self, view: View) -> Whole:
        """Weighted sum of the scores that depend on the row alone, in a buffer."""
        kind = self.profile.score_type
        scores = view.buffer("scores", kind)
        first = True
        for scorer, weight in self.scorers:
            raw = scorer.raw(view)
            if raw is None:
                continue
            if weight != 1:
                raw = np.multiply(raw, weight, dtype=kind, casting="unsafe")
            if first:
                np.copyto(scores, raw, casting="unsafe")
                first = False
            else:
                np.add(scores, raw, out=scores, casting="unsafe")
        if first:
            scores.fill(0)
        return scores

    def maxima_over(self, mask: Bools) -> list[int]:
        """The normalisers of the static scores over some rows."""
        return [
            0 if raw is None else int(raw.max(initial=0, where=mask)) for raw in self.static.raws
        ]

    def fixed_scores(self, view: View, maxima: list[int]) -> Whole | int:
        """What does not depend on pods, given the maxima: normalised scores and images."""
        fixed: Int64s | int = 0
        for i, (scorer, weight) in enumerate(self.static.scorers):
            raw = self.static.raws[i]
            if raw is None:
                raw, maximum = _ZERO, 0
            else:
                maximum = maxima[i]
            fixed = fixed + normalised(scorer.normalise, raw, maximum) * weight
        if self.images is not None:
            raw_images = self.images[0].raw(view)
            if raw_images is not None:
                fixed = fixed + raw_images.astype(np.int64) * self.images[1]
        return fixed if isinstance(fixed, int) else fixed.astype(self.profile.score_type)

    def _update(self, changed: list[int]) -> None:
        if len(changed) <= _FEW:
            for row in changed:
                self.total[row] = self.total_of_row(row)
            return
        rows = np.array(changed, dtype=np.int64)
        view = View(self.snapshot, rows)
        mask = self.passes(view, self.static.mask[rows])
        scores = self.row_scores(view)
        scores += self._fixed if isinstance(self._fixed, int) else self._fixed[rows]
        mask_out(scores, mask)
        self.total[rows] = scores

    def total_of_row(self, row: int) -> int:
        """The total of one row as it is now, under the maxima as they stand; -1 if it does not
        fit."""
        if self.looks_around:
            self.refresh(Counters())
            return self.total.item(row)
        if not self.row_passes(row):
            return -1
        if self.snapshot.nominations and self.claimed(row) is not None:
            return -1
        fixed = self._fixed
        total: int = fixed if isinstance(fixed, int) else fixed.item(row)
        for scorer, weight in self.scorers:
            total += scorer.raw_row(row) * weight
        return total

    def row_passes(self, row: int) -> bool:
        """Whether a row passes every filter that looks at it alone. (Loops: generators cost more
        than what they ask.)"""
        if not self.static.mask.item(row):
            return False
        for dynamic in self.dynamic:  # noqa: SIM110
            if not dynamic.passes_row(row):
                return False
        return True

    def score_of_row(self, row: int) -> int:
        """:meth:`row_scores` of one row."""
        return sum(scorer.raw_row(row) * weight for scorer, weight in self.scorers)

    def claimed(self, row: int) -> Filter | None:
        """The filter that rejects a row because of the pods that are nominated to it."""
        claims = claims_on(self.shape, row, snapshot=self.snapshot)
        if not claims:
            return None
        return rejecting(that_look(self.filters), row, claims, snapshot=self.snapshot)

    def settle(self, totals: dict[int, int]) -> None:
        """Write totals that the caller computed by :meth:`total_of_row`, and count the rows as
        fresh."""
        if totals:
            rows = np.fromiter(totals.keys(), dtype=np.int64, count=len(totals))
            self.total[rows] = np.fromiter(totals.values(), dtype=np.int64, count=len(totals))
        self._stamp = self.snapshot.changes.stamp

    @property
    def local(self) -> bool:
        """Whether each filter looks at nothing but the row it is asked about."""
        return not (self._versioned or self.looks_around or self.spans)

    def holds_extreme(self, row: int) -> bool:
        """Whether losing this row may change a normaliser."""
        for raw, maximum in zip(self.static.raws, self._maxima, strict=True):
            if raw is not None and maximum and raw.item(row) == maximum:
                return True
        return False

    def renormalise(self, counters: Counters) -> bool:
        """Move every total if a maximum over the feasible rows changed; whether it did."""
        if all(raw is None for raw in self.static.raws):
            return False
        feasible = self.total >= 0
        maxima = self.maxima_over(feasible)
        if maxima == self._maxima:
            return False
        counters.renormalised += 1
        before = self._fixed
        self._maxima = maxima
        self._fixed = self.fixed_scores(View(self.snapshot), maxima)
        np.add(self.total, self._fixed - before, out=self.total, where=feasible)
        return True


_NO_TOTALS: Int64s = np.zeros(0, dtype=np.int64)
_ZERO: Int64s = np.zeros(1, dtype=np.int64)
