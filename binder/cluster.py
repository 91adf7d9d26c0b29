"""The authoritative picture of the cluster, and the deltas that tell of its changes.

The Binder's picture is the same :class:`Snapshot` that shards hold, advanced by the same deltas
that they are sent; so whatever a shard can see, the Binder has seen first, in the same order. Every
change, from a commit or from a watch, goes into the open delta; :meth:`flush` closes it under the
next sequence number. A pod is on a node once: its row is keyed by uid, and placing it again moves
it.

A pod bound to a node that is not known (yet, or any more) waits under the node's name: watches of
pods and nodes are not ordered among each other, and a node that comes back under its name finds the
pods of that name on it, whatever its uid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from binder.device_book import DeviceBook
from binder.placed import NO_FACTS, NodeEntry, PodFacts, PodRow
from binder.pod_labels import PodLabels
from binder.quota import QuotaBook
from binder.quota_pods import Placed
from binder.shape_numbers import IDLE_SHAPES, ShapeNumbers
from binder.storage import HELD_KINDS, Storage
from stretto.model.devices import CLAIM as DEVICE_CLAIM
from stretto.model.shape import Shape
from stretto.model.unit import NodeId, Version
from stretto.quota.rows import USAGE, encode_quota
from stretto.snapshot.columns import Settling, Snapshot
from stretto.snapshot.delta import (
    API_SERVED,
    LABEL_KEYS,
    NAMESPACE,
    Delta,
    NodeChange,
    NodeRow,
    ObjectRow,
    encode_label_keys,
    encode_labels,
)
from stretto.snapshot.nominations import NOMINATION, NominationRow, encode_nomination
from stretto.snapshot.pod_records import LEAVING, PREEMPTED
from stretto.snapshot.quota_rows import tell_quota


class Cluster:
    """See the module docstring."""

    def __init__(self, *, epoch: int, idle_shapes: int = IDLE_SHAPES) -> None:
        self.epoch = epoch
        self.snapshot = Snapshot()
        self.nodes: dict[str, NodeEntry] = {}
        """By node uid."""
        self.pods: dict[str, PodRow] = {}
        """By pod uid."""
        self.facts: dict[str, PodFacts] = {}
        """By pod uid, of pods that are or may soon be on a node."""
        self.stale: set[str] = set()
        """Pods of ours whose labels under the newest keys are not known before the watch shows
        them."""
        self._labels = PodLabels()
        self._labels_grown = False
        self.nominated: dict[str, tuple[str, Shape]] = {}
        """Pods nominated to a node: uid → (name of the node, shape). In the log while the pod is on
        no node."""
        self._uid_of_pod: dict[tuple[str, str], str] = {}
        self._sequence = 0
        self._delta = self._open()
        self._closed: list[Delta] = []
        self.settling: Settling = {}
        """Tentative pods that the open step commits."""
        self._next_node = 1
        self._uid_of_name: dict[str, str] = {}
        self._fresh_shapes: dict[int, Shape] = {}
        """Shapes of the open step by number."""
        self._numbers = ShapeNumbers(idle_limit=idle_shapes)
        self._payloads: dict[tuple[str, str], bytes] = {}
        """What :meth:`object_seen` was told last, by (kind, key)."""
        self.devices = DeviceBook(self._object_changed)
        """Claims to devices, and what reserved pods hold of them."""
        self.storage = Storage(self._object_changed)
        """Volumes and claims, and what reserved pods hold of them."""
        self.quota = QuotaBook(
            placed=self._counted, all_pods=lambda: [*self.pods, *self._waits_for]
        )
        """What queues have used."""
        self._waiting: dict[str, dict[str, Shape]] = {}
        """Pods bound to a node name that is not known: name → uid → shape."""
        self._waits_for: dict[str, str] = {}
        """Uid → the name it waits for."""

    def _open(self) -> Delta:
        return Delta(epoch=self.epoch, sequence=self._sequence + 1)

    def begin(self, epoch: int) -> None:
        """What a standby has seen is what its own epoch starts from."""
        assert self.epoch == 0 < epoch, "a Binder has one epoch in its life"
        self.take_closed()
        self.epoch = epoch
        self.snapshot.begin(epoch)
        self._delta = self._open()

    # ------------------------------------------------------------------------------------ reading
    @property
    def sequence(self) -> int:
        """The last closed step."""
        return self._sequence

    @property
    def changed(self) -> bool:
        """Something has happened since the last closed step."""
        return not self._delta.empty or self.quota.pending

    @property
    def version(self) -> Version:
        """The last closed step, with its epoch."""
        return Version(self.epoch, self._sequence)

    @property
    def next_sequence(self) -> int:
        """The step that contains everything that has happened, closed or not."""
        return self._sequence if self._delta.empty else self._sequence + 1

    @property
    def label_keys(self) -> tuple[str, ...]:
        """Sorted keys of the labels that some selector reads."""
        return self._labels.keys

    def shape(self, shape_id: int) -> Shape:
        """A shape by its number in the log; packed there, but for those of the open step."""
        fresh = self._fresh_shapes.get(shape_id)
        return self.snapshot.shape(shape_id) if fresh is None else fresh

    def knows(self, uid: str) -> bool:
        """Whether a pod is on a node, or bound to a name that no node has now."""
        return uid in self.pods or uid in self._waits_for

    def rows_of(self, uids: Iterable[str]) -> dict[str, int]:
        """Rows of the snapshot that pods are on; those that are on none are left out."""
        found: dict[str, int] = {}
        for uid in uids:
            pod = self.pods.get(uid)
            row = self.snapshot.row_of(self.nodes[pod.node_uid].node_id) if pod else None
            if row is not None:
                found[uid] = row
        return found

    def node_uid_of(self, name: str) -> str:
        """The uid of the node that has this name now, or ""."""
        return self._uid_of_name.get(name, "")

    # -------------------------------------------------------------------------------------- nodes
    def node_seen(self, row: NodeRow) -> list[str] | None:
        """A node was listed, added or changed: pods that had waited for it and are placed now.

        None if nothing that plugins read has changed. A former node of this name must be gone.
        """
        assert self._uid_of_name.get(row.name) in (None, row.uid), "two nodes of one name"
        entry = self.nodes.get(row.uid)
        if entry is not None and entry.row == row:
            return None
        if entry is None:
            entry = self.nodes[row.uid] = NodeEntry(NodeId(self._next_node), row)
            self._next_node += 1
        assert entry.row.name == row.name, f"node {row.uid} was {entry.row.name}"
        entry.row = row
        self._uid_of_name[row.name] = row.uid
        self._delta.nodes.append(NodeChange(entry.node_id, row, entry.frozen))
        waited = self._waiting.pop(row.name, {})
        for uid, shape in waited.items():
            del self._waits_for[uid]
            self.place(uid, shape=shape, node_uid=row.uid)
        return list(waited)

    def node_gone(self, uid: str) -> dict[str, Shape]:
        """A node was deleted; the pods that were on it, which are nowhere now."""
        entry = self.nodes.get(uid)
        if entry is None:
            return {}
        there = {pod: self.shape(self.pods[pod].shape_id) for pod in entry.pods}
        for pod in there:
            self.remove(pod)
        assert not entry.pods, f"pods are left on node {uid}"
        del self.nodes[uid]
        if self._uid_of_name.get(entry.row.name) == uid:
            del self._uid_of_name[entry.row.name]
        self._delta.removed_nodes.append(entry.node_id)
        return there

    def freeze(self, uid: str, *, frozen: bool = True) -> None:
        """Take a node out of commits (or back) because of an audit."""
        entry = self.nodes.get(uid)
        if entry is not None and entry.frozen != frozen:
            entry.frozen = frozen
            self._delta.nodes.append(NodeChange(entry.node_id, entry.row, frozen))

    # --------------------------------------------------------------------------------------- pods
    def place(self, uid: str, *, shape: Shape, node_uid: str) -> bool:
        """A pod is on a node; False if it was there with this shape already."""
        self.read_labels(shape.reads)
        stored, known = self._stored(uid, shape)
        shape_id = self.number_of(stored)
        row = self.pods.get(uid)
        if row is not None and row.shape_id == shape_id and row.node_uid == node_uid:
            if known:
                self.stale.discard(uid)
            return False
        assert node_uid in self.nodes, f"{uid} is placed on {node_uid}, which is not there"
        self._numbers.hold((shape_id,))
        if row is not None:
            self.remove(uid)
        if not known:
            self.stale.add(uid)
        self._stop_waiting(uid)
        assert uid not in self.pods, f"{uid} is on two nodes"
        entry = self.nodes[node_uid]
        entry.pods.add(uid)
        self.pods[uid] = PodRow(shape_id, node_uid)
        facts = self.facts.get(uid, NO_FACTS)
        self._delta.add_pod(
            shape_id=shape_id, node_id=entry.node_id, uid=uid, start_s=facts.start_s,
            flags=facts.flags | self.quota.flags_of(uid),
        )  # fmt: skip
        self._touch(uid)
        if uid in self.nominated:
            self.object_seen(NOMINATION, uid, None)
        return True

    def _stored(self, uid: str, shape: Shape) -> tuple[Shape, bool]:
        """The shape as the log has it, with the labels that count now; and whether they are
        known."""
        labels = self.facts.get(uid, NO_FACTS).labels
        if labels is not None:
            return self._labels.project(shape, labels), True
        return self._labels.project(shape, shape.labels), shape.label_keys == self.label_keys

    def read_labels(self, keys: Iterable[str]) -> None:
        """Some selector reads these labels: if they are new, every pod is shown with them from
        this step on."""
        if self._labels.read(keys):
            self._labels_grown = True
            self._object(LABEL_KEYS, "", encode_label_keys(self.label_keys))

    def _reproject(self) -> None:
        """Only pods with a label under a new key get another shape."""
        self._labels_grown = False
        for uid, row in list(self.pods.items()):
            labels = self.facts.get(uid, NO_FACTS).labels
            if labels is None:
                self.stale.add(uid)
                continue
            shape = self.shape(row.shape_id)
            if self._labels.project(shape, labels).digest != shape.digest:
                self.place(uid, shape=shape, node_uid=row.node_uid)

    def describe(self, uid: str, facts: PodFacts) -> None:
        """A pod has this name, start time and flags now; :meth:`forget` when it is gone."""
        old = self.facts.get(uid)
        if old is not None and facts.labels is None:
            facts = facts._replace(labels=old.labels)
        if old is not None and old.flags & PREEMPTED:
            # It is on its way out, whether the API shows it yet or not.
            facts = facts._replace(flags=facts.flags | old.flags)
        if old == facts:
            return
        assert facts.flags >= 0
        assert facts.start_s >= 0
        self.facts[uid] = facts
        self._uid_of_pod[facts.namespace, facts.name] = uid
        row = self.pods.get(uid)
        if uid in self.stale and row is not None:
            self.place(uid, shape=self.shape(row.shape_id), node_uid=row.node_uid)
        elif (old or NO_FACTS)[2:4] != facts[2:4]:
            self._record(uid, facts)

    def _record(self, uid: str, facts: PodFacts) -> None:
        row = self.pods.get(uid)
        if row is not None:
            self._touch(uid)
            self._delta.add_pod(
                shape_id=row.shape_id, node_id=self.nodes[row.node_uid].node_id, uid=uid, sign=0,
                start_s=facts.start_s, flags=facts.flags | self.quota.flags_of(uid),
            )  # fmt: skip

    def _touch(self, uid: str) -> None:
        if self.quota.on:
            self.quota.touch(uid)

    def _counted(self, uid: str) -> Placed | None:
        """What quota must know of a pod that is on a node, or bound to the name of one."""
        row = self.pods.get(uid)
        if row is not None:
            shape = self.shape(row.shape_id)
        elif uid in self._waits_for:
            shape = self._waiting[self._waits_for[uid]][uid]
        else:
            return None
        facts = self.facts.get(uid, NO_FACTS)
        return Placed(shape, facts.start_s, bool(facts.flags & (LEAVING | PREEMPTED)))

    def forget(self, uid: str) -> None:
        """A pod is gone for good."""
        facts = self.facts.pop(uid, None)
        if facts is not None and self._uid_of_pod.get(facts[:2]) == uid:
            del self._uid_of_pod[facts[:2]]

    def uid_of_pod(self, namespace: str, name: str) -> str:
        """The uid of the pod of this name that is on a node, or ''."""
        return self._uid_of_pod.get((namespace, name), "")

    def mark(self, uid: str, *, flags: int) -> None:
        """Give a pod these flags, whatever it had."""
        facts = self.facts.get(uid)
        if facts is not None and facts.flags != flags:
            self.facts[uid] = facts._replace(flags=flags)
            self._record(uid, self.facts[uid])

    # -------------------------------------------------------------------------------- nominations
    def nominate(self, uid: str, *, node: str, shape: Shape) -> None:
        """A pod is nominated to a node by name."""
        if self.nominated.get(uid) != (node, shape):
            self.nominated[uid] = node, shape
            self._show_nomination(uid)

    def denominate(self, uid: str) -> None:
        """A pod is not nominated any more."""
        if self.nominated.pop(uid, None) is not None and not self.knows(uid):
            self.object_seen(NOMINATION, uid, None)

    def _show_nomination(self, uid: str) -> None:
        if uid in self.nominated and not self.knows(uid):
            node, shape = self.nominated[uid]
            assert node, f"{uid} is nominated to no node"
            row = NominationRow(node, self.number_of(shape))
            self.object_seen(NOMINATION, uid, encode_nomination(row))

    def bound_to(self, uid: str, *, shape: Shape, node_name: str) -> bool:
        """A pod is bound to a name, of a node that is known or not; False if that was so before."""
        node_uid = self._uid_of_name.get(node_name)
        if node_uid is not None:
            return self.place(uid, shape=shape, node_uid=node_uid)
        if self._waiting.get(node_name, {}).get(uid) == shape:
            return False
        self.remove(uid)
        assert uid not in self._waits_for, f"{uid} waits for two nodes"
        self._waiting.setdefault(node_name, {})[uid] = shape
        self._waits_for[uid] = node_name
        self._touch(uid)
        if uid in self.nominated:
            self.object_seen(NOMINATION, uid, None)
        return True

    def remove(self, uid: str) -> bool:
        """A pod left its node, or its reservation is over; False if it was on none."""
        self._stop_waiting(uid)
        row = self.pods.pop(uid, None)
        if row is None:
            return False
        entry = self.nodes[row.node_uid]
        assert uid in entry.pods, f"{uid} is not on its node"
        entry.pods.remove(uid)
        self._delta.add_pod(shape_id=row.shape_id, node_id=entry.node_id, uid=uid, sign=-1)
        self._touch(uid)
        self._numbers.release((row.shape_id,))
        self.stale.discard(uid)
        self._show_nomination(uid)
        return True

    def _stop_waiting(self, uid: str) -> None:
        name = self._waits_for.pop(uid, None)
        if name is not None:
            self._touch(uid)
            waiting = self._waiting[name]
            assert uid not in self.pods, f"{uid} waits for a node and is on one"
            del waiting[uid]
            if not waiting:
                del self._waiting[name]

    def number_of(self, shape: Shape) -> int:
        """The number of a shape in the log, defined there if need be."""
        number, new = self._numbers.number_of(shape)
        if new:
            assert number not in self._fresh_shapes, f"shape {number} is defined twice"
            self._fresh_shapes[number] = shape
            self._delta.shapes.append((number, shape))
        return number

    # ------------------------------------------------------------------------------------ objects
    def namespace_seen(self, name: str, labels: Mapping[str, str]) -> None:
        """A namespace exists with these labels."""
        self._object(NAMESPACE, name, encode_labels(dict(labels)))

    def namespace_gone(self, name: str) -> None:
        """A namespace was deleted."""
        self._object(NAMESPACE, name, None)

    def object_seen(self, kind: str, key: str, payload: bytes | None) -> None:
        """An object that plugins read is as ``payload`` says; None: there is none."""
        if kind in HELD_KINDS:
            self.storage.seen(kind, key, payload)
        elif kind == DEVICE_CLAIM:
            self.devices.seen(key, payload)
        else:
            self._object_changed(kind, key, payload)

    def _object_changed(self, kind: str, key: str, payload: bytes | None) -> None:
        before = self._payloads.get((kind, key))
        if before == payload:
            return
        self._numbers.object_changed(kind, before, payload)
        if payload is None:
            assert before is not None
            del self._payloads[kind, key]
        else:
            self._payloads[kind, key] = payload
        self._object(kind, key, payload)

    def api_served(self, api: str) -> None:
        """The API server serves an optional API."""
        self.object_seen(API_SERVED, api, b"")

    def _object(self, kind: str, key: str, payload: bytes | None) -> None:
        version = self._sequence + 1
        row = ObjectRow(kind, key, version, payload or b"", removed=payload is None)
        self._delta.objects.append(row)
        tell_quota(self.quota, row)

    # ----------------------------------------------------------------------------------- the log
    def flush(self) -> Delta | None:
        """Close the open step and apply it; None if nothing changed."""
        if self._labels_grown:
            self._reproject()
        assert not self._labels_grown, "new keys were read while pods were shown with new ones"
        if self.quota.pending:
            self._settle_quota()
        closed: Delta | None = None
        self._delta.dropped_shapes += self._numbers.take_dropped()
        if not self._delta.empty:
            closed = self._delta
            assert closed.sequence == self._sequence + 1, "a step of the log is left out"
            assert closed.epoch == self.epoch, "a step of another epoch"
            self._sequence = closed.sequence
            self.snapshot.apply(closed, self.settling)
            assert self.snapshot.version == (self.epoch, self._sequence)
            self._fresh_shapes.clear()
            self._delta = self._open()
            self._closed.append(closed)
        assert not self.settling, "committed, and in no step of the log"
        return closed

    def _settle_quota(self) -> None:
        usage, flagged = self.quota.settle()
        for uid in flagged:
            self._record(uid, self.facts.get(uid, NO_FACTS))
        self.quota.settled()
        for name, row in usage:
            self.object_seen(USAGE, name, None if row is None else encode_quota(row))

    def take_closed(self) -> list[Delta]:
        """Steps closed since the last call, in order."""
        self.flush()
        closed, self._closed = self._closed, []
        return closed

    def validate(self) -> None:
        """Assert that the picture and its indexes agree."""
        self.snapshot.validate()
        self.quota.validate()
        assert self._uid_of_name == {entry.row.name: uid for uid, entry in self.nodes.items()}
        for uid, row in self.pods.items():
            assert row.node_uid in self.nodes, f"pod {uid} is on node {row.node_uid}, which is gone"
            assert uid in self.nodes[row.node_uid].pods
        assert len(self.pods) == sum(len(entry.pods) for entry in self.nodes.values())
        waiting = {uid: name for name, pods in self._waiting.items() for uid in pods}
        assert waiting == self._waits_for
        assert not waiting.keys() & self.pods.keys()
        for uid, row in self.pods.items() if not self._labels_grown else ():
            shape, _ = self._stored(uid, self.shape(row.shape_id))
            assert shape == self.shape(row.shape_id), f"labels of {uid} are old"
        assert self.stale <= self.pods.keys()
        self._numbers.validate([row.shape_id for row in self.pods.values()], self._payloads)
        assert not self._waiting.keys() & self._uid_of_name.keys()
