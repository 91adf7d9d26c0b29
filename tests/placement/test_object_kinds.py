"""Compiled shapes follow the objects that their plugins read."""

from __future__ import annotations

import random

from stretto.model.shape import Shape
from stretto.model.unit import Cause
from stretto.placement.framework import Filter, Plugin
from stretto.placement.kernel import Kernel
from stretto.placement.profiles import Profile, Profiles
from stretto.snapshot.delta import Delta, ObjectRow
from tests.placement import worlds


class Refuses(Filter):
    name = "Doors"

    def passes_row(self, row):
        return False


class Doors(Plugin):
    """Refuses every node while there is a Door."""

    name = "Doors"
    static = False
    kinds = silent_kinds = frozenset({"Door"})
    made = 0

    def filter(self, shape, snapshot):
        type(self).made += 1
        return Refuses() if snapshot.objects("Door") else None


def step(snapshot, row):
    version = snapshot.version
    snapshot.apply(Delta(epoch=version.epoch, sequence=version.sequence + 1, objects=[row]))


def test_a_change_to_a_kind_compiles_the_shapes_that_read_it_anew():
    snapshot = worlds.cluster(random.Random(1), 3)
    kernel = Kernel(snapshot, Profiles([Profile("stretto", (Doors(),), ())]))
    shape = Shape("stretto", "default")
    row = int(snapshot.live.argmax())
    Doors.made = 0
    assert kernel.check_one(shape, row) is Cause.NONE
    step(snapshot, ObjectRow("Window", "w"))
    assert kernel.check_one(shape, row) is Cause.NONE
    assert Doors.made == 1
    step(snapshot, ObjectRow("Door", "d"))
    assert snapshot.kind_version("Door") > snapshot.kind_version("Window") > 0
    assert kernel.check_one(shape, row) is not Cause.NONE
    step(snapshot, ObjectRow("Door", "d", removed=True))
    assert kernel.check_one(shape, row) is Cause.NONE
    assert Doors.made == 3
