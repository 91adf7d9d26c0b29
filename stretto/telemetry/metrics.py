"""What the processes' metrics have in common.

Rules: kube-scheduler's own name and labels where it has the metric (dashboards and alerts key on
them), ``stretto_`` otherwise; each text is a sentence; label values come from closed sets (enums,
resource names of the cluster, verbs), never from users; children whose labels are known are made
once, so that a series exists from the start and costs one addition later. What costs a scan is
read when it is scraped, by a collector, and not kept up to date by the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

SHORT_BUCKETS = tuple(0.0005 * 2**i for i in range(15))
"""Seconds, 0.5 ms to 8 s: what happens many times a second."""
PREFIXES = ("scheduler_", "leader_election_", "stretto_", "process_", "python_gc_")
LeaseLeft = Callable[[], float]
"""Gives the seconds for which the process may act as the leader without renewing its Lease; 0 if it
is not the leader."""
Usage = Callable[[], Mapping[Any, int]]
"""Gives requests so far by (verb, resource, status code); code 0: no whole answer came."""


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
        """The family without values, so that registering asks nobody."""
        yield self._family()

    @staticmethod
    def _family() -> CounterMetricFamily:
        return CounterMetricFamily(
            "stretto_api_requests",
            "Requests to the API server, by verb, resource and code (0: no whole answer came).",
            labels=["verb", "resource", "code"],
        )

    def collect(self) -> Iterator[Metric]:
        """The counts as they are now."""
        family = self._family()
        for (verb, resource, code), count in self._usage().items():
            family.add_metric([verb, resource, str(code)], count)
        yield family


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
