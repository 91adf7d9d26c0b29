"""A golden world as a snapshot with a kernel on it, and which of its pods can be compared.

This is where the helper of a family plugs in: a maker of object rows in :data:`ROWS`, a hold in
:meth:`WorldState.pre_enqueue`, a refusal in :meth:`WorldState.reserve`, preemption in
:meth:`WorldState.post_filter`. A plugin counts as checked once its name is in ``profiles.BUILT``.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from stretto.cli.golden_answers import PodAnswer, World
from stretto.model.errors import OperatorError
from stretto.model.objects import Pod, decode_node, decode_pod
from stretto.model.shape import Shape
from stretto.model.shaping import ShapeMaker
from stretto.placement.framework import Code, Status
from stretto.placement.kernel import Kernel
from stretto.placement.postfilter import PostFilterResult
from stretto.placement.profiles import BUILT, GATES, Profiles
from stretto.placement.strict import ProfileError
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import Delta, NodeChange, ObjectRow
from stretto.snapshot.node_rows import node_row_of

ROWS: dict[str, Callable[[bytes], ObjectRow]] = {}
"""Per API kind: JSON of the object → the row that the Binder's log would carry."""


class Kind(msgspec.Struct):
    """Just enough of an object to tell what it is."""

    kind: str


class _DeviceClassSpec(msgspec.Struct, rename="camel"):
    extended_resource_name: str = ""


class DeviceClass(msgspec.Struct):
    """Just enough of one to know which extended resource its devices back."""

    spec: _DeviceClassSpec


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
        self.device_backed: set[str] = set()
        """Extended resources that devices back, which is DynamicResources' business."""
        self.snapshot = Snapshot()
        self.kernel = Kernel(self.snapshot, self.profiles)
        self._load(world)

    def _load(self, world: World) -> None:
        delta = Delta(epoch=1, sequence=1)
        pods: list[Pod] = []
        for raw in world.objects:
            kind = _kind.decode(raw).kind
            if kind == "Node":
                row = node_row_of(decode_node(bytes(raw)))
                delta.nodes.append(NodeChange(len(delta.nodes) + 1, row))
            elif kind == "Pod":
                pods.append(decode_pod(bytes(raw)))
            elif kind == "DeviceClass":
                spec = msgspec.json.decode(raw, type=DeviceClass).spec
                self.device_backed.add(spec.extended_resource_name)
            if kind in ROWS:
                delta.objects.append(ROWS[kind](bytes(raw)))
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

    def pre_enqueue(self, name: str, shape: Shape) -> Status | None:
        """The PreEnqueue plugin that holds the pod back."""
        gates = self._pods[name].gates
        if gates and self._enabled("preEnqueue", "SchedulingGates", shape):
            reason = f"waiting for scheduling gates: [{' '.join(gates)}]"
            return Status(Code.UNRESOLVABLE, "SchedulingGates", (reason,))
        return None

    def reserve(self, shape: Shape, row: int) -> Status | None:
        """The Reserve plugin that refuses a row; called once for a row that was chosen."""
        return None

    def post_filter(self, name: str, shape: Shape) -> PostFilterResult | None:
        """PostFilter of a pod that fits nowhere; of equal nodes the one with the smallest name.

        None: not built.
        """
        return None

    def _enabled(self, point: str, plugin: str, shape: Shape) -> bool:
        profile = self.profiles.get(shape.profile)
        return profile is not None and plugin in profile.points[point]

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
    """Why a pod cannot be compared at all: what speaks about it that is not built; '' if it can."""
    for plugin in answer.speaking():
        if plugin not in BUILT:
            return f"{plugin} not built"
    for constraint in shape.unbuilt_hard:
        plugin = constraint.partition(":")[0]
        if plugin not in BUILT:
            return f"{plugin} not built"
    backed = any(resource in state.device_backed for resource, _ in shape.requests)
    if backed and "DynamicResources" not in BUILT:
        return "DynamicResources not built"
    if state.nominations_above(answer.pod):
        return "nominated pods not built"
    return ""
