"""A node whose room is not known takes nothing, whatever else froze or thawed it meanwhile."""

from __future__ import annotations

import pytest

from stretto.model.unit import Cause, VerdictKind
from tests.binder.world import World, shape_of


@pytest.fixture
def world() -> World:
    world = World()
    world.node("n1")
    world.round()
    return world


def proposed(world: World, *, node: str) -> tuple[VerdictKind, Cause]:
    name = f"p{world.attempts}"
    pod = world.api.create(name, shape_of(100))
    (verdict,) = world.propose(world.incoming(pod, nodes=(node,)))
    return verdict.kind, verdict.cause


FROZEN = (VerdictKind.CONFLICT, Cause.FROZEN)
COMMITTED = (VerdictKind.COMMITTED, Cause.NONE)


def test_a_pod_that_cannot_be_read_freezes_its_node_until_it_is_gone(world: World) -> None:
    for uid in ("odd", "odder"):
        world.machine.book.pod_unreadable(uid, node_name="n1")
    assert proposed(world, node="n1") == FROZEN
    world.machine.book.pod_readable("odd")
    assert proposed(world, node="n1") == FROZEN
    world.machine.book.pod_readable("odder")
    assert proposed(world, node="n1") == COMMITTED


def test_the_pod_may_be_seen_before_its_node(world: World) -> None:
    world.machine.book.pod_unreadable("odd", node_name="n2")
    world.node("n2")
    assert proposed(world, node="n2") == FROZEN
    world.node("n2", uid="another-n2")
    assert proposed(world, node="n2") == FROZEN


def test_a_rebuilt_ledger_does_not_tell_what_an_unreadable_pod_takes(world: World) -> None:
    world.machine.book.pod_unreadable("odd", node_name="n1")
    world.machine.book.drifts("n1-uid")
    world.machine.book.thaw()
    assert not world.machine.book.drifted
    assert proposed(world, node="n1") == FROZEN


def test_a_readable_pod_does_not_mend_the_ledger(world: World) -> None:
    world.machine.book.drifts("n1-uid")
    world.machine.book.pod_unreadable("odd", node_name="n1")
    world.machine.book.pod_readable("odd")
    assert proposed(world, node="n1") == FROZEN
    world.machine.book.thaw()
    assert proposed(world, node="n1") == COMMITTED
