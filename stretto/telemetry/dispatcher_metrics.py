"""Metrics of the dispatcher; names and labels are kube-scheduler's where it has them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

ATTEMPT_BUCKETS = tuple(0.001 * 2**i for i in range(15))
SLI_BUCKETS = tuple(0.01 * 2**i for i in range(20))


class DispatcherMetrics:
    """One registry a process; children are cached where labels are known."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.schedule_attempts = Counter(
            "scheduler_schedule_attempts",
            "Attempts to schedule pods, by result: scheduled, unschedulable or error.",
            ["result", "profile"],
            registry=registry,
        )
        self.attempt_duration = Histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Seconds from sending a unit to a shard to its outcome, binding included.",
            ["result", "profile"],
            buckets=ATTEMPT_BUCKETS,
            registry=registry,
        )
        self.sli_duration = Histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Seconds from first seeing a pod to its bind, by the number of attempts.",
            ["attempts"],
            buckets=SLI_BUCKETS,
            registry=registry,
        )
        self.attempts = Histogram(
            "scheduler_pod_scheduling_attempts",
            "Attempts that a bound pod took.",
            buckets=(1, 2, 4, 8, 16),
            registry=registry,
        )
        self.pending_pods = Gauge(
            "scheduler_pending_pods",
            "Pods that are ours and unbound, by queue.",
            ["queue"],
            registry=registry,
        )
        self.queue_incoming = Counter(
            "scheduler_queue_incoming_pods",
            "Pods added to queues, by queue and event.",
            ["queue", "event"],
            registry=registry,
        )
        self.unschedulable_pods = Gauge(
            "scheduler_unschedulable_pods",
            "Parked pods, by the plugin that rejected them.",
            ["plugin", "profile"],
            registry=registry,
        )
        self.flushed = Counter(
            "scheduler_pod_scheduled_after_flush",
            "Pods woken by the leftover flush; each is a missed wake-up and counts as a defect.",
            registry=registry,
        )
        self.conflicts = Counter(
            "stretto_conflicts",
            "Units that came back from the Binder, by cause.",
            ["cause"],
            registry=registry,
        )
        self.credits = Gauge(
            "stretto_credits",
            "Units that shards are ready to take beyond those they hold.",
            registry=registry,
        )
        self.shards = Gauge("stretto_shards", "Shards connected.", registry=registry)
        self.shapes = Gauge("stretto_shapes", "Shapes interned.", registry=registry)
        self.unbuilt_soft = Counter(
            "stretto_soft_constraints_not_obeyed",
            "Pods with a soft constraint that this release does not obey, by plugin.",
            ["plugin"],
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
