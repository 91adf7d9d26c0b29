"""KubeSchedulerConfiguration v1: what is read of it, and what is refused in which words."""

from __future__ import annotations

import base64

import pytest

from stretto.placement.arguments import API
from stretto.placement.configuration import KIND, default_configuration, read_configuration
from stretto.placement.extenders import read_extenders
from stretto.placement.strict import ProfileError


def read(**fields):
    return read_configuration({"apiVersion": API, "kind": KIND, **fields})


def args(name, **fields):
    return {"profiles": [{"pluginConfig": [{"name": name, "args": fields}]}]}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kind": "Pod"}, "apiVersion and kind must be"),
        ({"apiVersion": "v2"}, "apiVersion and kind must be"),
        ({"profile": []}, "the configuration: unknown field 'profile'"),
        ({"profiles": [{}, {}]}, r"profiles\[0\].schedulerName: must be set"),
        ({"profiles": [{"schedulerName": "a"}, {"schedulerName": "a"}]}, "same schedulerName"),
        ({"profiles": [{"schedulerName": ""}]}, "must not be empty"),
        ({"profiles": [{"plugins": {"filters": {}}}]}, r"profiles\[0\].plugins: unknown field"),
        (
            {"profiles": [{"plugins": {"score": {"enabled": [{"name": "NodeRam"}]}}}]},
            r"profiles\[0\].plugins.score.enabled\[0\]: there is no plugin 'NodeRam'",
        ),
        (
            {"profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": "GangScheduling"}]}}}]},
            "GangScheduling is not built",
        ),
        (
            {"profiles": [{"plugins": {"bind": {"disabled": [{"name": "*"}]}}}]},
            "at least one plugin must bind",
        ),
        (
            {"profiles": [{"plugins": {"preFilter": {"disabled": [{"name": "NodePorts"}]}}}]},
            "preFilter: NodePorts is off here but on at filter",
        ),
        (
            {
                "profiles": [
                    {"plugins": {"score": {"enabled": [{"name": "ImageLocality", "weight": -1}]}}}
                ]
            },
            r"score.enabled\[0\].weight: must be a whole number",
        ),
        ({"percentageOfNodesToScore": 101}, "percentageOfNodesToScore: must be"),
        ({"podInitialBackoffSeconds": 0}, "podInitialBackoffSeconds: must be"),
        ({"podInitialBackoffSeconds": 20}, "podMaxBackoffSeconds: must not be below"),
        ({"parallelism": 0}, "parallelism: must be"),
        ({"leaderElection": {"leaseDuration": "5s"}}, "renewDeadline < leaseDuration"),
        ({"leaderElection": {"resourceLock": "endpoints"}}, "resourceLock"),
        ({"leaderElection": {"leaseDuration": "5 s"}}, "'5 s' is not a duration"),
        ({"clientConnection": {"burst": -1}}, "clientConnection.burst"),
        (args("DefaultPreemption", minCandidateNodesPercentage=101), "Percentage: must be"),
        (
            args("DefaultPreemption", minCandidateNodesPercentage=0, minCandidateNodesAbsolute=0),
            "cannot both be 0",
        ),
        (args("VolumeBinding", bindTimeoutSeconds=-1), "bindTimeoutSeconds: must be"),
        (args("VolumeBinding", shape=[{"score": 11}]), r"shape\[0\].score: must be"),
        (args("DynamicResources", filterTimeout="-1s"), "zero or positive"),
        (args("DynamicResources", bindingTimeout="0.5s"), "at least 1s"),
        (args("DynamicResources", bindingTimout="5s"), "unknown field 'bindingTimout'"),
    ],
)
def test_what_cannot_be_used_is_one_line_that_names_the_place(fields, words):
    with pytest.raises(ProfileError, match=words) as raised:
        read(**fields)
    assert "\n" not in str(raised.value)


