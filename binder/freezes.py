"""Nodes that take nothing for now, and why.

A node is frozen while its account in the ledger is in doubt (drift), and while a pod is bound to it
that cannot be read, so that its room is not known. Either may begin and end beside the other, and
the pod may be seen before its node: so reasons are kept, by name where the pod says the name, and
the node is frozen as long as there is one.
"""

from __future__ import annotations

from binder.cluster import Cluster


class Freezes:
    """See the module docstring; the methods return the uids of nodes that froze or thawed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.drifted: set[str] = set()
        """Accounts on which ledger and memory disagree."""
        self._unreadable: dict[str, str] = {}
        """Uid of a bound pod that cannot be read → the name of its node."""

    def drifts(self, account: str) -> list[str]:
        """Ledger and memory disagree on an account."""
        assert account, "drift of no account"
        self.drifted.add(account)
        return self.look_at(account)

    def mended(self) -> list[str]:
        """The ledger has been rebuilt from memory."""
        drifted, self.drifted = self.drifted, set()
        return [uid for account in drifted for uid in self.look_at(account)]

    def unreadable(self, uid: str, *, node_name: str) -> list[str]:
        """A pod is bound to a node and cannot be read."""
        self._unreadable[uid] = node_name
        return self.look_at(self._cluster.node_uid_of(node_name))

    def readable(self, uid: str) -> list[str]:
        """A pod can be read, or is gone."""
        name = self._unreadable.pop(uid, None)
        return [] if name is None else self.look_at(self._cluster.node_uid_of(name))

    def look_at(self, node_uid: str) -> list[str]:
        """Freeze or thaw a node as its reasons say, if it is there."""
        node = self._cluster.nodes.get(node_uid)
        if node is None:
            return []
        frozen = node_uid in self.drifted or node.row.name in self._unreadable.values()
        if frozen == node.frozen:
            return []
        self._cluster.freeze(node_uid, frozen=frozen)
        assert node.frozen == frozen
        return [node_uid]
