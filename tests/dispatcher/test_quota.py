"""Quota before dispatch: what has no room is not sent, is told why, and goes when there is room."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant

from dispatcher.cluster_events import EventSource
from dispatcher.patching import PatchResult
from dispatcher.pods import Place
from dispatcher.queue_status import IN_FLIGHT, WRITE_EVERY_S
from dispatcher.quota import WAITS_FOR_QUOTA
from dispatcher.states import State
from stretto.model.shape import QUEUE_LABEL
from stretto.model.unit import OutcomeKind, Version
from stretto.quota.rows import (
    QUEUE,
    QUOTA_API,
    USAGE,
    QueueRow,
    UsageRow,
    encode_quota,
)
from stretto.quota.status import QueueCondition, QueueStatus, patch_of
from stretto.snapshot.delta import API_SERVED, NAMESPACE, Delta, ObjectRow, encode_labels
from tests.dispatcher.brain import BINDER, Brain, shape
from tests.dispatcher.gangs import GANG_OF_3, GROUP, known, members_of
from tests.dispatcher.test_no_pod_is_lost import Cluster as NoPodIsLost


def cpu(amount: int) -> tuple[tuple[str, int], ...]:
    return (("cpu", amount), ("pods", amount // 100)) if amount else ()


def limit(amount: int) -> tuple[tuple[str, int], ...]:
    return (("cpu", amount),)


class Cluster:
    """The Binder's log beside a brain."""

    def __init__(self, **queues: QueueRow) -> None:
        self.brain = Brain()
        self.source = EventSource()
        self.sequence = 1
        rows = [ObjectRow(API_SERVED, QUOTA_API)]
        rows += [ObjectRow(QUEUE, name, payload=encode_quota(row)) for name, row in queues.items()]
        self.brain.machine.quota.totals = {"cpu": 10_000}
        self.step(*rows)

    def step(self, *rows: ObjectRow, placed: tuple[str, ...] = ()) -> None:
        self.sequence += 1
        machine, brain = self.brain.machine, self.brain
        delta = Delta(epoch=BINDER, sequence=self.sequence, objects=list(rows))
        events = self.source.events(delta)
        delta.pod_uid, delta.pod_sign = list(placed), [1] * len(placed)
        machine.quota_step(delta)
        machine.events(events, version=Version(BINDER, self.sequence), now=brain.now)
        machine.validate()

    def usage(self, placed: tuple[str, ...] = (), **used: int) -> None:
        """The log shows what queues have used."""
        self.step(
            *(
                ObjectRow(USAGE, name, payload=encode_quota(UsageRow(used=cpu(amount))))
                for name, amount in used.items()
            ),
            placed=placed,
        )


def test_no_more_is_sent_than_the_queue_has_room_for_and_the_rest_is_told() -> None:
    cluster = Cluster(org=QueueRow(limit=limit(500)), a=QueueRow(parent="org", limit=limit(300)),
                      b=QueueRow(parent="org"))  # fmt: skip
    brain = cluster.brain
    brain.shard()
    brain.pods(5, shape(queue="a"), prefix="a")
    brain.pods(5, shape(queue="b"), prefix="b")
    assert sorted(brain.units()) == ["a0", "a1", "a2", "b0", "b1"]
    assert {brain.state(uid) for uid in ("a3", "a4", "b2")} == {State.UNSCHEDULABLE}
    orders = {order.uid: order.condition for order in brain.machine.patches(brain.now)}
    assert orders["a3"].reason == WAITS_FOR_QUOTA
    assert orders["a3"].message == "waiting for quota: queue a is at its limit of cpu"
    assert "queue org above queue b" in orders["b2"].message
    assert brain.units() == []


def test_what_is_placed_is_counted_once_and_what_ends_lets_the_next_go() -> None:
    cluster = Cluster(a=QueueRow(limit=limit(300)))
    brain = cluster.brain
    brain.shard()
    brain.pods(6, shape(queue="a"))
    first = brain.units()
    brain.settle(*first)
    cluster.usage(placed=tuple(first), a=300)
    brain.bind(*first)
    brain.wait(11)
    assert brain.units() == []
    cluster.usage(a=100)
    brain.wait(11)
    assert brain.units() == ["p3"], "the first is a probe"
    brain.settle("p3")
    cluster.usage(placed=("p3",), a=200)
    brain.bind("p3")
    assert brain.units() == ["p4"]


def test_what_is_bound_before_the_log_shows_it_counts_until_then() -> None:
    cluster = Cluster(a=QueueRow(limit=limit(200)))
    brain = cluster.brain
    brain.shard()
    brain.pods(4, shape(queue="a"))
    first = brain.units()
    brain.settle(*first)
    brain.machine.tick(brain.now)
    brain.bind("p0")
    brain.delete("p1", leaving=False)
    assert brain.units() == [], "both hold the room that the log does not show yet"
    cluster.usage(placed=("p0",), a=100)
    assert brain.units() == []
    brain.machine.binder.connected(up=False, now=brain.now)
    brain.wait(20)
    assert brain.units() == [], "the log is not followed, so it cannot show it"
    brain.machine.binder.connected(up=True, now=brain.now)
    brain.wait(9)
    assert brain.units() == []
    brain.wait(2)
    assert brain.units() == ["p2"], "the log never shows the other: it is gone already"
    brain.settle("p2")
    brain.delete("p2", leaving=None)
    assert brain.units() == [], "a list without it does not say what became of it"
    brain.machine.quota.anew([ObjectRow(API_SERVED, QUOTA_API)])
    assert not brain.machine.quota.view.accounts.by_name, "the log was read anew and has them all"


