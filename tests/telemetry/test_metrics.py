"""Every metric is explained, has kube-scheduler's name and labels where it has one, and is used."""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Mapping

import pytest
from prometheus_client import generate_latest
from prometheus_client.core import Metric

from stretto.telemetry.binder_metrics import BinderMetrics
from stretto.telemetry.metrics import PREFIXES
from stretto.telemetry.shard_metrics import ShardMetrics

ROOT = pathlib.Path(__file__).parents[2]
UPSTREAM: Mapping[str, set[str]] = {
    "scheduler_cache_size": {"type"},
    "scheduler_scheduling_algorithm_duration_seconds": set(),
}
"""kube-scheduler's labels of the metrics that we share with it."""
LABELS = {
    "cause", "code", "counter", "generation", "kind", "resource", "result", "state", "type", "verb",
}  # fmt: skip
"""Each has a closed set of values, or one that the cluster bounds."""
METRICS = [BinderMetrics, ShardMetrics]
USERS = {BinderMetrics: "binder", ShardMetrics: "scheduler_shard"}


def families(metrics: type) -> list[Metric]:
    return list(metrics().registry.collect())


def labels_of(metrics: object) -> dict[str, set[str]]:
    """Label names by family name, of families without values too."""
    found = {}
    for value in vars(metrics).values():
        if hasattr(value, "_labelnames"):
            found[value._name] = set(value._labelnames)
    return found


@pytest.mark.parametrize("metrics", METRICS)
def test_every_metric_is_explained_in_a_sentence(metrics: type) -> None:
    for family in families(metrics):
        assert family.name.startswith(PREFIXES)
        if family.name.startswith(("scheduler_", "stretto_")):
            text = family.documentation
            assert text.endswith("."), family.name
            assert text[0].isupper(), family.name


@pytest.mark.parametrize("metrics", METRICS)
def test_labels_are_closed_sets_and_upstream_s_where_it_has_the_metric(metrics: type) -> None:
    for name, labels in labels_of(metrics()).items():
        assert labels <= LABELS, name
        if name.startswith("scheduler_"):
            assert UPSTREAM[name] == labels, name


@pytest.mark.parametrize("metrics", METRICS)
def test_durations_are_in_seconds_and_say_so(metrics: type) -> None:
    for family in families(metrics):
        if family.type == "histogram":
            assert family.name.endswith("_seconds"), family.name


@pytest.mark.parametrize("metrics", METRICS)
def test_every_metric_is_used_by_its_process(metrics: type) -> None:
    """A metric that nobody sets would be a zero that looks like good news."""
    used = {
        node.attr
        for path in [*(ROOT / USERS[metrics]).glob("*.py"), *(ROOT / "stretto").rglob("*.py")]
        if path.name not in ("binder_metrics.py", "shard_metrics.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }
    declared = {name for name, value in vars(metrics()).items() if hasattr(value, "_labelnames")}
    children = {"verdicts"} if metrics is BinderMetrics else set()
    assert declared - children <= used


def test_api_requests_are_read_when_scraped() -> None:
    usage = {("POST", "pods/binding", 201): 7}
    metrics = BinderMetrics(api=lambda: usage)
    usage["POST", "pods/binding", 0] = 1
    text = generate_latest(metrics.registry).decode()
    line = 'stretto_api_requests_total{code="201",resource="pods/binding",verb="POST"} 7.0'
    assert line in text
    assert 'code="0"' in text


def test_the_process_tells_its_own_cpu_and_memory() -> None:
    text = generate_latest(ShardMetrics().registry).decode()
    assert "process_cpu_seconds_total" in text
    assert "process_resident_memory_bytes" in text
