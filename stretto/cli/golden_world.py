"""A golden world as a snapshot with a kernel on it, and which of its pods can be compared.

This is where a family plugs in: a maker of object rows in :data:`ROWS`, a hold in
:meth:`WorldState.pre_enqueue`, a refusal in :meth:`WorldState.reserve`, preemption in
:meth:`WorldState.post_filter`. A plugin counts as checked once its name is in ``profiles.BUILT``.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from stretto.cli.golden_answers import PodAnswer, World
from stretto.model import device_rows
from stretto.model.devices import CLAIM, encode_row
from stretto.model.errors import OperatorError
from stretto.model.objects import Namespace, Pod, decode_node, decode_pod, seconds_of
from stretto.model.shape import Shape
from stretto.model.shaping import ShapeMaker
from stretto.placement.devices.claimed import allocations_of, rows_of
from stretto.placement.devices.world import world_of
from stretto.placement.framework import Code, Status
from stretto.placement.kernel import Kernel
from stretto.placement.postfilter import PostFilterResult
from stretto.placement.profiles import BUILT, GATES, Profiles
from stretto.placement.strict import ProfileError
from stretto.snapshot.budgets import BUDGET, PodDisruptionBudget, budget_object, budget_of
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import NAMESPACE, Delta, NodeChange, ObjectRow, encode_labels
from stretto.snapshot.node_rows import node_row_of
from stretto.snapshot.nominations import NOMINATION, NominationRow, encode_nomination
from stretto.snapshot.pod_records import flags_of
from stretto.snapshot.volume_rows import KINDS, STORAGE_KINDS, encode_storage, storage_row
from stretto.snapshot.workloads import KINDS as WORKLOADS
from stretto.snapshot.workloads import Workload, encode_selector, workload_row_of


def _workload(kind: str) -> Callable[[bytes], ObjectRow]:
    def row(raw: bytes) -> ObjectRow:
        workload = msgspec.json.decode(raw, type=Workload)
        meta = workload.metadata
        payload = encode_selector(workload_row_of(kind, workload))
        return ObjectRow(kind, f"{meta.namespace}/{meta.name}", payload=payload)

    return row


def _namespace(raw: bytes) -> ObjectRow:
    meta = msgspec.json.decode(raw, type=Namespace).metadata
    return ObjectRow(NAMESPACE, meta.name, payload=encode_labels(dict(meta.labels or {})))


def _storage(kind: str) -> Callable[[bytes], ObjectRow]:
    decoder = msgspec.json.Decoder(KINDS[kind].api)

    def row_of(data: bytes) -> ObjectRow:
        key, row = storage_row(kind, decoder.decode(data))
        return ObjectRow(kind, key, 1, encode_storage(row))

    return row_of


def _devices(kind: str) -> Callable[[bytes], ObjectRow]:
    api, row_of = device_rows.KINDS[kind]
    decoder = msgspec.json.Decoder(api)

    def object_of(data: bytes) -> ObjectRow:
        row = row_of(decoder.decode(data))
        return ObjectRow(kind, device_rows.key_of(row), payload=encode_row(row))

    return object_of


ROWS: dict[str, Callable[[bytes], ObjectRow]] = {
    **{kind: _workload(kind) for kind in WORKLOADS},
    NAMESPACE: _namespace,
    **{kind: _storage(kind) for kind in STORAGE_KINDS},
    **{kind: _devices(kind) for kind in device_rows.KINDS},
}
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
        self._label_keys: tuple[str, ...] = ()
        self._shapes: dict[bytes, int] = {}
        """Numbers by digest, as in the Binder's log."""
        self._sequence = 1
        self._pods: dict[str, Pod] = {}
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
            if kind in ROWS:
                delta.objects.append(ROWS[kind](bytes(raw)))
        for pod in pods:
            self._pods[f"{pod.metadata.namespace}/{pod.metadata.name}"] = pod
        self._label_keys = tuple(sorted({key for pod in pods for key in pod.metadata.labels or ()}))
        self._add_namespaces(delta, pods)
        self._load_budgets(delta, world)
        ids = {change.row.name: change.node_id for change in delta.nodes}
        for pod in pods:
            if not pod.ended:
                self._load_pod(delta, pod, node_id=ids.get(pod.spec.node_name))
        self.snapshot.apply(delta)

    def _load_budgets(self, delta: Delta, world: World) -> None:
        """Budgets name pods, so they come when those are known; pods' shapes have the labels that
        they read."""
        keys: set[str] = set(self._label_keys)
        for raw in world.objects:
            if _kind.decode(raw).kind != BUDGET:
                continue
            budget = msgspec.json.decode(raw, type=PodDisruptionBudget)
            row = budget_of(budget, uid_of=self._uid_of)
            keys |= frozenset() if row is None else row.label_keys()
            delta.objects.append(budget_object(budget, uid_of=self._uid_of))
        self._label_keys = tuple(sorted(keys))

    def _uid_of(self, namespace: str, name: str) -> str:
        pod = self._pods.get(f"{namespace}/{name}")
        return "" if pod is None else pod.metadata.uid

    def _load_pod(self, delta: Delta, pod: Pod, *, node_id: int | None) -> None:
        """A pod on a node, or nominated to one."""
        nominated = "" if pod.spec.node_name else pod.status.nominated_node_name
        if node_id is None and not nominated:
            return
        shape = self._maker.shape_of(pod, label_keys=self._label_keys, placed=True)
        shape_id = self._shapes.get(shape.digest, 0)
        if not shape_id:
            shape_id = self._shapes[shape.digest] = len(self._shapes) + 1
            delta.shapes.append((shape_id, shape))
        uid = pod.metadata.uid
        if node_id is not None:
            delta.add_pod(
                shape_id=shape_id, node_id=node_id, uid=uid,
                start_s=seconds_of(pod.status.start_time), flags=flags_of(pod),
            )  # fmt: skip
        elif nominated:
            payload = encode_nomination(NominationRow(nominated, shape_id))
            delta.objects.append(ObjectRow(NOMINATION, uid, payload=payload))

    def shape(self, name: str) -> Shape:
        """The shape of a pending pod."""
        return self._shape_of(self._pods[name])

    def _shape_of(self, pod: Pod, *, placed: bool = False) -> Shape:
        return self._maker.shape_of(pod, label_keys=self._label_keys, placed=placed)

    @staticmethod
    def _add_namespaces(delta: Delta, pods: list[Pod]) -> None:
        """A namespace without an object has the label that every namespace has."""
        known = {row.key for row in delta.objects if row.kind == NAMESPACE}
        for name in sorted({pod.metadata.namespace for pod in pods} - known):
            payload = encode_labels({"kubernetes.io/metadata.name": name})
            delta.objects.append(ObjectRow(NAMESPACE, name, payload=payload))

    def assume(self, name: str, row: int) -> None:
        """Later pods see this one on a node (sequence mode); upstream may preempt it, too."""
        pod = self._pods[name]
        claimed = self._claimed(self.shape(name), row, special=f"{name}-extended")
        if not claimed:
            self.kernel.assume(self.shape(name), row)
        self._sequence += 1
        delta = Delta(epoch=1, sequence=self._sequence)
        delta.objects += claimed
        self._load_pod(delta, pod, node_id=int(self.snapshot.node_id[row]))
        delta.objects.append(ObjectRow(NOMINATION, pod.metadata.uid, removed=True))
        self.snapshot.apply(delta)

    def _claimed(self, shape: Shape, row: int, *, special: str) -> list[ObjectRow]:
        """The claims of a pod with the devices that it gets."""
        if not shape.device_claims and not shape.device_containers:
            return []
        world = world_of(self.snapshot)
        chosen = allocations_of(world, shape, row)
        rows = rows_of(world, shape, chosen, special=special)
        return [ObjectRow(CLAIM, claim.key, payload=encode_row(claim)) for claim in rows]

    def pre_enqueue(self, name: str, shape: Shape) -> Status | None:
        """The PreEnqueue plugin that holds the pod back."""
        gates = self._pods[name].gates
        if gates and self._enabled("preEnqueue", "SchedulingGates", shape):
            reason = f"waiting for scheduling gates: [{' '.join(gates)}]"
            return Status(Code.UNRESOLVABLE, "SchedulingGates", (reason,))
        return self.kernel.pre_enqueue(shape)

    def reserve(self, shape: Shape, row: int) -> Status | None:
        """The Reserve plugin that refuses a row; called once for a row that was chosen."""
        return None

    def post_filter(self, name: str, shape: Shape) -> PostFilterResult | None:
        """PostFilter of a pod that fits nowhere; of equal nodes the one with the smallest name.

        None: not built.
        """
        names = {pod.metadata.uid: key for key, pod in self._pods.items()}
        found = self.kernel.post_filter(shape, seed=0, by_name=True)
        return msgspec.structs.replace(
            found,
            victims=tuple(names[uid] for uid in found.victims),
            candidates=tuple(
                msgspec.structs.replace(c, victims=tuple(names[uid] for uid in c.victims))
                for c in found.candidates
            ),
        )

    def _enabled(self, point: str, plugin: str, shape: Shape) -> bool:
        profile = self.profiles.get(shape.profile)
        return profile is not None and plugin in profile.points[point]


def not_checked(answer: PodAnswer, shape: Shape) -> str:
    """Why a pod cannot be compared at all: what speaks about it that is not built; '' if it can."""
    for plugin in answer.speaking():
        if plugin not in BUILT:
            return f"{plugin} not built"
    for constraint in shape.unbuilt_hard:
        plugin = constraint.partition(":")[0]
        if plugin not in BUILT:
            return f"{plugin} not built"
    return ""
