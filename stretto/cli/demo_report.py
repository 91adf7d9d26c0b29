"""The report of `stretto demo`: what the load generator saw, and what the roles say of
themselves."""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from collections.abc import Mapping

from stretto.cli.loadgen import summary
from stretto.model.errors import OperatorError
from stretto.workload.exposition import Reading
from stretto.workload.load import LoadResult
from stretto.workload.processes import ProcessUse, machine_conditions
from stretto.workload.report import Check, Extras, write_report

STAGES = {
    "verdict on a proposal": "stretto_verdict_latency_seconds",
    "ledger call": "stretto_ledger_call_duration_seconds",
    "binding request": "stretto_bind_duration_seconds",
}


@dataclasses.dataclass(frozen=True)
class Inside:
    """What the roles' own metrics counted during the run."""

    by_role: Mapping[str, Reading]
    all: Reading

    @classmethod
    def between(cls, before: Mapping[str, str], after: Mapping[str, str]) -> Inside:
        """From the pages of /metrics at the start and at the end, by role."""
        roles = {
            name: Reading([page]).since(Reading([before.get(name, "")]))
            for name, page in after.items()
        }
        return cls(roles, Reading(after.values()).since(Reading(before.values())))

    def requests(self, role: str) -> dict[str, int]:
        """Requests of a role to the API server, "verb resource" → count."""
        found: dict[str, int] = {}
        for pairs, count in self.by_role[role].family("stretto_api_requests_total").items():
            labels = dict(pairs)
            key = f"{labels['verb']} {labels['resource']}"
            found[key] = found.get(key, 0) + round(count)
        return {key: count for key, count in found.items() if count}


def extras_of(
    inside: Inside, *, shards: int, use: tuple[ProcessUse, ...], checks: list[Check]
) -> Extras:
    """What the report shows beside what the load generator saw."""
    found = {title: inside.all.histogram_ms(name) for title, name in STAGES.items()}
    return Extras(
        title="stretto demo: the openb GPU cluster trace",
        conditions={
            **machine_conditions(),
            "shards": str(shards),
            "cluster": "simulated API server over HTTP, 1,213 GPU nodes",
            "ledger": "Valkey, embedded, append-only file fsynced every second",
        },
        processes=use,
        conflicts=inside.by_role["binder"].by_label("stretto_conflicts_total", "cause"),
        attempts=round(inside.all.total("scheduler_pod_scheduling_attempts_sum")),
        api_requests={role: inside.requests(role) for role in ("dispatcher", "binder")},
        stages={title: times for title, times in found.items() if times is not None},
        checks=tuple(checks),
    )


def report(result: LoadResult, extras: Extras, *, folder: pathlib.Path) -> None:
    """Write the report and print its short form.

    Raises:
        OperatorError: the folder cannot be written to.
    """
    html = folder / "report.html"
    try:
        data = write_report(result, extras, html, folder / "report.json")
    except OSError as error:
        raise OperatorError(f"the report cannot be written to {folder}: {error}") from None
    sys.stdout.write(summary(result) + "\n")
    for role, calls in (extras.api_requests or {}).items():
        most = ", ".join(f"{n} {call}" for call, n in sorted(calls.items(), key=by_count)[:4])
        sys.stdout.write(f"{sum(calls.values())} API requests of the {role}: {most}\n")
    sys.stdout.write(
        f"{data['attempts_per_pod'] or 0:.2f} attempts and {data['api_writes_per_pod'] or 0:.2f} "
        f"API writes per bound pod; {extras.conditions['CPUs']} CPUs\n\n"
    )
    bound = max(1, result.counts.bound)
    for each in extras.processes:
        micros = each.cpu_s / bound * 1e6
        sys.stdout.write(
            f"  {each.name:<11} {each.cpu_s:6.1f} s CPU  {micros:6.0f} µs per bound pod  "
            f"{each.peak_mib:5.0f} MiB peak\n"
        )
    sys.stdout.write("\n")
    for check in extras.checks:
        mark = "held  " if check.held else "BROKEN"
        sys.stdout.write(f"  {mark} {check.name}: {check.detail}\n")
    good = all(check.held for check in extras.checks)
    verdict = "every invariant held" if good else "AN INVARIANT IS BROKEN"
    sys.stdout.write(f"\n{verdict}; report: {html}\n")


def by_count(item: tuple[str, int]) -> int:
    """Sort key: the most frequent request first."""
    return -item[1]
