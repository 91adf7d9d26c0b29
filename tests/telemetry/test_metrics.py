"""Every metric is explained, has kube-scheduler's name and labels where it has one, and is used."""

from __future__ import annotations

import ast
import pathlib
import re
from collections.abc import Iterator, Mapping
from types import SimpleNamespace

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from dispatcher.machine import Machine
from dispatcher.metrics import DispatcherCollector
from stretto.kube.usage import Usage
from stretto.telemetry.binder_metrics import BinderMetrics
from stretto.telemetry.loop_lag import LoopLag
from stretto.telemetry.metrics import PREFIXES, LeaseMetrics
from stretto.telemetry.shard_metrics import ShardMetrics

ROOT = pathlib.Path(__file__).parents[2]
UPSTREAM: Mapping[str, set[str]] = {
    "leader_election_master_status": {"name"},
    "scheduler_cache_size": {"type"},
    "scheduler_pending_pods": {"queue"},
    "scheduler_pod_scheduled_after_flush": set(),
    "scheduler_pod_scheduling_attempts": set(),
    "scheduler_pod_scheduling_sli_duration_seconds": {"attempts"},
    "scheduler_preemption_attempts": set(),
    "scheduler_preemption_victims": set(),
    "scheduler_queue_incoming_pods": {"queue", "event"},
    "scheduler_schedule_attempts": {"result", "profile"},
    "scheduler_scheduling_algorithm_duration_seconds": set(),
    "scheduler_scheduling_attempt_duration_seconds": {"result", "profile"},
    "scheduler_unschedulable_pods": {"plugin", "profile"},
}
"""kube-scheduler's labels of the metrics that we share with it."""
LABELS = {
    "attempts", "cause", "code", "counter", "event", "generation", "kind", "mode", "plugin",
    "profile", "queue", "reason", "resource", "result", "shard", "state", "type", "verb",
}  # fmt: skip
"""Each has a closed set of values, or one that the cluster bounds."""
METRICS = [BinderMetrics, ShardMetrics]
USERS = {BinderMetrics: "binder", ShardMetrics: "scheduler_shard"}


def declared(metrics: type) -> Iterator[tuple[str, str, str, set[str]]]:
    """Name, type, text and label names of each family, also of those without values."""
    for family in metrics().registry.collect():
        names = {label for sample in family.samples for label in sample.labels}
        yield family.name, family.type, family.documentation, names - {"le"}
    for value in vars(metrics()).values():
        if hasattr(value, "_labelnames"):
            yield value._name, value._type, value._documentation, set(value._labelnames)


def dispatchers() -> Iterator[tuple[str, str, str, set[str]]]:
    """The same of the dispatcher, which makes its families when it is scraped."""
    client = SimpleNamespace(usage=SimpleNamespace(snapshot=dict, denied=list))
    lease = LeaseMetrics("stretto-dispatcher", lambda: 0.0)
    for family in DispatcherCollector(Machine(), client=client, lease=lease).collect():
        names = set(getattr(family, "_labelnames", ()))
        yield family.name, family.type, family.documentation, names


def of_every_role() -> Iterator[tuple[str, str, str, set[str]]]:
    """What the server of metrics adds itself."""
    for family in LoopLag().collect():
        yield family.name, family.type, family.documentation, set()


ALL = [*declared(BinderMetrics), *declared(ShardMetrics), *dispatchers(), *of_every_role()]


def test_every_metric_is_explained_in_a_sentence() -> None:
    for name, _, text, _ in ALL:
        assert name.startswith(PREFIXES)
        if name.startswith(("scheduler_", "leader_election_", "stretto_")):
            assert text.endswith("."), name
            assert text[0].isupper(), name


def test_labels_are_closed_sets_and_upstream_s_where_it_has_the_metric() -> None:
    for name, _, _, labels in ALL:
        if name.startswith("stretto_"):
            assert labels <= LABELS, name
        elif name.startswith(("scheduler_", "leader_election_")):
            assert labels <= UPSTREAM[name], name


def test_alerts_ask_for_metrics_and_labels_that_there_are() -> None:
    """One that asks for another would never fire, which looks like good news."""
    rules = yaml.safe_load((ROOT / "deploy" / "alerts.yaml").read_text())["groups"][0]["rules"]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    kinds = {name: kind for name, kind, _, _ in ALL}
    for rule in rules:
        names = re.findall(r"\b(?:scheduler|stretto|leader_election)_[a-z_]+", rule["expr"])
        assert names, rule
        for name in names:
            family = name.removesuffix("_total")
            assert kinds.get(family) == ("counter" if family != name else "gauge"), name
        labels = {label for _, _, _, some in ALL for label in some} | {"name", "instance"}
        assert set(re.findall(r"(\w+)=", rule["expr"])) <= labels
        assert rule["labels"]["severity"] in ("page", "ticket")


def test_histograms_are_of_seconds_attempts_or_victims() -> None:
    for name, kind, _, _ in ALL:
        if kind == "histogram":
            assert name.endswith(("_seconds", "_attempts", "_victims"))


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
    names = {name for name, value in vars(metrics()).items() if hasattr(value, "_labelnames")}
    children = {"verdicts"} if metrics is BinderMetrics else set()
    assert names - children <= used


def test_api_requests_are_read_when_scraped() -> None:
    usage = Usage()
    metrics = BinderMetrics(api=usage)
    for code in (201, 201, 0):
        usage.add("create", "pods/binding", code)
    text = generate_latest(metrics.registry).decode()
    line = 'stretto_api_requests_total{code="201",resource="pods/binding",verb="create"} 2.0'
    assert line in text
    assert 'code="0"' in text


def test_what_the_role_may_not_read_is_told_until_it_may() -> None:
    usage = Usage()
    metrics = BinderMetrics(api=usage)
    usage.add("list", "queues", 403)
    usage.add("create", "pods/binding", 403)  # a namespace that is closing says so too
    usage.add("list", "queues", 0)
    line = 'stretto_api_denied{resource="queues",verb="list"} 1.0'
    text = generate_latest(metrics.registry).decode()
    assert line in text
    assert text.count("stretto_api_denied{") == 1
    usage.add("list", "queues", 200)
    assert "stretto_api_denied{" not in generate_latest(metrics.registry).decode()


def test_who_leads_is_told_and_for_how_long() -> None:
    left_s = 7.5
    registry = CollectorRegistry()
    registry.register(LeaseMetrics("stretto-binder", lambda: left_s))
    text = generate_latest(registry).decode()
    assert 'leader_election_master_status{name="stretto-binder"} 1.0' in text
    assert "stretto_lease_margin_seconds 7.5" in text
    left_s = 0.0
    assert (
        'leader_election_master_status{name="stretto-binder"} 0.0'
        in generate_latest(registry).decode()
    )


def test_the_process_tells_its_own_cpu_and_memory() -> None:
    text = generate_latest(ShardMetrics().registry).decode()
    assert "process_cpu_seconds_total" in text
    assert "process_resident_memory_bytes" in text
