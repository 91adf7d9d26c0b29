"""Steps of the Binder's log as cluster events, and what they wake in the queue."""

from __future__ import annotations

import msgspec
import pytest

from dispatcher.cluster_events import EventSource
from dispatcher.states import State
from dispatcher.wakeups import KEPT_STEPS
from stretto.model.devices import Allocation, ClaimRow, encode_row
from stretto.model.groups import LEGACY_API, POD_GROUP, GroupRow, encode_group
from stretto.model.shape import Shape
from stretto.model.unit import Version
from stretto.placement.events import NODE, Action, ClusterEvent
from stretto.quota.rows import QUEUE, USAGE, QueueRow, UsageRow, encode_quota
from stretto.rpc.errors import WireError
from stretto.snapshot.budgets import BUDGET
from stretto.snapshot.delta import (
    API_SERVED,
    LABEL_KEYS,
    Delta,
    ImageRow,
    NodeChange,
    NodeRow,
    ObjectRow,
    Taint,
)
from stretto.snapshot.nominations import NOMINATION, NominationRow, encode_nomination
from stretto.snapshot.stakes import STAKE, Seat, StakeRow, encode_stake
from tests.dispatcher.brain import BINDER, POD_REMOVED, Brain, shape

A = Shape(profile="stretto", namespace="default", requests=(("cpu", 2),))
SMALLER = Shape(profile="stretto", namespace="default", requests=(("cpu", 1),))
LABELLED = Shape(
    profile="stretto", namespace="default", requests=(("cpu", 2),), labels=(("k", "v"),)
)


def node(**fields: object) -> NodeRow:
    return NodeRow(name="n", uid="u", **fields)  # type: ignore[arg-type]


def labels(source: EventSource, delta: Delta) -> list[str]:
    return [event.label for event in source.events(delta)]


@pytest.fixture
def source() -> EventSource:
    known = EventSource()
    shapes = [(1, A), (2, SMALLER), (3, LABELLED)]
    known.learn(Delta(shapes=shapes, nodes=[NodeChange(1, node())]))
    return known


def test_pods_that_come_and_leave_are_one_event_a_shape(source: EventSource) -> None:
    delta = Delta()
    for uid in ("a", "b", "c"):
        delta.add_pod(shape_id=1, node_id=1, uid=uid)
    delta.add_pod(shape_id=2, node_id=1, uid="gone", sign=-1)
    assert labels(source, delta) == ["AssignedPodDelete", "AssignedPodAdd"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (1, 1, []),
        (1, 2, ["AssignedPodUpdateScaleDown"]),
        (2, 1, []),
        (1, 3, ["AssignedPodUpdateLabel"]),
    ],
)
def test_a_pod_with_both_signs_was_changed(
    source: EventSource, old: int, new: int, expected: list[str]
) -> None:
    delta = Delta()
    delta.add_pod(shape_id=old, node_id=1, uid="a", sign=-1)
    delta.add_pod(shape_id=new, node_id=1, uid="a")
    assert labels(source, delta) == expected


def test_a_pod_that_changes_and_leaves_in_one_step_has_left(source: EventSource) -> None:
    delta = Delta()
    for sign, shape_id in ((-1, 1), (1, 3), (-1, 3)):
        delta.add_pod(shape_id=shape_id, node_id=1, uid="a", sign=sign)
    assert labels(source, delta) == ["AssignedPodDelete"]


def test_a_pod_that_comes_and_leaves_in_one_step_is_no_event(source: EventSource) -> None:
    delta = Delta()
    for sign in (1, -1):
        delta.add_pod(shape_id=1, node_id=1, uid="a", sign=sign)
    assert labels(source, delta) == []


def test_a_pod_that_moves_leaves_one_node_and_comes_to_another(source: EventSource) -> None:
    delta = Delta(nodes=[NodeChange(2, node())])
    source.learn(delta)
    delta = Delta()
    delta.add_pod(shape_id=1, node_id=1, uid="a", sign=-1)
    delta.add_pod(shape_id=1, node_id=2, uid="a")
    assert labels(source, delta) == ["AssignedPodDelete", "AssignedPodAdd"]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (node(), []),
        (node(images=(ImageRow(("i",), 1),)), []),
        (node(unschedulable=True), ["NodeUpdateTaint"]),
        (node(taints=(Taint("a", "", "NoSchedule"),)), ["NodeUpdateTaint"]),
        (node(declared_features=("f",)), ["NodeUpdateDeclaredFeature"]),
        (
            node(labels=(("a", "b"),), allocatable=(("cpu", 1),)),
            ["NodeUpdateAllocatable", "NodeUpdateLabel"],
        ),
    ],
)
def test_node_updates_are_told_apart(
    source: EventSource, row: NodeRow, expected: list[str]
) -> None:
    assert labels(source, Delta(nodes=[NodeChange(1, row)])) == expected


