"""PreFilter: a plugin rejects a pod whatever the node."""

from __future__ import annotations

import random

import numpy as np

from stretto.model.shape import Shape
from stretto.model.unit import Cause
from stretto.placement.framework import Code, Filter, Plugin, Rejection, Status
from stretto.placement.kernel import Kernel
from stretto.placement.profiles import Profile, Profiles
from tests.placement import worlds


class Closed(Plugin):
    static = False

    def __init__(self, name, code):
        self.name = name
        self.code = code
        self.closed = True

    def has_prefilter(self, shape):
        return True

    def prefilter(self, shape, snapshot):
        return Status(self.code, self.name, (f"{self.name} is closed",)) if self.closed else None


def test_prefilter_rejects_the_pod_everywhere_and_the_unresolvable_one_is_reported():
    snapshot = worlds.cluster(random.Random(1), 3)
    soft, hard = Closed("Soft", Code.UNSCHEDULABLE), Closed("Hard", Code.UNRESOLVABLE)
    kernel = Kernel(snapshot, Profiles([Profile("stretto", (), (), prefilters=(soft, hard))]))
    shape = Shape("stretto", "default")
    row = int(snapshot.live.argmax())
    assert kernel.evaluate(shape).prefilter == hard.prefilter(shape, snapshot)
    assert kernel.place(shape, 1, seed=1).rows == []
    assert not kernel.filter(shape).any()
    assert kernel.check_one(shape, row) is not Cause.NONE
    assert set(kernel.totals(shape)) == {-1}
    nodes = snapshot.node_count
    assert kernel.diagnose(shape).message == f"0/{nodes} nodes are available: Hard is closed."
    hard.closed = False
    assert kernel.evaluate(shape).prefilter == soft.prefilter(shape, snapshot)
    soft.closed = False
    assert kernel.evaluate(shape).prefilter is None
    assert len(kernel.place(shape, 1, seed=1).rows) == 1


class Fails(Filter):
    name = "Fails"

    def rejections(self, view):
        rows = np.zeros(view.size, dtype=np.bool_)
        rows[1:3] = True
        return [Rejection("it broke", rows, unresolvable=False, error=True)]

    def passes(self, view):
        return ~self.rejections(view)[0].rows

    def passes_row(self, row):
        return row not in (1, 2)


class Failing(Plugin):
    name = "Fails"
    static = False

    def filter(self, shape, snapshot):
        return Fails()


def test_a_filter_that_fails_on_a_node_ends_the_attempt_with_its_error():
    snapshot = worlds.cluster(random.Random(3), 6)
    kernel = Kernel(snapshot, Profiles([Profile("stretto", (Failing(),), ())]))
    found = kernel.evaluate(Shape("stretto", "default"))
    assert found.error == "it broke"
    failed = [row for row, status in found.rejected.items() if status.code is Code.ERROR]
    assert failed == [row for row in (1, 2) if snapshot.live[row] and not snapshot.frozen[row]]
    assert failed
    assert found.total == []
    diagnosis = kernel.diagnose(Shape("stretto", "default"))
    assert (diagnosis.message, diagnosis.error) == ("it broke", True)
