"""`stretto loadgen`: drive a cluster with pods, show how far it is, write the report."""

from __future__ import annotations

import asyncio
import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from stretto.cli.runner import run_role
from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.workload.load import LoadResult, Progress, run_load
from stretto.workload.outcome import outcome
from stretto.workload.processes import machine_conditions
from stretto.workload.report import Extras, make_room, write_report
from stretto.workload.settings import LoadSettings

LINE_EVERY_S = 5.0
"""Without a terminal, a line is printed so often."""


class LiveProgress:
    """Progress of a run: a picture that renews itself on a terminal, lines elsewhere."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, transient=True, refresh_per_second=4)
        self._next_line_s = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def show(self, progress: Progress) -> None:
        """The state of now."""
        if self._console.is_terminal:
            self._live.update(self._picture(progress))
        elif progress.elapsed_s >= self._next_line_s:
            self._next_line_s = progress.elapsed_s + LINE_EVERY_S
            sys.stderr.write(
                f"{progress.elapsed_s:6.1f} s  created {progress.created}  bound {progress.bound}  "
                f"waiting {progress.waiting} (told why: {progress.told})  "
                f"{progress.bound_per_s:.0f} binds/s\n"
            )

    def _picture(self, progress: Progress) -> Table:
        table = Table(title=self._title, show_header=False, box=None)
        total = progress.total or progress.created or 1
        for name, value in (("created", progress.created), ("bound", progress.bound)):
            bar = ProgressBar(total=total, completed=value, width=40)
            table.add_row(name, bar, f"{value} of {total}")
        waiting = f"{progress.waiting} (told why: {progress.told})"
        table.add_row("waiting", waiting, f"{progress.bound_per_s:.0f} binds/s")
        table.add_row("elapsed", f"{progress.elapsed_s:.0f} s", progress.problem)
        return table


def summary(result: LoadResult) -> str:
    """The numbers for a terminal."""
    times = result.created_to_bound_ms
    lines = [
        f"created {result.counts.created}, bound {result.counts.bound}, "
        f"unfinished {result.unfinished}, failed to create {result.counts.create_failed}",
    ]
    if times.count:
        lines.append(
            f"{result.pods_per_s:.0f} binds/s from the first to the last; created→bound "
            f"p50 {times.p50:.1f} ms, p90 {times.p90:.1f} ms, p99 {times.p99:.1f} ms "
            f"of {times.count} pods"
        )
    lines += [f"  {count} pods wait: {reason}" for reason, count in result.reasons.items()]
    return "\n".join(lines)


async def load(settings: LoadSettings, *, stop: asyncio.Event) -> int:
    """Run the load and write the report; the code of :func:`stretto.workload.outcome.outcome`."""
    if settings.report is not None:
        make_room(settings.report)
    path = settings.kubeconfig
    config = await KubeConfig.from_file(path) if path else KubeConfig.in_cluster()
    async with KubeClient(config) as client:
        with LiveProgress("stretto loadgen") as live:
            result = await run_load(settings, client=client, progress=live.show, stop=stop)
    sys.stdout.write(summary(result) + "\n")
    if settings.report is not None:
        extras = Extras(title="stretto loadgen", conditions=machine_conditions())
        write_report(result, extras, settings.report, settings.report.with_suffix(".json"))
        sys.stdout.write(f"report: {settings.report}\n")
    code, why = outcome(result)
    if why:
        sys.stderr.write(f"stretto loadgen: {why}\n")
    return code


def loadgen_command(settings: LoadSettings) -> int:
    """Entry point of `stretto loadgen`."""
    return run_role(lambda stop: load(settings, stop=stop))
