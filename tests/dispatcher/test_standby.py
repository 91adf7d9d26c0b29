"""A standby sees every pod come and go, and sends nothing: it must not keep what has gone."""

from __future__ import annotations

import gc

from dispatcher.group_records import GroupRecord
from dispatcher.pods import PodRecord
from dispatcher.shape_records import ShapeRecord
from tests.dispatcher.brain import Brain, shape

MANY = 6000
"""More than the shapes that are kept idle."""


def alive(kind: type) -> int:
    gc.collect()
    return sum(type(each) is kind for each in gc.get_objects())


def seen_by(brain: Brain, uid: str, number: int) -> None:
    """A pod of a shape of its own; every third in a group, every third refused."""
    options: dict[str, object] = {"group": f"default/g{number}"} if number % 3 == 0 else {}
    if number % 3 == 1:
        options["refusal"] = "it cannot be read"
    brain.sighting(uid, None if "refusal" in options else shape(number + 1), **options)


def test_what_has_come_and_gone_at_a_standby_is_forgotten() -> None:
    before = {kind: alive(kind) for kind in (PodRecord, ShapeRecord, GroupRecord)}
    brain = Brain(start=False)
    seen_by(brain, "stays", 0)
    for number in range(1, MANY):
        seen_by(brain, f"p{number}", number)
        brain.machine.intake.deleted(f"p{number}", leaving=False, now=brain.now)
    brain.wait(60)
    kept = {kind: alive(kind) - count for kind, count in before.items()}
    assert kept[PodRecord] == 1
    assert kept[GroupRecord] == 1
    assert kept[ShapeRecord] <= 4096 + 1
    assert not brain.machine.shapes.dropped


def test_what_is_still_there_is_dispatched_after_the_takeover() -> None:
    brain = Brain(start=False)
    brain.pod("a", shape(1))
    brain.pod("b", shape(2, priority=5))
    brain.wait(60)
    brain.start()
    brain.shard()
    assert brain.units() == ["b", "a"]
