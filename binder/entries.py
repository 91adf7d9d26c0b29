"""What the ledger ought to say of reservations, and what pods take of a node's account."""

from __future__ import annotations

from binder.bindings import Binding, Stage
from binder.commit import lines_of
from stretto.ledger.types import EntryState, LedgerEntry, LedgerMember, LedgerOp
from stretto.model.shape import Shape


def add_lines(sums: dict[str, int], shape: Shape, sign: int) -> None:
    """sums += sign · what a pod of the shape takes."""
    for name, amount in lines_of(shape):
        sums[name] = sums.get(name, 0) + sign * amount


def entry_for(binding: Binding, *, epoch: int) -> LedgerEntry:
    """A reservation as the ledger ought to have it: not BOUND while its bind may be in flight."""
    reservation = binding.reservation
    state = EntryState.BOUND if binding.stage is Stage.BOUND else EntryState.RESERVED
    return LedgerEntry(
        binding.uid, reservation.node_uid, reservation.unit_id, reservation.attempt, epoch,
        binding.resource_version, state, reservation.lines,
    )  # fmt: skip


def adoption(binding: Binding) -> LedgerOp:
    """The ledger operation that makes the entry say what is true now."""
    return adopting(entry_for(binding, epoch=0))


def adopting(entry: LedgerEntry) -> LedgerOp:
    """The ledger operation that makes an entry be so."""
    member = LedgerMember(entry.pod_uid, entry.node_uid, entry.resource_version, entry.lines)
    return LedgerOp.adopt(member, unit_id=entry.unit_id, attempt=entry.attempt, state=entry.state)
