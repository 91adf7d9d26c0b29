"""Units ↔ columns. Units of one pod, which are nearly all, take a path without per-unit member
lists."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from stretto.model.unit import Attempt, Member, Unit, UnitId
from stretto.rpc.errors import WireError
from stretto.rpc.wire import chained, checked_epoch, exact, full, short, slices

_attempt = partial(tuple.__new__, Attempt)
"""From a pair. A named tuple's own constructor is a Python function, and every message brings each
unit's attempt back."""


def unit_ids(column: Iterable[str]) -> list[UnitId]:
    """A column of unit ids as such; to call the type for each would be a Python call each."""
    return list(column)  # type: ignore[arg-type]


def attempts_of(epochs: Iterable[int], numbers: Iterable[int]) -> list[Attempt]:
    """Attempts from their two columns, which are equally long."""
    return list(map(_attempt, zip(epochs, numbers, strict=True)))


def put_attempts(wire: Any, attempts: list[Attempt]) -> None:
    """Fill ``attempt`` and ``dispatcher_epoch``."""
    wire.attempt.extend([attempt[1] for attempt in attempts])
    wire.dispatcher_epoch.extend(short([attempt[0] for attempt in attempts], 0))


def get_attempts(wire: Any, count: int, field: str) -> list[Attempt]:
    """Read ``attempt`` and ``dispatcher_epoch``."""
    numbers = exact(wire.attempt, count, f"{field}.attempt")
    epochs = full(wire.dispatcher_epoch, count, 0, f"{field}.dispatcher_epoch")
    checked_epoch(max(numbers, default=0), f"{field}.attempt")
    checked_epoch(max(epochs, default=0), f"{field}.dispatcher_epoch")
    return attempts_of(epochs, numbers)


def put_units(wire: Any, units: list[Unit]) -> None:
    """Fill a ``Units`` message."""
    ids: list[str] = [unit.unit_id for unit in units]
    wire.unit_id.extend(ids)
    put_attempts(wire, [unit.attempt for unit in units])
    wire.min_sequence.extend(short([unit.min_sequence for unit in units], 0))
    counts = [len(unit.members) for unit in units]
    wire.member_count.extend(short(counts, 1))
    pods = chained([unit.members for unit in units])
    uids: list[str] = [pod.uid for pod in pods]
    if uids != ids:
        wire.pod_uid.extend(uids)
    wire.pod_namespace.extend(short([pod.namespace for pod in pods], ""))
    wire.pod_name.extend([pod.name for pod in pods])
    wire.resource_version.extend(short([pod.resource_version for pod in pods], 0))
    wire.shape.extend(short([pod.shape for pod in pods], 0))
    documents = [pod.document for pod in pods]
    if any(documents):
        wire.document.extend(documents)
    avoids = [unit.avoid for unit in units]
    if any(avoids):
        wire.avoid_count.extend([len(avoid) for avoid in avoids])
        wire.avoid.extend(chained(avoids))
    wire.own.extend(short([int(unit.own) for unit in units], 0))
    wire.stake.extend(short([int(unit.stake) for unit in units], 0))


def get_units(wire: Any, field: str) -> list[Unit]:
    """Read a ``Units`` message.

    Raises:
        WireError: columns that do not fit together, or a unit without members.
    """
    ids = unit_ids(wire.unit_id)
    count = len(ids)
    counts = full(wire.member_count, count, 1, f"{field}.member_count")
    pods = _get_members(wire, ids, sum(counts), field)
    if 0 in counts:
        raise WireError(f"{field}.member_count is 0 for unit {ids[counts.index(0)]!r}")
    owned: list[tuple[Member, ...]]
    owned = list(zip(pods, strict=True)) if len(pods) == count else slices(pods, counts, field)
    sequences = full(wire.min_sequence, count, 0, f"{field}.min_sequence")
    attempts = get_attempts(wire, count, field)
    if not (wire.avoid_count or wire.avoid or wire.own or wire.stake):
        return list(map(Unit, ids, attempts, owned, sequences))
    avoid_counts = full(wire.avoid_count, count, 0, f"{field}.avoid_count")
    avoids = slices(list(wire.avoid), avoid_counts, f"{field}.avoid")
    own = map(bool, full(wire.own, count, 0, f"{field}.own"))
    stake = map(bool, full(wire.stake, count, 0, f"{field}.stake"))
    return list(map(Unit, ids, attempts, owned, sequences, avoids, own, stake))


def _get_members(wire: Any, ids: list[UnitId], total: int, field: str) -> list[Member]:
    if total > len(wire.pod_name):
        # Before any list is made: a count from the wire must not decide how much memory is taken.
        raise WireError(
            f"{field}.member_count adds up to {total}; pod_name has {len(wire.pod_name)} entries"
        )
    uids: list[Any] = list(wire.pod_uid or ids)
    return list(
        map(
            Member,
            exact(uids, total, f"{field}.pod_uid"),
            full(wire.pod_namespace, total, "", f"{field}.pod_namespace"),
            exact(wire.pod_name, total, f"{field}.pod_name"),
            full(wire.resource_version, total, 0, f"{field}.resource_version"),
            full(wire.shape, total, 0, f"{field}.shape"),
            full(wire.document, total, b"", f"{field}.document"),
        )
    )
