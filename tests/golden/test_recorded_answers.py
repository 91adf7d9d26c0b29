"""The placement code against recorded answers of kube-scheduler 1.37.2: no difference is
allowed."""

from __future__ import annotations

import pathlib

import pytest

from stretto.cli.golden import check, run

FOLDER = pathlib.Path(__file__).parent
FAMILIES = (
    "resources",
    "taints",
    "nodeaffinity",
    "ports",
    "images",
    "spread",
    "interpod",
    "volumes",
    "dra",
    "messages",
    "preemption",
    "profiles",
    "mixed",
)


@pytest.mark.parametrize("family", FAMILIES)
def test_recorded_answers_are_met(family):
    tally = check([FOLDER / f"{family}.jsonl.gz"])[family]
    assert [str(difference) for difference in tally.differences] == []
    assert tally.checks > 500
    assert not tally.skipped


def test_a_plugin_that_is_not_built_is_named_not_passed(tmp_path, capsys):
    line = (
        '{"world": {"id": "w", "family": "dra", "pending": ["a/b"], "objects": ['
        '{"kind": "Pod", "metadata": {"namespace": "a", "name": "b"},'
        ' "spec": {"containers": []}}]},'
        ' "expect": {"nodes": [], "pods": [{"pod": "a/b",'
        ' "preFilter": {"code": "Unschedulable", "plugin": "NoSuchPlugin"}}]}}'
    )
    path = tmp_path / "dra.jsonl"
    path.write_text(line)
    assert run([str(path)]) == 0
    out = capsys.readouterr().out
    assert "no pod was checked" in out
    assert "1 pods not checked: NoSuchPlugin not built" in out


def test_a_difference_is_printed_and_fails(tmp_path, capsys):
    line = (
        '{"world": {"id": "w", "family": "taints", "pending": ["a/b"], "objects": ['
        '{"kind": "Node", "metadata": {"name": "n", "uid": "u"},'
        ' "status": {"allocatable": {"pods": "1"}}},'
        '{"kind": "Pod", "metadata": {"namespace": "a", "name": "b"},'
        ' "spec": {"containers": [{}]}}]},'
        ' "expect": {"nodes": ["n"], "pods": [{"pod": "a/b", "preFilter": {"code": "Success"},'
        ' "filter": [{"code": "Unschedulable", "plugin": "NodePorts", "reasons": ["x"],'
        ' "nodes": [0]}], "feasible": []}]}}'
    )
    path = tmp_path / "taints.jsonl"
    path.write_text(line)
    assert run([str(path)]) == 1
    out = capsys.readouterr().out
    assert "w a/b n filter: ours None, upstream ('Unschedulable', 'NodePorts', ('x',))" in out


@pytest.mark.parametrize(
    ("content", "words"),
    [("{", "cases.jsonl:1: not a golden case"), (None, "there is no such file or folder")],
)
def test_unreadable_input_is_one_clear_line(tmp_path, capsys, content, words):
    path = tmp_path / "cases.jsonl"
    if content is not None:
        path.write_text(content)
    assert run([str(path)]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1


def test_files_without_a_case_are_refused_not_passed(tmp_path, capsys):
    path = tmp_path / "empty.jsonl"
    path.touch()
    assert run([str(path)]) == 2
    assert "nothing was checked" in capsys.readouterr().err
