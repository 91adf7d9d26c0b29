"""The Binder's brain as one object: events of watches, answers and streams go in; effects come out.

The shells call a method for each thing that happened and then carry out what
:meth:`Machine.effects` collects: steps of the log to publish, ledger operations, outcomes, events.
Nothing here waits or reads a clock.

Order that the shells keep, and why: ledger operations and node accounts that are pending are
written before the next reservation is asked for (memory never promises room that the ledger does
not know to be free); a commit's delta is published before its verdict and before its bind (every
shard sees a reservation before any bind's reply, design §5.3).
"""

from __future__ import annotations

from collections.abc import Sequence

from binder.bindings import Binding, Stage
from binder.budgets import Budgets
from binder.cluster import Cluster
from binder.commit import Committer
from binder.effects import Effects
from binder.endings import Endings
from binder.ledger_book import LedgerBook
from binder.outcomes import OutcomeLog
from binder.placed import PodFacts
from binder.prebind import Prebinds, special_key
from binder.preemptions import Preemptions
from binder.proposals import Batch, Incoming, Reservation, Settled
from stretto.ledger.types import (
    LedgerOp,
    ReserveReply,
)
from stretto.model.devices import ClassRow
from stretto.model.shape import Shape
from stretto.model.unit import (
    Cause,
    Verdict,
    VerdictKind,
)
from stretto.placement.devices.plan import NO_DEVICES
from stretto.placement.devices.world import world_of
from stretto.placement.kernel import Kernel
from stretto.placement.profiles import Profiles
from stretto.placement.volume_plan import NO_VOLUMES, reaches
from stretto.snapshot.delta import NodeRow
from stretto.snapshot.volume_rows import VolumeRow


