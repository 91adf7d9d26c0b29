"""The kernel: decides where pods of a shape go, on a snapshot, with a profile's plugins.

Shards place with it; the Binder checks with it (the same filters, one row at a time, design
§12.15). Everything it keeps per shape is a cache over the snapshot's columns, bounded in bytes,
least recently used dropped first.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence

import msgspec
import numpy as np

from stretto.model.shape import Shape
from stretto.model.unit import Cause, Diagnosis
from stretto.placement.batch import place_batch
from stretto.placement.claim_args import DeviceArgs, VolumeArgs
from stretto.placement.compiled import CompiledShape, Counters
from stretto.placement.departures import Departures
from stretto.placement.devices.plan import NO_DEVICES, DevicePlan, device_plan
from stretto.placement.evaluation import Evaluation, diagnose, evaluate
from stretto.placement.framework import Bools, Plugin, Status, View
from stretto.placement.named import best_of
from stretto.placement.nominated import leave_claimed
from stretto.placement.parameters import Kept, kept_as
from stretto.placement.parts import Parts, pattern_of
from stretto.placement.plugins.dynamic_resources import DynamicResources
from stretto.placement.plugins.volume_binding import VolumeBinding
from stretto.placement.plugins.volume_limits import taken_on
from stretto.placement.postfilter import PostFilterResult
from stretto.placement.postfilters import post_filter, preempt_among, with_dry_run
from stretto.placement.preemption import Preemption, Refused, Tie
from stretto.placement.profiles import Profile, Profiles
from stretto.placement.quota_filter import refused_by_quota, with_quota_diagnosis
from stretto.placement.refusal import refusal_of
from stretto.placement.selection import Ranking, own_table
from stretto.placement.static_part import StaticPart, static_key
from stretto.placement.volume_plan import NO_VOLUMES, VolumePlan, plan
from stretto.snapshot.columns import Snapshot

CACHE_BYTES = 48 << 20
"""Scores of some 2,000 shapes at 10,000 nodes; a shard's budget is 300 MB in all."""
_STATIC_PARTS = 256
_PATTERNS = 256


class UnknownProfileError(LookupError):
    """A shape names a schedulerName that has no profile here."""


class Placement(msgspec.Struct):
    """Where pods went: fewer rows than asked for when the rest no longer fits."""

    rows: list[int] = msgspec.field(default_factory=list)
    spares: list[tuple[int, ...]] = msgspec.field(default_factory=list)
    """For each placed pod other rows to try, own partitions first."""


