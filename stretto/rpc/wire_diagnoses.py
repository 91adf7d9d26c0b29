"""Diagnoses ↔ wire: distinct ones once a message, the rest names them by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stretto.model.diagnosis import Diagnosis, Rejected
from stretto.rpc.errors import WireError
from stretto.rpc.wire import exact, full, short


def put_diagnoses(wire: Any, diagnoses: Sequence[Diagnosis]) -> None:
    """Fill ``wire.diagnosis`` and ``wire.diagnoses``, one entry an item."""
    numbers = _put(wire, diagnoses)
    wire.diagnosis.extend(short([numbers[item] for item in diagnoses], 0))


def get_diagnoses(wire: Any, count: int, field: str) -> list[Diagnosis]:
    """Read what :func:`put_diagnoses` wrote.

    Raises:
        WireError: a number names no diagnosis.
    """
    listed = [_get(item) for item in wire.diagnoses]
    numbers = full(wire.diagnosis, count, 0, f"{field}.diagnosis")
    _check(numbers, len(listed) - 1, listed, field)
    return [listed[number] for number in numbers]


def put_some_diagnoses(wire: Any, diagnoses: Sequence[Diagnosis | None]) -> None:
    """The same where an item may have none, which is number 0."""
    numbers = _put(wire, [item for item in diagnoses if item is not None])
    named = [0 if item is None else numbers[item] + 1 for item in diagnoses]
    wire.diagnosis.extend(short(named, 0))


def get_some_diagnoses(wire: Any, count: int, field: str) -> list[Diagnosis | None]:
    """Read what :func:`put_some_diagnoses` wrote; raises as :func:`get_diagnoses` does."""
    listed = [_get(item) for item in wire.diagnoses]
    numbers = full(wire.diagnosis, count, 0, f"{field}.diagnosis")
    _check(numbers, len(listed), listed, field)
    return [listed[number - 1] if number else None for number in numbers]


def _put(wire: Any, diagnoses: Sequence[Diagnosis]) -> dict[Diagnosis, int]:
    numbers: dict[Diagnosis, int] = {}
    for item in diagnoses:
        numbers.setdefault(item, len(numbers))
    for diagnosis in numbers:
        wire.diagnoses.add(
            message=diagnosis.message,
            plugins=diagnosis.plugins,
            nodes=diagnosis.nodes,
            reason=[each.reason for each in diagnosis.rejected],
            count=[each.nodes for each in diagnosis.rejected],
            reason_plugin=[each.plugin for each in diagnosis.rejected],
            unresolvable=[each.unresolvable for each in diagnosis.rejected],
            node_plugin=[plugin for plugin, _ in diagnosis.plugin_nodes],
            plugin_nodes=[nodes for _, nodes in diagnosis.plugin_nodes],
            prefilter=diagnosis.prefilter,
            error=diagnosis.error,
            clears=diagnosis.clears,
            group=diagnosis.group,
            found=diagnosis.found,
            preemption=diagnosis.preemption,
            waits=diagnosis.waits,
        )
    return numbers


def _check(numbers: list[int], highest: int, listed: list[Diagnosis], field: str) -> None:
    if numbers and max(numbers) > highest:
        raise WireError(f"{field}.diagnosis is {max(numbers)} of {len(listed)} diagnoses")


def _get(wire: Any) -> Diagnosis:
    size = len(wire.reason)
    columns = (
        full(wire.reason_plugin, size, "", "Diagnosis.reason_plugin"),
        wire.reason,
        exact(wire.count, size, "Diagnosis.count"),
        full(wire.unresolvable, size, 0, "Diagnosis.unresolvable"),
    )
    nodes = exact(wire.plugin_nodes, len(wire.node_plugin), "Diagnosis.plugin_nodes")
    return Diagnosis(
        message=wire.message,
        plugins=tuple(wire.plugins),
        nodes=wire.nodes,
        rejected=tuple(map(Rejected, *columns)),
        plugin_nodes=tuple(zip(wire.node_plugin, nodes, strict=True)),
        prefilter=wire.prefilter,
        error=wire.error,
        clears=wire.clears,
        group=wire.group,
        found=wire.found,
        preemption=wire.preemption,
        waits=wire.waits,
    )
