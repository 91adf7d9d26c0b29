"""NodeResourcesFit: does the pod still fit, and how full would the node be."""

from __future__ import annotations

import msgspec
import numpy as np

from stretto.model.devices import CLASS
from stretto.model.shape import Shape
from stretto.model.unit import Cause
from stretto.placement.devices.world import world_of
from stretto.placement.framework import Bools, Filter, Plugin, Rejection, Scorer, View
from stretto.placement.kept_rows import KeptRows
from stretto.placement.resource_names import BASIC, is_extended, is_scalar
from stretto.placement.resource_scoring import FitScorer, Strategy, WeightedResource, scored
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.resources import PODS, ResourceColumn

NAME = "NodeResourcesFit"
_LEAST = Strategy()


class FitArgs(msgspec.Struct, frozen=True):
    """NodeResourcesFitArgs, defaults applied."""

    strategy: Strategy = _LEAST
    resources: tuple[WeightedResource, ...] = (
        WeightedResource("cpu", 1),
        WeightedResource("memory", 1),
    )
    ignored: frozenset[str] = frozenset()
    """Extended resources that the filter skips."""
    ignored_groups: frozenset[str] = frozenset()
    """Prefixes (the part before the slash) of extended resources that the filter skips."""

    def ignores(self, name: str) -> bool:
        """Whether the filter skips a resource."""
        if not is_extended(name):
            return False
        return name in self.ignored or name.partition("/")[0] in self.ignored_groups


class FreeSlots(KeptRows[np.bool_]):
    """Whether a row takes one more pod by its number of pods."""

    @classmethod
    def on(cls, snapshot: Snapshot) -> FreeSlots:
        """The one of a snapshot."""
        key = ("free slots",)
        found = snapshot.derived.get(key)
        if found is None:
            found = snapshot.derived[key] = cls(snapshot)
        assert isinstance(found, cls)
        return found

    def _over(self, view: View) -> Bools:
        pods = self._snapshot.resources.column(PODS)
        free: Bools = view.of(pods.used) < view.of(pods.alloc)
        return free

    def _of_row(self, row: int) -> bool:
        pods = self._snapshot.resources.column(PODS)
        return pods.used_cells[row] < pods.alloc_cells[row]


class FitFilter(Filter):
    """Free pod slots, then every requested resource; all reasons of a node are kept."""

    name = NAME
    cause = Cause.CAPACITY
    unresolvable = False

    def __init__(
        self, wants: list[tuple[str, int]], snapshot: Snapshot, *, backed: frozenset[str]
    ) -> None:
        self._backed = backed
        """Resources that devices stand in for where the node has none itself."""
        self._snapshot = snapshot
        self._pods = snapshot.resources.column(PODS)
        self._names = wants
        self._columns: list[tuple[ResourceColumn, int]] = []
        self._missing = True

    def resized(self, shape: Shape) -> FitFilter:
        """With the amounts of a shape that requests the same resources."""
        amounts = dict(shape.requests)
        wants = [(name, amounts[name]) for name, _ in self._names]
        return FitFilter(wants, self._snapshot, backed=self._backed)

    def wants(self) -> list[tuple[ResourceColumn, int]] | None:
        """Columns with amounts; None while no node and no pod ever named one of the resources."""
        if self._missing:
            found = [(name, self._snapshot.resources.get(name), n) for name, n in self._names]
            self._columns = [(column, n) for _, column, n in found if column is not None]
            self._missing = any(
                column is None and name not in self._backed for name, column, _ in found
            )
        return None if self._missing else self._columns

    def passes(self, view: View) -> Bools:
        """bool[view.size], in a buffer that the next call writes over."""
        wants = self.wants()
        if wants is None:
            return np.zeros(view.size, dtype=np.bool_)
        passes, enough = view.bools("fit"), view.bools("fit part")
        np.copyto(passes, FreeSlots.on(self._snapshot).of(view))
        for column, amount in wants:
            capacity = self._snapshot.capacities.of(column)
            if capacity.plain:
                # In doubles: the columns that scores divide are in the memory caches anyway.
                used = view.floats("work")
                np.add(view.of(column.used_float), float(amount), out=used)
                np.less_equal(used, view.of(capacity.floats), out=enough)
            else:
                free = view.ints("fit")
                np.subtract(view.of(column.alloc), view.of(column.used), out=free)
                np.greater_equal(free, amount, out=enough)
                if column.name in self._backed:
                    enough |= view.of(column.alloc) == 0
            passes &= enough
        return passes

    def passes_row(self, row: int) -> bool:
        """The same for one row."""
        wants = self.wants()
        if wants is None or self._pods.used_cells[row] >= self._pods.alloc_cells[row]:
            return False
        for column, amount in wants:
            alloc = column.alloc_cells[row]
            if amount > alloc - column.used_cells[row] and (
                alloc or column.name not in self._backed
            ):
                return False
        return True

    def rejections(self, view: View) -> list[Rejection]:
        """In upstream's order; more than the node has at all is unresolvable, and makes the node
        so."""
        full = view.of(self._pods.used) >= view.of(self._pods.alloc)
        found = [Rejection("Too many pods", full, unresolvable=False)]
        everywhere = np.ones(view.size, dtype=np.bool_)
        for name, amount in self._names:
            column = self._snapshot.resources.get(name)
            if column is None and name in self._backed:
                continue
            if column is None:
                found.append(Rejection(f"Insufficient {name}", everywhere, unresolvable=True))
                continue
            alloc = view.of(column.alloc)
            short = alloc - view.of(column.used) < amount
            if name in self._backed:
                short &= alloc > 0
            found.append(Rejection(f"Insufficient {name}", short, unresolvable=alloc < amount))
        return found


def backed_names(snapshot: Snapshot, wants: list[tuple[str, int]]) -> frozenset[str]:
    """Those of the wanted resources that a device class backs (shouldDelegateResourceToDRA)."""
    if not snapshot.kind_version(CLASS) or not any("/" in name for name, _ in wants):
        return frozenset()
    return frozenset(name for name, _ in wants if name in world_of(snapshot).backed)


class NodeResourcesFit(Plugin):
    """Filter and score by requested resources."""

    name = NAME
    static = False
    kinds = frozenset({CLASS})

    def __init__(self, args: FitArgs) -> None:
        self._args = args

    def filter(self, shape: Shape, snapshot: Snapshot) -> Filter:
        """Every shape takes at least a pod slot."""
        amounts = dict(shape.requests)
        wants = [(name, amounts[name]) for name in BASIC if amounts.get(name, 0) > 0]
        for name, amount in shape.requests:
            if amount > 0 and is_scalar(name) and not self._args.ignores(name):
                wants.append((name, amount))
        return FitFilter(wants, snapshot, backed=backed_names(snapshot, wants))

    def scorer(self, shape: Shape, snapshot: Snapshot) -> Scorer:
        """Every shape, with upstream's defaults for absent cpu and memory requests."""
        items = scored(shape, snapshot, self._args.resources, nonzero=True)
        return FitScorer(items, strategy=self._args.strategy, snapshot=snapshot)