def test_a_nomination_that_ends_leaves_room_unless_its_pod_is_placed(source: EventSource) -> None:
    payload = encode_nomination(NominationRow("n", 1))
    put = ObjectRow(NOMINATION, "p", payload=payload)
    end = ObjectRow(NOMINATION, "p", removed=True)
    assert labels(source, Delta(objects=[put])) == []
    assert labels(source, Delta(objects=[end])) == ["AssignedPodDelete"]
    assert labels(source, Delta(objects=[put])) == []
    placed = Delta(objects=[end])
    placed.add_pod(shape_id=1, node_id=1, uid="p")
    assert labels(source, placed) == ["AssignedPodAdd"]
    assert labels(source, Delta(objects=[ObjectRow(BUDGET, "default/b")])) == []


def test_a_pod_that_is_where_it_was_is_no_event(source: EventSource) -> None:
    delta = Delta()
    delta.add_pod(shape_id=1, node_id=1, uid="a", sign=0, start_s=5)
    assert labels(source, delta) == []


@pytest.mark.parametrize(
    ("signs", "expected"),
    [
        ((-1, 1, -1), ["AssignedPodDelete"]),
        ((0, -1, 1, -1), ["AssignedPodDelete"]),
        ((1, -1), []),
        ((1, -1, 1), ["AssignedPodAdd"]),
        ((-1, 1, -1, 1), []),
    ],
)
def test_a_pod_that_changes_and_goes_in_one_step_has_gone(
    source: EventSource, signs: tuple[int, ...], expected: list[str]
) -> None:
    """A pod deleted without grace is first seen as terminating, then as gone, often at once."""
    delta = Delta()
    for sign in signs:
        delta.add_pod(shape_id=1, node_id=1, uid="a", sign=sign)
    assert labels(source, delta) == expected


def test_nodes_come_thaw_and_go(source: EventSource) -> None:
    assert labels(source, Delta(nodes=[NodeChange(2, node())])) == ["NodeAdd"]
    assert labels(source, Delta(nodes=[NodeChange(2, node(), frozen=True)])) == []
    assert labels(source, Delta(nodes=[NodeChange(2, node())])) == ["NodeAdd"]
    assert labels(source, Delta(removed_nodes=[2])) == ["NodeDelete"]
    assert labels(source, Delta(removed_nodes=[2])) == []


def test_objects_are_added_updated_and_deleted(source: EventSource) -> None:
    row = ObjectRow("StorageClass", "fast")
    assert labels(source, Delta(objects=[row])) == ["StorageClassAdd"]
    assert labels(source, Delta(objects=[row])) == ["StorageClassUpdate"]
    gone = ObjectRow("StorageClass", "fast", removed=True)
    assert labels(source, Delta(objects=[gone])) == ["StorageClassDelete"]
    assert labels(source, Delta(objects=[row])) == ["StorageClassAdd"]
    assert labels(source, Delta(objects=[ObjectRow(LABEL_KEYS, "")])) == []


def test_a_queue_whose_status_alone_changes_is_no_event(source: EventSource) -> None:
    def queue(row: QueueRow) -> list[str]:
        return labels(source, Delta(objects=[ObjectRow(QUEUE, "a", payload=encode_quota(row))]))

    assert queue(QueueRow(limit=(("cpu", 1),))) == ["QueueAdd"]
    assert queue(QueueRow(limit=(("cpu", 1),), generation=2)) == []
    assert queue(QueueRow(limit=(("cpu", 2),), generation=3)) == ["QueueUpdate"]
    gone = Delta(objects=[ObjectRow(QUEUE, "a", removed=True)])
    assert labels(source, gone) == ["QueueDelete"]
    assert queue(QueueRow(limit=(("cpu", 2),), generation=3)) == ["QueueAdd"], "as new"


