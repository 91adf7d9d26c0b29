"""Many terms against many kins: as one by one, and fast enough that no pod holds up a shard."""

from __future__ import annotations

import random

import msgspec
import pytest

from stretto.model.shape import Requirement
from stretto.placement.many_terms import FEW, KinColumns
from stretto.placement.pod_questions import AllOf, AnyOf, Incoming, Preference, Selected
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.kins import Kin
from tests.placement import worlds

KEYS = ("app", "tier", "absent")


def requirement(rng: random.Random) -> Requirement:
    operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    values = tuple(rng.sample("abcd", rng.randint(1, 3))) if operator.endswith("In") else ()
    return Requirement(rng.choice(KEYS), operator, values)


def term(rng: random.Random) -> Selected:
    spaces = rng.choice((None, frozenset(rng.sample(("default", "other", "none"), 2))))
    some = tuple(requirement(rng) for _ in range(rng.randint(0, 3)))
    return Selected(spaces, None if rng.random() < 0.1 else some)


def kins(rng: random.Random, snapshot: Snapshot) -> list[Kin]:
    found = []
    for _ in range(rng.randint(0, 30)):
        labels = tuple((key, rng.choice("abcde")) for key in KEYS[:2] if rng.random() < 0.7)
        shape = msgspec.structs.replace(worlds.tied_shape(rng), labels=labels)
        found.append(snapshot.kins.of(shape))
    return found


@pytest.mark.parametrize("seed", range(80))
def test_all_at_once_is_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    snapshot = Snapshot()
    some = kins(rng, snapshot)
    terms = tuple(term(rng) for _ in range(rng.choice((0, 3, FEW + 1, 40))))
    incoming = Incoming("default", (("app", "a"),), ())
    weighed = tuple((rng.choice((-100, 1, 7)), each) for each in terms)
    questions = (
        AnyOf(terms),
        Preference(weighed, incoming, "zone", 3),
        Preference(weighed, None, "zone", 3),
        *([AllOf(terms)] if terms else []),
    )
    for question in questions:
        assert list(question.weights(some)) == [question.weight(kin) for kin in some]
    assert KinColumns(some).weights((1, each) for each in terms).tolist() == [
        AnyOf(terms).weight(kin) for kin in some
    ]
