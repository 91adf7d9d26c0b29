"""The report of a run: one JSON file with every number, one HTML page with the same and plots.

The page carries everything it shows (style and plots inline), so that it can be mailed. What the
load generator cannot see from outside (conflicts, attempts, the scheduler's own writes and CPU) is
handed in as :class:`Extras` by whoever ran the scheduler; what is not known is left out, never
shown as zero.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from stretto.model.errors import OperatorError
from stretto.workload.load import LoadResult
from stretto.workload.measures import Percentiles
from stretto.workload.page import page_of
from stretto.workload.processes import ProcessUse

WRITES = ("create", "update", "patch", "delete")


class ReportError(OperatorError):
    """A report that cannot be written."""


@dataclass(frozen=True, slots=True)
class Check:
    """An invariant or a goal, and whether it held."""

    name: str
    held: bool
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What only the scheduler's side knows. None and empty mean: not known."""

    title: str = "Load report"
    conditions: dict[str, str] = field(default_factory=dict)
    """Machine, versions, settings: what a reader needs to compare."""
    processes: tuple[ProcessUse, ...] = ()
    """CPU used during the run, and memory."""
    conflicts: dict[str, int] | None = None
    """Lost proposals by cause."""
    attempts: int | None = None
    """Scheduling attempts that the bound pods took, together."""
    api_requests: Mapping[str, dict[str, int]] | None = None
    """The scheduler's own requests, reads too: process → "verb resource" → count."""
    stages: dict[str, Percentiles] = field(default_factory=dict)
    """Times inside the scheduler by its own metrics, in milliseconds (see ``exposition``)."""
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()


def report_data(result: LoadResult, extras: Extras) -> dict[str, Any]:
    """Every number of a run, as plain data."""
    bound = result.counts.bound
    cpu_s = sum(process.cpu_s for process in extras.processes)
    calls = extras.api_requests
    writes = None if calls is None else sum(_writes(each) for each in calls.values())
    return {
        "schema": 1,
        "title": extras.title,
        "run": result.run,
        "settings": _plain_settings(result),
        "conditions": extras.conditions,
        "finished": result.finished,
        "counts": {
            **{k: v for k, v in dataclasses.asdict(result.counts).items() if k != "failures"},
            "unfinished": result.unfinished,
            "deleted_by_generator": result.deleted,
            "nodes_used": result.nodes_used,
        },
        "create_failures": dict(result.counts.failures),
        "waiting_reasons": result.reasons,
        "times_s": {
            "elapsed": result.elapsed_s,
            "creations": result.created_span_s,
            "first_creation_to_last_bind": result.bound_span_s,
            "largest_creation_lag": result.lag_s,
        },
        "pods_per_s": result.pods_per_s,
        "latency_ms": {
            name: dataclasses.asdict(getattr(result, f"{name}_ms"))
            for name in ("created_to_decided", "decided_to_bound", "created_to_bound")
        },
        "stages_ms": {name: dataclasses.asdict(p) for name, p in extras.stages.items()},
        "conflicts": extras.conflicts,
        "conflicts_total": None if extras.conflicts is None else sum(extras.conflicts.values()),
        "attempts": extras.attempts,
        "attempts_per_pod": _ratio(extras.attempts, bound),
        "scheduler_api_requests": calls,
        "api_writes_per_pod": _ratio(writes, bound),
        "generator_api_requests": result.api_calls,
        "processes": [dataclasses.asdict(process) for process in extras.processes],
        "cpu_ms_per_pod": _ratio(cpu_s * 1000, bound) if extras.processes else None,
        "checks": [dataclasses.asdict(check) for check in extras.checks],
        "notes": [*result.notes, *extras.notes],
        "series": {
            "created_per_s": result.created_per_s,
            "bound_per_s": result.bound_per_s,
            "waiting": result.waiting_each_s,
        },
    }


def _writes(calls: dict[str, int]) -> int:
    return sum(n for call, n in calls.items() if call.split()[0] in WRITES)


def _plain_settings(result: LoadResult) -> dict[str, Any]:
    """The settings that had an effect, as JSON takes them, without the paths of this machine."""
    unused = result.settings.unused()
    return {
        key: str(value) if isinstance(value, Path) else value
        for key, value in dataclasses.asdict(result.settings).items()
        if key not in ("kubeconfig", "report") and key not in unused
    }


def _ratio(amount: float | None, pods: int) -> float | None:
    return None if amount is None or not pods else amount / pods


def make_room(path: Path) -> None:
    """Make the folder of a report and see that it can be written, before a load runs for nothing.

    Raises:
        ReportError: the folder cannot be made, or no file of that name be opened in it.
    """
    there = path.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
        if not there:
            path.unlink()
    except OSError as error:
        raise _unwritable(path, error.strerror) from None


def _unwritable(path: str | Path, why: str | None) -> ReportError:
    return ReportError(
        f"the report cannot be written to {path}: {why}; choose another place with --report"
    )


def write_report(
    result: LoadResult,
    extras: Extras | None,
    path_html: Path | None,
    path_json: Path | None,
) -> dict[str, Any]:
    """Write the report where paths are given; returns its data.

    Raises:
        ReportError: a file cannot be written.
    """
    data = report_data(result, extras or Extras())
    try:
        if path_json is not None:
            encoded = msgspec.json.format(msgspec.json.encode(data), indent=1)
            path_json.write_bytes(encoded + b"\n")
        if path_html is not None:
            path_html.write_text(page_of(data, result.bound_ms), encoding="utf-8")
    except OSError as error:
        raise _unwritable(error.filename, error.strerror) from None
    return data
