"""PodDisruptionBudgets as the Binder publishes them: less what it has begun to spend itself.

The API server counts an eviction against a budget when it accepts it, and the disruption controller
counts a pod when it is gone. Between our decision and their word another unit could be promised the
same disruption; so each victim is *charged* to the budgets that cover it from the decision on,
until its budget was heard of after the eviction had been accepted, or the pod is gone.
"""

from __future__ import annotations

from binder.cluster import Cluster
from stretto.model.shape import Shape
from stretto.snapshot.budgets import (
    BUDGET,
    BudgetRow,
    PodDisruptionBudget,
    budget_of,
    encode_budget,
)


class Budgets:
    """See the module docstring."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rows: dict[str, BudgetRow] = {}
        """As the API has them, by namespace/name."""
        self._charged: dict[str, Shape] = {}
        """Victims by uid."""
        self._accepted: set[str] = set()
        """Those of them whose eviction the API server has accepted."""

    def seen(self, budget: PodDisruptionBudget) -> None:
        """A budget was listed, added or changed."""
        key = f"{budget.metadata.namespace}/{budget.metadata.name}"
        row = budget_of(budget, uid_of=self._cluster.uid_of_pod)
        if row is None:
            self.gone(key)
            return
        self._rows[key] = row
        for uid in [uid for uid in self._accepted if row.covers(self._charged[uid])]:
            self._drop(uid)
        self._publish(key)
        self._publish_keys()

    def gone(self, key: str) -> None:
        """A budget was deleted."""
        if self._rows.pop(key, None) is not None:
            self._cluster.object_seen(BUDGET, key, None)
            self._publish_keys()

    def over(self, shape: Shape) -> int:
        """How many budgets cover pods of a shape."""
        return sum(row.covers(shape) for row in self._rows.values())

    def charge(self, uid: str, shape: Shape) -> None:
        """A pod will be asked to go."""
        # It may be on its way out for an earlier claim already.
        assert uid not in self._accepted or uid in self._charged, f"{uid} goes and is not charged"
        self._charged[uid] = shape
        self._publish_covering(shape)

    def accepted(self, uid: str) -> None:
        """The API server has agreed that a pod goes; its budgets will say so themselves."""
        if uid in self._charged:
            self._accepted.add(uid)

    def discharge(self, uid: str) -> None:
        """A pod is gone, or is not asked to go after all."""
        shape = self._drop(uid)
        if shape is not None:
            self._publish_covering(shape)

    def _drop(self, uid: str) -> Shape | None:
        self._accepted.discard(uid)
        assert len(self._accepted) <= len(self._charged), "accepted and not charged"
        return self._charged.pop(uid, None)

    def _publish_covering(self, shape: Shape) -> None:
        for key, row in self._rows.items():
            if row.covers(shape):
                self._publish(key)

    def _publish(self, key: str) -> None:
        row = self._rows[key]
        ours = {uid for uid, shape in self._charged.items() if row.covers(shape)}
        spent = len(ours.difference(row.disrupted))
        disrupted = tuple(sorted(ours.union(row.disrupted)))
        assert 0 <= spent <= len(disrupted), f"budget {key} gives back more than was spent"
        left = BudgetRow(row.namespace, row.selector, row.allowed - spent, disrupted)
        self._cluster.object_seen(BUDGET, key, encode_budget(left))

    def _publish_keys(self) -> None:
        keys = frozenset(key for row in self._rows.values() for key in row.label_keys())
        self._cluster.read_labels(keys)
