"""The dispatcher's metrics, read from the brain's plain numbers when they are scraped.

kube-scheduler's names and labels are used where it has them; what only Stretto has is named
``stretto_dispatcher_…``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence, Sized

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from dispatcher.contention import PartitionMode
from dispatcher.machine import Machine
from dispatcher.shape_records import Mode
from dispatcher.states import State, pending
from stretto.kube.client import KubeClient
from stretto.kube.events import EventWriter
from stretto.kube.reflector import Reflector
from stretto.model.diagnosis import ALWAYS
from stretto.model.objects import Pod
from stretto.telemetry.metrics import ApiUsage, LeaseMetrics, WatchLosses

QUEUES = {
    "active": (State.ACTIVE,),
    "backoff": (State.BACKOFF,),
    "unschedulable": (State.UNSCHEDULABLE, State.REFUSED),
    "gated": (State.GATED,),
    "incomplete": (State.INCOMPLETE,),
}
"""kube-scheduler's queues, of which states each consists."""

COUNTERS = (
    ("leftover_flushes", "Parked shapes that were tried again although nothing had happened."),
    ("bound_elsewhere", "Pods that others bound while they waited here."),
    ("dispatched", "Units sent to shards."),
    ("batches", "Messages with units sent to shards."),
    ("handed_back", "Units that shards returned undecided."),
    ("overdue", "Units that a living shard held for too long: a defect."),
    ("orphans", "Units that the binder turned out not to own."),
    ("drift", "Pods that an audit found where nothing would have found them: each is a defect."),
    ("late_outcomes", "Outcomes of an attempt that no longer counted."),
    ("shard_deaths", "Streams of shards that ended without draining."),
    ("quarantined", "Units set aside because shards ended while deciding on them."),
)


