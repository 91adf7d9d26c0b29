"""The nodes' accounts in the ledger: what each has, and what pods without an entry hold of it."""

from __future__ import annotations

from collections.abc import Iterable

from binder.cluster import Cluster
from binder.entries import add_lines
from binder.placed import PodRow
from binder.unchecked import UNLIMITED, Unchecked
from stretto.ledger.types import Account
from stretto.model.shape import Shape
from stretto.placement.profiles import Profiles


class Rooms:
    """See the module docstring."""

    def __init__(self, cluster: Cluster, profiles: Profiles) -> None:
        self._cluster = cluster
        self._unchecked = Unchecked(profiles)
        self._foreign: dict[str, dict[str, int]] = {}
        """Node uid → resource → amount of pods that have no ledger entry."""
        self.joined: set[str] = set()
        """Nodes that a foreign pod has come to, or grown on; whoever looks takes them out."""
        self._changed: dict[str, None] = {}
        self._gone: dict[str, None] = {}

    def node_seen(self, uid: str) -> None:
        """A node was added or changed."""
        assert uid in self._cluster.nodes, f"node {uid} is not there"
        self._gone.pop(uid, None)
        self._changed[uid] = None

    def node_gone(self, uid: str) -> None:
        """A node was deleted, and foreign pods are not on it any more."""
        assert uid not in self._cluster.nodes, f"node {uid} is there"
        self._foreign.pop(uid, None)
        self.joined.discard(uid)
        self._changed.pop(uid, None)
        self._gone[uid] = None

    def count(self, row: PodRow, sign: int) -> None:
        """A foreign pod has come to its node (1), or gone (-1)."""
        assert sign in (1, -1)
        if row.node_uid in self._cluster.nodes:
            sums = self._foreign.setdefault(row.node_uid, {})
            add_lines(sums, self._cluster.shape(row.shape_id), sign)
            assert sums["pods"] >= 0, f"fewer than no foreign pods on {row.node_uid}"
            self._changed[row.node_uid] = None
            if sign > 0:
                self.joined.add(row.node_uid)

    def look_at(self, node_uids: Iterable[str]) -> None:
        """Whether these nodes are frozen has changed."""
        self._changed |= dict.fromkeys(node_uids)

    def expect(self, shapes: Iterable[Shape]) -> None:
        """Pods of these shapes are proposed; called before their accounts are written."""
        if self._unchecked.learn(shapes):
            self.look_at(self._cluster.nodes)

    def changes(self) -> tuple[list[Account], list[str]]:
        """(accounts that changed, accounts that went) since the last call."""
        changed, self._changed = self._changed, {}
        gone, self._gone = self._gone, {}
        return [self.account(uid) for uid in changed if uid in self._cluster.nodes], list(gone)

    def every(self) -> list[Account]:
        """The accounts of all nodes; what has changed so far is in them."""
        self._changed.clear()
        self._gone.clear()
        return [self.account(uid) for uid in self._cluster.nodes]

    def account(self, uid: str) -> Account:
        """What the ledger must know of a node."""
        entry = self._cluster.nodes[uid]
        foreign = {name: amount for name, amount in self._foreign.get(uid, {}).items() if amount}
        allocatable = dict(entry.row.allocatable) | dict.fromkeys(self._unchecked.names, UNLIMITED)
        return Account(uid, allocatable, foreign, entry.frozen)

    def validate(self, holders: Iterable[str]) -> None:
        """Assert that the foreign sums are those of the pods on the nodes that are no holders."""
        ours = set(holders)
        for uid, entry in self._cluster.nodes.items():
            expected: dict[str, int] = {}
            for pod in entry.pods - ours:
                shape = self._cluster.shape(self._cluster.pods[pod].shape_id)
                add_lines(expected, shape, 1)
            have = {k: v for k, v in self._foreign.get(uid, {}).items() if v}
            assert have == {k: v for k, v in expected.items() if v}, f"foreign sums of {uid}"
