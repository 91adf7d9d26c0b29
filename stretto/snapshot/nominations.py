"""Nominated pods: pods that wait for room on a node, which pods of less priority must leave alone.

A nomination travels as an object of the log (kind :data:`NOMINATION`, key: the pod's uid), so that
every shard sees it. A shard also keeps those that it has proposed itself, until the log says the
same or the Binder says no.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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

    def __init__(self) -> None:
        self._on: dict[str, dict[str, Shape]] = {}
        self._node_of: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._node_of)

    def put(self, uid: str, *, node: str, shape: Shape) -> list[str]:
        """A pod is nominated to a node (and to no other); the names of nodes this concerns."""
        concerned = self.drop(uid)
        self._on.setdefault(node, {})[uid] = shape
        self._node_of[uid] = node
        return [*concerned, node]

    def drop(self, uid: str) -> list[str]:
        """A pod is not nominated any more; the names of nodes this concerns."""
        node = self._node_of.pop(uid, None)
        if node is None:
            return []
        there = self._on[node]
        del there[uid]
        if not there:
            del self._on[node]
        return [node]

    def on(self, node: str) -> Mapping[str, Shape]:
        """Uid → shape of the pods nominated to a node."""
        return self._on.get(node, _NONE)

    def nodes(self) -> Iterable[str]:
        """Names of the nodes that pods are nominated to."""
        return self._on.keys()

    def shape_of(self, uid: str) -> Shape | None:
        """The shape of a nominated pod; None if it is not nominated."""
        node = self._node_of.get(uid)
        return None if node is None else self._on[node][uid]

    def node_of(self, uid: str) -> str:
        """The node that a pod is nominated to, or ''."""
        return self._node_of.get(uid, "")


_NONE: dict[str, Shape] = {}
