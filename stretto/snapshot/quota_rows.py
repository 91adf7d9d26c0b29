"""What the log's objects say of quota, told to whoever keeps it."""

from __future__ import annotations

from typing import Protocol

from stretto.model.shape import QUEUE_LABEL
from stretto.quota.rows import (
    QUEUE,
    QUOTA_API,
    USAGE,
    QueueRow,
    UsageRow,
    decode_queue,
    decode_usage,
)
from stretto.snapshot.delta import API_SERVED, NAMESPACE, ObjectRow, decode_labels

QUOTA_KINDS = frozenset({QUEUE, USAGE, NAMESPACE, API_SERVED})
"""Kinds of objects that may say something of quota."""


class Keeper(Protocol):
    """Hears of quota."""

    def served(self, served: bool) -> None:
        """Whether the API server serves queues."""

    def queue(self, name: str, row: QueueRow | None) -> None:
        """A queue is so, or is gone."""

    def usage(self, name: str, row: UsageRow | None) -> None:
        """What a queue has used."""

    def namespace(self, name: str, label: str) -> None:
        """A namespace has this queue label, or none ("")."""


def tell_quota(view: Keeper, row: ObjectRow) -> None:
    """An object of the log is so, or is gone; those of other kinds say nothing of quota.

    Raises:
        msgspec.ValidationError: its payload is something else.
    """
    if row.kind == NAMESPACE:
        labels = {} if row.removed else decode_labels(row.payload)
        view.namespace(row.key, labels.get(QUEUE_LABEL, ""))
    elif row.kind == QUEUE:
        view.queue(row.key, None if row.removed else decode_queue(row.payload))
    elif row.kind == USAGE:
        view.usage(row.key, None if row.removed else decode_usage(row.payload))
    elif row.kind == API_SERVED and row.key == QUOTA_API:
        view.served(not row.removed)
