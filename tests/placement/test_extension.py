"""Own plugins: what they say counts, and what they do wrong is their own pods' trouble."""

from __future__ import annotations

import random

import numpy as np
import pytest

from stretto.model.shape import Shape
from stretto.model.unit import Cause
from stretto.placement.arguments import API
from stretto.placement.configuration import KIND, read_configuration
from stretto.placement.extension import OwnPlugin, points_of
from stretto.placement.kernel import Kernel
from stretto.placement.strict import ProfileError
from tests.placement import worlds

PLAIN = Shape("stretto", "default", requests=(("cpu", 1),))


class Even(OwnPlugin):
    """Even rows pass, the later the better; ``broken`` breaks an answer."""

    name = "Even"
    reason = "node(s) were odd"
    broken = ""

    def concerns(self, pod):
        return pod.namespace != "free"

    def reject(self, pod):
        if self.broken == "reject":
            raise ValueError("no\nrejecting")
        return "never" if pod.namespace == "never" else ""

    def mask(self, pod, nodes):
        if self.broken == "mask":
            raise KeyError("lost")
        numbers = np.array([int(name.rpartition("-")[2]) for name in nodes.names])
        mask = numbers % 2 == 0
        return mask[:-1] if self.broken == "size" else mask.astype(self.type_of("mask", bool))

    def scores(self, pod, nodes):
        if self.broken == "scores":
            raise RuntimeError("no scores")
        numbers = np.array([int(name.rpartition("-")[2]) for name in nodes.names])
        return (numbers * (100 if self.broken == "range" else 1)).astype(
            self.type_of("scores", np.int64)
        )

    def type_of(self, what, usual):
        return float if self.broken == f"{what} type" else usual


@pytest.fixture(autouse=True)
def whole():
    Even.broken = ""
    yield
    Even.broken = ""


def configuration(*, weight=100, own=(Even,), args=None, **points):
    enabled = {"enabled": [{"name": plugin.name, "weight": weight} for plugin in own]}
    raw = {
        "schedulerName": "stretto",
        "plugins": {"multiPoint": enabled, **points},
        "pluginConfig": [{"name": "Even", "args": args}] if args is not None else [],
    }
    return read_configuration(
        {"apiVersion": API, "kind": KIND, "profiles": [raw]},
        own={plugin.name: plugin for plugin in own},
    )


def world(**fields):
    snapshot = worlds.cluster(random.Random(4), 8)
    return snapshot, Kernel(snapshot, configuration(**fields).profiles)


def test_its_mask_and_its_scores_decide_with_the_others():
    snapshot, kernel = world()
    found = kernel.evaluate(PLAIN)
    numbers = {row: int(snapshot.name[row].rpartition("-")[2]) for row in range(snapshot.rows)}
    assert found.feasible
    assert all(numbers[row] % 2 == 0 for row in found.feasible)
    assert "Even" in {status.plugin for status in found.rejected.values()}
    assert found.weighted["Even"] == [100 * numbers[row] for row in found.feasible]
    assert kernel.place(PLAIN, 1, seed=1).rows == [max(found.feasible, key=numbers.get)]
    for row in range(snapshot.rows):
        fits = kernel.check_one(PLAIN, row) is Cause.NONE
        assert fits == (row in found.feasible)


def test_pods_that_it_does_not_concern_and_pods_that_it_rejects():
    snapshot, kernel = world()
    free = kernel.evaluate(Shape("stretto", "free"))
    assert "Even" not in {status.plugin for status in free.rejected.values()}
    assert not any(free.weighted["Even"])
    never = kernel.diagnose(Shape("stretto", "never"))
    assert never.message == f"0/{snapshot.node_count} nodes are available: never."
    assert never.plugins == ("Even",)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("reject", 'running PreFilter plugin "Even": ValueError: no rejecting'),
        ("mask", "running Filter plugin \"Even\": KeyError: 'lost'"),
        ("size", "mask gave bool["),
        ("mask type", "mask gave float64["),
        ("scores", 'running Score plugin "Even": RuntimeError: no scores'),
        ("range", "expected 0 to 100"),
        ("scores type", "expected whole numbers"),
    ],
)
def test_one_that_fails_ends_the_attempt_with_its_error_and_may_heal(broken, words):
    snapshot, kernel = world()
    assert kernel.place(PLAIN, 1, seed=1).rows
    before = kernel.totals(PLAIN)
    snapshot.remove_pod(PLAIN, kernel.place(PLAIN, 1, seed=1).rows[0])
    Even.broken = broken
    other = Shape("stretto", "default", requests=(("cpu", 2),))
    assert kernel.place(other, 3, seed=1).rows == []
    assert not kernel.filter(other).any()
    diagnosis = kernel.diagnose(other)
    assert diagnosis.error
    assert words in diagnosis.message
    assert "\n" not in diagnosis.message
    assert kernel.place(Shape("stretto", "free"), 1, seed=1).rows, "others go on"
    Even.broken = ""
    assert len(kernel.place(other, 1, seed=1).rows) == 1
    assert len(before) == snapshot.rows


def test_one_that_fails_at_the_binders_check_is_invalid_not_lost_to_somebody():
    _, kernel = world()
    row = kernel.evaluate(PLAIN).feasible[0]
    Even.broken = "mask"
    assert kernel.check_one(PLAIN, row) is Cause.INVALID
    Even.broken = ""
    assert kernel.check_one(PLAIN, row) is Cause.NONE


def test_one_that_only_scores_in_a_profile_does_not_filter():
    _, kernel = world(filter={"disabled": [{"name": "Even"}]})
    assert "Even" not in {status.plugin for status in kernel.evaluate(PLAIN).rejected.values()}
    Even.broken = "scores"
    assert kernel.place(PLAIN, 1, seed=1).rows == []
    assert "no scores" in kernel.diagnose(PLAIN).message


def test_points_follow_from_what_is_overridden():
    class Rejecting(OwnPlugin):
        name = "Rejecting"

        def reject(self, pod):
            return ""

    assert points_of(Even) == ("preFilter", "filter", "score")
    assert points_of(Rejecting) == ("preFilter",)
    with pytest.raises(ProfileError, match="'Rejecting' does not extend this point"):
        configuration(own=(Rejecting,), score={"enabled": [{"name": "Rejecting"}]})


def test_arguments_and_unknown_names_are_refused_with_the_place():
    with pytest.raises(ProfileError, match=r"pluginConfig\[0\].args: Even: args: unknown field"):
        configuration(args={"strict": True})
    with pytest.raises(ProfileError, match="no plugin 'Odd'; installed besides: Even"):
        configuration(score={"enabled": [{"name": "Odd"}]})


class Reading(Even):
    name = "Reading"
    label_keys = ("team", "app")


def test_labels_that_it_reads_are_known_to_the_profiles():
    assert configuration(own=(Reading,)).profiles.label_keys == {"team", "app"}
    assert configuration().profiles.label_keys == frozenset()
