"""Spread and inter-pod affinity: batches, kept scores and counts against doing it all afresh."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stretto.model.shape import PodTerm, Requirement, Shape, SpreadConstraint
from stretto.model.unit import Cause
from stretto.placement.kernel import Kernel
from stretto.placement.pod_questions import Spreading
from stretto.placement.profiles import Profiles
from stretto.snapshot import tallies
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import NAMESPACE, Delta, NodeChange, NodeRow, ObjectRow, encode_labels
from stretto.snapshot.workloads import SERVICE, encode_selector
from tests.placement import worlds

ARGS = (
    {},
    {
        "pluginConfig": [
            {
                "name": "PodTopologySpread",
                "args": {
                    "defaultingType": "List",
                    "defaultConstraints": [
                        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
                    ],
                },
            },
            {"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 40}},
        ]
    },
    {
        "pluginConfig": [
            {
                "name": "InterPodAffinity",
                "args": {"ignorePreferredTermsOfExistingPods": True},
            }
        ]
    },
)


def fresh(snapshot: Snapshot, *, variant: int, **kwargs) -> Kernel:
    profile = {"schedulerName": "stretto", **ARGS[variant % len(ARGS)]}
    return Kernel(snapshot, Profiles.from_configuration({"profiles": [profile]}), **kwargs)


def step(rng, snapshot, known) -> Delta:
    """A delta of pods with terms, of namespaces and of Services."""
    delta = worlds.step(rng, snapshot, known, make=worlds.tied_shape)
    delta.shapes = [
        (n, msgspec.structs.replace(shape, terminating=rng.random() < 0.1))
        for n, shape in delta.shapes
    ]
    if rng.random() < 0.3:
        labels = {"team": rng.choice("xy")}
        name = rng.choice(("default", "other"))
        gone = rng.random() < 0.2
        delta.objects.append(
            ObjectRow(NAMESPACE, name, delta.sequence, encode_labels(labels), removed=gone)
        )
    if rng.random() < 0.3:
        key = f"{rng.choice(('default', 'other'))}/s{rng.randint(0, 1)}"
        selector = (Requirement(rng.choice(worlds.POD_KEYS), "In", (rng.choice("ab"),)),)
        gone = rng.random() < 0.2
        delta.objects.append(
            ObjectRow(SERVICE, key, delta.sequence, encode_selector(selector), removed=gone)
        )
    return delta


def rebuilt(snapshot: Snapshot, tentative: list[tuple[Shape, int]]) -> Snapshot:
    """The same cluster in a new snapshot: nothing that was counted before is left."""
    copy = Snapshot()
    for chunk in snapshot.full_state(nodes_per_chunk=7):
        copy.apply(chunk)
    for shape, node_id in tentative:
        copy.add_pod(shape, copy.row_of(node_id))
    return copy


def placed_one_by_one(snapshot, shape, count, *, seed, variant, tentative) -> list[int]:
    """Node ids of pods that are each placed on a snapshot and by a kernel of their own."""
    nodes: list[int] = []
    for _ in range(count):
        copy = rebuilt(snapshot, [*tentative, *((shape, node) for node in nodes)])
        rows = fresh(copy, variant=variant).place(shape, 1, seed=seed).rows
        if not rows:
            break
        nodes.append(int(copy.node_id[rows[0]]))
    return nodes


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 30))
def test_a_batch_lands_where_one_by_one_placement_lands_across_deltas(seed):
    rng = random.Random(seed)
    snapshot = worlds.cluster(rng, 12)
    kernel = fresh(snapshot, variant=seed)
    shapes = [worlds.tied_shape(rng) for _ in range(3)]
    known: list[tuple[int, int, int]] = []
    tentative: list[tuple[Shape, int]] = []
    for _ in range(6):
        for _ in range(rng.randint(0, 4)):
            snapshot.apply(step(rng, snapshot, known))
        tentative = [(s, n) for s, n in tentative if snapshot.row_of(n) is not None]
        shape, batch = rng.choice(shapes), rng.randint(1, 6)
        expected = placed_one_by_one(
            snapshot, shape, batch, seed=seed, variant=seed, tentative=tentative
        )
        rows = kernel.place(shape, batch, seed=seed, spares=2).rows
        assert [int(snapshot.node_id[row]) for row in rows] == expected
        tentative += [(shape, node) for node in expected]
        if tentative and rng.random() < 0.5:
            # A proposal lost: its pod is taken back.
            lost, node = tentative.pop(rng.randrange(len(tentative)))
            snapshot.remove_pod(lost, snapshot.row_of(node))
        snapshot.validate()


@pytest.mark.parametrize("seed", range(30))
def test_kept_scores_and_single_rows_agree_with_a_fresh_evaluation(seed):
    rng = random.Random(seed)
    snapshot = worlds.cluster(rng, 15)
    kernel = fresh(snapshot, variant=seed)
    shapes = [worlds.tied_shape(rng) for _ in range(4)]
    known: list[tuple[int, int, int]] = []
    for _ in range(15):
        snapshot.apply(step(rng, snapshot, known))
        shape = rng.choice(shapes)
        totals = kernel.totals(shape)
        evaluation = fresh(snapshot, variant=seed).evaluate(shape)
        assert [row for row, total in enumerate(totals) if total >= 0] == evaluation.feasible
        assert [total for total in totals if total >= 0] == evaluation.total
        mask = kernel.filter(shape)
        for row in range(snapshot.rows):
            assert (kernel.check_one(shape, row) is Cause.NONE) == bool(mask[row])
    snapshot.validate()


def test_tallies_are_bounded_and_counted_afresh_when_asked_again(monkeypatch):
    monkeypatch.setattr(tallies, "TALLY_BYTES", 0)
    rng = random.Random(1)
    snapshot = worlds.cluster(rng, 5)
    shape = msgspec.structs.replace(worlds.shape(rng), labels=(("app", "a"),))
    row = int(snapshot.live.argmax())
    question = Spreading("default", (Requirement("app", "In", ("a",)),))
    first = snapshot.tallies.of(question)
    snapshot.add_pod(shape, row)
    for n in range(100):
        snapshot.tallies.of(Spreading("default", (Requirement("app", "In", (str(n),)),)))
    assert len(snapshot.tallies) <= 64
    assert not first.live
    snapshot.add_pod(shape, row)
    again = snapshot.tallies.of(question)
    assert (first.cells[row], again.cells[row]) == (1, 2)
    snapshot.validate()


def zoned(zones: str) -> Snapshot:
    """One node a letter, in the zone it names."""
    snapshot = Snapshot()
    rows = [
        NodeRow(
            name=f"n{i}",
            uid=f"u{i}",
            labels=(("kubernetes.io/hostname", f"n{i}"), ("zone", zone)),
            allocatable=(("cpu", 64_000), ("memory", 1 << 40), ("pods", 100)),
        )
        for i, zone in enumerate(zones)
    ]
    changes = [NodeChange(i + 1, row) for i, row in enumerate(rows)]
    snapshot.apply(Delta(epoch=1, sequence=1, nodes=changes))
    return snapshot


APP = (Requirement("app", "In", ("a",)),)
PLAIN = Shape(
    "stretto", "default", requests=(("cpu", 100),), labels=(("app", "a"),), label_keys=("app",)
)


def test_a_hard_spread_fills_zones_evenly_and_stops_at_the_skew():
    snapshot = zoned("aaabbc")
    kernel = fresh(snapshot, variant=0)
    constraint = SpreadConstraint(1, "zone", hard=True, selector=APP)
    shape = msgspec.structs.replace(PLAIN, spread=(constraint,))
    rows = kernel.place(shape, 30, seed=7).rows
    zones = ["aaabbc"[row] for row in rows]
    assert len(rows) == 30
    for n in range(1, 31):
        counts = [zones[:n].count(zone) for zone in "abc"]
        assert max(counts) - min(counts) <= 1
    snapshot.add_pod(PLAIN, 0)
    assert kernel.check_one(shape, 1) is Cause.SPREAD
    assert kernel.check_one(shape, 5) is Cause.NONE


def test_taking_away_a_pod_that_is_being_deleted_lowers_its_domain_as_upstream_does():
    snapshot = zoned("ab")
    kernel = fresh(snapshot, variant=0)
    constraint = SpreadConstraint(1, "zone", hard=True, selector=APP)
    shape = msgspec.structs.replace(PLAIN, spread=(constraint,))
    leaving = msgspec.structs.replace(PLAIN, terminating=True)
    snapshot.add_pod(PLAIN, 0)
    snapshot.add_pod(leaving, 0)
    assert kernel.check_one(shape, 0) is Cause.SPREAD
    snapshot.suppose(leaving, 0, -1)
    assert kernel.check_one(shape, 0) is Cause.NONE
    snapshot.suppose(leaving, 0, 1)
    assert kernel.check_one(shape, 0) is Cause.SPREAD
    snapshot.validate()


def test_anti_affinity_works_both_ways_and_after_its_pod_has_left():
    snapshot = zoned("aabb")
    kernel = fresh(snapshot, variant=0)
    term = PodTerm("zone", ("default",), None, APP)
    lonely = msgspec.structs.replace(PLAIN, anti_affinity=(term,))
    assert kernel.check_one(PLAIN, 1) is Cause.NONE
    snapshot.add_pod(lonely, 0)
    assert kernel.check_one(PLAIN, 1) is Cause.AFFINITY
    assert kernel.check_one(PLAIN, 2) is Cause.NONE
    other = msgspec.structs.replace(PLAIN, labels=())
    assert kernel.check_one(other, 1) is Cause.NONE
    snapshot.remove_pod(lonely, 0)
    assert kernel.check_one(PLAIN, 1) is Cause.NONE
    assert len(kernel.place(lonely, 5, seed=1).rows) == 2


def test_a_plain_shape_is_not_slowed_by_terms_that_are_not_about_it():
    snapshot = zoned("ab")
    kernel = fresh(snapshot, variant=0)
    far = msgspec.structs.replace(
        PLAIN, namespace="other", anti_affinity=(PodTerm("zone", ("other",), None, APP),)
    )
    snapshot.add_pod(far, 0)
    assert not kernel._compiled(PLAIN).looks_around
    assert kernel._compiled(far).looks_around