class DispatcherCollector(Collector):
    """Reads the machine when scraped."""

    def __init__(
        self,
        machine: Machine,
        *,
        client: KubeClient,
        lease: LeaseMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock`` is that of the machine's times."""
        self._machine = machine
        self._clock = clock
        self._client = client
        self._lease = lease
        self.events: Sequence[EventWriter] = ()
        self.unread: Sequence[Sized] = ()
        """Bulky pods that were not read yet, of each watch."""
        self.reflectors: Sequence[Reflector[Pod]] = ()

    def collect(self) -> Iterator[Metric]:
        """Every family, from the numbers as they are now."""
        yield from self._queues()
        yield from self._waits()
        yield from self._attempts()
        yield from self._durations()
        yield from self._ladder()
        yield from self._slow_lane()
        yield from self._shards()
        yield from self._quota()
        yield from self._jobs()
        yield from self._api()
        yield from self._lease.collect()
        yield from WatchLosses(lambda: sum(each.losses for each in self.reflectors)).collect()
        statistics = self._machine.statistics
        for name, text in COUNTERS:
            yield CounterMetricFamily(
                f"stretto_dispatcher_{name}", text, value=getattr(statistics, name)
            )

    def _queues(self) -> Iterator[Metric]:
        pods = pending(self._machine.pods, self._machine.shapes)
        family = GaugeMetricFamily("scheduler_pending_pods", "Pods by queue.", labels=["queue"])
        for queue, states in QUEUES.items():
            unread = sum(map(len, self.unread)) if queue == "active" else 0
            family.add_metric([queue], sum(pods[state] for state in states) + unread)
        yield family
        units = GaugeMetricFamily("stretto_dispatcher_pods", "Pods by state.", labels=["state"])
        for state, count in pods.items():
            units.add_metric([state.value], count)
        yield units
        incoming = CounterMetricFamily(
            "scheduler_queue_incoming_pods", "Pods that entered a queue.", labels=["queue", "event"]
        )
        for (queue, event), count in list(self._machine.statistics.incoming.items()):
            incoming.add_metric([queue, event], count)
        yield incoming
        rejected = GaugeMetricFamily(
            "scheduler_unschedulable_pods",
            "Pods that wait because the plugin rejected nodes.",
            labels=["plugin", "profile"],
        )
        for (plugin, profile), count in self._rejected().items():
            rejected.add_metric([plugin, profile], count)
        yield rejected
        nodes = GaugeMetricFamily(
            "stretto_dispatcher_rejected_nodes",
            "Nodes that the plugin rejected at the last decisions on waiting shapes, added up.",
            labels=["plugin", "profile"],
        )
        for (plugin, profile), count in self._rejected_nodes().items():
            nodes.add_metric([plugin, profile], count)
        yield nodes

    def _waits(self) -> Iterator[Metric]:
        """A look at the heads of the lines: nothing is kept for it on the way of a pod."""
        now, longest = self._clock(), {"active": 0.0, "unschedulable": 0.0}
        for shape in list(self._machine.shapes.by_number.values()):
            if shape.mode is Mode.PARKED and len(shape):
                parked_s = now - shape.parked_at
                longest["unschedulable"] = max(longest["unschedulable"], parked_s)
            elif shape.takeable():
                with contextlib.suppress(StopIteration, RuntimeError):  # taken meanwhile
                    longest["active"] = max(longest["active"], now - shape.head().since)
        family = GaugeMetricFamily(
            "stretto_dispatcher_longest_wait_seconds",
            "Seconds since the last attempt of the line that has waited longest for one, by queue: "
            "active (it may be taken), unschedulable (until something happens that may help).",
            labels=["queue"],
        )
        for queue, seconds in longest.items():
            family.add_metric([queue], seconds)
        yield family

    def _rejected_nodes(self) -> dict[tuple[str, str], int]:
        counts: dict[tuple[str, str], int] = {}
        for shape in list(self._machine.shapes.by_number.values()):
            if shape.diagnosis is None or shape.shape is None or not len(shape):
                continue
            for plugin, nodes in shape.diagnosis.plugin_nodes:
                if plugin:
                    key = (plugin, shape.shape.profile)
                    counts[key] = counts.get(key, 0) + nodes
        return counts

    def _rejected(self) -> dict[tuple[str, str], int]:
        counts: dict[tuple[str, str], int] = {}
        for shape in list(self._machine.shapes.by_number.values()):
            if shape.condition is None or shape.shape is None:
                continue
            for plugin in {name.removesuffix(ALWAYS) for name in shape.plugins}:
                key = (plugin, shape.shape.profile)
                counts[key] = counts.get(key, 0) + len(shape)
        return counts

    def _attempts(self) -> Iterator[Metric]:
        statistics = self._machine.statistics
        attempts = CounterMetricFamily(
            "scheduler_schedule_attempts",
            "Attempts to schedule pods, by result.",
            labels=["result", "profile"],
        )
        for (result, profile), count in list(statistics.attempts.items()):
            attempts.add_metric([result, profile], count)
        yield attempts
        sli = HistogramMetricFamily(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Seconds from the first queueing of a pod to its bind, gated time excluded.",
            labels=["attempts"],
        )
        for name, buckets in list(statistics.sli.items()):
            sli.add_metric([name], buckets=buckets.cumulative(), sum_value=buckets.total)
        yield sli
        per_pod = HistogramMetricFamily(
            "scheduler_pod_scheduling_attempts", "Attempts that a bound pod took."
        )
        tries = statistics.attempts_per_pod
        per_pod.add_metric([], buckets=tries.cumulative(), sum_value=tries.total)
        yield per_pod
        yield CounterMetricFamily(
            "scheduler_pod_scheduled_after_flush",
            "Pods that fitted only after the leftover flush: missed wake-ups, a defect.",
            value=statistics.scheduled_after_flush,
        )
        yield _labelled(
            "stretto_conflicts", "Attempts lost to others.", "cause", statistics.conflicts
        )
        yield _labelled(
            "stretto_condition_patches", "Condition patches.", "result", statistics.patches
        )

    def _ladder(self) -> Iterator[Metric]:
        ladder = self._machine.ladder
        yield CounterMetricFamily(
            "stretto_dispatcher_stake_requests",
            "Attempts of starved units that asked for room to be kept.",
            value=ladder.asked,
        )
        modes = dict.fromkeys(PartitionMode, 0)
        moved = 0
        for shape in list(self._machine.shapes.by_number.values()):
            if shape.contention is not None:
                modes[shape.contention.mode] += 1
                moved += shape.contention.ups
        family = GaugeMetricFamily(
            "stretto_dispatcher_contended_shapes",
            "Shapes that lost proposals to other commits, by the mode in which shards share nodes.",
            labels=["mode"],
        )
        for mode, count in modes.items():
            family.add_metric([mode.name.lower()], count)
        yield family
        yield GaugeMetricFamily(
            "stretto_dispatcher_mode_moves",
            "Moves up of the modes of the shapes that are known now.",
            value=moved,
        )

    def _slow_lane(self) -> Iterator[Metric]:
        machine = self._machine
        shapes = list(machine.shapes.by_number.values())
        pods = GaugeMetricFamily(
            "stretto_dispatcher_slow_lane_pods",
            "Pods of so many parts that they are read and decided apart: not read yet, in line, "
            "with a shard (units).",
            labels=["state"],
        )
        pods.add_metric(["unread"], sum(map(len, self.unread)))
        pods.add_metric(["waiting"], sum(len(shape) for shape in shapes if shape.bulky))
        pods.add_metric(["out"], machine.slow.out)
        yield pods
        yield CounterMetricFamily(
            "stretto_dispatcher_slow_lane_units",
            "Units sent to shards by the slow lane.",
            value=machine.slow.sent,
        )

    def _durations(self) -> Iterator[Metric]:
        statistics = self._machine.statistics
        duration = HistogramMetricFamily(
            "scheduler_scheduling_attempt_duration_seconds",
            "Seconds from sending a unit to a shard to its bind, or to why there is none.",
            labels=["result", "profile"],
        )
        for (result, profile), buckets in list(statistics.attempt_seconds.items()):
            duration.add_metric(
                [result, profile], buckets=buckets.cumulative(), sum_value=buckets.total
            )
        yield duration

    def _quota(self) -> Iterator[Metric]:
        gate = self._machine.quota
        if not gate.on:
            return
        amounts = GaugeMetricFamily(
            "stretto_queue_amount",
            "What the pods of a queue and of those below it take (cpu in milli), by part.",
            labels=["queue", "resource", "part"],
        )
        waiting = GaugeMetricFamily(
            "stretto_queue_waiting", "Pods of the queue that are on no node.", labels=["queue"]
        )
        for node in gate.view.tree:
            usage = gate.view.usage_of(node.name)
            for part, some in (("used", usage.used), ("guaranteed", usage.held)):
                for resource, amount in some:
                    amounts.add_metric([node.name, resource, part], amount)
            waiting.add_metric([node.name], self._machine.queue_status.waiting[node.name])
            for resource, amount in gate.view.owed(node).items():
                amounts.add_metric([node.name, resource, "promised"], amount)
        yield amounts
        yield waiting
        yield CounterMetricFamily(
            "stretto_quota_refusals", "Units that were not sent for want of quota.",
            value=gate.refusals,
        )  # fmt: skip

    def _jobs(self) -> Iterator[Metric]:
        admission = self._machine.admission
        jobs = GaugeMetricFamily(
            "stretto_admission_jobs", "Jobs that ask for admission, by state.", labels=["state"]
        )
        members = GaugeMetricFamily(
            "stretto_admission_members",
            "Members that those Jobs run at once, whether they have pods or not.",
            labels=["state"],
        )
        for state, (count, sum_) in admission.counts().items():
            jobs.add_metric([state], count)
            members.add_metric([state], sum_)
        yield jobs
        yield members
        yield CounterMetricFamily(
            "stretto_admissions", "Jobs that were resumed.", value=admission.writes.admitted
        )

    def _api(self) -> Iterator[Metric]:
        yield from ApiUsage(self._client.usage).collect()
        dropped = sum(writer.dropped for writer in self.events)
        yield CounterMetricFamily(
            "stretto_events_dropped", "Events that were not written.", value=dropped
        )

    def _shards(self) -> Iterator[Metric]:
        shards = self._machine.shards.assignment.shards
        yield GaugeMetricFamily("stretto_shards", "Shards connected.", value=len(shards))
        credit = GaugeMetricFamily(
            "stretto_credits",
            "Units that the shard would still take.",
            labels=["shard"],
        )
        held = GaugeMetricFamily(
            "stretto_dispatcher_shard_held", "Units that the shard holds.", labels=["shard"]
        )
        for shard in list(shards.values()):
            credit.add_metric([shard.name], shard.credits)
            held.add_metric([shard.name], len(shard.held))
        yield credit
        yield held
        yield GaugeMetricFamily(
            "stretto_shapes",
            "Shapes that pending pods have, and some that were had lately.",
            value=len(self._machine.shapes.by_number),
        )
        for name, count in self._machine.lane.statistics().items():
            yield GaugeMetricFamily(
                f"stretto_dispatcher_conditions_{name}", "Conditions to be written.", value=count
            )


def _labelled(name: str, text: str, label: str, values: dict[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for key, count in list(values.items()):
        family.add_metric([key], count)
    return family
