"""Metrics of the Binder."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SHORT = tuple(0.0005 * 2**i for i in range(15))


class BinderMetrics:
    """One registry a process."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.cache_size = Gauge(
            "scheduler_cache_size",
            "Nodes, pods and reserved (assumed) pods in the authoritative state.",
            ["type"],
            registry=registry,
        )
        self.verdicts = Counter(
            "stretto_verdicts",
            "Verdicts given, by kind and cause.",
            ["kind", "cause"],
            registry=registry,
        )
        self.conflicts = Counter(
            "stretto_conflicts",
            "Proposals that did not hold, by cause.",
            ["cause"],
            registry=registry,
        )
        self.commit_duration = Histogram(
            "stretto_commit_duration_seconds",
            "Seconds from taking a batch of proposals to its verdicts.",
            buckets=SHORT,
            registry=registry,
        )
        self.ledger_duration = Histogram(
            "stretto_ledger_call_duration_seconds",
            "Seconds of one ledger call.",
            buckets=SHORT,
            registry=registry,
        )
        self.binds = Counter(
            "stretto_binds", "Answers to binding requests, by kind.", ["kind"], registry=registry
        )
        self.bind_duration = Histogram(
            "stretto_bind_duration_seconds",
            "Seconds of one binding request.",
            buckets=SHORT,
            registry=registry,
        )
        self.resolving = Gauge(
            "stretto_resolving", "Pods whose bind is being resolved or fenced.", registry=registry
        )
        self.reservations = Gauge(
            "stretto_reservations", "Ledger entries, by state.", ["state"], registry=registry
        )
        self.frozen_nodes = Gauge(
            "stretto_frozen_nodes", "Nodes that take no commits until audited.", registry=registry
        )
        self.drift = Counter(
            "stretto_ledger_drift",
            "Times the ledger refused what memory allowed; each freezes a node.",
            registry=registry,
        )
        self.followers = Gauge("stretto_followers", "Followers of the log.", registry=registry)
        self.sequence = Gauge("stretto_log_sequence", "Sequence of the log.", registry=registry)
        self.watch_lag = Gauge(
            "stretto_watch_silence_seconds",
            "Seconds since a watch said anything.",
            registry=registry,
        )
        self.events_dropped = Counter(
            "stretto_events_dropped",
            "Events that did not fit in the bounded queue of the slower lane.",
            registry=registry,
        )
        self.api_requests = Gauge(
            "stretto_api_requests",
            "Requests to the API server so far, by verb, resource and code.",
            ["verb", "resource", "code"],
            registry=registry,
        )
