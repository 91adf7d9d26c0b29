"""The kernel's questions about who has to leave, for one pod or for all members of a unit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence

from stretto.model.shape import Shape
from stretto.placement.compiled import CompiledShape
from stretto.placement.framework import Status
from stretto.placement.gang_preemption import GangPreemption
from stretto.placement.lots import Lot, pods_of
from stretto.placement.nominated import claims_on, rejecting, that_look
from stretto.placement.preemption import NAME as PREEMPTION
from stretto.placement.preemption import Preemption
from stretto.placement.quota_filter import with_quota
from stretto.placement.seats import Seats
from stretto.placement.victims import Victims, needed_of, violations
from stretto.snapshot.columns import Snapshot


class Departures:
    """A part of :class:`stretto.placement.kernel.Kernel`, which owns what it works on."""

    _snapshot: Snapshot
    _preemption: Preemption

    @abstractmethod
    def _compiled(self, shape: Shape) -> CompiledShape: ...

    def victims_on(self, shape: Shape, row: int) -> Victims | Status:
        """Who would have to leave one row for a shape, as things are now."""
        return self._preemption.victims_on(self._compiled(shape), row)

    def needed_of(
        self,
        shapes: Sequence[Shape],
        rows: Sequence[int],
        uids: Mapping[str, int],
        *,
        leaving: Collection[str],
    ) -> list[Lot] | None:
        """Who of some victims still has to leave; see :func:`victims.needed_of`."""
        ground = self._preemption.ground()
        return needed_of(self.seats(shapes, rows), uids, leaving=leaving, ground=ground)

    def violating(self, lots: Sequence[Lot]) -> frozenset[str]:
        """Uids of those pods that would violate a disruption budget if all of the lots left."""
        return frozenset(violations(pods_of(lots), self._preemption.budgets()))

    def strict_budgets(self, shape: Shape) -> bool:
        """Whether preemption for a shape may not violate disruption budgets."""
        return self._compiled(shape).profile.preemption.strict_budgets

    def seats(self, shapes: Sequence[Shape], rows: Sequence[int]) -> Seats:
        """Members of a unit on rows where they are not counted."""
        local = all(self._compiled(shape).local for shape in set(shapes))
        return Seats(shapes, rows, snapshot=self._snapshot, admits=self._admits, local=local)

    def _admits(self, shape: Shape, row: int) -> bool:
        claims = claims_on(shape, row, snapshot=self._snapshot)
        found = with_quota(self._compiled(shape).filters, shape, self._snapshot)
        filters = that_look(found) if claims else found
        return rejecting(filters, row, claims, snapshot=self._snapshot) is None

    def gang_preemption(self, shapes: Sequence[Shape]) -> GangPreemption | None:
        """The question whom a gang may preempt; None: its profile does not preempt."""
        profile = self._compiled(shapes[0]).profile
        plugins = profile.points.get("postFilter", ())
        if PREEMPTION not in plugins:
            return None
        ground = self._preemption.ground(strict=profile.preemption.strict_budgets)
        devices = "DynamicResources" in plugins
        return GangPreemption(self._preemption, shapes, ground=ground, devices=devices)
