"""Records of the Binder's picture beside the snapshot's columns: nodes, and pods on them."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from binder.pod_labels import Labels
from stretto.model.unit import NodeId
from stretto.snapshot.delta import NodeRow


class NodeEntry(msgspec.Struct):
    """A node incarnation."""

    node_id: NodeId
    row: NodeRow
    frozen: bool = False
    pods: set[str] = msgspec.field(default_factory=set)
    """Uids of the pods on it."""


class PodRow(msgspec.Struct):
    """A pod that is on a node: reserved by us or seen bound."""

    shape_id: int
    node_uid: str


class PodFacts(NamedTuple):
    """What preemption must know of a pod beside its shape."""

    namespace: str
    name: str
    start_s: int = 0
    """status.startTime in seconds since 1970; 0: not started."""
    flags: int = 0
    """See :mod:`stretto.snapshot.pod_records`."""
    labels: Labels | None = None
    """All of them; None: not known."""


NO_FACTS = PodFacts("", "")
