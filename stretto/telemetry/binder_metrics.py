"""Metrics of the Binder."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.registry import Collector

from stretto.model.unit import VerdictKind
from stretto.telemetry.metrics import SHORT_BUCKETS, ApiUsage, Usage, new_registry


class BinderMetrics:
    """One registry a process; ``api`` gives the client's counts of requests, ``also`` what others
    count."""

    def __init__(self, *, api: Usage | None = None, also: Iterable[Collector] = ()) -> None:
        self.registry = registry = new_registry()
        self.cache_size = Gauge(
            "scheduler_cache_size",
            "Nodes, pods and reserved (assumed) pods in the authoritative state.",
            ["type"],
            registry=registry,
        )
        self.verdicts = Counter(
            "stretto_verdicts",
            "Verdicts given, by kind.",
            ["kind"],
            registry=registry,
        )
        self.verdict = {kind: self.verdicts.labels(kind.name.lower()) for kind in VerdictKind}
        """The children of ``verdicts``."""
        self.conflicts = Counter(
            "stretto_conflicts",
            "Proposals that lost to something else, by cause.",
            ["cause"],
            registry=registry,
        )
        self.inversion = Gauge(
            "stretto_priority_inversion_seconds",
            "Seconds that proposals waited at the Binder after one of lower priority was taken, "
            "summed over its life.",
            registry=registry,
        )
        self.commit_duration = Histogram(
            "stretto_commit_duration_seconds",
            "Seconds from taking a batch of proposals to its verdicts.",
            buckets=SHORT_BUCKETS,
            registry=registry,
        )
        self.ledger_duration = Histogram(
            "stretto_ledger_call_duration_seconds",
            "Seconds of one ledger call.",
            buckets=SHORT_BUCKETS,
            registry=registry,
        )
        self._declare_binds()
        self._declare_preemption()
        self._declare_state()
        self._declare_ledger()
        if api is not None:
            registry.register(ApiUsage(api))
        for collector in also:
            registry.register(collector)

    def _declare_binds(self) -> None:
        registry = self.registry
        self.binds = Counter(
            "stretto_binds", "Answers to binding requests, by kind.", ["kind"], registry=registry
        )
        self.bind_duration = Histogram(
            "stretto_bind_duration_seconds",
            "Seconds of one binding request.",
            buckets=SHORT_BUCKETS,
            registry=registry,
        )
        self.kubelet_rejections = Counter(
            "stretto_kubelet_rejections",
            "Pods that we bound and their kubelet refused, by reason; unread: pods that left "
            "before they ran and could not be looked at.",
            ["reason"],
            registry=registry,
        )
        self.resolving = Gauge(
            "stretto_resolving", "Pods whose bind is being resolved or fenced.", registry=registry
        )
        self.oldest_reservation = Gauge(
            "stretto_oldest_reservation_seconds",
            "Seconds for which the oldest reservation has waited for its bind to be settled; one "
            "whose volumes are being provisioned may take minutes.",
            registry=registry,
        )
        self.reservations = Gauge(
            "stretto_reservations", "Ledger entries, by state.", ["state"], registry=registry
        )

    def _declare_preemption(self) -> None:
        registry = self.registry
        self.preemption_attempts = Counter(
            "scheduler_preemption_attempts",
            "Proposals with victims that the Binder has judged.",
            registry=registry,
        )
        self.preemption_victims = Histogram(
            "scheduler_preemption_victims",
            "Pods that had to go for a nomination.",
            buckets=tuple(2.0**i for i in range(7)),
            registry=registry,
        )
        self.stakes = Gauge(
            "stretto_stakes",
            "Stakes (room kept for starved units) so far, by how they began and ended: granted, "
            "refused, used, expired, overtaken.",
            ["event"],
            registry=registry,
        )
        self.stake_nodes = Gauge(
            "stretto_stake_nodes",
            "Nodes on which room is kept for starved units now.",
            registry=registry,
        )
        self.evictions = Counter(
            "stretto_evictions",
            "Victims asked to go, by result: accepted, gone, conflict, refused or unanswered.",
            ["result"],
            registry=registry,
        )

    def _declare_state(self) -> None:
        registry = self.registry
        self.frozen_nodes = Gauge(
            "stretto_frozen_nodes", "Nodes that take no commits until audited.", registry=registry
        )
        self.overcommitted = Gauge(
            "stretto_overcommitted_nodes",
            "Nodes whose pods ask for more than they offer: others bound pods there, or they "
            "shrank.",
            registry=registry,
        )
        self.collisions = Counter(
            "stretto_foreign_collisions",
            "Times that a pod bound by others came to a node that we hold room of, and together "
            "they ask for more than it offers.",
            registry=registry,
        )
        self.unaccounted = Gauge(
            "stretto_quota_unaccounted_pods",
            "Pods on nodes that name a queue and count in none, because it is not there and no "
            "other stands for it.",
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
        self.allocatable = Gauge(
            "stretto_allocatable",
            "Sum over the nodes of what they offer, by resource, in base units (cpu in milli).",
            ["resource"],
            registry=registry,
        )
        self.used = Gauge(
            "stretto_used",
            "Sum over the nodes of what bound and reserved pods take, by resource, in base units "
            "(cpu in milli).",
            ["resource"],
            registry=registry,
        )

    def _declare_ledger(self) -> None:
        registry = self.registry
        self.drift = Counter(
            "stretto_ledger_drift",
            "Times ledger and memory disagreed on a node, which is frozen until that is mended.",
            registry=registry,
        )
        self.repairs = Counter(
            "stretto_ledger_repairs",
            "Times that commits stood still until the ledger was made equal to memory, by cause: "
            "gap (it had lost acknowledged writes), unanswered (a call), drift.",
            ["cause"],
            registry=registry,
        )
        for cause in ("gap", "unanswered", "drift"):
            self.repairs.labels(cause)
        self.generations = Counter(
            "stretto_ledger_generations",
            "Ledgers begun anew: found empty, or with a rebuild that had not ended, or written "
            "again after drift.",
            registry=registry,
        )
        self.audit_rounds = Gauge(
            "stretto_ledger_audit_rounds",
            "Times that all nodes were compared between ledger and memory.",
            registry=registry,
        )
