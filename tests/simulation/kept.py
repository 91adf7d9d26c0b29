"""What the roles of a simulation keep: how much is in each of their containers (R26).

Looked for in every object of our own classes that the garbage collector knows, so that nothing can
be forgotten. What is bounded by its construction is left out: rings, and the logs that are cut by
count or bytes, which a short run would only see grow.
"""

from __future__ import annotations

import gc
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

ROLES = ("binder.", "dispatcher.", "scheduler_shard.", "stretto.")
NOT_OURS = ("stretto.simulator.",)
"""The API server of the simulation, which keeps every version."""
BOUNDED = {
    "stretto.snapshot.changes.ChangeLog._items": "65,536 items",
    "binder.log.Log._steps": "--log-bytes",
    "dispatcher.wakeups.Wakeups._steps": "4,096 steps",
    "scheduler_shard.worker.Shard.latencies_s": "taken each second by the shard's metrics",
}
"""And by what."""


def kept() -> Counter[str]:
    """Class and attribute → how much is in such containers, of all objects together, with those
    that are inside of them."""
    gc.collect()
    found: Counter[str] = Counter()
    for owner in gc.get_objects():
        kind = type(owner)
        module = str(kind.__module__)
        if not module.startswith(ROLES) or module.startswith(NOT_OURS):
            continue
        for name, value in _attributes(owner):
            found[f"{module}.{kind.__qualname__}.{name}"] += _within(value)
    return Counter({key: count for key, count in found.items() if count and key not in BOUNDED})


def _attributes(owner: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(owner, "__dict__", {}).items()
    for base in type(owner).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(owner, name):
                yield name, getattr(owner, name)


def _within(value: Any) -> int:
    """Entries of a container that may grow, and of the containers in it."""
    if isinstance(value, dict):
        return len(value) + sum(map(_within, value.values()))
    if isinstance(value, list | set) or (isinstance(value, deque) and value.maxlen is None):
        return len(value) + sum(map(_within, value))
    return sum(map(_within, value)) if isinstance(value, tuple) else 0
