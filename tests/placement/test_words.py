"""What people read: fit errors, refusals, and errors in a configuration."""

from __future__ import annotations

import msgspec
import pytest

from stretto.model.diagnosis import as_json
from stretto.model.shape import NodeTerm, PodTerm, Requirement, Toleration
from stretto.model.unit import Cause
from stretto.placement.framework import Gates
from stretto.placement.profiles import Profiles
from stretto.placement.strict import ProfileError
from stretto.placement.tolerations import tolerates
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import (
    Delta,
    NodeChange,
    ObjectRow,
    Taint,
    encode_labels,
)
from tests.placement.test_choice import PLAIN, alike, kernel_on, named


def test_no_nodes_at_all():
    assert kernel_on(Snapshot()).diagnose(PLAIN).message == "no nodes available to schedule pods"


def test_a_node_with_several_reasons_counts_in_each_and_items_are_sorted_as_text():
    snapshot = alike(12)
    row = msgspec.structs.replace(snapshot.node(0), unschedulable=True, taints=(_TAINT,))
    tainted = msgspec.structs.replace(snapshot.node(1), taints=(_TAINT,))
    delta = Delta(epoch=1, sequence=2, nodes=[NodeChange(1, row), NodeChange(2, tainted)])
    snapshot.apply(delta)
    requests = (("cpu", 9000), ("example.com/gpu", 1), ("memory", 1))
    shape = msgspec.structs.replace(PLAIN, requests=requests)
    diagnosis = kernel_on(snapshot).diagnose(shape)
    assert diagnosis.message == (
        "0/12 nodes are available: 1 node(s) had untolerated taint(s), "
        "1 node(s) were unschedulable, 10 Insufficient cpu, 10 Insufficient example.com/gpu."
    )
    assert diagnosis.plugins == ("NodeResourcesFit", "NodeUnschedulable", "TaintToleration")
    assert dict(diagnosis.counts)["Insufficient cpu"] == 10
    assert diagnosis.nodes == 12
    told = as_json(diagnosis, shape=shape.digest, profile="stretto", epoch=1, sequence=2)
    plugins = {each["plugin"]: each for each in told["plugins"]}
    assert plugins["NodeResourcesFit"]["nodes"] == 10, "a node counts once for its plugin"
    assert plugins["NodeResourcesFit"]["reasons"] == [
        {"reason": "Insufficient cpu", "nodes": 10, "unresolvable": 10},
        {"reason": "Insufficient example.com/gpu", "nodes": 10, "unresolvable": 10},
    ]
    assert sum(each["nodes"] for each in plugins.values()) == 12


_TAINT = Taint("a", "", "NoSchedule")