def test_backoff_and_fields_without_effect_are_told():
    found = read(podInitialBackoffSeconds=2, podMaxBackoffSeconds=30, parallelism=8)
    assert (found.initial_backoff_s, found.max_backoff_s) == (2, 30)
    assert found.without_effect == ("parallelism",)


def test_several_profiles_have_names_weights_and_arguments_of_their_own():
    packing = {"scoringStrategy": {"type": "MostAllocated"}}
    found = read(
        profiles=[
            {"schedulerName": "spreading"},
            {
                "schedulerName": "packing",
                "pluginConfig": [{"name": "NodeResourcesFit", "args": packing}],
                "plugins": {"score": {"disabled": [{"name": "ImageLocality"}]}},
            },
        ]
    )
    assert found.names == ("spreading", "packing")
    spreading, packed = (found.profiles.get(name) for name in found.names)
    assert spreading is not None
    assert packed is not None
    assert "ImageLocality" in spreading.points["score"]
    assert "ImageLocality" not in packed.points["score"]


def test_the_digest_is_that_of_the_meaning():
    one = read(profiles=[{"schedulerName": "a", "plugins": {}}], podMaxBackoffSeconds=20)
    same = read(profiles=[{"plugins": {}, "schedulerName": "a"}])
    other = read(profiles=[{"schedulerName": "b", "plugins": {}}])
    gated = read_configuration(
        {"apiVersion": API, "kind": KIND, "profiles": [{"schedulerName": "a", "plugins": {}}]},
        gates={"TaintTolerationComparisonOperators": True},
    )
    assert one.digest == same.digest
    assert len({one.digest, other.digest, gated.digest, default_configuration(("a",)).digest}) == 4


def test_an_unknown_feature_gate_is_refused():
    with pytest.raises(ProfileError, match="feature gate 'Magic' is not known"):
        default_configuration(("stretto",), gates={"Magic": True})


def test_extenders_are_asked_in_upstreams_order_and_about_their_resources():
    pem = base64.b64encode(b"-----BEGIN CERTIFICATE-----").decode()
    raw = [
        {"urlPrefix": "http://first", "ignorable": True},
        {
            "urlPrefix": "https://second/api/",
            "filterVerb": "filter",
            "prioritizeVerb": "rank",
            "weight": 2,
            "httpTimeout": "300ms",
            "enableHTTPS": True,
            "tlsConfig": {"caData": pem},
            "managedResources": [
                {"name": "example.com/fpga", "ignoredByScheduler": True},
                {"name": "example.com/nic"},
            ],
        },
    ]
    second, first = read_extenders(raw, where="extenders")
    assert first.ignorable
    assert first.interested(())
    assert second.url == "https://second/api"
    assert second.timeout_s == pytest.approx(0.3)
    assert second.tls is not None
    assert second.tls.authority.startswith("-----BEGIN")
    assert second.interested(("cpu", "example.com/nic"))
    assert not second.interested(("cpu",))
    assert second.ignored == {"example.com/fpga"}


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({}, r"extenders\[0\].urlPrefix: must be a string"),
        ({"urlPrefix": "unix:///x"}, "not an http or https URL"),
        ({"urlPrefix": "http://x", "prioritizeVerb": "p"}, "weight: must be positive"),
        ({"urlPrefix": "http://x", "filterverb": "f"}, "unknown field 'filterverb'"),
        ({"urlPrefix": "http://x", "httpTimeout": 5}, "httpTimeout: must be a string"),
        ({"urlPrefix": "http://x", "managedResources": [{"name": "cpu"}]}, "extended resource"),
        (
            {"urlPrefix": "http://x", "managedResources": [{"name": "a.b/c"}, {"name": "a.b/c"}]},
            "named twice",
        ),
        ({"urlPrefix": "http://x", "tlsConfig": {"caData": "%"}}, "base64"),
    ],
)
def test_an_extender_that_cannot_work_is_refused(raw, words):
    with pytest.raises(ProfileError, match=words):
        read_extenders([raw], where="extenders")