def test_a_queue_that_has_less_or_may_take_back_more_is_news(source: EventSource) -> None:
    def usage(row: UsageRow | None) -> list[str]:
        payload = b"" if row is None else encode_quota(row)
        item = ObjectRow(USAGE, "a", payload=payload, removed=row is None)
        return labels(source, Delta(objects=[item]))

    less = [f"{USAGE}Update"]
    assert usage(UsageRow(used=(("cpu", 2),), held=(("cpu", 2),))) == []
    assert usage(UsageRow(used=(("cpu", 2),), held=(("cpu", 1),))) == less
    assert usage(UsageRow(used=(("cpu", 3),), held=(("cpu", 1),))) == []
    assert usage(UsageRow(used=(("cpu", 3),), held=(("cpu", 1),), aged=1)) == less
    assert usage(UsageRow(used=(("cpu", 3),), held=(("cpu", 1),))) == [], "fewer have come of age"
    assert usage(None) == less
    assert usage(None) == []


def test_the_seats_of_a_stake_that_end_leave_room(source: EventSource) -> None:
    def stake(*seats: Seat, removed: bool = False) -> list[str]:
        payload = b"" if removed else encode_stake(StakeRow("u", "pool", 0, seats))
        item = ObjectRow(STAKE, "s", payload=payload, removed=removed)
        return labels(source, Delta(objects=[item]))

    assert stake(Seat("n", 1), Seat("n", 2), Seat("m", 1)) == []
    assert stake(Seat("n", 1), Seat("m", 1)) == ["AssignedPodDelete"]
    assert stake(Seat("n", 1), Seat("m", 1)) == []
    assert list(source.stakes) == ["s"]
    assert stake(removed=True) == ["AssignedPodDelete"], "one for each shape"
    assert stake(removed=True) == []
    assert not source.stakes


def test_groups_have_the_members_that_are_on_nodes(source: EventSource) -> None:
    member = msgspec.structs.replace(A, group="ns/g")
    group = GroupRow(min_count=2)
    source.learn(Delta(
        shapes=[(7, member)], objects=[ObjectRow(POD_GROUP, "ns/g", payload=encode_group(group))],
    ))  # fmt: skip
    assert source.take_groups() == [("ns/g", group, 0)]
    delta = Delta()
    for uid in ("a", "b"):
        delta.add_pod(shape_id=7, node_id=1, uid=uid)
    delta.add_pod(shape_id=7, node_id=99, uid="on a node that is unknown")
    source.learn(delta)
    assert source.take_groups() == [("ns/g", group, 2)]
    assert source.take_groups() == []
    gone = Delta(objects=[ObjectRow(POD_GROUP, "ns/g", removed=True)])
    gone.add_pod(shape_id=7, node_id=1, uid="a", sign=-1)
    source.learn(gone)
    assert source.take_groups() == [("ns/g", None, 1)]
    source.learn(Delta(removed_nodes=[1]))
    assert source.take_groups() == [("ns/g", None, 0)]


def test_pods_of_a_full_state_come_as_counts(source: EventSource) -> None:
    member = msgspec.structs.replace(A, group="ns/g")
    state = Delta(
        shapes=[(7, member)], pod_node=[1, 1], pod_shape=[7, 1], pod_sign=[1, 1], pod_count=[3, 2]
    )
    assert labels(source, state) == []
    assert source.take_groups() == [("ns/g", None, 3)]


def test_scheduler_plugins_groups_are_looked_for_while_they_are_served(source: EventSource) -> None:
    for removed in (False, True, False):
        row = ObjectRow(API_SERVED, LEGACY_API, removed=removed)
        assert labels(source, Delta(objects=[row])) == []
        assert source.legacy_groups is not removed
    labels(source, Delta(objects=[ObjectRow(API_SERVED, "another", removed=True)]))
    assert source.legacy_groups


def test_a_shape_that_was_not_defined_breaks_the_contract(source: EventSource) -> None:
    delta = Delta()
    delta.add_pod(shape_id=9, node_id=1, uid="a")
    with pytest.raises(WireError, match=r"PodChanges\.shape holds 9"):
        source.events(delta)