def test_nodes_that_prefilter_left_out():
    snapshot = alike(5)
    shape = msgspec.structs.replace(named("n1"), requests=(("cpu", 9000),))
    assert kernel_on(snapshot).diagnose(shape).message == (
        "0/5 nodes are available: 1 Insufficient cpu, "
        "4 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )


def test_terms_that_contradict_each_other():
    fields = tuple(Requirement("metadata.name", "In", (name,)) for name in ("n1", "n2"))
    shape = msgspec.structs.replace(PLAIN, required_node_terms=(NodeTerm(fields=fields),))
    diagnosis = kernel_on(alike(3)).diagnose(shape)
    assert diagnosis.message == "0/3 nodes are available: pod affinity terms conflict."
    assert diagnosis.plugins == ("NodeAffinity",)
    both = msgspec.structs.replace(named("n1"), node_name="n2")
    assert kernel_on(alike(3)).diagnose(both).message == (
        "0/3 nodes are available: "
        "node(s) didn't satisfy plugin(s) [NodeAffinity NodeName] simultaneously."
    )


def test_unbuilt_hard_constraints_are_refused_by_name():
    shape = msgspec.structs.replace(PLAIN, unbuilt_hard=("GangScheduling: spec.workloadRef",))
    kernel = kernel_on(alike(1))
    assert kernel.refusal(PLAIN) == ""
    assert "spec.workloadRef" in kernel.refusal(shape)


@pytest.mark.parametrize(
    ("term", "kept_off"),
    [
        (PodTerm("zone", ("default",), None, (Requirement("app", "In", ("web",)),)), True),
        (PodTerm("zone", ("default",), None, (Requirement("app", "NotIn", ("web",)),)), False),
        (PodTerm("zone", ("other",), None, ()), False),
        (PodTerm("zone", ("default",), None, None), False),
        (PodTerm("zone", (), (), (Requirement("app", "Exists"),)), True),
        (PodTerm("zone", (), (Requirement("env", "In", ("test",)),), ()), True),
        (PodTerm("zone", (), (Requirement("env", "In", ("live",)),), ()), False),
        (PodTerm("zone", ("default",), None, (Requirement("gone", "DoesNotExist"),)), True),
    ],
)
def test_a_pods_anti_affinity_keeps_others_off_its_domain(term, kept_off):
    snapshot = alike(1, zone="a")
    kernel = kernel_on(snapshot)
    shape = msgspec.structs.replace(PLAIN, labels=(("app", "web"),), label_keys=("app",))
    objects = [ObjectRow("Namespace", "default", 2, encode_labels({"env": "test"}))]
    snapshot.apply(Delta(epoch=1, sequence=2, objects=objects))
    owner = msgspec.structs.replace(PLAIN, anti_affinity=(term,))
    snapshot.add_pod(owner, 0)
    assert (kernel.check_one(shape, 0) is Cause.AFFINITY) == kept_off
    snapshot.remove_pod(owner, 0)
    assert kernel.check_one(shape, 0) is Cause.NONE


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        ({"plugin": {}}, "profiles[0]: unknown field 'plugin'"),
        ({"plugins": {"filters": {}}}, "profiles[0].plugins: unknown field 'filters'"),
        ({"plugins": {"score": {"enabled": [{"name": "Best"}]}}}, "there is no plugin 'Best'"),
        ({"plugins": {"filter": {"enabled": [{"name": "ImageLocality"}]}}}, "does not extend"),
        ({"plugins": {"score": {"enabled": [{"name": "NodeAffinity", "weight": -1}]}}}, "weight"),
        ({"pluginConfig": [{"name": "NodeResourcesFit", "args": {"x": 1}}]}, "[0].args: unknown"),
        (
            {"pluginConfig": [
                {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "Best"}}},
            ]},
            "scoringStrategy.type: 'Best' is not one of",
        ),
        (
            {"pluginConfig": [
                {"name": "NodeResourcesFit",
                 "args": {"scoringStrategy": {"type": "RequestedToCapacityRatio"}}},
            ]},
            "at least one point",
        ),
        ({"pluginConfig": [{"name": "NodeAffinity", "args": {"addedAffinity": []}}]}, "mapping"),
    ],
)  # fmt: skip
def test_a_bad_profile_is_one_clear_line(profile, words):
    with pytest.raises(ProfileError) as error:
        Profiles.from_configuration({"profiles": [profile]})
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_merging_follows_upstream():
    profile = {
        "plugins": {
            "multiPoint": {
                "enabled": [{"name": "ImageLocality", "weight": 7}],
                "disabled": [{"name": "NodePorts"}],
            },
            "score": {
                "enabled": [{"name": "NodeAffinity", "weight": 9}],
                "disabled": [{"name": "TaintToleration"}],
            },
        }
    }
    found = Profiles.from_configuration({"profiles": [profile]}).get("default-scheduler")
    assert [plugin.name for plugin in found.filters] == [
        "NodeName", "NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodeResourcesFit",
        "VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone",
        "PodTopologySpread", "InterPodAffinity", "DynamicResources", "NodeDeclaredFeatures",
    ]  # fmt: skip
    assert [(plugin.name, weight) for plugin, weight in found.scorers] == [
        ("NodeAffinity", 9), ("NodeResourcesFit", 1), ("VolumeBinding", 1),
        ("PodTopologySpread", 2), ("InterPodAffinity", 2), ("DynamicResources", 2),
        ("NodeResourcesBalancedAllocation", 1), ("ImageLocality", 7),
    ]  # fmt: skip
    only = {"plugins": {"score": {"disabled": [{"name": "*"}]}}}
    bare = Profiles.from_configuration({"profiles": [only]}).get("default-scheduler")
    assert bare.scorers == ()


@pytest.mark.parametrize(
    ("operator", "bound", "value", "tolerated"),
    [
        ("Lt", "5", "4", True),
        ("Lt", "5", "5", False),
        ("Gt", "-2", "-1", True),
        ("Gt", "05", "6", False),
        ("Gt", "5", "+6", False),
        ("Lt", "5", "", False),
        ("Lt", "9223372036854775808", "1", False),
    ],
)
def test_comparison_operators_of_tolerations(operator, bound, value, tolerated):
    toleration = Toleration("k", operator, bound, "")
    taint = Taint("k", value, "NoSchedule")
    gates = Gates(taint_toleration_comparison_operators=True)
    assert tolerates([toleration], taint, gates) == tolerated
    assert not tolerates([toleration], taint, Gates())
