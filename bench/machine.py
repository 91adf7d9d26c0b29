"""The conditions of a run: the machine, CPU time of processes from /proc, and what others took."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from stretto.cli.supervisor import CLOCK_TICKS, process_cpu_s

BUSY = 0.10
"""Share of the machine taken by others above which a run is not undisturbed."""


def conditions() -> str:
    """One line about the machine."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    lines = [line for line in text.splitlines() if line.startswith("model name")]
    models = [line.partition(":")[2].strip() for line in lines]
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} CPUs ({models[0] if models else platform.machine()}), "
        f"Python {platform.python_version()}, load before {load:.1f}"
    )


class CpuMeter:
    """CPU seconds of groups of processes since it was made; processes born later count whole."""

    def __init__(self, groups: Mapping[str, list[int]]) -> None:
        self._before = {pid: process_cpu_s(pid) for pids in groups.values() for pid in pids}

    def used(self, groups: Mapping[str, list[int]]) -> dict[str, float]:
        """Seconds by group."""
        return {
            name: sum(process_cpu_s(pid) - self._before.get(pid, 0.0) for pid in pids)
            for name, pids in groups.items()
        }


class Disturbance:
    """What processes that are not part of a run took of the machine while it lasted."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._own = {pid: process_cpu_s(pid) for pid in pids}
        self._busy_s = busy_s()
        self._began = time.monotonic()

    def share(self, pids: Iterable[int]) -> float:
        """Their share of all CPUs' time since this was made, 0 to 1; ``pids`` are the run's."""
        own_s = sum(process_cpu_s(pid) - self._own.get(pid, 0.0) for pid in pids)
        whole_s = (time.monotonic() - self._began) * (os.cpu_count() or 1)
        return min(1.0, max(0.0, (busy_s() - self._busy_s - own_s) / max(whole_s, 1e-9)))


def busy_s() -> float:
    """Seconds that all CPUs together were not idle since the machine started; time that a
    hypervisor gave to others counts as busy."""
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields
    return (user + nice + system + irq + softirq + steal) / CLOCK_TICKS
