"""A little cluster as the Binder's log would tell it, and units for it."""

from __future__ import annotations

from stretto.model.shape import Shape
from stretto.model.unit import Attempt, Member, PodUid, Unit, UnitId
from stretto.rpc.messages import FollowKind, FollowMessage
from stretto.snapshot.delta import Delta, NodeChange, NodeRow

GIB = 1 << 30


def shape(cpu_milli: int = 1000, *, memory: int = GIB, profile: str = "stretto") -> Shape:
    return Shape(
        profile=profile,
        namespace="default",
        requests=(("cpu", cpu_milli), ("memory", memory)),
        nonzero_cpu_milli=cpu_milli,
        nonzero_memory=memory,
        score_requests=(cpu_milli, memory),
    )


def node(node_id: int, *, cpu_milli: int = 4000, pods: int = 110) -> NodeChange:
    return NodeChange(
        node_id=node_id,
        row=NodeRow(
            name=f"node-{node_id}",
            uid=f"uid-{node_id}",
            labels=(("kubernetes.io/hostname", f"node-{node_id}"),),
            allocatable=(("cpu", cpu_milli), ("memory", 64 * GIB), ("pods", pods)),
        ),
    )


def full(*nodes: NodeChange, epoch: int = 1, sequence: int = 1) -> list[FollowMessage]:
    """A full state with these nodes."""
    at = {"epoch": epoch, "sequence": sequence}
    return [
        FollowMessage(FollowKind.FULL_BEGIN, Delta(**at)),
        FollowMessage(FollowKind.FULL_CHUNK, Delta(**at, nodes=list(nodes))),
        FollowMessage(FollowKind.FULL_END, Delta(**at)),
    ]


def step(sequence: int, *, epoch: int = 1, **rows: object) -> FollowMessage:
    """One delta."""
    return FollowMessage(FollowKind.DELTA, Delta(epoch=epoch, sequence=sequence, **rows))  # type: ignore[arg-type]


def came(
    uid: str, *, node_id: int, sequence: int, number: int = 1, what: Shape | None = None
) -> FollowMessage:
    """A delta in which a pod came to a node."""
    delta = Delta(epoch=1, sequence=sequence)
    delta.shapes.append((number, what or shape()))
    delta.add_pod(shape_id=number, node_id=node_id, uid=uid)
    return FollowMessage(FollowKind.DELTA, delta)


def unit(uid: str, *, number: int = 1, attempt: int = 1, epoch: int = 1, after: int = 0) -> Unit:
    """A unit of one pod; ``number`` is its shape."""
    return Unit(
        UnitId(uid),
        Attempt(epoch, attempt),
        (Member(PodUid(uid), "default", uid, 7, number),),
        after,
    )
