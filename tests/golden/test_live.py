"""Fresh worlds of a few seeds, decided by kube-scheduler's own code while the test runs."""

from __future__ import annotations

import json

import pytest

from tests.golden.differential import FAMILIES, Run, compare, decided_at_random, main
from tests.golden.dra_worlds import worlds

pytestmark = pytest.mark.oracle
SEED = 20_261
WORLDS = 4


@pytest.mark.parametrize("variant", ["public", "wide"])
@pytest.mark.parametrize("family", FAMILIES)
def test_fresh_worlds_are_decided_as_kube_scheduler_decides_them(ask_oracle, family, variant):
    run = Run()
    compare(run, ask_oracle, family=family, seed=SEED, count=WORLDS, variant=variant)
    assert [str(d) for tally in run.tallies.values() for d in tally.differences] == []
    assert run.pods > WORLDS
    assert run.unanswered.total() < WORLDS


@pytest.mark.parametrize("seed", [1, 2])
def test_devices_are_given_out_as_kube_scheduler_gives_them_out(ask_oracle, seed):
    run = Run()
    for line in worlds(seed, 12):
        run.take(family="devices", line=ask_oracle(line))
    assert [str(d) for tally in run.tallies.values() for d in tally.differences] == []
    assert run.pods > 50
    assert run.unanswered.total() == 0


def test_a_search_longer_than_ours_may_be_is_told_apart(ask_oracle, monkeypatch):
    monkeypatch.setattr("stretto.placement.devices.problem.MAX_STEPS", 20)
    run = Run()
    line = list(worlds(1_053_316_163, 52))[51]
    run.take(family="devices", line=ask_oracle(line))
    assert run.differences == 0
    assert run.explained
    assert all(text.startswith("the search ended before upstream's: ") for text in run.explained)


def test_the_run_names_its_seeds_and_says_how_many_pods_were_decided(oracle, capsys):
    assert main(["--pods", "20", "--seed", "7", "--family", "taints", "--family", "ports"]) == 0
    out, err = capsys.readouterr()
    assert "taints: seed 7" in err
    assert "ports: seed 8" in err
    assert "0 differences, 0 explained, first seed 7" in out


def bound(name, **labels):
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": labels},
        "spec": {"schedulerName": "default-scheduler", "nodeName": "n", "priority": 0,
                 "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Running", "startTime": f"2026-01-0{4 - len(labels)}T00:00:00Z"},
    }  # fmt: skip


def budget(name, allowed, **labels):
    return {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 1,
                   "expectedPods": 2},
    }  # fmt: skip


@pytest.mark.parametrize(("second", "random"), [("edge", True), ("other", False)])
def test_what_upstream_itself_decides_at_random_is_told_apart(oracle, second, random):
    """A pod that violates one budget is not counted against the next, and which comes first is the
    order of a map."""
    room = {"cpu": "2", "memory": "8Gi", "pods": "10"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "n"},
            "spec": {}, "status": {"allocatable": room, "capacity": room}}  # fmt: skip
    pending = bound("p")
    del pending["spec"]["nodeName"]
    pending["status"] = {}
    pending["spec"]["priority"] = 10
    pending["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
    objects = [
        node, bound("a", app="batch", tier=second), bound("b", app="batch"), pending,
        budget("one", 1, app="batch"), budget("two", 0, tier="edge"),
    ]  # fmt: skip
    world = {"id": "w", "family": "preemption", "pending": ["default/p"], "objects": objects}
    assert decided_at_random(json.dumps({"world": world}).encode()) is random