def test_a_gang_goes_when_the_place_of_a_unit_that_came_back_is_what_it_lacked() -> None:
    brain = Cluster(a=QueueRow(limit=limit(300))).brain
    brain.shard()
    brain.pod("single", shape(queue="a"))
    assert brain.units() == ["single"]
    known(brain, GANG_OF_3)
    for number in range(3):
        brain.pod(f"m{number}", shape(queue="a"), group=GROUP)
    assert brain.units() == []
    brain.delete("single", leaving=True)
    brain.dispatch()
    brain.wait(11)
    assert brain.units() == ["m0"], "no step of the log says that there is room now"
    assert members_of(brain, "m0") == ["m0", "m1", "m2"]


def test_a_pod_that_is_seen_bound_again_holds_up_no_other() -> None:
    cluster = Cluster(a=QueueRow(limit=limit(200)))
    brain = cluster.brain
    brain.shard()
    brain.pods(3, shape(queue="a"))
    brain.settle(*brain.units())
    brain.wait(0)
    brain.bind("p0", "p1")
    brain.wait(9)
    brain.machine.quota.bound("p0")
    brain.wait(2)
    assert brain.units() == ["p2"], "the room of p1 is free, whatever is heard of p0"


def test_a_unit_that_comes_back_frees_its_place_for_another_shape() -> None:
    cluster = Cluster(a=QueueRow(limit=limit(200)))
    brain = cluster.brain
    brain.shard()
    brain.pod("big", shape(200, queue="a"))
    brain.pod("small", shape(100, queue="a"))
    assert brain.units() == ["big"]
    assert brain.state("small") is State.UNSCHEDULABLE
    brain.unplaceable("big", at=cluster.sequence)
    brain.dispatch()
    brain.wait(11)
    assert brain.units() == ["small"]


def test_the_smallest_share_over_its_weight_goes_first() -> None:
    cluster = Cluster(a=QueueRow(weight=2), b=QueueRow(), c=QueueRow(guaranteed=limit(200)))
    cluster.usage(a=600, b=400)
    brain = cluster.brain
    for name in ("b", "a", "c"):
        brain.pods(3, shape(queue=name, priority=9 if name == "b" else 0), prefix=name)
    brain.shard(credits_=1)
    order = []
    for _ in range(9):
        (uid,) = brain.units()
        order.append(uid)
        brain.machine.shards.credits(1, 1)
    # c lacks what it is guaranteed; then a (600/2) goes before b (400), until shares are equal.
    assert order[:2] == ["c0", "c1"]
    assert order[2] == "c2", "what it has beyond its guarantee is still the smallest share"
    assert order[3:6] == ["a0", "a1", "a2"] or order[3:5] == ["a0", "a1"]


def test_a_pod_in_no_queue_stands_by_priority_and_age() -> None:
    cluster = Cluster(a=QueueRow())
    brain = cluster.brain
    brain.pod("first", shape(queue="a"))
    brain.pod("free", shape())
    brain.pod("urgent", shape(priority=5))
    brain.shard(credits_=1)
    order = []
    for _ in range(3):
        order += brain.units()
        brain.machine.shards.credits(1, 1)
    assert order == ["urgent", "first", "free"]


def test_a_guaranteed_unit_is_sent_although_the_queue_above_is_full_of_borrowers() -> None:
    cluster = Cluster(org=QueueRow(limit=limit(400)), b=QueueRow(parent="org"),
                      a=QueueRow(parent="org", guaranteed=limit(200)))  # fmt: skip
    brain = cluster.brain
    cluster.usage(org=400, b=400)
    brain.shard()
    brain.pod("p", shape(queue="a"))
    assert brain.units() == [], "the borrowers are too young"
    aged = UsageRow(used=cpu(400), aged=4)
    cluster.step(*(ObjectRow(USAGE, name, payload=encode_quota(aged)) for name in ("org", "b")))
    brain.wait(11)
    assert brain.units() == ["p"]


def test_a_queue_that_is_not_there_is_named_and_one_that_comes_lets_the_pod_go() -> None:
    cluster = Cluster()
    brain = cluster.brain
    brain.shard()
    brain.pod("p", shape(queue="late"))
    assert brain.units() == []
    (order,) = brain.machine.patches(brain.now)
    assert order.condition.message == 'queue "late", which the pod names, does not exist'
    brain.machine.lane.tidy()
    cluster.step(ObjectRow(QUEUE, "late", payload=encode_quota(QueueRow())))
    brain.wait(11)
    record = brain.machine.pods.get("p")
    assert record is not None
    if record.patching:
        brain.machine.patch_replied("p", PatchResult.WRITTEN, resource_version=99, now=brain.now)
    assert brain.units() == ["p"]
    brain.outcome("p", OutcomeKind.BOUND, node="n1")


