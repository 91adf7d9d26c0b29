"""Own plugins in the Binder: the labels that they read, and units of one that fails."""

from __future__ import annotations

import msgspec
import numpy as np

from stretto.model.unit import Cause, VerdictKind
from stretto.placement.extension import OwnPlugin
from stretto.placement.profiles import Profiles
from stretto.snapshot.delta import LABEL_KEYS, decode_label_keys
from tests.binder.world import World, shape_of


class Moody(OwnPlugin):
    """Says yes to everybody, or breaks."""

    name = "Moody"
    label_keys = ("mood",)
    broken = False

    def mask(self, pod, nodes):
        if self.broken:
            raise ValueError("not today")
        return np.ones(len(nodes), dtype=np.bool_)


def moody_world():
    plugins = {"multiPoint": {"enabled": [{"name": "Moody"}]}}
    raw = {"profiles": [{"schedulerName": "stretto", "plugins": plugins}]}
    world = World(Profiles.from_configuration(raw, own={"Moody": Moody}))
    world.node("n1")
    world.round()
    return world


def test_labels_that_a_plugin_reads_are_in_the_log_from_the_start():
    world = moody_world()
    assert world.machine.cluster.label_keys == ("mood",)
    payload = world.follower.objects(LABEL_KEYS)[""]
    assert decode_label_keys(payload) == ("mood",)


def test_a_unit_whose_plugin_fails_here_is_refused_and_others_are_committed():
    world = moody_world()
    shape = msgspec.structs.replace(shape_of(100), label_keys=("mood",))
    first, second = world.api.create("a", shape), world.api.create("b", shape)
    Moody.broken = True
    try:
        (refused,) = world.propose(world.incoming(first, nodes=("n1",)))
    finally:
        Moody.broken = False
    assert (refused.kind, refused.cause) == (VerdictKind.REFUSED, Cause.INVALID)
    (verdict,) = world.propose(world.incoming(second, nodes=("n1",)))
    assert verdict.kind is VerdictKind.COMMITTED
    world.check()
