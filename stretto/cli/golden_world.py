"""A golden world as a snapshot with a kernel on it, and which of its pods can be compared."""

from __future__ import annotations

import msgspec

from stretto.cli.golden_compare import PodAnswer
from stretto.model.errors import OperatorError
from stretto.model.objects import Pod, decode_node, decode_pod
from stretto.model.shape import Shape
from stretto.model.shaping import ShapeMaker
from stretto.placement.kernel import Kernel
from stretto.placement.profiles import BUILT, Profiles
from stretto.placement.strict import ProfileError
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import Delta, NodeChange
from stretto.snapshot.node_rows import node_row_of

GATES = frozenset({"TaintTolerationComparisonOperators"})
"""Feature gates that the built plugins read."""


class World(msgspec.Struct, rename="camel"):
    """The ``world`` part of a line."""

    id: str
    family: str
    pending: list[str]
    objects: list[msgspec.Raw]
    mode: str = "independent"
    config: dict[str, object] | None = None
    feature_gates: dict[str, bool] = {}


class Kind(msgspec.Struct):
    """Just enough of an object to tell what it is."""

    kind: str


class UnbuildableError(OperatorError):
    """A world that cannot be compared at all; the text says why."""


_kind = msgspec.json.Decoder(Kind)


class WorldState:
    """The world's nodes and bound pods in a snapshot; rows are in the order of the Node objects."""

    def __init__(self, world: World) -> None:
        unknown = sorted(set(world.feature_gates) - GATES)
        if unknown:
            raise UnbuildableError(f"feature gates not built: {', '.join(unknown)}")
        try:
            self.profiles = (
                Profiles.default(("default-scheduler",), gates=world.feature_gates)
                if world.config is None
                else Profiles.from_configuration(world.config, gates=world.feature_gates)
            )
        except ProfileError as error:
            raise UnbuildableError(f"configuration not accepted: {error}") from None
        self._maker = ShapeMaker()
        self._pods: dict[str, Pod] = {}
        self.snapshot = Snapshot()
        self.kernel = Kernel(self.snapshot, self.profiles)
        self._load(world)

    def _load(self, world: World) -> None:
        delta = Delta(epoch=1, sequence=1)
        pods: list[Pod] = []
        for raw in world.objects:
            match _kind.decode(raw).kind:
                case "Node":
                    row = node_row_of(decode_node(bytes(raw)))
                    delta.nodes.append(NodeChange(len(delta.nodes) + 1, row))
                case "Pod":
                    pods.append(decode_pod(bytes(raw)))
        ids = {change.row.name: change.node_id for change in delta.nodes}
        for pod in pods:
            meta = pod.metadata
            self._pods[f"{meta.namespace}/{meta.name}"] = pod
            node_id = ids.get(pod.spec.node_name)
            if node_id is not None and pod.status.phase not in ("Succeeded", "Failed"):
                shape_id = len(delta.shapes) + 1
                delta.shapes.append((shape_id, self._maker.shape_of(pod)))
                delta.add_pod(shape_id=shape_id, node_id=node_id, uid=meta.uid)
        self.snapshot.apply(delta)

    def shape(self, name: str) -> Shape:
        """The shape of a pending pod."""
        return self._maker.shape_of(self._pods[name])

    def assume(self, shape: Shape, row: int) -> None:
        """Later pods see this one on a node (sequence mode)."""
        self.snapshot.add_pod(shape, row)

    def nominations_above(self, name: str) -> bool:
        """Whether another unbound pod of at least the same priority is nominated to a node."""
        priority = self._pods[name].spec.priority or 0
        return any(
            pod.status.nominated_node_name
            and not pod.spec.node_name
            and other != name
            and (pod.spec.priority or 0) >= priority
            for other, pod in self._pods.items()
        )


def not_checked(answer: PodAnswer, shape: Shape, state: WorldState) -> str:
    """Why a pod cannot be compared: what speaks about it that is not built; '' if it can."""
    if answer.pre_enqueue is not None:
        return "held by PreEnqueue"
    if answer.scheduler_error is not None:
        return "the attempt ends in an error"
    for plugin in answer.speaking():
        if plugin not in BUILT:
            return f"{plugin} not built"
    if shape.unbuilt_hard:
        return f"{shape.unbuilt_hard[0].partition(':')[0]} not built"
    if state.nominations_above(answer.pod):
        return "nominated pods not built"
    return ""
