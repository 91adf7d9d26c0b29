"""Metrics of a shard."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from stretto.telemetry.metrics import SHORT_BUCKETS, new_registry


class ShardMetrics:
    """One registry a process."""

    def __init__(self) -> None:
        self.registry = registry = new_registry()
        self.algorithm_duration = Histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Seconds of placing one batch of units.",
            buckets=tuple(0.0001 * 2**i for i in range(16)),
            registry=registry,
        )
        self.cache_size = Gauge(
            "scheduler_cache_size",
            "Nodes and tentative (assumed) pods in the snapshot.",
            ["type"],
            registry=registry,
        )
        self.decisions = Counter(
            "stretto_decisions",
            "Units decided, by result: proposed, unplaceable or handed_back.",
            ["result"],
            registry=registry,
        )
        self.verdicts = Counter(
            "stretto_verdicts",
            "Verdicts of the Binder on our proposals, by kind and cause.",
            ["kind", "cause"],
            registry=registry,
        )
        self.verdict_latency = Histogram(
            "stretto_verdict_latency_seconds",
            "Seconds from a proposal to its verdict, the longest of each batch of verdicts.",
            buckets=SHORT_BUCKETS,
            registry=registry,
        )
        self._declare_snapshot()

    def _declare_snapshot(self) -> None:
        registry = self.registry
        self.snapshot_lag = Gauge(
            "stretto_snapshot_lag_seconds",
            "Age of the last message of the Binder's log, by the sender's clock.",
            registry=registry,
        )
        self.snapshot_sequence = Gauge(
            "stretto_snapshot_sequence",
            "Sequence of the snapshot; the binder's stretto_log_sequence less this is how many "
            "steps it lags behind.",
            registry=registry,
        )
        self.unreadable_objects = Gauge(
            "stretto_unreadable_objects",
            "Objects of the Binder's log that this process cannot decode and takes for absent.",
            registry=registry,
        )
        self.held = Gauge(
            "stretto_units_held", "Units held now, by state.", ["state"], registry=registry
        )
        self.reuse = Gauge(
            "stretto_reuse",
            "Counters of the placement kernel's reuse by shape (hits, rebuilds, evictions …).",
            ["counter"],
            registry=registry,
        )
