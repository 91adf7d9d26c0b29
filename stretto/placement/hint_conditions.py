"""Conditions that narrow queueing hints: pure functions of a shape and an event.

Each names the upstream function that it answers like. The profile's own arguments (addedAffinity)
are not looked at: without them a hint says yes more often, never less.
"""

from __future__ import annotations

from collections.abc import Sequence

from stretto.model.shape import HostPort, Shape
from stretto.placement.events import ClusterEvent
from stretto.placement.framework import Gates
from stretto.placement.plugins.node_affinity import AddedAffinity, NodeAffinityFilter
from stretto.placement.tolerations import tolerates
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import Delta, NodeChange, NodeRow, Taint
from stretto.snapshot.ports import ANY_IP

_GATES = Gates(taint_toleration_comparison_operators=True)
_HARD = ("NoSchedule", "NoExecute")


def allocatable_admits(shape: Shape, event: ClusterEvent) -> bool:
    """The node would hold the pod if it were empty, and has more of what the pod asks than before.

    noderesources/fit.go isSchedulableAfterNodeChange.
    """
    assert event.new_node is not None
    room = dict(event.new_node.allocatable)
    asked = [(name, amount) for name, amount in shape.requests if amount]
    if room.get("pods", 0) < 1 or any(amount > room.get(name, 0) for name, amount in asked):
        return False
    if event.old_node is None:
        return True
    before = dict(event.old_node.allocatable)
    return any(room.get(name, 0) > before.get(name, 0) for name, _ in (*asked, ("pods", 1)))


def scaled_down(shape: Shape, event: ClusterEvent) -> bool:
    """A pod on a node asks for less than before of something the shape asks for.

    noderesources/fit.go isSchedulableAfterAssignedPodScaleDown.
    """
    assert event.old_pod is not None
    assert event.new_pod is not None
    before, after = dict(event.old_pod.requests), dict(event.new_pod.requests)
    return any(
        before.get(name, 0) > after.get(name, 0) for name, amount in shape.requests if amount
    )


def labels_admit(shape: Shape, event: ClusterEvent) -> bool:
    """The node's labels match now, and did not before.

    nodeaffinity/node_affinity.go isSchedulableAfterNodeChange.
    """
    assert event.new_node is not None
    nodes = [event.new_node] if event.old_node is None else [event.new_node, event.old_node]
    matched = affinity_admits(shape, nodes)
    return matched[0] and not any(matched[1:])


def affinity_admits(shape: Shape, nodes: Sequence[NodeRow]) -> list[bool]:
    """Whether the shape's node selector and required node affinity admit each of some nodes."""
    snapshot = Snapshot()
    changes = [NodeChange(i + 1, _bare(node)) for i, node in enumerate(nodes)]
    snapshot.apply(Delta(epoch=1, sequence=1, nodes=changes))
    filters = NodeAffinityFilter(shape.spelled_out, snapshot=snapshot, added=AddedAffinity())
    return [filters.passes_row(row) for row in range(len(nodes))]


def _bare(node: NodeRow) -> NodeRow:
    return NodeRow(name=node.name, uid=node.uid, labels=node.labels)


def taints_admit(shape: Shape, event: ClusterEvent) -> bool:
    """Every hard taint of the node is tolerated now, and was not before.

    tainttoleration/taint_toleration.go isSchedulableAfterNodeChange.
    """
    assert event.new_node is not None
    if _repels(shape, event.new_node.taints):
        return False
    return event.old_node is None or _repels(shape, event.old_node.taints)


def _repels(shape: Shape, taints: tuple[Taint, ...]) -> bool:
    hard = (taint for taint in taints if taint.effect in _HARD)
    return any(not tolerates(shape.tolerations, taint, _GATES) for taint in hard)


def uncordoned(shape: Shape, event: ClusterEvent) -> bool:
    """A node came uncordoned, or its cordon was lifted.

    nodeunschedulable/node_unschedulable.go isSchedulableAfterNodeChange.
    """
    assert event.new_node is not None
    if event.new_node.unschedulable:
        return False
    return event.old_node is None or event.old_node.unschedulable


def frees_host_port(shape: Shape, event: ClusterEvent) -> bool:
    """The pod that left held a host port that the shape wants.

    nodeports/node_ports.go isSchedulableAfterAssignedPodDeleted.
    """
    assert event.old_pod is not None
    held = event.old_pod.host_ports
    return any(_clash(mine, theirs) for mine in shape.host_ports for theirs in held)


def _clash(one: HostPort, other: HostPort) -> bool:
    if (one.protocol, one.port) != (other.protocol, other.port):
        return False
    return one.ip == other.ip or ANY_IP in (one.ip, other.ip)
