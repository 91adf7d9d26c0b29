"""Objects of the Binder's log that this release cannot decode.

They can be met only while the processes are of different releases, or by a defect; then one bad
object must not end a shard, and all others after it when they read the same log. It is taken for
absent: what needs it is not placed, and what a shard proposes all the same the Binder checks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from stretto.model import devices
from stretto.model.groups import POD_GROUP, decode_group
from stretto.quota.rows import QUEUE, USAGE, decode_queue, decode_usage
from stretto.snapshot.budgets import BUDGET, budgets
from stretto.snapshot.delta import (
    LABEL_KEYS,
    NAMESPACE,
    Delta,
    ObjectRow,
    decode_label_keys,
    decode_labels,
)
from stretto.snapshot.nominations import NOMINATION, decode_nomination
from stretto.snapshot.stakes import STAKE, decode_stake
from stretto.snapshot.volume_rows import STORAGE_KINDS, decode_storage
from stretto.snapshot.workloads import (
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    SERVICE,
    STATEFUL_SET,
    decode_selector,
)

DECODERS: Mapping[str, Callable[[bytes], object]] = {
    NAMESPACE: decode_labels,
    LABEL_KEYS: decode_label_keys,
    NOMINATION: decode_nomination,
    STAKE: decode_stake,
    BUDGET: lambda payload: budgets({"": payload}),
    POD_GROUP: decode_group,
    QUEUE: decode_queue,
    USAGE: decode_usage,
    devices.SLICE: devices.decode_slice,
    devices.CLASS: devices.decode_class,
    devices.CLAIM: devices.decode_claim,
    devices.TAINT_RULE: devices.decode_taint_rule,
    **dict.fromkeys((SERVICE, REPLICATION_CONTROLLER, REPLICA_SET, STATEFUL_SET), decode_selector),
    **{kind: partial(decode_storage, kind) for kind in STORAGE_KINDS},
}
"""By kind: what raises :class:`msgspec.MsgspecError` if a payload is not what the kind says. Kinds
that are not here have no payload, or nobody reads it."""


class Unreadable:
    """The bad objects of a picture."""

    def __init__(self) -> None:
        self.known: set[tuple[str, str]] = set()
        """(kind, key) of those that are there now."""
        self.fresh: list[str] = []
        """A line on each that was not told yet."""

    def sort_out(self, delta: Delta) -> None:
        """Turn the bad objects of a step into absent ones."""
        objects = delta.objects
        for i, row in enumerate(objects):
            problem = _problem(row)
            if problem:
                self.known.add((row.kind, row.key))
                self.fresh.append(f"{row.kind} {row.key} is taken for absent: {problem}")
                objects[i] = ObjectRow(row.kind, row.key, row.version, removed=True)
            else:
                self.known.discard((row.kind, row.key))

    def clear(self) -> None:
        """A full state follows."""
        self.known.clear()

    def take(self) -> list[str]:
        """What was not told yet."""
        fresh, self.fresh = self.fresh, []
        return fresh


def _problem(row: ObjectRow) -> str:
    decode = None if row.removed else DECODERS.get(row.kind)
    if decode is None:
        return ""
    try:
        decode(row.payload)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        return " ".join(str(error).split())[:200] or type(error).__name__
    return ""
