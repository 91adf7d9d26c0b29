"""Random configurations, read by kube-scheduler's own code and by ours: both refuse or both accept,
and then agree on every plugin, its place and its weight."""

from __future__ import annotations

import json
import random

import pytest

from stretto.placement.arguments import API
from stretto.placement.configuration import KIND, read_configuration
from stretto.placement.plugin_sets import MAX_WEIGHT, enabled_plugins
from stretto.placement.registry import DEFAULT_ORDER, POINTS
from stretto.placement.strict import ProfileError

pytestmark = pytest.mark.oracle
DELIBERATE = ("which cannot work without it", "not built")
"""Refused here although kube-scheduler starts with it: its every pod would fail then."""


def plugin_set(rng, point):
    names = list(POINTS.get(point, DEFAULT_ORDER))
    if not names or rng.random() < 0.1:
        names += rng.sample(DEFAULT_ORDER, 1)
    found = {}
    if rng.random() < 0.7:
        chosen = rng.sample(names, min(len(names), rng.randint(1, 3)))
        weights = (None, 0, 1, 7, MAX_WEIGHT)
        found["enabled"] = [{"name": name, "weight": rng.choice(weights)} for name in chosen]
    if rng.random() < 0.5:
        chosen = rng.sample([*names, "*", "NoSuchPlugin"], rng.randint(1, 2))
        found["disabled"] = [{"name": name} for name in chosen]
    return found


def arguments(rng):
    resources = [
        {"name": name, "weight": rng.choice((0, 1, 1, 5, 100, 101))}
        for name in rng.sample(["cpu", "memory", "example.com/gpu"], rng.randint(1, 2))
    ]
    points = [
        {"utilization": used, "score": rng.choice((0, 5, 10, 11))}
        for used in rng.choice(([0, 100], [0, 50, 100], [50, 10], []))
    ]
    kind = rng.choice(("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio", "Best", ""))
    strategy = {"type": kind, "resources": resources}
    if rng.random() < 0.4:
        strategy["requestedToCapacityRatio"] = {"shape": points}
    constraint = {
        "maxSkew": rng.choice((0, 1, 2)),
        "topologyKey": rng.choice(("zone", "", "a b")),
        "whenUnsatisfiable": rng.choice(("DoNotSchedule", "ScheduleAnyway", "Maybe")),
    }
    term = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return rng.choice((
        ("NodeResourcesFit", {"scoringStrategy": strategy}),
        ("NodeResourcesFit", {"ignoredResourceGroups": [rng.choice(("example.com", "a/b"))]}),
        ("NodeResourcesFit", {"ignoredResources": [rng.choice(("a.b/c", "a b", ""))]}),
        ("NodeResourcesBalancedAllocation", {"resources": resources}),
        ("NodeAffinity", {"addedAffinity": rng.choice((None, {}, required))}),
        ("PodTopologySpread", {
            "defaultingType": rng.choice(("List", "System", "Other")),
            "defaultConstraints": rng.choice(([], [constraint])),
        }),
        ("InterPodAffinity", {"hardPodAffinityWeight": rng.choice((0, 50, 100, 101, -1))}),
        ("DefaultPreemption", {"minCandidateNodesPercentage": rng.choice((0, 10, 101))}),
        ("VolumeBinding", {"bindTimeoutSeconds": rng.choice((0, 5, -1)), "shape": points or None}),
        ("DynamicResources", {"filterTimeout": rng.choice(("0s", "5s", "-1s", "soon"))}),
        ("DynamicResources", {"bindingTimeout": rng.choice(("0s", "1s", "1m30s"))}),
        ("NodePorts", {"anything": 1}),
        ("ImageLocality", {"kind": "Odd"}),
        ("InterPodAffinity", {"kind": "NodeAffinityArgs"}),
    ))  # fmt: skip


def profile(rng, number):
    found = {}
    if rng.random() < 0.9:
        names = (f"profile-{number}",) * 8
        found["schedulerName"] = rng.choice((*names, "same", ""))
    if rng.random() < 0.7:
        points = rng.sample([*POINTS, "multiPoint", "multiPoint", "score", "filter"], 2)
        found["plugins"] = {point: plugin_set(rng, point) for point in points}
    if rng.random() < 0.3:
        given = [arguments(rng) for _ in range(rng.randint(1, 2))]
        found["pluginConfig"] = [{"name": name, "args": fields} for name, fields in given]
    if rng.random() < 0.02:
        found[rng.choice(("weights", "percentageOfNodesToScore"))] = rng.choice((5, 101))
    return found


def configuration(seed):
    rng = random.Random(seed)
    found = {"apiVersion": API, "kind": KIND}
    if rng.random() < 0.9:
        found["profiles"] = [profile(rng, number) for number in range(rng.choice((1, 1, 2)))]
    odd = (
        ("podInitialBackoffSeconds", (0, 1, 20)), ("podMaxBackoffSeconds", (0, 1, 30)),
        ("percentageOfNodesToScore", (0, 50, 101, None)), ("parallelism", (0, 4)),
        ("leaderElection", ({"leaderElect": False}, {"leaseDuration": "1s"},
                            {"leaderElect": False, "leaseDuration": "1s"},
                            {"resourceLock": "endpoints"})),
        ("clientConnection", ({"qps": 5, "burst": 3}, {"burst": -1}, {"kubeConfig": ""})),
        ("enableProfiling", (True, "yes")), ("healthzBindAddress", ("",)),
        ("extenders", ([{"urlPrefix": "http://127.0.0.1:1", "prioritizeVerb": "p"}],
                       [{"urlPrefix": "http://127.0.0.1:1",
                         "managedResources": [{"name": "kubernetes.io/x"}]}])),
    )  # fmt: skip
    for name, values in odd:
        if rng.random() < 0.03:
            found[name] = rng.choice(values)
    return found


def compare(raw, theirs):
    """What differs, in words; '' if nothing does."""
    try:
        ours = read_configuration(raw)
    except ProfileError as error:
        if "error" in theirs or any(words in str(error) for words in DELIBERATE):
            return ""
        return f"refused here: {error}"
    if "error" in theirs:
        return f"accepted here; kube-scheduler: {theirs['error'][:300]}"
    names = [found["schedulerName"] for found in theirs["profiles"]]
    if list(ours.names) != names:
        return f"names {ours.names}, kube-scheduler {names}"
    for number, found in enumerate(theirs["profiles"]):
        sets = raw["profiles"][number].get("plugins") if "profiles" in raw else None
        mine = enabled_plugins(sets, own={}, where="")
        for point in POINTS:
            listed = [(p["name"], p.get("weight", 0)) for p in found["points"].get(point, [])]
            weights = [(w.name, (w.weight or 1) if point == "score" else 0) for w in mine[point]]
            if weights != listed:
                return f"{point}: {weights}, kube-scheduler {listed}"
    return ""


@pytest.mark.parametrize("start", range(0, 400, 100))
def test_random_configurations_are_read_as_kube_scheduler_reads_them(ask_config_oracle, start):
    accepted, differences = 0, []
    for seed in range(start, start + 100):
        raw = configuration(seed)
        theirs = json.loads(ask_config_oracle(json.dumps(raw).encode() + b"\n"))
        accepted += "error" not in theirs
        if difference := compare(raw, theirs):
            differences.append(f"seed {seed}: {difference}: {json.dumps(raw)[:600]}")
    assert differences == []
    assert 10 < accepted < 90
