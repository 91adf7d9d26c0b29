"""Labels that selectors read, and commits that depend on pods of other nodes."""

from __future__ import annotations

import pytest

from stretto.model.shape import LABEL_KEYS_LIMIT, PodTerm, Requirement, Shape, SpreadConstraint
from stretto.model.unit import Cause, VerdictKind
from tests.binder.world import World, shape_of

WEB = (Requirement("app", "In", ("web",)),)
KEYED = {"labels": (("app", "web"),), "label_keys": ("app",)}
LABELS = (("app", "web"), ("tier", "front"))


@pytest.fixture
def world() -> World:
    """Two zones of one and two nodes."""
    world = World()
    for name, zone in (("n1", "a"), ("n2", "b"), ("n3", "b")):
        world.node(name, labels=(("zone", zone),))
    world.round()
    return world


def shapes_on(world: World, name: str) -> list[Shape]:
    """What a follower of the log sees on a node."""
    row = world.follower.row_of_name(name)
    assert row is not None
    return [world.follower.shape(number) for number in world.follower.pods_on(row)]


def test_a_new_key_shows_the_labels_of_every_pod_in_one_step(world: World) -> None:
    ours = world.api.create("ours", shape_of(100), labels=LABELS)
    world.bound(ours, "n1")
    foreign = world.api.create("foreign", shape_of(200), labels=(("app", "db"),))
    world.api.put(foreign, "n1", foreign=True)
    world.deliver(9)
    world.round()
    assert {shape.labels for shape in shapes_on(world, "n1")} == {()}
    before = world.machine.cluster.sequence
    world.machine.cluster.read_labels(["app"])
    world.round()
    assert world.machine.cluster.sequence == before + 1
    assert {shape.labels for shape in shapes_on(world, "n1")} == {
        (("app", "web"),),
        (("app", "db"),),
    }
    world.machine.cluster.read_labels(["app"])
    world.round()
    assert world.machine.cluster.sequence == before + 1
    world.api.delete(ours)
    world.api.delete(foreign)
    world.deliver(9)
    world.round()
    assert shapes_on(world, "n1") == []
    world.check()


def test_a_new_key_touches_only_pods_that_have_it(world: World) -> None:
    for name, labels in (("a", LABELS), ("b", (("app", "db"),))):
        world.bound(world.api.create(name, shape_of(100), labels=labels), "n1")
    world.machine.cluster.read_labels(["tier"])
    (delta,) = world.publish().deltas
    assert sorted(delta.pod_sign) == [-1, 1]
    assert set(delta.pod_uid) == {world.api.pods["a"].uid}
    world.check()


def test_a_pod_not_yet_seen_holds_up_those_who_read_its_new_labels(world: World) -> None:
    early = world.api.create("early", shape_of(100), labels=LABELS)
    world.propose(world.incoming(early, nodes=("n1",)))
    world.machine.cluster.read_labels(["app"])
    world.round()
    world.check()
    term = PodTerm("zone", ("default",), None, WEB)
    hermit = shape_of(100, anti_affinity=(term,), **KEYED)
    pod = world.api.create("hermit", hermit)
    (verdict,) = world.propose(world.incoming(pod, nodes=("n1",)))
    assert (verdict.kind, verdict.cause) == (VerdictKind.CONFLICT, Cause.LABEL_KEYS)
    world.act(early.uid)
    world.deliver(9)
    world.round()
    assert [shape.labels for shape in shapes_on(world, "n1")] == [(("app", "web"),)]
    (verdict,) = world.propose(world.incoming(pod, nodes=("n1",)))
    assert (verdict.kind, verdict.cause) == (VerdictKind.CONFLICT, Cause.AFFINITY)
    (verdict,) = world.propose(world.incoming(pod, nodes=("n2",)))
    assert verdict.kind is VerdictKind.COMMITTED
    world.check()


def test_of_a_pair_that_keeps_apart_one_batch_takes_one(world: World) -> None:
    world.machine.cluster.read_labels(["app"])
    world.round()
    term = PodTerm("zone", ("default",), None, WEB)
    hermit, plain = shape_of(100, anti_affinity=(term,), **KEYED), shape_of(100, **KEYED)
    a, b = world.api.create("a", hermit), world.api.create("b", plain)
    first, second = world.propose(
        world.incoming(a, nodes=("n2",)), world.incoming(b, nodes=("n3",), spares=("n1",))
    )
    assert first.kind is VerdictKind.COMMITTED
    assert second.kind is VerdictKind.COMMITTED
    assert second.nodes == (world.id_of("n1"),), "the spare, in the other zone"
    c = world.api.create("c", plain)
    (third,) = world.propose(world.incoming(c, nodes=("n3",)))
    assert (third.kind, third.cause) == (VerdictKind.CONFLICT, Cause.AFFINITY)
    assert "affinity" in world.outcomes()[-1].detail
    world.check()


def test_the_skew_is_kept_within_a_batch(world: World) -> None:
    world.machine.cluster.read_labels(["app"])
    world.round()
    constraint = SpreadConstraint(1, "zone", hard=True, selector=WEB)
    spread = shape_of(100, spread=(constraint,), **KEYED)
    pods = [world.api.create(name, spread) for name in "abc"]
    verdicts = world.propose(*(world.incoming(pod, nodes=("n2",)) for pod in pods))
    assert [v.kind for v in verdicts].count(VerdictKind.COMMITTED) == 1
    lost = [v.cause for v in verdicts if v.kind is VerdictKind.CONFLICT]
    assert lost == [Cause.SPREAD, Cause.SPREAD]
    world.check()


def test_the_keys_are_bounded(world: World) -> None:
    cluster = world.machine.cluster
    cluster.read_labels(["first"])
    cluster.read_labels(f"k{n}" for n in range(LABEL_KEYS_LIMIT + 5))
    cluster.read_labels(["one-more"])
    assert len(cluster.label_keys) == LABEL_KEYS_LIMIT
    assert "first" in cluster.label_keys
    assert "one-more" not in cluster.label_keys


def test_labels_are_right_also_when_more_are_seen_than_are_remembered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("binder.pod_labels._REMEMBERED", 2)
    world.machine.cluster.read_labels(["app"])
    for number in range(5):
        labels = (("app", f"a{number % 4}"), ("tier", "front"))
        shape = shape_of(100, label_keys=("app",), labels=labels[:1])
        world.bound(world.api.create(f"p{number}", shape, labels=labels), "n1")
    found = sorted(shape.labels for shape in shapes_on(world, "n1"))
    assert found == [(("app", f"a{number}"),) for number in range(4)]
    world.check()
