"""What the ledger ought to say of reservations, and what pods take of a node's account."""

from __future__ import annotations

from binder.bindings import Binding, Stage
from binder.proposals import lines_of
from stretto.ledger.types import Charge, EntryState, LedgerEntry
from stretto.model.shape import Shape


def add_lines(sums: dict[str, int], shape: Shape, sign: int) -> None:
    """sums += sign · what a pod of the shape takes."""
    for name, amount in lines_of(shape):
        sums[name] = sums.get(name, 0) + sign * amount


def entry_for(binding: Binding, *, epoch: int, charges: tuple[Charge, ...] = ()) -> LedgerEntry:
    """A reservation as the ledger ought to have it: not BOUND while its bind may be in flight."""
    reservation = binding.reservation
    state = EntryState.BOUND if binding.stage is Stage.BOUND else EntryState.RESERVED
    return LedgerEntry(
        binding.uid, reservation.node_uid, reservation.unit_id, reservation.attempt, epoch,
        binding.resource_version, state, reservation.lines, charges,
    )  # fmt: skip
