"""Steps of the Binder's log diffed into cluster events.

To tell what changed one must know what was: nodes without their images, and the shapes of the log
packed as the snapshot packs them. Pods are not kept; a step names the shape of each that came or
left. Equal events of a step are one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from stretto.model.devices import CLAIM, decode_claim
from stretto.model.groups import LEGACY_API, POD_GROUP, GroupRow, decode_group
from stretto.model.shape import Shape
from stretto.placement.events import ASSIGNED_POD, NODE, Action, ClusterEvent
from stretto.quota.rows import QUEUE, USAGE, QueueRow, UsageRow, decode_queue, decode_usage
from stretto.rpc.errors import WireError
from stretto.snapshot.budgets import BUDGET
from stretto.snapshot.delta import API_SERVED, LABEL_KEYS, Delta, NodeRow, ObjectRow
from stretto.snapshot.group_rows import GroupRows
from stretto.snapshot.kins import KinTable
from stretto.snapshot.nominations import NOMINATION, decode_nomination
from stretto.snapshot.pods import ShapeTable
from stretto.snapshot.resources import ResourceTable
from stretto.snapshot.stakes import STAKE, Seat, StakeRow, decode_stake

Row = TypeVar("Row")
_QUIET = frozenset({API_SERVED, BUDGET, LABEL_KEYS})
"""Kinds of the log that are our own bookkeeping and wake nobody."""


class EventSource:
    """What is known of the cluster, and what each step changes in it."""

    def __init__(self) -> None:
        self._nodes: dict[int, tuple[NodeRow, bool]] = {}
        """Node number → (definition without images, frozen)."""
        self._shapes = ShapeTable(ResourceTable(capacity=1), KinTable())
        self._objects: set[tuple[str, str]] = set()
        self._nominated: dict[str, int] = {}
        """Nominated pods: uid → shape number."""
        self.totals: dict[str, int] = {}
        """What all nodes offer, by resource."""
        self._queues: dict[str, QueueRow] = {}
        self._usage: dict[str, UsageRow] = {}
        """What queues have used."""
        self._allocated: set[str] = set()
        """ResourceClaims that have devices."""
        self._group_nodes = GroupRows()
        """Members of pod groups by node number."""
        self._groups: dict[str, GroupRow] = {}
        self._touched: set[str] = set()
        """Groups whose object or count changed since they were taken."""
        self.stakes: dict[str, StakeRow] = {}
        """By key."""
        self.legacy_groups = False
        """Whether the API server serves scheduler-plugins' groups."""

    def take_groups(self) -> list[tuple[str, GroupRow | None, int]]:
        """(namespace/name, object, members on nodes) of the groups that changed since the last
        call."""
        touched, self._touched = self._touched, set()
        return [
            (key, self._groups.get(key), sum(self._group_nodes.of(key).values()))
            for key in sorted(touched)
        ]

    def learn(self, delta: Delta) -> None:
        """Take a piece of a full state: what it shows was there before."""
        for _ in self._events(delta):
            pass

    def events(self, delta: Delta) -> list[ClusterEvent]:
        """What a step changes, in the log's order, each kind of pod once.

        Raises:
            WireError: a pod has a shape that the log has not defined, or an object is not what its
                kind says.
        """
        found = list(self._events(delta))
        self._drop(delta)
        return found

    def _drop(self, delta: Delta) -> None:
        """Forget the shapes that the step has dropped, after all else in it."""
        for number in delta.dropped_shapes:
            self._shapes.drop(number)

    def _events(self, delta: Delta) -> Iterator[ClusterEvent]:
        for number, shape in delta.shapes:
            self._shapes.define(number, shape)
        for change in delta.nodes:
            known = self._nodes.get(change.node_id)
            row = msgspec.structs.replace(change.row, images=())
            self._nodes[change.node_id] = row, change.frozen
            self._count_room(known[0] if known else None, row)
            yield from _node_events(known, row, frozen=change.frozen)
        yield from self._pod_events(delta)
        for node_id in delta.removed_nodes:
            self._touched.update(self._group_nodes.clear(node_id))
            gone = self._nodes.pop(node_id, None)
            self._count_room(gone[0] if gone else None, None)
            if gone is not None:
                yield ClusterEvent(NODE, Action.DELETE, old_node=gone[0])
        for item in delta.objects:
            yield from self._object_events(item, placed=delta.pod_uid)

    def _object_events(self, item: ObjectRow, *, placed: Sequence[str]) -> Iterator[ClusterEvent]:
        if item.kind == API_SERVED and item.key == LEGACY_API:
            self.legacy_groups = not item.removed
        if item.kind == POD_GROUP:
            self._group_object(item)
        if item.kind == USAGE:
            yield from self._usage_events(item)
        elif item.kind == QUEUE and not self._asks_anew(item):
            return
        elif item.kind == NOMINATION:
            yield from self._nomination_events(item, placed=placed)
        elif item.kind == STAKE:
            yield from self._stake_events(item)
        elif item.kind not in _QUIET:
            yield self._object_event(item)

    def _pod_events(self, delta: Delta) -> Iterator[ClusterEvent]:
        """Pods that came, left, or are there still with another shape.

        A pod may come and leave more than once in a step; what counts is before and after.
        """
        self._count_groups(delta)
        if delta.pod_count:
            return
        before: dict[str, tuple[int, int] | None] = {}
        after: dict[str, tuple[int, int] | None] = {}
        """By uid: (node, shape), None for none."""
        columns = (delta.pod_uid, delta.pod_sign, delta.pod_node, delta.pod_shape)
        for uid, sign, node, shape in zip(*columns, strict=True):
            if sign:  # else it is where it was
                before.setdefault(uid, None if sign > 0 else (node, shape))
                after[uid] = (node, shape) if sign > 0 else None
        left: set[int] = set()
        came: set[int] = set()
        changed: set[tuple[int, int]] = set()
        for uid, was in before.items():
            now = after[uid]
            if was and now and was[0] == now[0]:
                changed.add((was[1], now[1]))
                continue
            left.update({was[1]} if was else ())
            came.update({now[1]} if now else ())
        for old, new in sorted(changed):
            if old != new:
                yield from self._pod_update(old, new)
        for shape in sorted(left):
            yield ClusterEvent(ASSIGNED_POD, Action.DELETE, old_pod=self._shape(shape))
        for shape in sorted(came):
            yield ClusterEvent(ASSIGNED_POD, Action.ADD, new_pod=self._shape(shape))

    def _count_groups(self, delta: Delta) -> None:
        counts = delta.pod_count
        for i, sign in enumerate(delta.pod_sign):
            usage = self._shapes.usage(delta.pod_shape[i]) if sign else None
            if usage is not None and usage.group and delta.pod_node[i] in self._nodes:
                count = counts[i] if counts else 1
                self._group_nodes.shift(usage.group, delta.pod_node[i], sign * count)
                self._touched.add(usage.group)

    def _group_object(self, item: ObjectRow) -> None:
        self._touched.add(item.key)
        if item.removed:
            self._groups.pop(item.key, None)
        else:
            self._groups[item.key] = decoded(item, decode_group)

    def _nomination_events(
        self, item: ObjectRow, *, placed: Sequence[str]
    ) -> Iterator[ClusterEvent]:
        """A nomination that ends leaves room as a pod that is deleted does, unless its pod is
        placed in the same step."""
        before = self._nominated.pop(item.key, None)
        if not item.removed:
            self._nominated[item.key] = decoded(item, decode_nomination).shape_id
        if before is not None and item.key not in placed:
            yield ClusterEvent(ASSIGNED_POD, Action.DELETE, old_pod=self._shape(before))

    def _stake_events(self, item: ObjectRow) -> Iterator[ClusterEvent]:
        """Seats of a stake that end leave room as pods that are deleted do."""
        before = self.stakes.pop(item.key, None)
        after: tuple[Seat, ...] = ()
        if not item.removed:
            self.stakes[item.key] = row = decoded(item, decode_stake)
            after = row.seats
        ended = {seat.shape_id for seat in before.seats if seat not in after} if before else set()
        for shape in sorted(ended):
            yield ClusterEvent(ASSIGNED_POD, Action.DELETE, old_pod=self._shape(shape))

    def _count_room(self, before: NodeRow | None, after: NodeRow | None) -> None:
        for row, sign in ((before, -1), (after, 1)):
            for name, amount in row.allocatable if row is not None else ():
                self.totals[name] = self.totals.get(name, 0) + sign * amount

    def _asks_anew(self, item: ObjectRow) -> bool:
        """Whether more has changed of a queue than its status."""
        before = self._queues.pop(item.key, None)
        if item.removed:
            return True
        self._queues[item.key] = asks = decoded(item, decode_queue).asks
        return asks != before

    def _usage_events(self, item: ObjectRow) -> Iterator[ClusterEvent]:
        """What a queue has used is news for waiting pods if it has become less, or if more of it
        may be reclaimed."""
        before = self._usage.pop(item.key, UsageRow())
        after = UsageRow() if item.removed else decoded(item, decode_usage)
        if not item.removed:
            self._usage[item.key] = after
        fell = any(
            dict(new).get(name, 0) < amount
            for old, new in ((before.used, after.used), (before.held, after.held))
            for name, amount in old
        )
        if fell or after.aged > before.aged:
            yield ClusterEvent(USAGE, Action.UPDATE, key=item.key)

    def _pod_update(self, old: int, new: int) -> Iterator[ClusterEvent]:
        before, after = self._shape(old), self._shape(new)
        if before.labels != after.labels:
            yield ClusterEvent(ASSIGNED_POD, Action.POD_LABEL, old_pod=before, new_pod=after)
        asked = dict(after.requests)
        if any(asked.get(name, 0) < amount for name, amount in before.requests):
            yield ClusterEvent(ASSIGNED_POD, Action.POD_SCALE_DOWN, old_pod=before, new_pod=after)

    def _shape(self, number: int) -> Shape:
        try:
            return self._shapes.shape(number)
        except KeyError:
            raise WireError(f"PodChanges.shape holds {number}, which was not defined") from None

    def _object_event(self, item: ObjectRow) -> ClusterEvent:
        name = item.kind, item.key
        action = Action.DELETE
        if item.removed:
            self._objects.discard(name)
        else:
            action = Action.UPDATE if name in self._objects else Action.ADD
            self._objects.add(name)
        released = item.kind == CLAIM and self._releases(item)
        return ClusterEvent(item.kind, action, key=item.key, released=released)

    def _releases(self, item: ObjectRow) -> bool:
        """Whether a claim gives devices back."""
        had = item.key in self._allocated
        self._allocated.discard(item.key)
        if item.removed:
            return had
        allocated = decoded(item, decode_claim).allocation is not None
        if allocated:
            self._allocated.add(item.key)
        return had and not allocated


def decoded(item: ObjectRow, decode: Callable[[bytes], Row]) -> Row:
    """What an object of the log says.

    Raises:
        WireError: its payload is something else.
    """
    try:
        return decode(item.payload)
    except msgspec.MsgspecError as error:
        raise WireError(f"ObjectRow.payload of {item.kind} {item.key}: {error}") from None


def _node_events(
    known: tuple[NodeRow, bool] | None, new: NodeRow, *, frozen: bool
) -> Iterator[ClusterEvent]:
    """A node that thaws after an audit is to waiting pods like one that came."""
    if frozen:
        return
    if known is None or known[1]:
        yield ClusterEvent(NODE, Action.ADD, new_node=new)
        return
    old = known[0]
    action = Action(0)
    if old.allocatable != new.allocatable:
        action |= Action.NODE_ALLOCATABLE
    if old.labels != new.labels:
        action |= Action.NODE_LABEL
    if old.taints != new.taints or old.unschedulable != new.unschedulable:
        action |= Action.NODE_TAINT
    if old.declared_features != new.declared_features:
        action |= Action.NODE_FEATURE
    for single in action:
        yield ClusterEvent(NODE, single, old_node=old, new_node=new)
