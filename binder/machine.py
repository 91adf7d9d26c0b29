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

from binder.auditor import Expected
from binder.bindings import Binding, End, Stage
from binder.budgets import Budgets
from binder.cluster import Cluster
from binder.commit import Committer
from binder.effects import Effects, Scheduled
from binder.entries import entry_for
from binder.freezes import Freezes
from binder.outcomes import OutcomeLog
from binder.placed import PodFacts, PodRow
from binder.prebind import Prebinds, special_key
from binder.preemptions import Preemptions
from binder.proposals import Batch, Incoming, Reservation, Settled
from binder.rooms import Rooms
from stretto.ledger.types import (
    NO_ATTEMPT,
    Account,
    EntryState,
    LedgerEntry,
    LedgerOp,
    ReserveReply,
)
from stretto.model.device_claims import met_by_devices
from stretto.model.devices import ClassRow
from stretto.model.shape import Shape
from stretto.model.unit import (
    Attempt,
    Cause,
    Member,
    Outcome,
    OutcomeKind,
    PodUid,
    UnitId,
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
        self.ops: list[LedgerOp] = []
        """Ledger operations to write before the next reservation."""
        self._freezes = Freezes(self.cluster)
        self.rooms = Rooms(self.cluster, profiles)
        """The nodes' accounts."""
        self._confirming: set[str] = set()
        self._scheduled: list[Scheduled] = []
        self._ended: list[tuple[Binding, Stage]] = []
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
            self.rooms.node_seen(row.uid)
            for uid in arrived:
                self._arrived(uid, row.uid)
            self._freezes.look_at(row.uid)
        return replaced

    def _arrived(self, uid: str, node_uid: str) -> None:
        """A bound pod that had waited for a node of its name is on it now."""
        binding = self.bindings.get(uid)
        assert self.cluster.pods[uid].node_uid == node_uid, f"{uid} arrived elsewhere"
        if binding is None:
            self.rooms.count(self.cluster.pods[uid], 1)
        else:
            binding.reservation = binding.reservation._replace(node_uid=node_uid)
            self._adopt(binding)

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
        self.rooms.node_gone(uid)
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
            self.stepped(binding)
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
            self._adopt(binding)

    def _foreign_seen(self, uid: str, *, node_name: str, shape: Shape) -> None:
        before = self.cluster.pods.get(uid)
        if not self.cluster.bound_to(uid, shape=shape, node_name=node_name):
            return
        if before is not None:
            self.rooms.count(before, -1)
        after = self.cluster.pods.get(uid)
        if after is not None:
            self.rooms.count(after, 1)

    def pod_gone(self, uid: str) -> None:
        """The watch shows that a bound pod was deleted, or has ended."""
        binding = self.bindings.get(uid)
        if binding is not None:
            binding.seen_gone()
            self.stepped(binding)
            return
        row = self.cluster.pods.get(uid)
        self.cluster.remove(uid)
        self.preemptions.pod_gone(uid)
        if row is not None:
            self.rooms.count(row, -1)

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
        self.ops += [LedgerOp.free(uid) for uid in settled.free]
        for account in settled.drift:
            self.drifts(account)
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

    # ------------------------------------------------------------------------------------ bindings
    def stepped(self, binding: Binding) -> None:
        """An answer went into a binding: draw the conclusions of where it is now."""
        if binding.over:
            self._conclude(binding)
        else:
            uid = binding.uid
            assert self.open.get(uid) is binding, f"{uid} is open and nobody's"
        end = binding.end
        if end is not None and not end.told:
            end.told = True
            self._tell(binding, end)

    def _conclude(self, binding: Binding) -> None:
        """It is bound, or its reservation is over."""
        uid, bound = binding.uid, binding.stage is Stage.BOUND
        settled = self.open.pop(uid, None) is not None
        assert binding.end is not None or not settled, f"{uid} ended without an outcome"
        if settled and bound:
            self._bound(binding)
            self._ended.append((binding, Stage.BOUND))
        self.cluster.storage.release(uid)
        self.cluster.devices.release(uid)
        if self.committer.charges.release(uid) and bound:
            self._adopt(binding)  # it is on its node; the rest is the API's business now
        self.prebinds.withdraw(uid)
        if not bound and self.bindings.get(uid) is binding:
            del self.bindings[uid]
            self._ended.append((binding, Stage.OVER))
            self.ops.append(LedgerOp.free(uid))
            self.cluster.remove(uid)
            self.preemptions.pod_gone(uid)
        assert uid not in self.open, f"{uid} is over and open"

    def _bound(self, binding: Binding) -> None:
        """It is known to be on its node; the node may have left or been replaced meanwhile."""
        old = binding.reservation
        assert self.bindings.get(binding.uid) is binding, f"{binding.uid} is bound and not held"
        row = self.cluster.pods.get(binding.uid)
        # Selectors may read more labels by now than when it was reserved.
        shape = old.shape if row is None else self.cluster.shape(row.shape_id)
        self.cluster.bound_to(binding.uid, shape=shape, node_name=old.node_name)
        node_uid = self.cluster.node_uid_of(old.node_name)
        if node_uid in ("", old.node_uid):
            self.ops.append(LedgerOp.bound(binding.uid))
        else:
            binding.reservation = old._replace(node_uid=node_uid)
            self._adopt(binding)

    def _tell(self, binding: Binding, end: End) -> None:
        """The outcome of a unit's member, and the event of a bind."""
        reservation, member = binding.reservation, binding.reservation.member
        bound = end.kind is OutcomeKind.BOUND
        assert bound or binding.stage is Stage.OVER, "told as lost while it is held"
        self.outcomes.append(
            Outcome(
                reservation.unit_id, reservation.attempt, end.kind, end.cause,
                self.cluster.next_sequence, node=reservation.node_name if bound else "",
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
        confirming = [uid for uid, b in self.open.items() if b.stage is Stage.CONFIRMING]
        before, self._confirming = self._confirming, set(confirming)
        return [self.open[uid] for uid in confirming if uid in before]

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
                self.ops.append(LedgerOp.forget_unit(outcome.unit_id))

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

    # --------------------------------------------------------------------------------------- ledger
    def accounts(self) -> tuple[list[Account], list[str]]:
        """(accounts that changed, accounts that went) since the last call."""
        nodes, nodes_gone = self.rooms.changes()
        others, others_gone = self.committer.charges.accounts.changes()
        return nodes + others, nodes_gone + others_gone

    def all_accounts(self) -> list[Account]:
        """Every account, for a ledger that is written anew; what has changed so far is in it."""
        others = self.committer.charges.accounts
        others.changes()  # told with all of them
        return [*self.rooms.every(), *others.by_uid.values()]

    def take_ops(self) -> list[LedgerOp]:
        """Ledger operations since the last call."""
        ops, self.ops = self.ops, []
        return ops

    def adopt_entry(self, entry: LedgerEntry, *, namespace: str, name: str) -> Binding | None:
        """At start: a pod seen bound where its ledger entry says; it stays an entry."""
        row = self.cluster.pods.get(entry.pod_uid)
        if row is None or row.node_uid != entry.node_uid:
            return None
        uid = PodUid(entry.pod_uid)
        member = Member(uid, namespace, name, entry.resource_version, 0)
        binding = self._held(member, row, unit_id=UnitId(entry.unit_id), attempt=entry.attempt)
        if entry.charges or sorted(entry.lines) != sorted(binding.reservation.lines):
            self._adopt(binding)
        elif entry.state is not EntryState.BOUND:
            self.ops.append(LedgerOp.bound(uid))
        return binding

    def adopt_bound(self, uid: str, *, namespace: str, name: str) -> Binding:
        """At start: a pod of ours that is bound and that the ledger does not know gets an entry."""
        assert uid not in self.bindings, f"{uid} has an entry"
        member = Member(PodUid(uid), namespace, name, 0, 0)
        row = self.cluster.pods[uid]
        binding = self._held(member, row, unit_id=UnitId(uid), attempt=NO_ATTEMPT)
        self._adopt(binding)
        return binding

    def _held(self, member: Member, row: PodRow, *, unit_id: UnitId, attempt: Attempt) -> Binding:
        """A pod that was counted as foreign is a bound entry from now on."""
        shape = self.cluster.shape(row.shape_id)
        node = self.cluster.nodes[row.node_uid].row
        self.rooms.count(row, -1)
        held = Reservation(member, shape, row.node_uid, node.name, unit_id, attempt, "")
        binding = Binding(held._replace(met=met_by_devices(shape, node.allocatable)))
        assert member.uid not in self.bindings, f"{member.uid} is held already"
        binding.stage = Stage.BOUND
        self.bindings[member.uid] = binding
        return binding

    def entries(self) -> list[LedgerEntry]:
        """Every entry as the ledger ought to have it."""
        return [self._entry(binding) for binding in self.bindings.values()]

    def _entry(self, binding: Binding) -> LedgerEntry:
        charges = self.committer.charges.of(binding.uid)
        return entry_for(binding, epoch=self.cluster.epoch, charges=charges)

    def _adopt(self, binding: Binding) -> None:
        """Make a reservation's entry say what is true now."""
        self.ops.append(LedgerOp.adopting(self._entry(binding)))

    def audited(self) -> list[str]:
        """Every account, in the order in which they are audited."""
        return [*self.cluster.nodes, *self.committer.charges.accounts.by_uid]

    def expected(self, accounts: Sequence[str]) -> Expected:
        """What the ledger has to say of accounts once all operations so far are written."""
        found, charges = Expected(), self.committer.charges
        for uid in accounts:
            node = self.cluster.nodes.get(uid)
            if node is None:
                if uid in charges.accounts.by_uid:
                    found.used[uid] = charges.used(uid)
                continue
            held = {pod: self.bindings[pod] for pod in node.pods if pod in self.bindings}
            found.entries[uid] = {pod: self._entry(binding) for pod, binding in held.items()}
            found.changing |= {uid for uid, b in held.items() if b.stage is Stage.REBASING}
        return found

    @property
    def drifted(self) -> bool:
        """Ledger and memory disagree somewhere."""
        return bool(self._freezes.drifted)

    def drifts(self, account: str) -> None:
        """Ledger and memory disagree on an account: until it is mended nothing is committed there
        if it is a node's."""
        self.rooms.look_at(self._freezes.drifts(account))

    def thaw(self) -> None:
        """The ledger has been rebuilt from memory: what its drift has frozen may go on."""
        self.rooms.look_at(self._freezes.mended())

    def pod_unreadable(self, uid: str, *, node_name: str) -> None:
        """Without this bound pod's amounts the node's room is not known: it takes nothing more."""
        self.rooms.look_at(self._freezes.unreadable(uid, node_name=node_name))

    def pod_readable(self, uid: str) -> None:
        """A pod that could not be read can be, or is gone."""
        self.rooms.look_at(self._freezes.readable(uid))

    # -------------------------------------------------------------------------------------- effects
    def effects(self) -> Effects:
        """What is to be done now."""
        for outcome in self.preemptions.take_outcomes():
            self.outcomes.append(outcome)
        deltas = self.cluster.take_closed()
        assert not self.cluster.changed, "a change is in no step of the log"
        scheduled, self._scheduled = self._scheduled, []
        ended, self._ended = self._ended, []
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
        self.rooms.validate(self.bindings)
