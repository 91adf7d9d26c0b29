"""Resources that a profile leaves unchecked are no reason for the ledger to refuse."""

from __future__ import annotations

import msgspec

from stretto.model.unit import Cause, VerdictKind
from stretto.placement.profiles import Profiles
from tests.binder.world import World, shape_of


def world_ignoring(args):
    config = [{"name": "NodeResourcesFit", "args": args}]
    raw = {"profiles": [{"schedulerName": "stretto", "pluginConfig": config}]}
    world = World(Profiles.from_configuration(raw))
    world.node("n1")
    world.round()
    return world


def test_an_ignored_resource_is_reserved_without_limit():
    for args in (
        {"ignoredResources": ["example.com/card"]},
        {"ignoredResourceGroups": ["example.com"]},
    ):
        world = world_ignoring(args)
        requests = (*shape_of(100).requests, ("example.com/card", 5))
        shape = msgspec.structs.replace(shape_of(100), requests=tuple(sorted(requests)))
        pod = world.api.create("p", shape)
        incoming = world.incoming(pod, nodes=("n1",))
        world.machine.book.rooms.expect(incoming.shapes)
        (verdict,) = world.propose(incoming)
        assert (verdict.kind, verdict.cause) == (VerdictKind.COMMITTED, Cause.NONE)
        assert not world.machine.book.drifted
        world.check()