class Kernel(Departures):
    """Placement on one snapshot; see the module docstring. Not thread-safe."""

    def __init__(
        self,
        snapshot: Snapshot,
        profiles: Profiles,
        *,
        own_partitions: frozenset[int] = frozenset(),
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self._snapshot = snapshot
        self._profiles = profiles
        self._own_partitions = own_partitions
        self._own = own_table(own_partitions)
        self._cache_bytes = cache_bytes
        self._shapes: dict[Hashable, CompiledShape] = {}
        self._sizes: dict[Hashable, int] = {}
        self._bytes = 0
        self._static: dict[tuple[object, ...], StaticPart] = {}
        self._patterns: dict[Shape, Parts] = {}
        self._counters = Counters()
        self._preemption = Preemption(snapshot)
        snapshot.assumer = self

    def place(
        self,
        shape: Shape,
        count: int,
        *,
        seed: int,
        avoid: Sequence[int] = (),
        spares: int = 0,
        own_first: bool = False,
    ) -> Placement:
        """Place ``count`` pods of a shape one after another, counting each on the snapshot
        (tentatively).

        The caller takes pods back with ``snapshot.remove_pod``. ``avoid`` are node ids ranked last
        among equals. ``seed`` fixes the order of equals: the same seed on the same state gives the
        same nodes. ``own_first``: own partitions come before better nodes elsewhere. A frozen node
        is never chosen. :meth:`refusal` is the caller's to ask first.

        Raises:
            UnknownProfileError: there is no profile for the shape's schedulerName.
        """
        compiled = self._compiled(shape)
        if self._snapshot.quota.on:
            count = self._snapshot.quota.room(shape, count)
        if not count or compiled.prefilter() is not None:
            return Placement()
        if compiled.spans and count > 1:
            return self._place_singly(
                shape, count, seed=seed, avoid=avoid, spares=spares, own_first=own_first
            )
        snapshot = self._snapshot
        avoided = [row for row in map(snapshot.row_of, avoid) if row is not None]
        ranking = Ranking(snapshot, seed=seed, own=self._own, avoid=avoided, own_first=own_first)
        nominated = self._nominated(compiled)
        if nominated is not None or compiled.named is not None:
            return self._place_among(compiled, count, nominated=nominated, ranking=ranking)
        compiled.refresh(self._counters)
        self._account(compiled)
        if compiled.fails():
            return Placement()
        rows, others = place_batch(
            compiled,
            count,
            spares=spares,
            ranking=ranking,
            counters=self._counters,
            add=lambda row: snapshot.add_pod(shape, row),
        )
        return Placement(rows, self._spread(rows, others, spares) if spares else [])

    def _place_singly(
        self,
        shape: Shape,
        count: int,
        *,
        seed: int,
        avoid: Sequence[int],
        spares: int,
        own_first: bool,
    ) -> Placement:
        """One pod at a time, because each may change where the next fits."""
        placement = Placement()
        for _ in range(count):
            one = self.place(shape, 1, seed=seed, avoid=avoid, spares=spares, own_first=own_first)
            if not one.rows:
                break
            placement.rows += one.rows
            placement.spares += one.spares
        return placement

    def bind_timeout_s(self, profile: str, *, volumes: bool = True, devices: bool = False) -> float:
        """How long the claims (to volumes, to devices, or one after the other) of a pod of this
        schedulerName may take to be bound."""
        found = self._profiles.get(profile)
        to_volumes: float = VolumeArgs().bind_timeout_s
        to_devices = DeviceArgs().binding_timeout_s
        for plugin in () if found is None else found.filters:
            if isinstance(plugin, VolumeBinding):
                to_volumes = plugin.args.bind_timeout_s
            elif isinstance(plugin, DynamicResources):
                to_devices = plugin.args.binding_timeout_s
        return to_volumes * volumes + to_devices * devices

    def volume_plan(self, shape: Shape, row: int) -> VolumePlan:
        """What is done to the claims of a pod on a row that it fits, before it is counted."""
        names = {plugin.name for plugin in self._plugins_of(shape)}
        return plan(shape, row, self._snapshot) if "VolumeBinding" in names else NO_VOLUMES

    def device_plan(self, shape: Shape, row: int, *, attempt: str) -> DevicePlan:
        """The same for its claims to devices; see :func:`stretto.placement.devices.plan`."""
        names = {plugin.name for plugin in self._plugins_of(shape)}
        if "DynamicResources" not in names:
            return NO_DEVICES
        return device_plan(shape, row, self._snapshot, attempt=attempt)

    def attachments(self, shape: Shape, row: int) -> list[tuple[str, int]]:
        """(CSI driver, attachments more) that a pod takes of the limits of a row."""
        return taken_on(shape, row, self._snapshot)

    def assume(self, shape: Shape, row: int) -> None:
        """A tentative pod is about to be counted; the snapshot tells."""
        for plugin in self._plugins_of(shape):
            plugin.assume(shape, row, self._snapshot)

    def forget(self, shape: Shape, row: int) -> None:
        """A tentative pod is counted no longer; the snapshot tells."""
        for plugin in self._plugins_of(shape):
            plugin.forget(shape, row, self._snapshot)

    def _plugins_of(self, shape: Shape) -> Sequence[Plugin]:
        profile = self._profiles.get(shape.profile)
        return () if profile is None else profile.filters

    def _place_among(
        self, compiled: CompiledShape, count: int, *, nominated: int | None, ranking: Ranking
    ) -> Placement:
        """The search is narrowed to named nodes: only those rows are looked at, one pod at a
        time."""
        placement = Placement()
        named = compiled.named
        rows = [] if named is None else named.rows(self._snapshot)
        for _ in range(count):
            if nominated is not None:
                best: int | None = nominated
                nominated = None
            elif named is None:
                rest = self.place_rest(compiled, count - len(placement.rows), ranking=ranking)
                placement.rows += rest
                break
            else:
                best = best_of(compiled, rows, snapshot=self._snapshot, ranking=ranking)
            if best is None:
                break
            self._snapshot.add_pod(compiled.shape, best)
            placement.rows.append(best)
        placement.spares = [() for _ in placement.rows]
        return placement

    def place_chosen(
        self, shape: Shape, rows: Sequence[int], *, bonus: Mapping[int, int], seed: int
    ) -> int | None:
        """Place one pod on the best of the rows that extenders left, counting it; None: none fits
        any more. ``bonus`` is what they add to the totals of rows."""
        compiled = self._compiled(shape)
        if compiled.prefilter() is not None or refused_by_quota(shape, self._snapshot):
            return None
        ranking = Ranking(self._snapshot, seed=seed, own=self._own, avoid=())
        best = best_of(compiled, rows, snapshot=self._snapshot, ranking=ranking, bonus=bonus)
        if best is not None:
            self._snapshot.add_pod(shape, best)
        return best

    def place_rest(self, compiled: CompiledShape, count: int, *, ranking: Ranking) -> list[int]:
        """The pods of a batch after the one that took its nominated node."""
        compiled.refresh(self._counters)
        add = self._snapshot.add_pod
        return place_batch(
            compiled,
            count,
            spares=0,
            ranking=ranking,
            counters=self._counters,
            add=lambda row: add(compiled.shape, row),
        )[0]

    def _nominated(self, compiled: CompiledShape) -> int | None:
        """The nominated node if it passes the filters: upstream takes it without looking at
        others."""
        name = compiled.shape.nominated_node
        row = self._snapshot.row_of_name(name) if name else None
        if row is None or self.check_one(compiled.shape, row) is not Cause.NONE:
            return None
        return row

    def _spread(self, rows: list[int], others: list[int], spares: int) -> list[tuple[int, ...]]:
        """Deal the rows that were not used out as spares, a different few for each pod."""
        if self._own_partitions and others:
            own, partitions = self._own_partitions, self._snapshot.partition.data
            others.sort(key=lambda row: partitions[row] not in own)
        many = len(others)
        take = min(spares, many)
        if not take:
            return [()] * len(rows)
        ring = others + others[:take]
        starts = (i * take % many for i in range(len(rows)))
        return [tuple(ring[start : start + take]) for start in starts]

    def filter(self, shape: Shape) -> Bools:
        """bool[rows]: where the shape fits now, by the vector form of the filters."""
        compiled = self._compiled(shape)
        view = View(self._snapshot)
        refused = refused_by_quota(shape, self._snapshot)
        if refused or compiled.prefilter() is not None or compiled.fails():
            return np.zeros(view.size, dtype=np.bool_)
        mask = view.of(self._snapshot.live) & ~view.of(self._snapshot.frozen)
        for each in compiled.filters:
            passes = each.passes(view)
            if passes is not None:
                mask &= passes
        if self._snapshot.nominations:
            mask = leave_claimed(compiled.filters, shape, mask, view=view, snapshot=self._snapshot)
        return mask

    def possible(self, shape: Shape) -> Bools:
        """bool[rows]: where the shape may go as far as the nodes' definitions say, whatever runs
        there."""
        static = self._compiled(shape.spelled_out).static
        static.refresh()
        return static.mask

    def check_one(self, shape: Shape, row: int) -> Cause:
        """Why the shape does not fit a row now; NONE: it fits.

        Raises:
            UnknownProfileError: there is no profile for the shape's schedulerName.
        """
        snapshot = self._snapshot
        if not 0 <= row < snapshot.rows or not snapshot.live.item(row):
            return Cause.NODE_GONE
        if snapshot.frozen.item(row):
            return Cause.FROZEN
        if snapshot.quota.on and snapshot.quota.refusal(shape):
            return Cause.QUOTA
        compiled = self._shapes.get((False, shape.digest))
        if compiled is None or compiled.outdated():
            compiled = self._compiled(shape)
        if compiled.prefilters and compiled.prefilter() is not None:
            if shape.device_claims:
                return Cause.DEVICES
            return Cause.VOLUMES if shape.claims else Cause.NODE_CHANGED
        for each in compiled.filters:
            if not each.passes_row(row):
                return each.cause
        if snapshot.nominations:
            rejecting = compiled.claimed(row)
            if rejecting is not None:
                return rejecting.cause
        return Cause.NONE

    def diagnose(self, shape: Shape) -> Diagnosis:
        """Why the shape fits nowhere, in upstream's words."""
        compiled, snapshot = self._compiled(shape), self._snapshot
        return with_quota_diagnosis(shape, snapshot, lambda: diagnose(compiled, snapshot))

    def post_filter(
        self,
        shape: Shape,
        *,
        seed: int,
        pod: str = "",
        by_name: bool = False,
        refused: Refused | None = None,
    ) -> PostFilterResult:
        """What can be done for a shape that fits nowhere: whom to preempt, or why not.

        Of nodes that are equal under all criteria the seed picks one, own partitions first; with
        ``by_name`` it is the smallest name, and all candidates are listed. ``pod``: the uid of the
        pod that it is asked for. ``refused``: where it fits but for extenders.
        """
        compiled = self._compiled(shape)
        snapshot = self._snapshot
        if by_name:
            tie: Tie = lambda row: snapshot.name[row]  # noqa: E731
            result = post_filter(
                compiled, self._preemption, tie=tie, seed=0, pod=pod, refused=refused
            )
            return with_dry_run(result, compiled, self._preemption)
        tie = self._tie(seed)
        return post_filter(compiled, self._preemption, tie=tie, seed=seed, pod=pod, refused=refused)

    def preempt_among(
        self, shape: Shape, chosen: Mapping[int, Collection[str]], *, seed: int
    ) -> PostFilterResult:
        """Whom to preempt for a shape that fits nowhere, among the candidates that extenders left:
        row → uids of the victims that they want."""
        compiled = self._compiled(shape)
        return preempt_among(compiled, self._preemption, chosen, tie=self._tie(seed))

    def _tie(self, seed: int) -> Tie:
        """The order of equal rows: own partitions first, then by the seed."""
        ranking = Ranking(self._snapshot, seed=seed, own=self._own, avoid=())
        return lambda row: -int(ranking.low(np.array([row], dtype=np.int64))[0])

    def evaluate(self, shape: Shape) -> Evaluation:
        """Status and scores of every node, plugin by plugin; those of a pod that only one node may
        take too, which nothing else asks for."""
        return evaluate(self._compiled(shape.spelled_out), self._snapshot)

    def totals(self, shape: Shape) -> list[int]:
        """The kept total of every row (-1: does not fit), refreshed; what :meth:`place` chooses
        by (where more than one node may take the pod)."""
        compiled = self._compiled(shape.spelled_out)
        if compiled.prefilter() is not None:
            return [-1] * self._snapshot.rows
        compiled.refresh(self._counters)
        self._account(compiled)
        totals: list[int] = compiled.total.tolist()
        return totals

    def pre_enqueue(self, shape: Shape) -> Status | None:
        """The first plugin that holds the pod back before it is queued, in the profile's order."""
        profile = self._profiles.get(shape.profile)
        for plugin in () if profile is None else profile.pre_enqueues:
            status = plugin.pre_enqueue(shape, self._snapshot)
            if status is not None:
                return status
        return None

    def refusal(self, shape: Shape) -> str:
        """'' or the sentence that names a hard constraint on the shape that is not built."""
        return refusal_of(shape, self._profiles.get(shape.profile))

    def statistics(self) -> dict[str, int]:
        """Counts since the start, and what is kept now."""
        counters = self._counters
        return {
            "hits": counters.hits,
            "builds": counters.builds,
            "rows_refreshed": counters.rows_refreshed,
            "renormalised": counters.renormalised,
            "evictions": counters.evictions,
            "shapes": len(self._shapes),
            "static_parts": len(self._static),
            "cached_bytes": self._bytes + sum(part.nbytes for part in self._static.values()),
        }

    def _compiled(self, shape: Shape) -> CompiledShape:
        """The compiled form, made if need be; moves it to the young end of the LRU."""
        profile = self._profiles.get(shape.profile)
        if profile is None:
            raise UnknownProfileError(f"there is no profile for schedulerName {shape.profile}")
        if shape.only_node or shape.claims or shape.device_claims:
            kept = kept_as(shape, profile, self._snapshot)
        else:
            kept = Kept((False, shape.digest), shape)
        compiled = self._shapes.pop(kept.key, None)
        if compiled is None or compiled.outdated():
            compiled = CompiledShape(kept.base, self._parts(kept.base, profile))
            compiled.key = kept.key
        compiled.bind(shape, narrowed=kept.narrowed, lent=kept.lent)
        self._shapes[kept.key] = compiled
        if kept.key not in self._sizes:
            self._account(compiled)
        return compiled

    def _parts(self, shape: Shape, profile: Profile) -> Parts:
        """Its filters and scorers, after the pattern of a shape that differs in amounts only."""
        pattern = pattern_of(shape)
        known = self._patterns.pop(pattern, None)
        if known is None or known.made_from.outdated():
            static = self._static_part(shape)
            known = Parts(shape, profile=profile, snapshot=self._snapshot, static=static)
            if not known.a_pattern:
                return known
            if len(self._patterns) >= _PATTERNS:
                del self._patterns[next(iter(self._patterns))]
        self._patterns[pattern] = known
        return known.resized(shape)

    def _static_part(self, shape: Shape) -> StaticPart:
        key = static_key(shape)
        part = self._static.pop(key, None)
        if part is None:
            if len(self._static) >= _STATIC_PARTS:
                del self._static[next(iter(self._static))]
            profile = self._profiles.get(shape.profile)
            assert profile is not None
            part = StaticPart(shape, profile=profile, snapshot=self._snapshot)
        self._static[key] = part
        return part

    def _account(self, compiled: CompiledShape) -> None:
        """Note what a shape takes now, and drop the oldest until all fit the bound."""
        key, size = compiled.key, compiled.nbytes
        self._bytes += size - self._sizes.get(key, 0)
        self._sizes[key] = size
        while self._bytes > self._cache_bytes and len(self._shapes) > 1:
            oldest = next(iter(self._shapes))
            if oldest == key:
                break
            del self._shapes[oldest]
            self._bytes -= self._sizes.pop(oldest)
            self._counters.evictions += 1
