"""What the processes' metrics have in common.

Rules: kube-scheduler's own name and labels where it has the metric (dashboards and alerts key on
them), ``stretto_`` otherwise; each text is a sentence; label values come from closed sets (enums,
resource names of the cluster, verbs), never from users; children whose labels are known are made
once, so that a series exists from the start and costs one addition later. What costs a scan is
read when it is scraped, by a collector, and not kept up to date by the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

SHORT_BUCKETS = tuple(0.0005 * 2**i for i in range(15))
"""Seconds, 0.5 ms to 8 s: what happens many times a second."""
PREFIXES = ("scheduler_", "leader_election_", "stretto_", "process_", "python_gc_")
LeaseLeft = Callable[[], float]
"""Gives the seconds for which the process may act as the leader without renewing its Lease; 0 if it
is not the leader."""


class Usage(Protocol):
    """What the client knows of its requests."""

    def snapshot(self) -> Mapping[Any, int]:
        """(verb, resource, code) → how many."""

    def denied(self) -> Sequence[tuple[str, str]]:
        """(verb, resource) of what is not allowed, by the last answer."""


def new_registry() -> CollectorRegistry:
    """A registry with the process's own CPU, memory and descriptors (``process_…``) in it."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


class ApiUsage(Collector):
    """Requests to the API server, read from the client's counts when scraped."""

    def __init__(self, usage: Usage) -> None:
        self._usage = usage

    def describe(self) -> Iterator[Metric]:
        """The families without values, so that registering asks nobody."""
        yield from self._families()

    @staticmethod
    def _families() -> tuple[CounterMetricFamily, GaugeMetricFamily]:
        return CounterMetricFamily(
            "stretto_api_requests",
            "Requests to the API server, by verb, resource and code (0: no whole answer came).",
            labels=["verb", "resource", "code"],
        ), GaugeMetricFamily(
            "stretto_api_denied",
            "One for each list and watch that the API server last answered 403: the role of this "
            "process lacks the right.",
            labels=["verb", "resource"],
        )

    def collect(self) -> Iterator[Metric]:
        """The counts as they are now."""
        requests, denied = self._families()
        for (verb, resource, code), count in self._usage.snapshot().items():
            requests.add_metric([verb, resource, str(code)], count)
        for verb, resource in self._usage.denied():
            denied.add_metric([verb, resource], 1)
        yield requests
        yield denied


class LeaseMetrics(Collector):
    """Whether this process leads, as every Kubernetes component tells it, and for how long."""

    def __init__(self, name: str, left: LeaseLeft) -> None:
        self._name = name
        self._left = left

    def collect(self) -> Iterator[Metric]:
        """What holds now."""
        left_s = self._left()
        leads = GaugeMetricFamily(
            "leader_election_master_status",
            "Whether this process is the leader (1) or not (0), by Lease.",
            labels=["name"],
        )
        leads.add_metric([self._name], float(left_s > 0))
        yield leads
        yield GaugeMetricFamily(
            "stretto_lease_margin_seconds",
            "Seconds for which the leader may act without renewing its Lease; 0: it may not.",
            value=left_s,
        )


class WatchLosses(Collector):
    """What watches have lost."""

    def __init__(self, losses: Callable[[], int]) -> None:
        self._losses = losses

    def collect(self) -> Iterator[Metric]:
        """The count as it is now."""
        yield CounterMetricFamily(
            "stretto_watch_losses",
            "Times that a read showed what a watch should have told and had not: each is a defect.",
            value=self._losses(),
        )
