"""The snapshot: the cluster as columns over node rows, at a version of the Binder's log (design
§4).

The same class is the picture that a shard decides on and the authoritative state that the Binder
re-checks against. Applying a delta costs O(what changed). A row is a node incarnation; rows of
removed nodes are used again.

Two kinds of pods are counted. *Committed* ones come and go by deltas and are what
:meth:`Snapshot.full_state` hands to a new follower. *Tentative* ones (a shard's own open proposals,
the Binder's units of the batch in hand) come and go by :meth:`Snapshot.add_pod` and
:meth:`Snapshot.remove_pod`; whoever added one removes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Set

import msgspec
import numpy as np
import numpy.typing as npt

from stretto.model.shape import Shape
from stretto.model.unit import Version
from stretto.quota.view import QuotaView
from stretto.snapshot.assuming import Assumer
from stretto.snapshot.capacity import CapacityCache
from stretto.snapshot.changes import ChangeLog
from stretto.snapshot.delta import Delta, NodeChange, NodeRow, ObjectRow, Taint
from stretto.snapshot.full import chunks
from stretto.snapshot.group_rows import GroupRows
from stretto.snapshot.images import ImageTable
from stretto.snapshot.interning import Interner
from stretto.snapshot.kins import KinTable
from stretto.snapshot.labels import LabelColumn, LabelTable
from stretto.snapshot.nominations import NOMINATION, Nominations, decode_nomination
from stretto.snapshot.objects import ObjectReading, ObjectTable
from stretto.snapshot.pod_records import PodRecords, uuid_keys
from stretto.snapshot.pods import PodTable, ShapeTable, Usage, UsageTable
from stretto.snapshot.ports import PortTable
from stretto.snapshot.quota_rows import tell_quota
from stretto.snapshot.resources import ResourceTable, grown
from stretto.snapshot.self_check import check
from stretto.snapshot.stakes import STAKE, Stakes
from stretto.snapshot.tallies import TallyTable
from stretto.snapshot.volume_rows import STORAGE_KINDS
from stretto.snapshot.volumes import VolumeBook

PARTITIONS = 64
"""Virtual slices of the nodes; shards prefer those that are their own."""
_FIRST_CAPACITY = 64


Settling = dict[str, tuple[Shape, int]]
"""Tentative pods by uid: shape and row."""


class SnapshotError(ValueError):
    """A delta does not continue this snapshot; the follower must ask for a full state."""


class Snapshot(ObjectReading):
    """Columns over node rows; see the module docstring.

    Arrays have ``capacity`` entries of which the first ``rows`` were ever used; ``live`` says which
    are nodes now.
    """

    assumer: Assumer | None = None
    """The kernel on this snapshot."""

    def __init__(self) -> None:
        self.version = Version(0, 0)
        self.capacity = _FIRST_CAPACITY
        self.rows = 0
        self.node_count = 0
        """Live nodes."""
        self.tentative = 0
        """Tentative pods counted in the columns now."""
        self.changes = ChangeLog[int]()
        """Rows whose node or pods changed."""
        self.node_changes = ChangeLog[int]()
        """Rows whose node (labels, taints, allocatable, flags, existence) changed."""
        self.record_changes = ChangeLog[int]()
        """Rows on which a pod has another start time or other flags, and nothing else changed."""
        self.node_id: npt.NDArray[np.int64] = np.full(_FIRST_CAPACITY, -1, dtype=np.int64)
        self.live: npt.NDArray[np.bool_] = np.zeros(_FIRST_CAPACITY, dtype=np.bool_)
        self.frozen: npt.NDArray[np.bool_] = np.zeros(_FIRST_CAPACITY, dtype=np.bool_)
        self.unschedulable: npt.NDArray[np.bool_] = np.zeros(_FIRST_CAPACITY, dtype=np.bool_)
        self.partition: npt.NDArray[np.int16] = np.zeros(_FIRST_CAPACITY, dtype=np.int16)
        self.uid_hash: npt.NDArray[np.uint64] = np.zeros(_FIRST_CAPACITY, dtype=np.uint64)
        """64 bits of a content hash of the node's uid: partitions and tie ranks derive from it."""
        self.taint_set: npt.NDArray[np.int32] = np.zeros(_FIRST_CAPACITY, dtype=np.int32)
        self.taint_sets: list[tuple[Taint, ...]] = [()]
        """Taint sets by id; 0 is the empty one."""
        self.node_rows: list[NodeRow | None] = []
        self.name: list[str] = []
        self.node_uid: list[str] = []
        self.resources = ResourceTable(capacity=_FIRST_CAPACITY)
        self.capacities = CapacityCache(self)
        """Allocatable amounts prepared for division."""
        self.ports = PortTable()
        self.groups = GroupRows()
        self.images = ImageTable(capacity=_FIRST_CAPACITY)
        self.volumes = VolumeBook(changes=self.changes, row_of_name=self.row_of_name)
        """Storage objects and the pods that use them."""
        self.derived: dict[tuple[str, ...], object] = {}
        """What readers keep beside the columns (refreshed by ``changes``), so that they can share
        it."""
        self._make_indexes()

    def _make_indexes(self) -> None:
        self._labels = LabelTable(capacity=_FIRST_CAPACITY)
        self.kins = KinTable()
        self.tallies = TallyTable(self.kins, capacity=_FIRST_CAPACITY)
        self._usages = UsageTable(self.resources, self.kins)
        self._shapes = ShapeTable(self.resources, self.kins)
        self._pods = PodTable()
        self.records = PodRecords()
        """Committed pods one by one."""
        self.quota = QuotaView()
        self.nominations = Nominations(
            note=self._note_name, promise=self.kins.promise, pod=self.quota.nominate
        )
        self.stakes = Stakes(self.nominations, self.shape)
        self._row_of_id: dict[int, int] = {}
        self._row_of_name: dict[str, int] = {}
        self._free: list[int] = []
        self._tentative_on: dict[int, int] = {}
        self._taint_ids: dict[tuple[Taint, ...], int] = {(): 0}
        self._interner = Interner()
        self._objects = ObjectTable()

    # -------------------------------------------------------------------------------------- reading
    @property
    def stamp(self) -> int:
        """Grows with each change to any row."""
        return self.changes.stamp

    def rows_changed_since(self, stamp: int) -> npt.NDArray[np.int64] | None:
        """Distinct rows changed after ``stamp`` (int64); None: not known any more, treat as all."""
        changed = self.changes.since(stamp)
        return None if changed is None else np.array(changed, dtype=np.int64)

    def row_of(self, node_id: int) -> int | None:
        """The row of a node incarnation, None if it is gone or unknown."""
        return self._row_of_id.get(node_id)

    def row_of_name(self, name: str) -> int | None:
        """The row of the node with this name."""
        return self._row_of_name.get(name)

    def node(self, row: int) -> NodeRow:
        """The definition of a live row."""
        found = self.node_rows[row]
        assert found is not None, f"row {row} holds no node"
        return found

    def shape(self, shape_id: int) -> Shape:
        """A shape of the Binder's log.

        Raises:
            KeyError: the number is not defined in this epoch.
        """
        return self._shapes.shape(shape_id)

    def pods_on(self, row: int) -> Mapping[int, int]:
        """Committed pods of a row: shape number → count."""
        return self._pods.of(row)

    @property
    def carried_keys(self) -> Set[str]:
        """The label keys that a node carries, or did; they only become more."""
        return self._labels.carried

    def label_column(self, key: str) -> LabelColumn:
        """The column of a label key; ask each time, columns are bounded and may be rebuilt."""
        return self._labels.column(key, self.node_rows)

    def image_column(self, name: str) -> npt.NDArray[np.bool_]:
        """bool[capacity]: rows that hold an image under this name; ask each time."""
        return self.images.column(name, self.node_rows)

    def full_state(self, *, nodes_per_chunk: int = 500) -> Iterator[Delta]:
        """The committed state in chunks for a new follower."""
        return chunks(
            self, self._shapes, self._pods, self.records, self._objects.by_kind,
            nodes_per_chunk=nodes_per_chunk,
        )  # fmt: skip

    # ------------------------------------------------------------------------------------- changing
    def add_pod(self, shape: Shape, row: int, *, count: int = 1) -> None:
        """Count tentative pods on a row."""
        usage = self._usages.of(shape)
        if usage.assumes and self.assumer is not None:
            for _ in range(count):
                self.assumer.assume(shape, row)
        self._tentatively(shape, usage, row, count)

    def remove_pod(self, shape: Shape, row: int, *, count: int = 1) -> None:
        """Undo :meth:`add_pod`. A row whose node went away meanwhile has nothing left to undo; see
        ``row_of``."""
        usage = self._usages.of(shape)
        if usage.assumes and self.assumer is not None:
            for _ in range(count):
                self.assumer.forget(shape, row)
        self._tentatively(shape, usage, row, -count)

    def suppose(self, shape: Shape, row: int, by: int, *, noted: bool = False) -> None:
        """Count pods on a row, or off it, for the length of a question; whoever does so undoes it.

        Filters see it, but it is ``noted`` as changed only for a question that places pods: else
        kept scores stay what they are. A pod that is being deleted counts as one that is not:
        upstream's topology spread does not count it, and yet subtracts it when preemption takes it
        away (podtopologyspread updateWithPod).
        """
        if shape.terminating:
            shape = msgspec.structs.replace(shape, terminating=False)
        self._shift(self._usages.of(shape), row, by)
        if not noted:
            self.changes.take_back()

    def restore_nomination(self, uid: str) -> None:
        """A pod is nominated as the log says, or not at all."""
        payload = self._objects.payload(NOMINATION, uid)
        if payload is None:
            self.nominations.drop(uid)
        else:
            found = decode_nomination(payload)
            self.nominations.put(uid, node=found.node, shape=self.shape(found.shape_id))

    def _note_name(self, name: str) -> None:
        row = self._row_of_name.get(name)
        if row is not None:
            self.changes.note(row)

    @property
    def lowest_priority(self) -> int:
        """No pod on a node has less priority."""
        return self._shapes.lowest_priority

    def priority_of(self, shape_id: int) -> int:
        """The priority of a shape of the Binder's log; much cheaper than :meth:`shape`."""
        return self._shapes.priority(shape_id)

    def group_of(self, shape_id: int) -> str:
        """The pod group of a shape of the Binder's log, '' if none."""
        return self._shapes.group(shape_id)

    def amounts_of(self, shape_id: int) -> dict[str, int]:
        """What a pod of a shape of the Binder's log takes, by column name."""
        usage = self._shapes.usage(shape_id)
        assert usage is not None, f"shape {shape_id} is not defined"
        return {column.name: amount for column, amount in usage.lines}

    def _tentatively(self, shape: Shape, usage: Usage, row: int, count: int) -> None:
        self._shift(usage, row, count)
        self._count_tentative(shape, row, count)

    def _count_tentative(self, shape: Shape, row: int, count: int) -> None:
        self.tentative += count
        self._tentative_on[row] = self._tentative_on.get(row, 0) + count
        if self.quota.on:
            self.quota.count(shape, row, count)

    def begin(self, epoch: int) -> None:
        """The same state, under another epoch: its holder has become the one who writes the log."""
        self.version = Version(epoch, self.version.sequence)

    def apply(self, delta: Delta, settling: Settling | None = None) -> None:
        """Advance by one step of the log, in the order shapes, nodes, pods, removed nodes, objects,
        dropped shapes.

        ``settling`` are tentative pods that whoever added them hands over: they are counted as such
        no longer after this, whatever happens. One that the step commits where it is counted is
        not taken off its row and put there again.

        Raises:
            SnapshotError: another epoch, an older sequence, or a pod row that names an unknown
            shape or node.
        """
        settling = {} if settling is None else settling
        try:
            self._check_continues(delta)
            for shape_id, shape in delta.shapes:
                self._shapes.define(shape_id, shape)
            for change in delta.nodes:
                self._put_node(change)
            if delta.pod_sign:
                self._apply_pods(delta, settling)
        finally:
            self.uncount(settling)
        for node_id in delta.removed_nodes:
            self._remove_node(node_id)
        for row in delta.objects:
            self._put_object(row)
        for shape_id in delta.dropped_shapes:
            self._shapes.drop(shape_id)
        self.version = Version(delta.epoch, delta.sequence)

    def _check_continues(self, delta: Delta) -> None:
        if self.version != (0, 0) and delta.epoch != self.version.epoch:
            raise SnapshotError(
                f"a delta of epoch {delta.epoch} does not continue {tuple(self.version)}: "
                "start with an empty snapshot and a full state"
            )
        if delta.sequence < self.version.sequence:
            raise SnapshotError(f"delta {delta.sequence} is older than {tuple(self.version)}")

    def uncount(self, settling: Settling) -> None:
        """Take these tentative pods off their rows, and out of the table."""
        while settling:
            _, (shape, row) = settling.popitem()
            self.remove_pod(shape, row)

    def _apply_pods(self, delta: Delta, settling: Settling) -> None:
        counts, uids = delta.pod_count, delta.pod_uid
        keys = uuid_keys(uids)
        row_of, usage_of, kept = self._row_of_id.get, self._shapes.usage, self._pods.shift
        changes = zip(delta.pod_sign, delta.pod_shape, delta.pod_node, strict=True)
        for i, (sign, shape_id, node_id) in enumerate(changes):
            count = counts[i] if counts else 1
            row = row_of(node_id)
            if row is None:
                if sign <= 0:
                    continue  # its node left first and took it along
                raise SnapshotError(f"a pod names node {node_id}, which is not there")
            usage = usage_of(shape_id)
            if usage is None:
                raise SnapshotError(f"a pod names shape {shape_id}, which is not defined")
            if not kept(row, shape_id, sign * count):
                raise SnapshotError(
                    f"{count} pods of shape {shape_id} leave node {self.name[row]}, which has fewer"
                )
            uid = uids[i] if uids else ""
            if uid:
                key = keys[i] if keys else None
                if sign < 0:
                    self.records.drop(row, uid, key=key)
                else:
                    start_s = delta.pod_start[i] if delta.pod_start else 0
                    flags = delta.pod_flags[i] if delta.pod_flags else 0
                    self.records.put(
                        row, uid, shape_id=shape_id, start_s=start_s, flags=flags, key=key
                    )
            if not sign:
                self.record_changes.note(row)
            elif uid not in settling or sign < 0 or not self._commits(settling, uid, usage, row):
                self._shift(usage, row, sign * count)

    def _commits(self, settling: Settling, uid: str, usage: Usage, row: int) -> bool:
        """Whether a tentative pod is what is committed now, and is counted; else it is counted no
        longer."""
        shape, at = settling.pop(uid)
        if at != row or self._usages.of(shape) != usage:
            self.remove_pod(shape, at)
            return False
        self._count_tentative(shape, row, -1)
        self.changes.note(row)  # its records have changed
        return True

    def _shift(self, usage: Usage, row: int, count: int) -> None:
        for column, amount in usage.lines:
            cells = column.used_cells
            used = cells[row] + amount * count
            cells[row] = used
            column.float_cells[row] = used
        if usage.ports:
            self.ports.shift(row, usage.ports, count)
        usage.kin.shift(row, count)
        if usage.group:
            self.groups.shift(usage.group, row, count)
        if usage.volumes is not None:
            self.volumes.shift(row, *usage.volumes, count)
        self.changes.note(row)

    def _put_node(self, change: NodeChange) -> None:
        node = self._interner.node(change.row, nodes=self.capacity)
        row = self._row_of_id.get(change.node_id)
        if row is None:
            row = self._new_row(change.node_id, node)
        if self.node_uid[row] != node.uid:
            raise SnapshotError(f"node id {change.node_id} names {self.node_uid[row]}, {node.uid}")
        old = self.node_rows[row]
        if old is None or old.allocatable != node.allocatable:
            self.resources.set_allocatable(row, node.allocatable)
        if old is None or old.labels != node.labels:
            self._labels.set(row, node.labels)
        self.images.replace(row, () if old is None else old.images, node.images)
        self.node_rows[row] = node
        self.name[row] = node.name
        self._row_of_name[node.name] = row
        self.unschedulable[row] = node.unschedulable
        self.frozen[row] = change.frozen
        self.taint_set[row] = self._taint_id(node.taints)
        self.node_changes.note(row)
        self.changes.note(row)

    def _new_row(self, node_id: int, node: NodeRow) -> int:
        row = self._free.pop() if self._free else self._extend()
        digest = hashlib.blake2b(node.uid.encode(), digest_size=8).digest()
        self.uid_hash[row] = int.from_bytes(digest, "big")
        self.partition[row] = int.from_bytes(digest, "big") % PARTITIONS
        self.node_uid[row] = node.uid
        self.node_id[row] = node_id
        self._row_of_id[node_id] = row
        self.live[row] = True
        self.node_count += 1
        self.images.version += 1
        return row

    def _extend(self) -> int:
        if self.rows == self.capacity:
            self._grow(self.capacity * 2)
        self.rows += 1
        self.node_rows.append(None)
        self.name.append("")
        self.node_uid.append("")
        return self.rows - 1

    def _grow(self, capacity: int) -> None:
        self.node_id = grown(self.node_id, capacity)
        self.live = grown(self.live, capacity)
        self.frozen = grown(self.frozen, capacity)
        self.unschedulable = grown(self.unschedulable, capacity)
        self.partition = grown(self.partition, capacity)
        self.uid_hash = grown(self.uid_hash, capacity)
        self.taint_set = grown(self.taint_set, capacity)
        self.resources.grow(capacity)
        self.images.grow(capacity)
        self._labels.grow(capacity)
        self.tallies.grow(capacity)
        self.capacity = capacity

    def _remove_node(self, node_id: int) -> None:
        row = self._row_of_id.pop(node_id, None)
        if row is None:
            return
        old = self.node(row)
        if self._row_of_name.get(old.name) == row:
            del self._row_of_name[old.name]
        self._pods.clear(row)
        self.records.clear(row)
        self.quota.clear_row(row)
        self.tentative -= self._tentative_on.pop(row, 0)
        self.resources.clear(row)
        self.ports.clear(row)
        self.kins.clear(row)
        self.groups.clear(row)
        self.volumes.clear(row)
        self.images.replace(row, old.images, ())
        self.images.version += 1
        self._labels.set(row, ())
        self.node_rows[row] = None
        self.name[row] = ""
        self.node_uid[row] = ""
        self.node_id[row] = -1
        self.live[row] = False
        self.frozen[row] = False
        self.unschedulable[row] = False
        self.taint_set[row] = 0
        self.node_count -= 1
        self._free.append(row)
        self.node_changes.note(row)
        self.changes.note(row)

    def _put_object(self, row: ObjectRow) -> None:
        if row.kind in STORAGE_KINDS:
            self.volumes.put(row.kind, row.key, None if row.removed else row.payload)
        self._objects.put(row)
        tell_quota(self.quota, row)
        if row.kind == NOMINATION:
            self.restore_nomination(row.key)
        elif row.kind == STAKE:
            self.stakes.put(row.key, None if row.removed else row.payload)

    def _taint_id(self, taints: tuple[Taint, ...]) -> int:
        known = self._taint_ids.get(taints)
        if known is None:
            known = self._taint_ids[taints] = len(self.taint_sets)
            self.taint_sets.append(taints)
        return known

    # ----------------------------------------------------------------------------------- self-check
    def validate(self) -> None:
        """Assert that columns, indexes and counts agree; O(everything), for tests and audits."""
        check(
            self, shapes=self._shapes, pods=self._pods, row_of_id=self._row_of_id,
            tentative_on=self._tentative_on,
        )  # fmt: skip
