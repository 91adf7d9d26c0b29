"""What a shard measures, from the brain's counts to its registry."""

from __future__ import annotations

from collections import Counter

from scheduler_shard.streams import ShardStreams
from stretto.model.unit import Cause, VerdictKind
from stretto.telemetry.shard_metrics import ShardMetrics


class MetricsBridge:
    """Copies the brain's running counts into the registry; called about once a second."""

    def __init__(self, metrics: ShardMetrics) -> None:
        self._metrics = metrics
        self._decisions: Counter[str] = Counter()
        self._verdicts: Counter[tuple[VerdictKind, Cause]] = Counter()

    def round(self, seconds: float, units: int) -> None:
        """One round of deciding took so long; units: how many were proposed in it."""
        assert units > 0
        self._metrics.algorithm_duration.observe(seconds)

    def update(self, streams: ShardStreams) -> None:
        """Bring the registry up to date."""
        shard, metrics = streams.shard, self._metrics
        for result in ("proposed", "unplaceable", "handed_back"):
            new = shard.counts[result] - self._decisions[result]
            metrics.decisions.labels(result).inc(new)
            self._decisions[result] += new
        for (kind, cause), count in shard.verdict_counts.items():
            metrics.verdicts.labels(kind.name, cause.name).inc(count - self._verdicts[kind, cause])
            self._verdicts[kind, cause] = count
        latencies, shard.latencies_s = shard.latencies_s, []
        for seconds in latencies:
            metrics.verdict_latency.observe(seconds)
        snapshot = shard.picture.snapshot
        metrics.cache_size.labels("nodes").set(snapshot.node_count)
        metrics.cache_size.labels("assumed_pods").set(snapshot.tentative)
        metrics.unreadable_objects.set(len(shard.picture.unreadable.known))
        metrics.snapshot_lag.set(streams.lag_s)
        metrics.snapshot_sequence.set(snapshot.version.sequence)
        for state, count in shard.statistics().items():
            metrics.held.labels(state).set(count)
        for counter, count in shard.kernel.statistics().items():
            metrics.reuse.labels(counter).set(count)
