"""What becomes of reservations: where a bind or its failure is concluded, and told.

Whoever puts an answer or a sight of the watch into a :class:`Binding` calls :meth:`Endings.stepped`
after it. The pod's row, its ledger entry and what it holds beside room change there and nowhere
else, so that they end together.
"""

from __future__ import annotations

from binder.bindings import Binding, End, Stage
from binder.charges import Charges
from binder.cluster import Cluster
from binder.effects import Scheduled
from binder.ledger_book import LedgerBook
from binder.outcomes import OutcomeLog
from binder.prebind import Prebinds
from binder.preemptions import Preemptions
from stretto.ledger.types import LedgerOp
from stretto.model.unit import Outcome, OutcomeKind


class Endings:
    """See the module docstring. ``bindings`` are the pods that have a ledger entry, ``unsettled``
    those of them whose fate is not known yet; both by uid."""

    def __init__(
        self,
        cluster: Cluster,
        book: LedgerBook,
        *,
        bindings: dict[str, Binding],
        unsettled: dict[str, Binding],
        charges: Charges,
        prebinds: Prebinds,
        preemptions: Preemptions,
        outcomes: OutcomeLog,
    ) -> None:
        self._cluster = cluster
        self._book = book
        self._bindings = bindings
        self._open = unsettled
        self._charges = charges
        self._prebinds = prebinds
        self._preemptions = preemptions
        self._outcomes = outcomes
        self._confirming: set[str] = set()
        self._scheduled: list[Scheduled] = []
        self._ended: list[tuple[Binding, Stage]] = []

    def stepped(self, binding: Binding) -> None:
        """An answer went into a binding: draw the conclusions of where it is now."""
        if binding.over:
            self._conclude(binding)
        else:
            uid = binding.uid
            assert self._open.get(uid) is binding, f"{uid} is open and nobody's"
        end = binding.end
        if end is not None and not end.told:
            end.told = True
            self._tell(binding, end)

    def _conclude(self, binding: Binding) -> None:
        """It is bound, or its reservation is over."""
        uid, bound = binding.uid, binding.stage is Stage.BOUND
        settled = self._open.pop(uid, None) is not None
        assert binding.end is not None or not settled, f"{uid} ended without an outcome"
        if settled and bound:
            self._bound(binding)
            self._ended.append((binding, Stage.BOUND))
        self._cluster.storage.release(uid)
        self._cluster.devices.release(uid)
        if self._charges.release(uid) and bound:
            self._book.adopt(binding)  # it is on its node; the rest is the API's business now
        self._prebinds.withdraw(uid)
        if not bound and self._bindings.get(uid) is binding:
            del self._bindings[uid]
            self._ended.append((binding, Stage.OVER))
            self._book.ops.append(LedgerOp.free(uid))
            self._cluster.remove(uid)
            self._preemptions.pod_gone(uid)
        assert uid not in self._open, f"{uid} is over and open"

    def _bound(self, binding: Binding) -> None:
        """It is known to be on its node; the node may have left or been replaced meanwhile."""
        old = binding.reservation
        assert self._bindings.get(binding.uid) is binding, f"{binding.uid} is bound and not held"
        row = self._cluster.pods.get(binding.uid)
        # Selectors may read more labels by now than when it was reserved.
        shape = old.shape if row is None else self._cluster.shape(row.shape_id)
        self._cluster.bound_to(binding.uid, shape=shape, node_name=old.node_name)
        node_uid = self._cluster.node_uid_of(old.node_name)
        if node_uid in ("", old.node_uid):
            self._book.ops.append(LedgerOp.bound(binding.uid))
        else:
            binding.reservation = old._replace(node_uid=node_uid)
            self._book.adopt(binding)

    def _tell(self, binding: Binding, end: End) -> None:
        """The outcome of a unit's member, and the event of a bind."""
        reservation, member = binding.reservation, binding.reservation.member
        bound = end.kind is OutcomeKind.BOUND
        assert bound or binding.stage is Stage.OVER, "told as lost while it is held"
        self._outcomes.append(
            Outcome(
                reservation.unit_id, reservation.attempt, end.kind, end.cause,
                self._cluster.next_sequence, node=reservation.node_name if bound else "",
                shard=reservation.shard, detail=end.detail, members=(binding.uid,),
                resource_version=end.resource_version,
            )
        )  # fmt: skip
        if bound:
            self._scheduled.append(
                Scheduled(
                    member.namespace, member.name, binding.uid, reservation.node_name,
                    reservation.shape.profile,
                )
            )  # fmt: skip

    def doubtful(self) -> list[Binding]:
        """Binds that were answered 201 before the last call of this and that no watch has shown
        since: the pod may have been deleted in a gap of the watch, so a read is due."""
        confirming = [uid for uid, b in self._open.items() if b.stage is Stage.CONFIRMING]
        before, self._confirming = self._confirming, set(confirming)
        return [self._open[uid] for uid in confirming if uid in before]

    def take(self) -> tuple[list[Scheduled], list[tuple[Binding, Stage]]]:
        """(events of binds, bindings that have ended, and how) since the last call."""
        scheduled, self._scheduled = self._scheduled, []
        ended, self._ended = self._ended, []
        return scheduled, ended