class Machine:
    """See the module docstring."""

    def __init__(self, *, epoch: int, profiles: Profiles) -> None:
        self.cluster = Cluster(epoch=epoch)
        self.cluster.read_labels(profiles.label_keys)
        self.kernel = Kernel(self.cluster.snapshot, profiles)
        self.bindings: dict[str, Binding] = {}
        """Every pod that has a ledger entry, by uid."""
        self.open: dict[str, Binding] = {}
        """Those of them whose fate is not known yet."""
        self.prebinds = Prebinds(self.cluster.storage, self.cluster.devices, reaches=self._reaches)
        """Pods whose claims are being bound."""
        self.budgets = Budgets(self.cluster)
        self.preemptions = Preemptions(self.cluster, self.kernel, self.budgets)
        self.committer = Committer(self.cluster, self.kernel, self.bindings, self.preemptions)
        self.outcomes = OutcomeLog()
        self.book = LedgerBook(
            self.cluster, profiles, bindings=self.bindings, charges=self.committer.charges
        )
        self.endings = Endings(
            self.cluster, self.book, bindings=self.bindings, unsettled=self.open,
            charges=self.committer.charges, prebinds=self.prebinds,
            preemptions=self.preemptions, outcomes=self.outcomes,
        )  # fmt: skip
        self._told = 0

    def begin(self, epoch: int) -> None:
        """A standby becomes the Binder of an epoch; what it has seen stays."""
        self.cluster.begin(epoch)

    # ------------------------------------------------------------------------------------- watches
    def node_seen(self, row: NodeRow) -> list[Binding]:
        """A node was listed, added or changed; reservations to resolve on one it replaces."""
        former = self.cluster.node_uid_of(row.name)
        replaced = self.node_gone(former) if former and former != row.uid else []
        assert self.cluster.node_uid_of(row.name) in ("", row.uid), "two nodes of one name"
        arrived = self.cluster.node_seen(row)
        if arrived is not None:
            self.book.rooms.node_seen(row.uid)
            for uid in arrived:
                self._arrived(uid, row.uid)
            self.book.freezes.look_at(row.uid)
        return replaced

    def _arrived(self, uid: str, node_uid: str) -> None:
        """A bound pod that had waited for a node of its name is on it now."""
        binding = self.bindings.get(uid)
        assert self.cluster.pods[uid].node_uid == node_uid, f"{uid} arrived elsewhere"
        if binding is None:
            self.book.rooms.count(self.cluster.pods[uid], 1)
        else:
            binding.reservation = binding.reservation._replace(node_uid=node_uid)
            self.book.adopt(binding)

    def node_gone(self, uid: str) -> list[Binding]:
        """A node was deleted; reservations on it whose bind has not been sent, to be resolved.

        Pods that are bound to its name wait for a node of that name; what may yet be bound to it
        is decided by the API server's answer.
        """
        entry = self.cluster.nodes.get(uid)
        if entry is None:
            return []
        orphans = []
        for pod, shape in self.cluster.node_gone(uid).items():
            binding = self.bindings.get(pod)
            if binding is None or binding.stage is Stage.BOUND:
                self.cluster.bound_to(pod, shape=shape, node_name=entry.row.name)
            elif binding.stage is Stage.RESERVED:
                orphans.append(binding)
            elif binding.stage is Stage.PREBIND:
                self.prebinds.node_gone(pod)
        self.book.rooms.node_gone(uid)
        return orphans

    def needs_shape(self, uid: str, node_name: str) -> bool:
        """Whether a pod seen bound must be read whole: not for the first sight of our own bind."""
        binding = self.bindings.get(uid)
        return binding is None or binding.over or binding.reservation.node_name != node_name

    def pod_seen(
        self, uid: str, *, node_name: str, shape: Shape | None, facts: PodFacts | None = None
    ) -> None:
        """The watch shows a live pod on a node; ``shape`` where :meth:`needs_shape` says so."""
        if facts is not None:
            self.cluster.describe(uid, facts)
        binding = self.bindings.get(uid)
        if binding is not None and not binding.over:
            binding.seen_bound(node_name)
            self.endings.stepped(binding)
            if binding.stage is Stage.BOUND:
                return
            binding = None
        assert shape is not None, "a pod that is not our own bind must be read whole"
        if binding is not None:
            self._resized(binding, shape)
        else:
            self._foreign_seen(uid, node_name=node_name, shape=shape)

    def _resized(self, binding: Binding, shape: Shape) -> None:
        """One of ours that is bound has changed; most changes are of its status only."""
        old = binding.reservation
        assert binding.stage is Stage.BOUND, "one that is not bound was resized"
        if shape.digest == old.shape.digest:
            return
        binding.reservation = new = old._replace(shape=shape)
        self.cluster.bound_to(binding.uid, shape=shape, node_name=old.node_name)
        if new.lines != old.lines:
            self.book.adopt(binding)

    def _foreign_seen(self, uid: str, *, node_name: str, shape: Shape) -> None:
        before = self.cluster.pods.get(uid)
        if not self.cluster.bound_to(uid, shape=shape, node_name=node_name):
            return
        if before is not None:
            self.book.rooms.count(before, -1)
        after = self.cluster.pods.get(uid)
        if after is not None:
            self.book.rooms.count(after, 1)

    def pod_gone(self, uid: str) -> None:
        """The watch shows that a bound pod was deleted, or has ended."""
        binding = self.bindings.get(uid)
        if binding is not None:
            binding.seen_gone()
            self.endings.stepped(binding)
            return
        row = self.cluster.pods.get(uid)
        self.cluster.remove(uid)
        self.preemptions.pod_gone(uid)
        if row is not None:
            self.book.rooms.count(row, -1)

    # ------------------------------------------------------------------------------------- commits
    def take(self, proposals: Sequence[Incoming]) -> Batch:
        """Check a batch against memory."""
        return self.committer.take(proposals)

    def settle(self, batch: Batch, replies: Sequence[ReserveReply]) -> Settled:
        """Apply the ledger's replies to a batch."""
        settled = self.committer.settle(batch, replies)
        for reservation in settled.reservations:
            uid = reservation.member.uid
            assert uid not in self.bindings, f"{uid} is reserved twice"
            self.bindings[uid] = self.open[uid] = Binding(reservation)
            if reservation.volumes != NO_VOLUMES:
                self.cluster.storage.hold(uid, reservation.volumes, node=reservation.node_name)
            if reservation.devices != NO_DEVICES:
                special = special_key(reservation)
                self.cluster.devices.hold(uid, reservation.devices, special=special)
        self._prebind(settled.reservations)
        self.book.ops += [LedgerOp.free(uid) for uid in settled.free]
        for account in settled.drift:
            self.book.drifts(account)
        for outcome in settled.outcomes:
            self.outcomes.append(outcome)
        return settled

    def _prebind(self, reservations: Sequence[Reservation]) -> None:
        """Units with a member whose claims have to be bound: none of them is bound before."""
        units = {r.unit_id for r in reservations if r.prebinds}
        for reservation in reservations if units else ():
            if reservation.unit_id in units:
                self.bindings[reservation.member.uid].prebind()

    def device_classes(self) -> list[ClassRow]:
        """The device classes there are."""
        return list(world_of(self.cluster.snapshot).classes.values())

    def _reaches(self, volume: VolumeRow, node_name: str) -> bool:
        row = self.cluster.snapshot.row_of_name(node_name)
        return row is None or reaches(volume, row, self.cluster.snapshot)

    def abandon(self, batch: Batch) -> Settled:
        """The ledger gave no answer: all of the batch goes back to the queue."""
        self.committer.give_up(batch)
        settled = Settled(verdicts=list(batch.verdicts))
        for tentative in batch.tentative:
            unit = tentative.incoming.proposal.unit
            cause, sequence = Cause.STALE, self.cluster.next_sequence
            kind = VerdictKind.CONFLICT
            verdict = Verdict(unit.unit_id, unit.attempt, kind, cause, sequence)
            settled.verdicts.append((tentative.incoming.stream, verdict))
        for _, verdict in settled.verdicts:
            self.committer.remember(verdict, settled)
        for outcome in settled.outcomes:
            self.outcomes.append(outcome)
        return settled

    # ---------------------------------------------------------------------------------- dispatcher
    def subscribed(self, dispatcher_epoch: int) -> bool:
        """A dispatcher subscribes; False if a later one has done so before."""
        if dispatcher_epoch < self.committer.dispatcher_epoch:
            return False
        self.committer.dispatcher_epoch = dispatcher_epoch
        return True

    def acknowledge(self, index: int) -> None:
        """The dispatcher knows all outcomes up to ``index``."""
        for outcome in self.outcomes.acknowledge(index):
            if self.committer.forget(outcome.unit_id, outcome.attempt):
                self.book.ops.append(LedgerOp.forget_unit(outcome.unit_id))

    def withdraw(self, uid: str) -> Binding | None:
        """The dispatcher says that a pod is gone or no longer ours; its binding, if any."""
        self.committer.withdraw(uid)
        self.preemptions.withdraw(uid)
        binding = self.bindings.get(uid)
        if binding is not None and binding.stage is Stage.PREBIND:
            self.prebinds.withdraw(uid)  # its read comes when what it wrote is taken back
            return None
        return None if binding is None or binding.over else binding

    def owned(self) -> list[str]:
        """Pods whose fate is with us and not yet told, those that still preempt others too."""
        return [*self.open, *self.preemptions.claims]

    # -------------------------------------------------------------------------------------- effects
    def effects(self) -> Effects:
        """What is to be done now."""
        for outcome in self.preemptions.take_outcomes():
            self.outcomes.append(outcome)
        deltas = self.cluster.take_closed()
        assert not self.cluster.changed, "a change is in no step of the log"
        scheduled, ended = self.endings.take()
        assert self.outcomes.last >= self._told, "outcomes were taken back"
        grown = self.outcomes.last > self._told
        self._told = self.outcomes.last
        return Effects(deltas=deltas, outcomes=grown, scheduled=scheduled, ended=ended)

    def validate(self) -> None:
        """Assert that picture, bindings and foreign sums agree; for tests and audits."""
        self.cluster.validate()
        self.cluster.storage.validate(self.open)
        self.cluster.devices.validate(self.open)
        self.preemptions.validate()
        self.committer.stakes.validate()
        self.committer.charges.validate(self.open)
        for uid in self.cluster.facts:
            assert self.cluster.knows(uid) or uid in self.bindings, f"{uid} is not forgotten"
        assert self.open.keys() == {u for u, b in self.bindings.items() if not b.over}
        for uid, binding in self.bindings.items():
            row = self.cluster.pods.get(uid)
            node_uid = binding.reservation.node_uid
            assert binding.stage is not Stage.OVER, f"{uid} is over and still held"
            if node_uid in self.cluster.nodes:
                assert row is not None, f"{uid} holds a reservation and has no row"
                assert row.node_uid == node_uid
        self.book.rooms.validate(self.bindings)
