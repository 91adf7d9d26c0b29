"""The file behind --config: YAML or JSON, and one line for everything that cannot be used."""

from __future__ import annotations

import json

import pytest

from stretto.config.common import ConfigError
from stretto.config.scheduler_file import configuration_of, gates_of
from stretto.placement.strict import DEFAULT_DIGEST

YAML = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podMaxBackoffSeconds: 20
profiles:
  - schedulerName: packing
    pluginConfig:
      - name: NodeResourcesFit
        args: {scoringStrategy: {type: MostAllocated}}
  - {schedulerName: spreading}
"""
HEAD = YAML.partition("podMax")[0]


def test_yaml_and_json_of_one_meaning_have_one_digest(tmp_path):
    path = tmp_path / "scheduler.yaml"
    path.write_text(YAML)
    found = configuration_of(path)
    assert found.names == ("packing", "spreading")
    assert (found.initial_backoff_s, found.max_backoff_s) == (1, 20)
    fit = {"scoringStrategy": {"type": "MostAllocated"}}
    packing = {
        "pluginConfig": [{"args": fit, "name": "NodeResourcesFit"}],
        "schedulerName": "packing",
    }
    raw = {
        "kind": "KubeSchedulerConfiguration",
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "profiles": [packing, {"schedulerName": "spreading"}],
    }
    other = tmp_path / "scheduler.json"
    other.write_text(json.dumps(raw, indent=3))
    assert configuration_of(other).digest == found.digest != DEFAULT_DIGEST


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read: No such file"),
        ("a: [1", "line 2: did not find"),
        ("a: 1\na: 2", "line 2: 'a' is given twice"),
        ("---\na: 1\n---\nb: 1", "but found another document"),
        ("\x00", "no YAML or JSON"),
        ("- a", "must be a mapping"),
        ("", "apiVersion and kind must be"),
        (HEAD + "profils: []", "unknown field 'profils'"),
        (HEAD + "profiles: [{schedulerName: 1}]", r"profiles\[0\].schedulerName: must be a string"),
        (HEAD + "profiles: [{1: a}]", r"profiles\[0\]: unknown field 1"),
        (
            HEAD + "profiles: [{plugins: {filter: {disabled: [{name: NodeResourcesFit}]}}}]",
            "profile default-scheduler: the filter NodeResourcesFit cannot be off",
        ),
        (HEAD + "podMaxBackoffSeconds: 2026-01-01", "podMaxBackoffSeconds: must be a whole number"),
    ],
)
def test_what_cannot_be_used_is_one_line_with_the_file_and_the_place(tmp_path, content, words):
    path = tmp_path / "scheduler.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=words) as raised:
        configuration_of(path)
    assert str(raised.value).startswith(f"--config {path}")
    assert "\n" not in str(raised.value)


def test_names_come_from_the_flag_or_from_the_file_but_not_from_both(tmp_path):
    path = tmp_path / "scheduler.yaml"
    path.write_text(YAML)
    assert configuration_of(None, names=("a", "b")).names == ("a", "b")
    assert configuration_of(None).names == ("stretto",)
    with pytest.raises(ConfigError, match="exclude each other"):
        configuration_of(path, names=("a",))


def test_feature_gates_are_read_and_unknown_ones_refused():
    name = "TaintTolerationComparisonOperators"
    assert gates_of((f"{name}=true",)) == {name: True}
    assert configuration_of(None, feature_gates=(f"{name}=true",)).digest != DEFAULT_DIGEST
    with pytest.raises(ConfigError, match="Name=true or Name=false"):
        gates_of((name,))
    with pytest.raises(ConfigError, match="--feature-gates: feature gate 'Magic' is not known"):
        configuration_of(None, feature_gates=("Magic=true",))
