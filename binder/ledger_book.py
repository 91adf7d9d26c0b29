"""The Binder's side of the ledger: what it ought to say, and what is yet to be written there.

Operations are collected in the order of their causes and written before the next reservation is
asked for. Where the ledger is found to say otherwise, nothing is committed on that node until it
has been written anew.
"""

from __future__ import annotations

from collections.abc import Sequence

from binder.auditor import Expected
from binder.bindings import Binding, Stage
from binder.charges import Charges
from binder.cluster import Cluster
from binder.entries import entry_for
from binder.freezes import Freezes
from binder.placed import PodRow
from binder.proposals import Reservation
from binder.rooms import Rooms
from stretto.ledger.types import NO_ATTEMPT, Account, EntryState, LedgerEntry, LedgerOp
from stretto.model.device_claims import met_by_devices
from stretto.model.unit import Attempt, Member, PodUid, UnitId
from stretto.placement.profiles import Profiles


class LedgerBook:
    """See the module docstring. ``bindings`` are the pods that have an entry, by uid."""

    def __init__(
        self,
        cluster: Cluster,
        profiles: Profiles,
        *,
        bindings: dict[str, Binding],
        charges: Charges,
    ) -> None:
        self.ops: list[LedgerOp] = []
        """Operations to write before the next reservation."""
        self.rooms = Rooms(cluster, profiles)
        """The nodes' accounts."""
        self.freezes = Freezes(cluster)
        self._cluster = cluster
        self._bindings = bindings
        self._charges = charges

    def accounts(self) -> tuple[list[Account], list[str]]:
        """(accounts that changed, accounts that went) since the last call."""
        nodes, nodes_gone = self.rooms.changes()
        others, others_gone = self._charges.accounts.changes()
        return nodes + others, nodes_gone + others_gone

    def all_accounts(self) -> list[Account]:
        """Every account, for a ledger that is written anew; what has changed so far is in it."""
        others = self._charges.accounts
        others.changes()  # told with all of them
        return [*self.rooms.every(), *others.by_uid.values()]

    def take_ops(self) -> list[LedgerOp]:
        """Ledger operations since the last call."""
        ops, self.ops = self.ops, []
        return ops

    def adopt_entry(self, entry: LedgerEntry, *, namespace: str, name: str) -> Binding | None:
        """At start: a pod seen bound where its ledger entry says; it stays an entry."""
        row = self._cluster.pods.get(entry.pod_uid)
        if row is None or row.node_uid != entry.node_uid:
            return None
        uid = PodUid(entry.pod_uid)
        member = Member(uid, namespace, name, entry.resource_version, 0)
        binding = self._held(member, row, unit_id=UnitId(entry.unit_id), attempt=entry.attempt)
        if entry.charges or sorted(entry.lines) != sorted(binding.reservation.lines):
            self.adopt(binding)
        elif entry.state is not EntryState.BOUND:
            self.ops.append(LedgerOp.bound(uid))
        return binding

    def adopt_bound(self, uid: str, *, namespace: str, name: str) -> Binding:
        """At start: a pod of ours that is bound and that the ledger does not know gets an entry."""
        assert uid not in self._bindings, f"{uid} has an entry"
        member = Member(PodUid(uid), namespace, name, 0, 0)
        row = self._cluster.pods[uid]
        binding = self._held(member, row, unit_id=UnitId(uid), attempt=NO_ATTEMPT)
        self.adopt(binding)
        return binding

    def _held(self, member: Member, row: PodRow, *, unit_id: UnitId, attempt: Attempt) -> Binding:
        """A pod that was counted as foreign is a bound entry from now on."""
        shape = self._cluster.shape(row.shape_id)
        node = self._cluster.nodes[row.node_uid].row
        self.rooms.count(row, -1)
        held = Reservation(member, shape, row.node_uid, node.name, unit_id, attempt, "")
        binding = Binding(held._replace(met=met_by_devices(shape, node.allocatable)))
        assert member.uid not in self._bindings, f"{member.uid} is held already"
        binding.stage = Stage.BOUND
        self._bindings[member.uid] = binding
        return binding

    def entries(self) -> list[LedgerEntry]:
        """Every entry as the ledger ought to have it."""
        return [self._entry(binding) for binding in self._bindings.values()]

    def _entry(self, binding: Binding) -> LedgerEntry:
        charges = self._charges.of(binding.uid)
        return entry_for(binding, epoch=self._cluster.epoch, charges=charges)

    def adopt(self, binding: Binding) -> None:
        """Make a reservation's entry say what is true now."""
        self.ops.append(LedgerOp.adopting(self._entry(binding)))

    def audited(self) -> list[str]:
        """Every account, in the order in which they are audited."""
        return [*self._cluster.nodes, *self._charges.accounts.by_uid]

    def expected(self, accounts: Sequence[str]) -> Expected:
        """What the ledger has to say of accounts once all operations so far are written."""
        found, charges = Expected(), self._charges
        for uid in accounts:
            node = self._cluster.nodes.get(uid)
            if node is None:
                if uid in charges.accounts.by_uid:
                    found.used[uid] = charges.used(uid)
                continue
            held = {pod: self._bindings[pod] for pod in node.pods if pod in self._bindings}
            found.entries[uid] = {pod: self._entry(binding) for pod, binding in held.items()}
            found.changing |= {uid for uid, b in held.items() if b.stage is Stage.REBASING}
        return found

    @property
    def drifted(self) -> bool:
        """Ledger and memory disagree somewhere."""
        return bool(self.freezes.drifted)

    def drifts(self, account: str) -> None:
        """Ledger and memory disagree on an account: until it is mended nothing is committed there
        if it is a node's."""
        self.rooms.look_at(self.freezes.drifts(account))

    def thaw(self) -> None:
        """The ledger has been rebuilt from memory: what its drift has frozen may go on."""
        self.rooms.look_at(self.freezes.mended())

    def pod_unreadable(self, uid: str, *, node_name: str) -> None:
        """Without this bound pod's amounts the node's room is not known: it takes nothing more."""
        self.rooms.look_at(self.freezes.unreadable(uid, node_name=node_name))

    def pod_readable(self, uid: str) -> None:
        """A pod that could not be read can be, or is gone."""
        self.rooms.look_at(self.freezes.readable(uid))
