"""A shard's part in stakes: whoever has one is decided on without it, whoever is to get one is
proposed on the nodes where it would fit if the pods there ended.

Such a proposal is one like any other: if the Binder finds room there by now, it commits. Else it
keeps the room for the unit, and the conflict says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from scheduler_shard.units import bare, seed_of
from stretto.model.shape import Shape
from stretto.model.unit import Proposal, Unit
from stretto.placement.kernel import Kernel
from stretto.placement.staking import Staking
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.stakes import stake_key


class StakeDesk:
    """Stakes on one snapshot."""

    def __init__(self, kernel: Kernel, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._staking = Staking(kernel, snapshot)

    def concerns(self, unit: Unit, shape: Shape) -> bool:
        """Whether a unit has a stake, or is to get one: it is decided by itself."""
        stakes = self._snapshot.stakes
        if unit.stake:
            return True
        return bool(stakes) and stakes.get(stake_key(unit.unit_id, shape)) is not None

    def lifted(self, unit: Unit, shape: Shape) -> contextlib.AbstractContextManager[None]:
        """The picture without what is kept for the unit itself."""
        return self._snapshot.stakes.lifted(stake_key(unit.unit_id, shape))

    def proposal(self, unit: Unit, shapes: Sequence[Shape]) -> Proposal | None:
        """For a unit that fits nowhere: where its room is to be kept; None if it is not to get a
        stake, has one, or would fit on no empty nodes either."""
        if not unit.stake:
            return None
        row = self._snapshot.stakes.get(stake_key(unit.unit_id, shapes[0]))
        if row is not None and row.seats:
            return None
        passed = () if row is None else row.passed
        rows = self._staking.choose(shapes, seed=seed_of(unit), passed=frozenset(passed))
        if not rows:
            return None
        nodes = tuple(int(self._snapshot.node_id[row]) for row in rows)
        return Proposal(bare(unit), nodes, (), self._snapshot.version.sequence)
