"""Numbers of shapes: dropped when nobody has them any more, never before, for each follower."""

from __future__ import annotations

import random

import pytest

from binder.cluster import Cluster
from dispatcher.cluster_events import EventSource
from stretto.model.shape import Shape
from stretto.rpc.messages import FollowKind
from stretto.rpc.wire_follow import decode_follow, encode_follow
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import Delta, NodeRow
from stretto.snapshot.stakes import STAKE, Seat, StakeRow, encode_stake

IDLE = 3
NODES = tuple(f"n{number}" for number in range(3))


def shape_of(kind: int, *, amount: int = 0) -> Shape:
    """Kinds differ in what templates hold, amounts in what is packed beside."""
    return Shape("stretto", "default", priority=kind, requests=(("cpu", 100 + amount),))


def on_the_wire(delta: Delta) -> Delta:
    return decode_follow(encode_follow(delta, FollowKind.DELTA)).delta


class Life:
    """Pods, nominations and stakes come and go at random; followers read along."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cluster = Cluster(epoch=1, idle_shapes=IDLE)
        for name in NODES:
            row = NodeRow(name, f"uid-{name}", allocatable=(("cpu", 10**9), ("pods", 10**6)))
            self.cluster.node_seen(row)
        self.steps: list[Delta] = []
        self.uids = [f"p{number}" for number in range(8)]
        self.serial = 0

    def shape(self) -> Shape:
        self.serial += 1
        if self.rng.random() < 0.5:
            return shape_of(self.rng.randrange(3), amount=self.rng.randrange(3))
        return shape_of(self.serial, amount=self.serial)  # like no other

    def change(self) -> None:
        cluster, rng = self.cluster, self.rng
        uid = rng.choice(self.uids)
        match rng.randrange(7):
            case 0 | 1:
                cluster.bound_to(uid, shape=self.shape(), node_name=rng.choice(NODES))
            case 2 | 3:
                cluster.remove(uid)
            case 4:
                cluster.nominate(uid, node=rng.choice(NODES), shape=self.shape())
            case 5:
                cluster.denominate(uid)
            case _:
                self.stake(uid)

    def stake(self, key: str) -> None:
        payload = None
        if self.rng.random() < 0.6:
            seats = tuple(
                Seat(name, self.cluster.number_of(self.shape()), 1)
                for name in self.rng.sample(NODES, 2)
            )
            payload = encode_stake(StakeRow(key, "", 0, seats))
        known = key in self.cluster.snapshot.objects(STAKE)
        if payload is not None or known:
            self.cluster.object_seen(STAKE, key, payload)

    def close(self) -> None:
        self.steps += [on_the_wire(delta) for delta in self.cluster.take_closed()]
        self.cluster.validate()


@pytest.mark.parametrize("seed", range(20))
def test_every_follower_sees_the_same_pods_from_wherever_it_starts(seed):
    life = Life(seed)
    late, events = Snapshot(), EventSource()
    read = 0
    for _ in range(120):
        for _ in range(life.rng.randint(1, 6)):
            life.change()
        life.close()
        for delta in life.steps[read:]:
            events.events(delta)
        read = len(life.steps)
        if life.rng.random() < 0.1:  # one that resumes where it was, and one that starts anew
            for delta in life.steps:
                if delta.sequence > late.version.sequence:
                    late.apply(delta)
            late.validate()
            new = Snapshot()
            for chunk in life.cluster.snapshot.full_state():
                new.apply(on_the_wire(chunk))
            new.validate()
            for other in (late, new):
                for row in range(len(NODES)):
                    assert other.pods_on(row) == life.cluster.snapshot.pods_on(row)
                assert {s: other.shape(s) for s in other._shapes.ids()} == {
                    s: life.cluster.shape(s) for s in life.cluster.snapshot._shapes.ids()
                }


def test_shapes_of_pods_that_are_gone_are_forgotten_everywhere():
    life = Life(1)
    follower = Snapshot()
    for number in range(300):
        life.cluster.bound_to("p", shape=shape_of(number, amount=number), node_name="n1")
        life.close()
    for delta in life.steps:
        follower.apply(delta)
    numbers = follower._shapes.ids()
    assert len(numbers) == IDLE + 1
    assert len(follower._shapes._templates) == IDLE + 1
    assert len(life.cluster._numbers) == IDLE + 1
    assert max(numbers) == 300, "no number is given out twice"


def test_a_shape_that_comes_back_after_it_was_dropped_gets_another_number():
    life = Life(1)
    first = life.cluster.number_of(shape_of(0))
    for number in range(1, IDLE + 2):
        life.cluster.bound_to("p", shape=shape_of(number), node_name="n1")
        life.close()
        life.cluster.remove("p")
        life.close()
    assert first not in life.cluster.snapshot._shapes.ids()
    life.cluster.bound_to("p", shape=shape_of(0), node_name="n1")
    life.close()
    row = life.cluster.snapshot.row_of_name("n1")
    assert row is not None
    (number,) = life.cluster.snapshot.pods_on(row)
    assert number > first
    assert life.cluster.snapshot.shape(number) == shape_of(0)