@pytest.mark.parametrize("kind", [NOMINATION, "PodGroup", "ResourceClaim"])
def test_an_object_that_is_not_what_its_kind_says_is_an_error_of_the_wire(
    source: EventSource, kind: str
) -> None:
    odd = ObjectRow(kind, "ns/x", payload=b"\xc1")
    with pytest.raises(WireError, match=f"payload of {kind} ns/x"):
        source.events(Delta(epoch=1, sequence=9, objects=[odd]))


def parked(plugins: tuple[str, ...], *, at: int = 5) -> Brain:
    brain = Brain()
    brain.pod("a", shape(500))
    brain.shard()
    brain.dispatch()
    brain.unplaceable("a", at=at, plugins=plugins)
    assert brain.state("a") is State.UNSCHEDULABLE
    return brain


UNRELATED = ClusterEvent(NODE, Action.NODE_LABEL, old_node=node(), new_node=node())
ROOMY = ClusterEvent(NODE, Action.ADD, new_node=node(allocatable=(("cpu", 500), ("pods", 1))))
TINY = ClusterEvent(NODE, Action.ADD, new_node=node(allocatable=(("cpu", 499), ("pods", 1))))


def test_an_event_that_cannot_help_wakes_nobody() -> None:
    brain = parked(("NodeResourcesFit",))
    brain.event(UNRELATED, at=6)
    brain.event(TINY, at=7)
    assert brain.state("a") is State.UNSCHEDULABLE
    brain.event(ROOMY, at=8)
    assert brain.state("a") is State.BACKOFF


def test_a_helpful_event_is_found_among_unhelpful_ones_when_it_is_replayed() -> None:
    brain = Brain()
    brain.pod("a", shape(500))
    brain.shard()
    brain.dispatch()
    for version, event in enumerate((TINY, ROOMY, UNRELATED), 6):
        brain.event(event, at=version)
    brain.unplaceable("a", at=5)
    assert brain.state("a") is State.BACKOFF


def test_unhelpful_events_during_the_decision_do_not_bring_it_back() -> None:
    brain = Brain()
    brain.pod("a", shape(500))
    brain.shard()
    brain.dispatch()
    for version, event in enumerate((TINY, UNRELATED), 6):
        brain.event(event, at=version)
    brain.unplaceable("a", at=5)
    assert brain.state("a") is State.UNSCHEDULABLE


def test_a_claim_that_loses_its_devices_or_goes_with_them_releases_them(
    source: EventSource,
) -> None:
    free, held = (encode_row(ClaimRow("ns", "c", "u", allocation=a)) for a in (None, Allocation()))

    def released(payload: bytes, *, removed: bool = False) -> bool:
        row = ObjectRow("ResourceClaim", "ns/c", payload=payload, removed=removed)
        (event,) = source.events(Delta(objects=[row]))
        assert event.key == "ns/c"
        return event.released

    assert [released(free), released(held), released(held), released(free)] == [0, 0, 0, 1]
    assert [released(b"", removed=True), released(held), released(b"", removed=True)] == [0, 0, 1]


def test_a_decision_older_than_the_kept_steps_may_have_missed_anything() -> None:
    brain = Brain()
    brain.pod("a", shape(500))
    brain.shard()
    brain.dispatch()
    for sequence in range(6, 6 + KEPT_STEPS + 1):
        version = Version(BINDER, sequence)
        brain.machine.events([UNRELATED], version=version, now=brain.now)
    brain.unplaceable("a", at=5)
    assert brain.state("a") is State.BACKOFF


def test_a_pod_rejected_by_nobody_known_hears_of_everything() -> None:
    brain = parked(())
    brain.event(UNRELATED, at=6)
    assert brain.state("a") is State.BACKOFF


def test_backoff_is_cut_short_only_when_nothing_else_is_to_be_done() -> None:
    brain = Brain(pop_from_backoff=True)
    brain.pod("a", shape(500))
    brain.pod("busy", shape(1))
    brain.shard()
    brain.dispatch()
    brain.unplaceable("a", at=5)
    brain.event(POD_REMOVED, at=6)
    assert brain.units() == [], "a shard is still deciding"
    brain.bind("busy")
    assert brain.units() == ["a"]
    assert brain.machine.statistics.incoming["active", "PopFromBackoffQ"] == 1
