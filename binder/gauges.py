"""What is read from the Binder's parts once a second, so that no pod pays for it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from binder.machine import Machine
from stretto.snapshot.resources import ResourceColumn
from stretto.telemetry.binder_metrics import BinderMetrics


class Ages:
    """Since when things have been there, to the period of the looks."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def oldest_s(self, uids: Iterable[str], *, now: float) -> float:
        """Those that are there now; the seconds for which the oldest has been seen, 0 for none."""
        self._since = {uid: self._since.get(uid, now) for uid in uids}
        return now - min(self._since.values(), default=now)


class Collisions:
    """Nodes that are overcommitted, and those that a foreign pod has made so beside pods of ours.

    The kubelet decides who stays (reliability §1.4 m); here it is told that not all can.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        machine.book.rooms.joined.clear()  # what was there when the Binder opened came to nothing
        self._due: set[str] = set()

    def look(self) -> tuple[int, int]:
        """(nodes that are overcommitted, collisions since the last look). Of what came since then
        the columns may not tell yet: it is looked at the next time."""
        cluster, bindings = self._machine.cluster, self._machine.bindings
        over = np.zeros(0, dtype=np.bool_)
        for column in _offered(self._machine):
            more = column.used > column.alloc
            over = more if not over.size else over | more
        due, self._due = self._due, set(self._machine.book.rooms.joined)
        self._machine.book.rooms.joined.clear()
        collisions = 0
        for uid in due:
            node = cluster.nodes.get(uid)
            row = None if node is None else cluster.snapshot.row_of(node.node_id)
            if node is not None and row is not None and over[row]:
                collisions += any(pod in bindings for pod in node.pods)
        return int(over.sum()), collisions


class Gauges:
    """Brings a Binder's gauges up to date."""

    def __init__(self, machine: Machine, metrics: BinderMetrics) -> None:
        self._machine = machine
        self._metrics = metrics
        self._reservations = Ages()
        self._collisions = Collisions(machine)
        self._generations = 0

    def look(self, *, now: float, silence_s: float, generations: int) -> None:
        """``now``: monotonic; ``silence_s``: of the watches; ``generations``: that the ledger has
        begun so far."""
        machine, metrics = self._machine, self._metrics
        metrics.resolving.set(sum(binding.resolving for binding in machine.open.values()))
        metrics.oldest_reservation.set(self._reservations.oldest_s(machine.open, now=now))
        metrics.generations.inc(generations - self._generations)
        self._generations = generations
        metrics.sequence.set(machine.cluster.sequence)
        for event, count in machine.committer.stakes.counts.items():
            metrics.stakes.labels(event).set(count)
        metrics.stake_nodes.set(machine.committer.stakes.kept_nodes)
        metrics.frozen_nodes.set(sum(node.frozen for node in machine.cluster.nodes.values()))
        overcommitted, collisions = self._collisions.look()
        metrics.overcommitted.set(overcommitted)
        metrics.collisions.inc(collisions)
        metrics.unaccounted.set(machine.cluster.quota.unaccounted)
        metrics.cache_size.labels("nodes").set(len(machine.cluster.nodes))
        metrics.cache_size.labels("pods").set(len(machine.cluster.pods))
        metrics.cache_size.labels("assumed_pods").set(len(machine.open))
        metrics.reservations.labels("open").set(len(machine.open))
        metrics.reservations.labels("prebind").set(len(machine.prebinds))
        metrics.reservations.labels("bound").set(len(machine.bindings) - len(machine.open))
        metrics.watch_lag.set(silence_s)
        for column in _offered(machine):
            metrics.allocatable.labels(column.name).set(int(column.alloc.sum()))
            metrics.used.labels(column.name).set(int(column.used.sum()))


def _offered(machine: Machine) -> list[ResourceColumn]:
    """The columns of what nodes offer; what else is counted has a name in brackets."""
    columns = machine.cluster.snapshot.resources.columns.values()
    return [each for each in columns if each.dense and not each.name.startswith("(")]
