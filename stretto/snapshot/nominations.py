"""Nominated pods: pods that wait for room on a node, which pods of less priority must leave alone.

A nomination travels as an object of the log (kind :data:`NOMINATION`, key: the pod's uid), so that
every shard sees it. A shard also keeps those that it has proposed itself, until the log says the
same or the Binder says no.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import msgspec

from stretto.model.shape import Shape

NOMINATION = "Nomination"
"""Object kind; key: the pod's uid, payload: a :class:`NominationRow`."""


class NominationRow(msgspec.Struct, frozen=True, array_like=True):
    """Where a pod is nominated to."""

    node: str
    """The node's name; it need not exist."""
    shape_id: int
    """The pod's shape as it will have it on the node, by its number in the log."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(NominationRow)


def encode_nomination(row: NominationRow) -> bytes:
    """Payload of a Nomination object."""
    return _encoder.encode(row)


def decode_nomination(payload: bytes) -> NominationRow:
    """Read the payload of a Nomination object."""
    return _decoder.decode(payload)


class Nominations:
    """Nominated pods by node name; false while there are none."""

    def __init__(
        self,
        *,
        note: Callable[[str], None],
        promise: Callable[[Shape, int], None],
        pod: Callable[[Shape, int], None],
    ) -> None:
        self._note = note
        """Told the name of each node that a change concerns."""
        self._promise = promise
        """Told of each shape that comes (+1) or goes (-1)."""
        self._pod = pod
        """Told the same, but not of what stakes keep: that is no pod's yet."""
        self._on: dict[str, dict[str, Shape]] = {}
        self._node_of: dict[str, str] = {}
        self._lent: set[str] = set()
        """Nominations whose room pods of less priority may use."""

    def __len__(self) -> int:
        return len(self._node_of)

    def put(self, uid: str, *, node: str, shape: Shape, lent: bool = False) -> None:
        """A pod is nominated to a node, which need not exist, and to no other; ``lent``: pods of
        less priority may use the room meanwhile."""
        self.drop(uid)
        if lent:
            self._lent.add(uid)
        self._on.setdefault(node, {})[uid] = shape
        self._node_of[uid] = node
        self._told(uid, shape, 1)
        self._note(node)

    def drop(self, uid: str) -> None:
        """A pod is not nominated any more."""
        node = self._node_of.pop(uid, None)
        if node is None:
            return
        self._lent.discard(uid)
        there = self._on[node]
        self._told(uid, there.pop(uid), -1)
        if not there:
            del self._on[node]
        self._note(node)

    def _told(self, uid: str, shape: Shape, by: int) -> None:
        self._promise(shape, by)
        if "#" not in uid:
            self._pod(shape, by)

    @contextmanager
    def lifted(self, uids: Iterable[str]) -> Iterator[None]:
        """These pods are decided on now, all together: their own nominations are not in the way of
        each other for the time."""
        nodes = {uid: node for uid in uids if (node := self._node_of.get(uid)) is not None}
        shapes = {uid: self._on[node][uid] for uid, node in nodes.items()}
        for uid in nodes:
            self.drop(uid)
        try:
            yield
        finally:
            for uid, node in nodes.items():
                self.put(uid, node=node, shape=shapes[uid])

    def on(self, node: str) -> Mapping[str, Shape]:
        """Uid → shape of the pods nominated to a node."""
        return self._on.get(node, _NONE)

    def ahead_of(self, node: str, priority: int) -> list[Shape]:
        """The pods nominated to a node that one of this priority has to leave room for."""
        there = self._on.get(node)
        if not there:
            return []
        return [
            shape
            for uid, shape in there.items()
            if shape.priority >= priority and (shape.priority == priority or uid not in self._lent)
        ]

    def nodes(self) -> Iterable[str]:
        """Names of the nodes that pods are nominated to."""
        return self._on.keys()


_NONE: dict[str, Shape] = {}
