"""Pods of many parts: one at a time, in a share of the time, and never before others' turn."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from typing import cast

import pytest

from dispatcher.core import Core
from dispatcher.machine import Machine
from dispatcher.pods import Place, PodSeen
from dispatcher.shape_records import ShapeRecord
from dispatcher.slow_lane import SlowLimits, Unread
from dispatcher.wakeups import Wakeups
from dispatcher.watch import PodWatch
from stretto.kube.client import KubeClient
from stretto.kube.reflections import Event, EventKind
from stretto.model.bulk import CONTAINERS, TERMS, bulk_of
from stretto.model.objects import Pod, decode_pod
from stretto.model.shape import NodeTerm, PodTerm, Requirement, Shape, SpreadConstraint
from stretto.model.unit import PodUid, Version
from stretto.placement.events import ASSIGNED_POD, NODE, Action, ClusterEvent
from stretto.snapshot.delta import NodeRow
from tests.dispatcher.brain import Brain, shape


def bulky(number: int = 0, **fields: object) -> Shape:
    return shape(100 + number, image_containers=CONTAINERS + 1, **fields)


def requirement(values: int) -> Requirement:
    return Requirement("k", "In", tuple(map(str, range(values))))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, ""),
        ({"image_containers": 1_000}, ""),
        ({"image_containers": 1_001}, "1001 containers (more than 1000)"),
        ({"anti_affinity": (PodTerm("zone", selector=(requirement(100),)),) * 100}, ""),
        ({"anti_affinity": (PodTerm("zone"),) * 101}, "101 terms (more than 100)"),
        (
            {"required_node_terms": (NodeTerm((requirement(10_001),)),)},
            "10001 values in terms (more than 10000)",
        ),
        (
            {
                "spread": (SpreadConstraint(1, "zone", hard=True, selector=()),) * 60,
                "node_selector": tuple((f"k{n}", "v") for n in range(60)),
            },
            "120 terms (more than 100)",
        ),
    ],
)
def test_what_is_bulky(fields: dict[str, object], says: str) -> None:
    assert bulk_of(shape(**fields)) == says  # type: ignore[arg-type]
    assert TERMS == 100


def test_one_is_out_at_a_time_to_any_shard_and_others_go_on() -> None:
    brain = Brain()
    for number in range(3):
        brain.pod(f"b{number}", bulky(number))
    brain.pods(5)
    brain.shard(1)
    brain.shard(2)
    sent = brain.units()
    assert [uid for uid in sent if uid.startswith("b")] == ["b0"]
    assert {uid for uid in sent if uid.startswith("p")} == {f"p{n}" for n in range(5)}
    brain.now += 0.4
    assert brain.units() == []
    brain.settle("b0")
    assert brain.units() == []  # it took 0.4 s: 7.6 s of rest
    brain.now += 7.5
    brain.pod("late")
    assert brain.units() == ["late"]
    brain.now += 0.2
    assert brain.units() == ["b1"]


def test_a_unit_that_waited_long_does_not_hold_up_the_lane_for_ever() -> None:
    brain = Brain()
    brain.pods(2, bulky(), prefix="b")
    brain.shard()
    assert brain.units() == ["b0"]
    brain.now += 50.0
    brain.settle("b0")
    assert brain.units() == []
    brain.now += SlowLimits().longest_rest_s
    assert brain.units() == ["b1"]


@pytest.mark.parametrize("ends", ["dies", "drops", "unplaceable"])
def test_whatever_ends_an_attempt_frees_the_lane(ends: str) -> None:
    brain = Brain()
    brain.pod("b0", bulky(0))
    brain.pod("b1", bulky(1))
    brain.shard(1)
    assert brain.units() == ["b0"]
    if ends == "dies":
        brain.machine.shards.closed(1, brain.now)
        brain.shard(2)
    elif ends == "drops":
        brain.machine.intake.deleted("b0", leaving=True, now=brain.now)
    else:
        brain.unplaceable("b0", at=1)
    assert brain.units() == [{"dies": "b0"}.get(ends, "b1")]


def test_units_go_to_shards_that_hold_no_bulky_one_as_long_as_they_can() -> None:
    brain = Brain()
    brain.pod("bulky", bulky())
    brain.shard(1, credits_=3)
    assert brain.units() == ["bulky"]
    brain.shard(2, credits_=3)
    brain.pods(3)
    assert {send.stream for send in brain.dispatch()} == {2}
    brain.pods(2, prefix="more")
    assert {send.stream for send in brain.dispatch()} == {1}


def test_a_more_important_one_goes_first_and_an_older_plain_pod_too() -> None:
    brain = Brain()
    brain.pod("plain")
    brain.pod("bulky", bulky())
    brain.pod("urgent", bulky(priority=5))
    brain.shard(credits_=1)
    assert brain.units() == ["urgent"]
    brain.settle("urgent")
    brain.machine.shards.credits(1, 1)
    assert brain.units() == ["plain"]
    brain.machine.shards.credits(1, 1)
    assert brain.units() == ["bulky"]


def test_bulky_pods_that_cannot_go_cost_others_nothing() -> None:
    """They are in a heap of their own: nobody looks through them for a plain pod."""
    brain = Brain()
    for number in range(50):
        brain.sighting(f"b{number}", bulky(number))
    brain.shard(credits_=10)
    assert brain.units() == ["b0"]
    pops = 0
    lanes = brain.machine.lanes
    pop = lanes.pop

    def counted() -> object:
        nonlocal pops
        pops += 1
        return pop()

    lanes.pop = counted  # type: ignore[method-assign, assignment]
    brain.pod("plain")
    assert brain.units() == ["plain"]
    assert pops <= 3
    assert len(brain.machine.lanes._slow) == 49


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_one_is_out_at_most_and_all_are_decided(seed: int) -> None:
    rng = random.Random(seed)
    brain = Brain()
    left = set()
    for number in range(30):
        uid = f"{'b' if rng.random() < 0.5 else 'p'}{number}"
        brain.sighting(uid, bulky(number % 4) if uid[0] == "b" else shape())
        left.add(uid)
    streams = 2
    brain.shard(1, credits_=200)
    brain.shard(2, credits_=200)
    for _ in range(4_000):
        brain.now += rng.random()
        brain.machine.tick(brain.now)
        for uid in brain.units():
            assert uid in left
        out = [u for u in left if brain.machine.pods.records[u].place is Place.DISPATCHED]  # type: ignore[index]
        assert sum(uid.startswith("b") for uid in out) <= 1
        if not out:
            continue
        uid = rng.choice(sorted(out))
        if rng.random() < 0.1:
            streams += 1
            brain.machine.shards.closed(brain.sent[uid][0], brain.now)
            brain.shard(streams, credits_=200)
        elif rng.random() < 0.1:
            brain.hand_back(uid)
        else:
            brain.settle(uid)
            left.discard(uid)
        if not left:
            break
    assert not left


def test_reading_takes_a_share_of_the_time() -> None:
    unread: Unread[int] = Unread(SlowLimits(share=0.1))
    for number in range(3):
        unread.put(f"u{number}", number)
    unread.put("u0", 10)  # in its old place
    unread.drop("u1")
    unread.drop("unknown")
    assert (unread.wait_s(5.0), len(unread)) == (0.0, 2)
    assert unread.pop() == ("u0", 10)
    assert unread.done("u0")
    unread.took(0.05, now=5.05)
    assert unread.wait_s(5.05) == pytest.approx(0.45)
    assert unread.wait_s(5.6) == 0.0
    assert unread.pop() == ("u2", 2)
    unread.put("u2", 3)  # while it is read
    assert not unread.done("u2")
    assert unread.pop() == ("u2", 3)
    unread.drop("u2")
    assert not unread.done("u2")


def sighting(uid: str, version: int, *, containers: int = 1, kind: EventKind = EventKind.ADDED,
             leaving: bool = False) -> Event[Pod]:  # fmt: skip
    document = {
        "metadata": {"name": uid, "namespace": "default", "uid": uid,
                     "deletionTimestamp": "2030-01-01T00:00:00Z" if leaving else None},
        "spec": {"schedulerName": "stretto",
                 "containers": [{"name": f"c{n}", "image": "i"} for n in range(containers)]},
    }  # fmt: skip
    pod = decode_pod(json.dumps(document).encode())
    return Event(kind, uid=uid, new=pod, resource_version=version)


async def test_large_pods_are_read_apart_and_others_at_once() -> None:
    core = Core(Machine(), linger_s=0.01)
    watch = PodWatch(cast("KubeClient", None), core=core, scheduler_name="stretto")
    known = core.machine.pods.records
    watch.take(
        [
            sighting("large", 1, containers=1_001),
            sighting("gone", 2, containers=1_001),
            sighting("small", 3),
        ]
    )
    assert (set(known), len(watch.unread)) == ({"small"}, 2)
    watch.take([sighting("large", 4, containers=1_002)])
    watch.take([sighting("gone", 5, kind=EventKind.DELETED)])
    assert len(watch.unread) == 1
    reading = asyncio.create_task(watch.read_slowly())
    try:
        async with asyncio.timeout(60):
            while len(known) < 2:
                await asyncio.sleep(0.001)
        record = core.machine.pods.get("large")
        assert record is not None
        assert record.shape.bulky
        assert record.resource_version == 4
        watch.take([sighting("large", 6, containers=1_001, leaving=True)])
        assert set(known) == {"small"}
        async with asyncio.timeout(60):
            watch.take([sighting("again", 7, containers=1_001)])
            while len(known) < 2:
                await asyncio.sleep(0.001)
    finally:
        reading.cancel()
    core.machine.validate()


async def test_the_loop_goes_on_while_a_large_pod_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told of a pod meanwhile counts, not what is read of the old version of it."""
    core = Core(Machine(), linger_s=0.01)
    watch = PodWatch(cast("KubeClient", None), core=core, scheduler_name="stretto")
    known = core.machine.pods.records
    begun, go_on, plain = threading.Event(), threading.Event(), watch._slow_sight.of
    waited: list[bool] = []

    def slowly(pod: Pod, **kwargs: object) -> PodSeen:
        begun.set()
        waited.append(go_on.wait(20))
        return plain(pod, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(watch._slow_sight, "of", slowly)
    for number, uid in enumerate(("gone", "changed", "large"), 1):
        begun.clear()
        go_on.clear()
        watch.take([sighting(uid, number, containers=1_001)])
        reading = asyncio.create_task(watch.read_slowly())
        async with asyncio.timeout(60):
            while not begun.is_set():
                await asyncio.sleep(0.001)
        watch.take([sighting(f"small{number}", 10 + number)])
        assert f"small{number}" in known
        if uid == "gone":
            watch.take([sighting(uid, 20, kind=EventKind.DELETED)])
        elif uid == "changed":
            watch.take([sighting(uid, 21)])
        go_on.set()
        async with asyncio.timeout(60):
            while watch.unread.reading:
                await asyncio.sleep(0.001)
        reading.cancel()
        watch.unread.took(0.0, now=core.now())
    assert waited == [True] * 3
    assert set(known) == {"small1", "small2", "small3", "changed", "large"}
    assert known[PodUid("changed")].seen_version == 21
    assert not known[PodUid("changed")].shape.bulky
    core.machine.validate()


def test_events_are_not_looked_at_for_a_bulky_shape_that_waits() -> None:
    """Each event would cost as much as deciding it; it is woken by what may concern it at all."""
    wakeups = Wakeups()
    asked = {"required_node_terms": (NodeTerm((Requirement("disk", "In", ("ssd",)),)),)}
    shapes = {name: shape(**asked) for name in ("plain", "bulky")}
    shapes["bulky"] = bulky(**asked)
    for number, each in enumerate(shapes.values(), 1):
        record = ShapeRecord(number=number, key=b"", shape=each)
        record.decided_at, record.plugins = Version(1, 1), ("NodeAffinity",)
        wakeups.park(record)
    node = NodeRow(name="n", uid="n", labels=(("disk", "hdd"),))
    came = ClusterEvent(NODE, Action.ADD, new_node=node)
    gone = ClusterEvent(ASSIGNED_POD, Action.DELETE, old_pod=shape())
    woken = [
        [record.number for record, _ in wakeups.step([event], version=Version(1, 2 + n))]
        for n, event in enumerate((came, gone))
    ]
    assert woken == [[2], []]