def test_what_was_sent_before_there_were_queues_counts_as_in_flight() -> None:
    cluster = Cluster()
    cluster.step(ObjectRow(API_SERVED, QUOTA_API, removed=True))
    brain = cluster.brain
    brain.shard()
    brain.pods(2, shape(queue="a"))
    assert brain.units() == ["p0", "p1"]
    row = ObjectRow(QUEUE, "a", payload=encode_quota(QueueRow(limit=limit(300))))
    cluster.step(ObjectRow(API_SERVED, QUOTA_API), row)
    brain.pods(2, shape(queue="a"), prefix="later")
    assert brain.units() == ["later0"]
    brain.unplaceable("p0", "p1", at=cluster.sequence)
    brain.dispatch()
    assert brain.machine.quota.view.room(shape(queue="a"), 9) == 2


def test_without_the_definition_there_is_no_gate() -> None:
    brain = Brain()
    brain.shard()
    brain.pod("p", shape(queue="a"))
    assert brain.machine.lanes.gate is None
    assert brain.units() == ["p"]


def test_a_status_is_written_when_it_changes_and_not_again() -> None:
    cluster = Cluster(a=QueueRow(uid="q", limit=limit(300), guaranteed=limit(200)))
    brain = cluster.brain
    brain.shard()
    brain.pods(5, shape(queue="a"))
    brain.dispatch()
    brain.now += 10
    (order,) = brain.machine.queue_patches(brain.now)
    assert (order.name, order.status.waiting) == ("a", 5)
    assert order.status.why == "waiting for quota: queue a is at its limit of cpu"
    assert order.status.condition().reason == "Valid"
    assert brain.machine.queue_patches(brain.now + 2) == [], "it is in flight"
    written = order.status.since(order.before, now="2026-01-01T00:00:00Z")
    brain.machine.queue_status.reply("a", written=written, now=brain.now)
    brain.now += 10
    assert brain.machine.queue_patches(brain.now) == [], "it would say the same"
    held = UsageRow(used=cpu(300), held=cpu(200))
    cluster.step(ObjectRow(USAGE, "a", payload=encode_quota(held)))
    brain.now += 10
    (order,) = brain.machine.queue_patches(brain.now)
    assert order.status.used == {"cpu": "300m", "pods": "3"}
    assert order.status.borrowed == {"cpu": "100m", "pods": "1"}
    later = order.status.since(order.before, now="2026-01-01T00:01:00Z")
    assert later.condition().last_transition_time == "2026-01-01T00:00:00Z", "it was Ready already"
    body = patch_of(QueueStatus(), order.status, uid="q")
    assert body["metadata"] == {"uid": "q"}
    status = body["status"]
    assert isinstance(status, dict)
    assert status["used"] == {"cpu": None, "pods": None}, "what is used no more is taken out"


def test_busy_queues_leave_the_others_their_turn() -> None:
    count = 3 * IN_FLIGHT * int(WRITE_EVERY_S)
    names = [f"q{number:04}" for number in range(count)]
    cluster = Cluster(**{name: QueueRow(uid=name) for name in names})
    brain, written = cluster.brain, set[str]()
    for turn in range(1, 4 * int(WRITE_EVERY_S)):
        held = encode_quota(UsageRow(used=limit(turn)))
        cluster.step(*(ObjectRow(USAGE, name, payload=held) for name in names))
        brain.now += 1
        for order in brain.machine.queue_patches(brain.now):
            written.add(order.name)
            brain.machine.queue_status.reply(order.name, written=order.status, now=brain.now)
    assert written == set(names)


def test_a_dispatcher_that_starts_does_not_repeat_what_a_queue_says() -> None:
    said = QueueStatus(conditions=(QueueCondition("True", "Valid"),))
    told = msgspec.json.encode(said)
    brain = Cluster(a=QueueRow(uid="q", told=told)).brain
    assert brain.machine.queue_patches(brain.now + 10) == []


class LostUnderQuota(NoPodIsLost):
    """Every pod is in a queue that lets three go at a time."""

    def __init__(self) -> None:
        super().__init__()
        delta = Delta(epoch=BINDER, sequence=1)
        delta.objects = [
            ObjectRow(API_SERVED, QUOTA_API),
            ObjectRow(QUEUE, "a", payload=encode_quota(QueueRow(limit=(("pods", 3),)))),
            ObjectRow(NAMESPACE, "default", payload=encode_labels({QUEUE_LABEL: "a"})),
        ]
        self.brain.machine.quota_step(delta)

    @invariant()
    def no_more_are_out_than_the_queue_lets_go(self) -> None:
        counts = self.brain.machine.pods.counts
        assert counts[Place.DISPATCHED] <= 3


LostUnderQuota.TestCase.settings = settings(
    max_examples=60, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)
TestNoPodIsLostUnderQuota = pytest.mark.timeout(120)(LostUnderQuota.TestCase)
